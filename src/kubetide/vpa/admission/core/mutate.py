"""A pod and its recommendation to a patch.

    fit(...)             what every container of the pod gets: adjusted to policy and LimitRanges, and to what the
                         safety rules allow; a container that the API server would refuse is left alone
    resource_patch(...)  the JSON patch for the containers' requests and limits (the updater resizes with it too)
    pod_level_patch(...) the JSON patch for those of the pod as a whole
    pod_patch(...)       that, and the two annotations that say what was done

Only resources that change hands are written: others of the container, init containers that are not native sidecars
and ephemeral containers stay as they are.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kubetide.api.objects.core import Pod, ResourceRequirements
from kubetide.api.objects.vpa import OFF, VerticalPodAutoscaler, update_mode
from kubetide.api.values.pointer import escape_step
from kubetide.api.values.quantity import Quantity
from kubetide.errors import InvalidInput
from kubetide.vpa.core.capping import Adjusted, NewResources, adjust, container_resources, refuse_invalid
from kubetide.vpa.core.ceilings import within_nodes
from kubetide.vpa.core.learned import applies, memory_limits, resizes_gladly, with_memory_limit
from kubetide.vpa.core.limits import NamespaceLimits
from kubetide.vpa.core.pod_level import PodLevel, pod_level, pod_policy, recommendation_only
from kubetide.vpa.core.policy import MEMORY, ContainerAmounts, container_amounts, recommendations
from kubetide.vpa.core.safety import Usage, hold_memory
from kubetide.vpa.core.sidecars import container_path

UPDATES = "vpaUpdates"
OBSERVED = "vpaObservedContainers"

Operation = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeLimits:
    """What a recommendation is fitted to beside policy and LimitRanges; by default nothing (upstream behaviour)."""

    usage: Usage | None = None
    """Memory in use by container; None switches the memory rule off, a missing container is unknown usage."""
    headroom: float = 0.2
    nodes: Sequence[Mapping[str, Quantity]] = ()
    """What each node offers; empty switches the node rule off."""
    limit_ratio: bool = False
    """Whether a policy may derive limits from requests (gate RequestToLimitRatio)."""
    pod_level: bool = False
    """Whether a policy may set the resources of the pod as a whole (gate VPAPodLevelResources)."""


UNLIMITED = SizeLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A recommendation fitted to one pod: to judge the pod by, and to write into it."""

    adjusted: Adjusted | None
    containers: tuple[NewResources, ...]
    pod: PodLevel | None = None
    """The pod as a whole, where a policy asks for that."""

    @property
    def changes(self) -> bool:
        """Whether any container gets anything."""
        return any(new.requests or new.limits for new in self.containers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPatch:
    """The operations on a pod, and per container (`container 0`) what was done to it."""

    operations: tuple[Operation, ...]
    updates: dict[str, tuple[str, ...]] = field(default_factory=dict)
    observed: str = ""


def amounts_of(pod: Pod) -> list[ContainerAmounts]:
    """Return requests and limits of the containers: as the kubelet reports them where it does, else the spec's."""
    reported = {s.name: s.resources for s in pod.status.container_statuses or () if s.resources is not None}
    return [container_amounts(c.name, reported.get(c.name, c.resources)) for c in pod.spec.containers or ()]


def fit_pod(pod: Pod, vpa: VerticalPodAutoscaler, ranges: NamespaceLimits, limits: SizeLimits = UNLIMITED) -> Fitted:
    """Return what the containers of a pod get from this VPA."""
    containers = amounts_of(pod)
    given = recommendations(vpa.status.recommendation if vpa.status is not None else None)
    policy = vpa.spec.resource_policy
    adjusted = adjust(given, policy, containers, ranges)
    apart = memory_limits(vpa)
    if adjusted is not None:
        # Where the limit is apart from the request, it is the limit that must not fall below what is in use.
        apart = {own.name: apart[own.name] for own in containers if own.name in apart and applies(own)}
        adjusted = within_nodes(_with_memory(adjusted, containers, limits, apart), pod, containers, limits.nodes)
    found = container_resources(
        given, adjusted, policy, containers, ranges, mode=update_mode(vpa), limit_ratio=limits.limit_ratio
    )
    if apart:
        used, leaving = limits.usage or {}, not resizes_gladly(vpa)
        found = tuple(
            with_memory_limit(got, own, apart.get(own.name), ranges, used=used.get(own.name), leaving=leaving)
            for got, own in zip(found, containers, strict=True)
        )
    _refuse_negative(found)
    new = tuple(
        NewResources(name=own.name) if recommendation_only(policy, own.name) else refuse_invalid(got, own)
        for got, own in zip(found, containers, strict=True)
    )
    whole = pod_policy(vpa) if limits.pod_level and adjusted is not None else None
    level = None
    if whole is not None and adjusted is not None:
        level = pod_level(pod, whole, adjusted.recommendations, containers, new)
    return Fitted(adjusted=_applied(adjusted, vpa), containers=new, pod=level)


def _applied(adjusted: Adjusted | None, vpa: VerticalPodAutoscaler) -> Adjusted | None:
    """Return what a pod is judged by: a container that is never changed is never too small either."""
    if adjusted is None:
        return None
    policy = vpa.spec.resource_policy
    kept = tuple(one for one in adjusted.recommendations if not recommendation_only(policy, one.container))
    return adjusted if len(kept) == len(adjusted.recommendations) else replace(adjusted, recommendations=kept)


def _refuse_negative(found: Sequence[NewResources]) -> None:
    """Raise where a recommendation or a policy asks for less than nothing: no such pod could be made."""
    for new in found:
        for name, amount in (*new.requests.items(), *new.limits.items()):
            if amount.sign < 0:
                raise InvalidInput(f"container {new.name} would get {name} {amount}")


def resource_patch(pod: Pod, new: Sequence[NewResources]) -> list[list[Operation]]:
    """Return the operations that give each container its new requests and limits, by container."""
    pairs = zip(pod.spec.containers or (), new, strict=True)
    return [_resources_patch(container_path(pod, index), own.resources, got) for index, (own, got) in enumerate(pairs)]


def pod_level_patch(pod: Pod, level: PodLevel | None) -> list[Operation]:
    """Return the operations that give the pod as a whole its new requests and limits."""
    if level is None or not (level.new.requests or level.new.limits):
        return []
    return _resources_patch("/spec", pod.spec.resources, level.new)


def pod_patch(
    pod: Pod, new: Sequence[NewResources], *, mode: str, vpa_name: str, level: PodLevel | None = None
) -> PodPatch:
    """Return the patch of a new pod."""
    annotated = pod.metadata.annotations is not None
    operations: list[Operation] = [] if annotated else [_add("/metadata/annotations", {})]
    updates: dict[str, tuple[str, ...]] = {}
    patches = [] if mode == OFF else resource_patch(pod, new)
    for index, (patch, got) in enumerate(zip(patches, new, strict=False)):
        operations += patch
        if got.refused:
            updates[f"container {index}"] = (f"not changed, {got.refused} request would exceed its limit",)
        elif patch:
            updates[f"container {index}"] = _said(got)
    if mode != OFF and level is not None:
        operations += pod_level_patch(pod, level)
        refused = level.new.refused
        updates["pod"] = (f"not changed, {refused} request would exceed its limit",) if refused else _said(level.new)
    if updates:
        told = "; ".join(f"{which}: {', '.join(what)}" for which, what in updates.items())
        operations.append(_add(annotation_path(UPDATES), f"Pod resources updated by {vpa_name}: {told}"))
    observed = ", ".join(container.name for container in pod.spec.containers or ())
    operations.append(_add(annotation_path(OBSERVED), observed))
    return PodPatch(operations=tuple(operations), updates=updates, observed=observed)


def _said(got: NewResources) -> tuple[str, ...]:
    return (
        *got.notes,
        *(f"{resource} request" for resource in got.requests),
        *(f"{resource} limit" for resource in got.limits),
    )


def _resources_patch(path: str, own: ResourceRequirements | None, new: NewResources) -> list[Operation]:
    requests, limits = (own.requests, own.limits) if own is not None else (None, None)
    operations: list[Operation] = []
    if requests is None and limits is None:
        operations.append(_add(resource_path(path), {}))
    for part, has, gets in (("requests", requests, new.requests), ("limits", limits, new.limits)):
        if has is None and gets:
            operations.append(_add(resource_path(path, part), {}))
        operations += [_add(resource_path(path, part, name), str(amount)) for name, amount in gets.items()]
    return operations


def resource_path(container: str, *steps: str) -> str:
    """Return the JSON pointer into the resources of the container at a path, e.g. `requests`, `nvidia.com/gpu`."""
    return "/".join((container, "resources", *map(escape_step, steps)))


def annotation_path(key: str) -> str:
    """Return the JSON pointer to an annotation."""
    return f"/metadata/annotations/{escape_step(key)}"


def _with_memory(
    adjusted: Adjusted, containers: Sequence[ContainerAmounts], limits: SizeLimits, apart: Collection[str]
) -> Adjusted:
    """Raise memory targets to what is in use plus headroom, but for containers whose limit is apart."""
    if limits.usage is None:
        return adjusted
    own = {container.name: container for container in containers}
    notes = dict(adjusted.notes)
    held = []
    for one in adjusted.recommendations:
        target = one.target.get(MEMORY)
        if target is not None and one.container not in apart:
            request = own[one.container].requests.get(MEMORY)
            kept, why = hold_memory(target, request, limits.usage.get(one.container), headroom=limits.headroom)
            if why:
                # What may not shrink is not too large: otherwise the pod would be changed for nothing, again and again.
                upper = one.upper and {**one.upper, MEMORY: max(one.upper.get(MEMORY, kept), kept)}
                one = replace(one, target={**one.target, MEMORY: kept}, upper=upper)
                notes[one.container] = (*notes.get(one.container, ()), why)
        held.append(one)
    return Adjusted(tuple(held), notes)


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}
