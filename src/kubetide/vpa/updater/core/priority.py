"""Which pod is next, and why.

For one pod, over the containers that the webhook saw when it was made (all of them where it left no note):

    outside      some request lies outside [lowerBound, upperBound], or is missing
    scale up     some target is above the request, or the request is missing
    diff         sum over resources of |request - target| / request, on pod totals (a request below 1m counts as 1m)
    quick OOM    a container was OOM-killed within 10 minutes of its start

A pod is changed when it is outside, or was OOM killed quickly and something differs, or is 12 hours old and differs by
10 %. Pods that need more come first, then the larger difference.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kubetide.api.objects.core import Container, ContainerStateTerminated, Pod
from kubetide.api.objects.resources import Amounts, parse_list
from kubetide.api.objects.vpa import EvictionRequirement
from kubetide.api.values.quantity import Quantity
from kubetide.vpa.core.pod_level import WHOLE_POD, own_resources
from kubetide.vpa.core.policy import Recommended

OBSERVED_CONTAINERS = "vpaObservedContainers"
"""Annotation of the webhook: the containers it saw, joined by a comma and a space."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_LONGEST_LABEL = 63
_ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)


Fitting = Mapping[str, Recommended]
"""The recommendation fitted to a pod, by container name; `WHOLE_POD` names the pod itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """How far a pod is from its recommendation."""

    outside: bool
    scale_up: bool
    diff: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRules:
    """When a difference is worth a disruption."""

    minimum_change: float = 0.1
    minimum_age: timedelta = timedelta(hours=12)
    quick_oom: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A pod with its priority and whether it should be changed, with the reason either way."""

    pod: Pod
    priority: Priority
    accepted: bool
    reason: str


def actual_requests(pod: Pod, container: Container) -> Amounts:
    """Return what a container requests: as the kubelet reports it where it does, else as the spec says."""
    for status in pod.status.container_statuses or ():
        if status.name == container.name and status.resources is not None:
            return parse_list(status.resources.requests)
    return parse_list(container.resources.requests if container.resources else None)


def observed_containers(pod: Pod) -> frozenset[str] | None:
    """Return the containers that the webhook saw, or None when its note is absent or unreadable."""
    text = (pod.metadata.annotations or {}).get(OBSERVED_CONTAINERS)
    if text is None:
        return None
    if not text:
        return frozenset()
    names = text.split(", ")
    valid = all(len(name) <= _LONGEST_LABEL and _LABEL.fullmatch(name) for name in names)
    return frozenset(names) if valid else None


def prioritize(pod: Pod, fitting: Fitting) -> Priority:
    """Measure how far the pod is from its adjusted recommendation."""
    outside = scale_up = False
    observed = observed_containers(pod)
    asked: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for bounds, requests in _compared(pod, fitting, observed):
        for resource, target in bounds.target.items():
            wanted[resource] = wanted.get(resource, 0) + target.milli
            request = requests.get(resource)
            if request is None:
                outside = scale_up = True
                continue
            asked[resource] = asked.get(resource, 0) + request.milli
            scale_up = scale_up or target.milli > request.milli
            outside = outside or _outside(request, resource, bounds)
    diff = sum(_relative(asked.get(resource, 0), amount) for resource, amount in wanted.items())
    return Priority(outside=outside, scale_up=scale_up, diff=diff)


def _compared(
    pod: Pod, fitting: Fitting, observed: frozenset[str] | None
) -> Iterator[tuple[Recommended, Mapping[str, Quantity]]]:
    """Yield what is recommended and what is requested: container by container, then by the pod as a whole."""
    for container in pod.spec.containers or ():
        bounds = fitting.get(container.name)
        if bounds is not None and (observed is None or container.name in observed):
            yield bounds, actual_requests(pod, container)
    if WHOLE_POD in fitting:
        yield fitting[WHOLE_POD], own_resources(pod).requests


