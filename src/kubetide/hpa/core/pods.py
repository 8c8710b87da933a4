"""Which pods count: every pod of the target is ignored, unready, missing or ready, the first that applies.

    ignored   being deleted, or failed: its sample says nothing about the load to come
    unready   pending, or (cpu only) still starting: start-up burns CPU that is not load
    missing   no sample: unknown, which is neither idle nor busy
    ready     the rest

For CPU a pod is starting while it is younger than the initialization period and either not Ready or measured from
before it became Ready; and later, if it never became ready after the initial readiness delay. A pod that was ready
and lost it is ready here: it serves no load, but it has shown what load it serves.

What they request, in thousandths, is the denominator of utilization:

    container way   sum of containers and sidecars, each rounded up; one that requests nothing is an error
    pod-level way   max(running, starting), then pod-level requests replace, then overhead is added; rounded up once

The pod-level way is taken by a pod that has a pod-level request of cpu, memory or huge pages, whichever resource the
metric is about: such a pod is sized as a whole, so what the scheduler counts for it is what its usage is measured by.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from kubetide.api.objects import resources
from kubetide.api.objects.core import Container, Pod
from kubetide.api.objects.hpa_compat import CONTAINER_MUST_EXIST, POD_LEVEL_REQUESTS, HpaCompat
from kubetide.api.values.conditions import Condition, find_condition
from kubetide.api.values.quantity import milli_value
from kubetide.errors import QuantityError
from kubetide.hpa.core.samples import ZERO_TIME, ErrorKind, MetricFailure, Sample

CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessRules:
    """How long after its start a pod's CPU usage is distrusted."""

    cpu_initialization_period: timedelta = timedelta(minutes=5)
    initial_readiness_delay: timedelta = timedelta(seconds=30)


class PodList(tuple[Pod, ...]):
    """The pods of a target, no two of one name, with what follows from them alone worked out once.

    Whoever looks at a target every few seconds finds the same pods again and again. Given the same list, the requests
    need not be read off every pod each time, and only those pods are looked at that may not be ready.
    """

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self.requests: dict[tuple[str, str, HpaCompat], Mapping[str, int]] = {}
        self._steady = sorted(
            (started, position)
            for position, pod in enumerate(self)
            if (started := pod.status.start_time) is not None and _runs_ready(pod)
        )
        self._settled: dict[str, None] = {}
        self._others: Sequence[Pod] = self

    def settled(
        self, resource: str, rules: ReadinessRules, *, now: datetime
    ) -> tuple[Mapping[str, None], Sequence[Pod]]:
        """Return the names of those that are Ready and too old to be starting, and all others.

        With a sample the former are ready; nothing else about them matters.
        """
        count = len(self._steady)
        if resource == CPU:
            period = rules.cpu_initialization_period
            count = bisect_left(self._steady, True, key=lambda steady: now - steady[0] < period)
        if count != len(self._settled):
            positions = {position for _, position in self._steady[:count]}
            self._settled = {self[position].metadata.name: None for position in sorted(positions)}
            self._others = [pod for position, pod in enumerate(self) if position not in positions]
        return self._settled, self._others


def _runs_ready(pod: Pod) -> bool:
    condition = ready_condition(pod)
    return (
        pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ("Failed", "Pending")
        and condition is not None
        and condition.status != "False"
    )


class PodGroups(msgspec.Struct, frozen=True):
    """Names by group; ready pods are only counted."""

    ready: int
    unready: tuple[str, ...]
    missing: tuple[str, ...]
    ignored: tuple[str, ...]


def group_pods(
    pods: Iterable[Pod],
    samples: Mapping[str, Sample],
    resource: str,
    rules: ReadinessRules,
    *,
    now: datetime,
    passed_over: Collection[str] = (),
) -> PodGroups:
    """Put every pod into its group. `passed_over` names pods that are to be ignored for reasons of the caller."""
    ready = 0
    if isinstance(pods, PodList) and not passed_over:
        settled, others = pods.settled(resource, rules, now=now)
        if settled.keys() <= samples.keys():
            ready, pods = len(settled), others
    unready: list[str] = []
    missing: list[str] = []
    ignored: list[str] = []
    for pod in pods:
        name = pod.metadata.name
        phase = pod.status.phase
        if pod.metadata.deletion_timestamp is not None or phase == "Failed" or name in passed_over:
            ignored.append(name)
        elif phase == "Pending":
            unready.append(name)
        elif (sample := samples.get(name)) is None:
            missing.append(name)
        elif resource == CPU and is_starting(pod, sample, rules, now=now):
            unready.append(name)
        else:
            ready += 1
    return PodGroups(ready, tuple(unready), tuple(missing), tuple(ignored))