def quick_oom(pod: Pod, *, within: timedelta, scaled: Callable[[str], bool]) -> bool:
    """Return whether a container that is scaled ran out of memory soon after its start."""
    observed = observed_containers(pod)
    for status in pod.status.container_statuses or ():
        if observed is not None and status.name not in observed:
            continue
        terminated = status.last_state.terminated if status.last_state else None
        if terminated is None or terminated.reason != "OOMKilled" or not scaled(status.name):
            continue
        if _ran(terminated) < within:
            return True
    return False


def rank(pod: Pod, fitting: Fitting, rules: RankRules, *, scaled: Callable[[str], bool], now: datetime) -> Ranked:
    """Decide whether a pod should be changed, leaving aside whether it may be."""
    priority = prioritize(pod, fitting)
    accepted, reason = _judge(pod, priority, rules, scaled=scaled, now=now)
    if not any(one.target for one in fitting.values()):
        # Nothing to compare with is not the same as fitting in.
        accepted, reason = False, "there is no recommendation that its containers could take"
    return Ranked(pod=pod, priority=priority, accepted=accepted, reason=reason)


def in_order(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Return the accepted ones, those that need more first, then by difference; equal ones keep their order."""
    accepted = [entry for entry in ranked if entry.accepted]
    return sorted(accepted, key=lambda entry: (not entry.priority.scale_up, -entry.priority.diff))


def admitted(pod: Pod, fitting: Fitting, requirements: Sequence[EvictionRequirement] | None) -> bool:
    """Return whether the eviction requirements let the pod go; None means that the VPA has no update policy."""
    if requirements is None:
        return True
    for bounds, requests in _compared(pod, fitting, None):
        if "cpu" not in requests or "memory" not in requests:
            return True
        if all(_holds(requirement, bounds.target, requests) for requirement in requirements):
            return True
    return False


def _judge(
    pod: Pod, priority: Priority, rules: RankRules, *, scaled: Callable[[str], bool], now: datetime
) -> tuple[bool, str]:
    if quick_oom(pod, within=rules.quick_oom, scaled=scaled):
        if priority.diff == 0:
            return False, "a container ran out of memory soon after its start, but nothing would change"
        return True, "a container ran out of memory soon after its start"
    if priority.outside:
        return True, "a request is outside the recommended range"
    if pod.status.start_time is None:
        return False, "within the recommended range, and the pod has not started"
    age = now - pod.status.start_time
    if age < rules.minimum_age:
        return False, f"within the recommended range, and the pod is younger than {_hours(rules.minimum_age)}"
    if priority.diff < rules.minimum_change:
        return False, f"within the recommended range, and the difference is below {rules.minimum_change:.0%}"
    return True, f"the pod is older than {_hours(rules.minimum_age)} and differs by {priority.diff:.0%}"


def _hours(span: timedelta) -> str:
    return f"{span.total_seconds() / 3600:g} hours"


def _holds(requirement: EvictionRequirement, target: Mapping[str, Quantity], requests: Mapping[str, Quantity]) -> bool:
    """Return whether some of the resources changes in the wanted direction."""
    for resource in requirement.resources or ():
        wanted = target[resource].milli if resource in target else 0
        has = requests[resource].milli if resource in requests else 0
        if requirement.change_requirement == "TargetHigherThanRequests" and wanted > has:
            return True
        if requirement.change_requirement == "TargetLowerThanRequests" and wanted < has:
            return True
    return False


def _outside(request: Quantity, resource: str, bounds: Recommended) -> bool:
    lower, upper = (bounds.lower or {}).get(resource), (bounds.upper or {}).get(resource)
    return (lower is not None and request < lower) or (upper is not None and request > upper)


def _relative(asked: int, wanted: int) -> float:
    base = max(float(asked), 1.0)
    return abs(base - float(wanted)) / base


def _ran(terminated: ContainerStateTerminated) -> timedelta:
    """Return how long a container ran; a missing time is the zero time, as in the API."""
    return (terminated.finished_at or _ZERO_TIME) - (terminated.started_at or _ZERO_TIME)