def is_starting(pod: Pod, sample: Sample, rules: ReadinessRules, *, now: datetime) -> bool:
    """Return whether the CPU sample of a pod shows its start rather than its load."""
    condition = ready_condition(pod)
    started = pod.status.start_time
    if condition is None or started is None:
        return True
    changed = condition.last_transition_time or ZERO_TIME
    not_ready = condition.status == "False"
    # Differences instead of sums: a sum may lie beyond the last year that a date can have.
    if now - started < rules.cpu_initialization_period:
        return not_ready or sample.timestamp - changed < sample.window
    return not_ready and changed - started < rules.initial_readiness_delay


def ready_condition(pod: Pod) -> Condition | None:
    """Return the condition that says whether a pod is Ready."""
    return find_condition(pod.status.conditions, "Ready")


def count_ready(pods: Sequence[Pod], *, passed_over: Collection[str] = ()) -> int:
    """Count the pods that run and are Ready, terminating ones included."""
    if not pods:
        raise MetricFailure(ErrorKind.NO_PODS, "the selector matches no pod")
    return sum(
        pod.status.phase == "Running" and pod.metadata.name not in passed_over and _is_ready(pod) for pod in pods
    )


def _is_ready(pod: Pod) -> bool:
    condition = ready_condition(pod)
    return condition is not None and condition.is_true


def pod_requests(pods: Iterable[Pod], resource: str, compat: HpaCompat, container: str = "") -> Mapping[str, int]:
    """Return the request of each pod: all of it, or that of one container.

    A request that is missing makes the percentage of the whole target meaningless, so it is an error.
    """
    if not isinstance(pods, PodList):
        return _requests(pods, resource, compat, container)
    asked = (resource, container, compat)
    found = pods.requests.get(asked)
    if found is None:
        found = pods.requests[asked] = _requests(pods, resource, compat, container)
    return found


def has_pod_level_requests(pod: Pod) -> bool:
    """Return whether a pod is sized as a whole."""
    requests = pod.spec.resources.requests if pod.spec.resources is not None else None
    return any(resources.is_pod_level(name) for name in requests or ())


def _requests(pods: Iterable[Pod], resource: str, compat: HpaCompat, container: str) -> dict[str, int]:
    whole = compat.has(POD_LEVEL_REQUESTS) and not container
    must_exist = compat.has(CONTAINER_MUST_EXIST)
    requests: dict[str, int] = {}
    for pod in pods:
        if whole and has_pod_level_requests(pod):
            requests[pod.metadata.name] = _pod_level(pod, resource)
            continue
        counted = _running(pod)
        if container:
            counted = [one for one in counted if one.name == container]
            if must_exist:
                if not counted:
                    raise MetricFailure(
                        ErrorKind.CONTAINER_NOT_FOUND,
                        f"pod {pod.metadata.name} has no container {container}; a rollout that adds the container "
                        "fails the metric until the pods without it are gone",
                    )
                counted = counted[:1]
        requests[pod.metadata.name] = sum([_container(pod, one, resource) for one in counted])
    return requests


def _running(pod: Pod) -> Sequence[Container]:
    """Return the containers that run side by side: the regular ones, then the sidecars."""
    sidecars = [one for one in pod.spec.init_containers or () if resources.is_sidecar(one)]
    return (*(pod.spec.containers or ()), *sidecars)


def _container(pod: Pod, container: Container, resource: str) -> int:
    requests = container.resources.requests if container.resources is not None else None
    text = (requests or {}).get(resource)
    if text is None:
        raise MetricFailure(
            ErrorKind.MISSING_REQUEST,
            f"container {container.name} of pod {pod.metadata.name} requests no {resource}",
        )
    try:
        return milli_value(text)
    except QuantityError as error:
        raise MetricFailure(
            ErrorKind.MISSING_REQUEST, f"the {resource} request of container {container.name}: {error}"
        ) from error


def _pod_level(pod: Pod, resource: str) -> int:
    """Return what the scheduler counts for a pod."""
    try:
        counted = resources.pod_requests(pod).get(resource)
    except QuantityError as error:
        raise MetricFailure(ErrorKind.MISSING_REQUEST, f"the requests of pod {pod.metadata.name}: {error}") from error
    if counted is None:
        raise MetricFailure(ErrorKind.MISSING_REQUEST, f"pod {pod.metadata.name} requests no {resource}")
    return counted.milli
