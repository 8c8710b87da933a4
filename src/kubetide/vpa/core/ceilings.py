"""Ceilings: no recommendation that the cluster has no room for.

A recommendation knows what a workload needs, not what it can get. One that is larger than every node, than a
LimitRange or than what a quota leaves ends in pods that stay pending, or are refused when they are made again. In this
order, so that later ones only lower further:

    LimitRanges   what updater and webhook would make of it anyway (`capping.adjust`)
    nodes         the pod has to fit a node that would take it: not cordoned, its node selector and taints considered
    quotas        what all workloads of a namespace would grow by is scaled to what the quota leaves:
                  request = today + share · (target - today),   share = left / Σ growth, between 0 and 1

Nodes and quotas never lower a request below the smallest that the workload has today. While pods of a namespace are
missing or have not started, what a quota leaves cannot be told from what they will take: the last ceiling holds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kubetide.api.objects.capacity import takes
from kubetide.api.objects.core import Node, Pod, ResourceQuota
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.resources import CPU, MEMORY, add, parse_list, pod_requests, subtract
from kubetide.api.objects.vpa import REQUESTS_AND_LIMITS, PodResourcePolicy
from kubetide.api.values.quantity import Quantity, readable
from kubetide.errors import InvalidInput
from kubetide.vpa.core.capping import Adjusted, adjust
from kubetide.vpa.core.limits import NamespaceLimits
from kubetide.vpa.core.policy import Amounts, ContainerAmounts, Recommended, container_amounts, controlled_values
from kubetide.vpa.core.safety import fit, largest
from kubetide.vpa.core.sidecars import without_sidecars

NODES, RANGES, QUOTAS = "nodes", "limit-ranges", "quotas"
CEILINGS = (NODES, RANGES, QUOTAS)
CAPPED = "RecommendationCapped"
CAPPED_REASON = "NoRoom"

_UNIT = {CPU: 10**6, MEMORY: 10**9}
_REQUESTS, _LIMITS = "requests", "limits"
_QUOTA_NAMES = {
    CPU: (CPU, _REQUESTS),
    MEMORY: (MEMORY, _REQUESTS),
    **{f"{kind}.{resource}": (resource, kind) for kind in (_REQUESTS, _LIMITS) for resource in _UNIT},
}

Caps = Mapping[tuple[str, str], Quantity]
"""The most that each container may request of each resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is recommended for the pods of one VPA, and what they ask for today."""

    key: ObjectKey
    found: tuple[Recommended, ...]
    policy: PodResourcePolicy | None
    pods: Sequence[Pod]
    replicas: int | None
    """How many pods there should be; None where nobody says."""
    held: Caps = field(default_factory=dict)
    """What the quotas left when they were last asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a cluster has room for; what is None is not looked at."""

    nodes: Sequence[Node] | None = None
    ranges: Mapping[str, NamespaceLimits] | None = None
    quotas: Sequence[ResourceQuota] | None = None


@dataclass(frozen=True, slots=True)
class Capped:
    """A recommendation under its ceilings, why it is lower, and what the quotas leave each container."""

    found: tuple[Recommended, ...]
    notes: tuple[str, ...] = ()
    held: Caps = field(default_factory=dict)


def under_ceilings(workloads: Sequence[Workload], room: Room) -> dict[ObjectKey, Capped]:
    """Return the recommendation of every workload under its ceilings; namespaces must be whole."""
    done: dict[ObjectKey, Capped] = {}
    by_namespace: dict[str, list[Workload]] = {}
    for workload in workloads:
        capped = Capped(workload.found)
        if workload.pods and workload.found:
            try:
                capped = _fit_pod(workload, room)
                by_namespace.setdefault(workload.key.namespace, []).append(replace(workload, found=capped.found))
            except InvalidInput:
                # What its pods ask for cannot be read: nothing is known of the room that they take.
                capped = Capped(workload.found)
        done[workload.key] = capped
    if room.quotas:
        for namespace, members in by_namespace.items():
            listed = [quota for quota in room.quotas if quota.metadata.namespace == namespace]
            for key, (found, notes, held) in _within_quotas(members, listed).items():
                before = done[key]
                done[key] = Capped(found, (*before.notes, *notes), held)
    return done


def _fit_pod(workload: Workload, room: Room) -> Capped:
    """Return a recommendation under LimitRanges and nodes, for the last of its pods by name."""
    pod = max(workload.pods, key=lambda one: one.metadata.name)
    containers = [container_amounts(one.name, one.resources) for one in pod.spec.containers or ()]
    found, notes = workload.found, []
    ranges = (room.ranges or {}).get(workload.key.namespace)
    if ranges is not None:
        fitted = adjust(found, workload.policy, containers, ranges)
        found, said = _lowered(found, fitted, "the LimitRanges of the namespace")
        notes += said
    if room.nodes is not None:
        offers = largest(parse_list(node.status.allocatable) for node in room.nodes if takes(node, pod.spec, ever=True))
        own = {container.name for container in containers}
        present = Adjusted(tuple(one for one in found if one.container in own))
        found, said = _lowered(found, within_nodes(present, pod, containers, offers), "the largest node for its pods")
        notes += said
    return Capped(found, tuple(notes))


def _lowered(
    found: tuple[Recommended, ...], fitted: Adjusted | None, by: str
) -> tuple[tuple[Recommended, ...], list[str]]:
    """Return what was found, lowered to what was fitted; a ceiling raises nothing."""
    caps = {
        (one.container, resource): amount
        for one in (fitted.recommendations if fitted is not None else ())
        for resource, amount in one.target.items()
    }
    return capped(found, caps, by)


def capped(
    found: tuple[Recommended, ...], caps: Caps, by: str | Mapping[tuple[str, str], str]
) -> tuple[tuple[Recommended, ...], list[str]]:
    """Return what was found with no bound above its cap, and a line for each target that fell."""
    notes: list[str] = []
    result = []
    for one in found:
        low = {name: caps[one.container, name] for name in one.target if (one.container, name) in caps}
        fallen = {name: cap for name, cap in low.items() if cap < one.target[name]}
        if fallen:
            for name, cap in sorted(fallen.items()):
                held_by = by if isinstance(by, str) else by[one.container, name]
                notes.append(f"{name} of {one.container} is held at {readable(name, str(cap))} by {held_by}")
            one = replace(
                one,
                target={**one.target, **fallen},
                lower=_under(one.lower, fallen),
                upper=_under(one.upper, fallen),
            )
        result.append(one)
    return (tuple(result), notes) if notes else (found, notes)


def _under(bound: Amounts | None, caps: Amounts) -> Amounts | None:
    return bound and {name: min(amount, caps[name]) if name in caps else amount for name, amount in bound.items()}


# -- nodes


def within_nodes(
    adjusted: Adjusted, pod: Pod, containers: Sequence[ContainerAmounts], nodes: Sequence[Mapping[str, Quantity]]
) -> Adjusted:
    """Scale targets down until the pod fits some node; without any node they stay as they are."""
    if not nodes:
        return adjusted
    own = {container.name: container for container in containers}
    wanted = {one.container: one.target for one in adjusted.recommendations}
    today: dict[str, Amounts] = {name: own[name].requests for name in wanted}
    beside = add(
        _besides_containers(pod),
        *(
            {r: amount for r, amount in container.requests.items() if r not in wanted.get(container.name, {})}
            for container in containers
        ),
    )
    fitted, scaled = fit(wanted, today, beside, nodes)
    if not scaled:
        return adjusted
    notes = dict(adjusted.notes)
    result = []
    for one in adjusted.recommendations:
        target = fitted[one.container]
        shrunk = sorted(name for name in scaled if name in target and target[name] != one.target[name])
        if shrunk:
            said = tuple(f"{name} capped to what the largest node offers" for name in shrunk)
            notes[one.container] = (*notes.get(one.container, ()), *said)
            lower = one.lower and {n: min(a, target[n]) if n in shrunk else a for n, a in one.lower.items()}
            one = replace(one, target=target, lower=lower)
        result.append(one)
    return Adjusted(tuple(result), notes)


def _besides_containers(pod: Pod) -> Amounts:
    """Return what a pod asks for besides its containers: overhead, sidecars, init containers that ask for more."""
    spec = pod.spec
    if not spec.init_containers and not spec.overhead and spec.resources is None:
        return {}
    containers = add(*(parse_list(c.resources.requests if c.resources else None) for c in spec.containers or ()))
    return subtract(pod_requests(without_sidecars(pod)), containers)


# -- quotas


@dataclass(frozen=True, slots=True)
class _Growth:
    """One resource of one container: nanos that all pods of the workload request, and would request."""

    pods: int
    today: int
    wanted: int
    least: int
    limit_ratio: tuple[int, int] | None
    """Its limit over its request, where the limit grows with it."""

    @property
    def grows(self) -> int:
        return max(self.wanted - self.today, 0)

    def counted(self, kind: str) -> int:
        """Return what it grows by in requests or limits."""
        if kind == _REQUESTS:
            return self.grows
        if self.limit_ratio is None:
            return 0
        limit, request = self.limit_ratio
        return self.grows * limit // request

    def allowed(self, left: int, growth: int) -> int:
        """Return what one pod may request when `left` of all growth is there."""
        more = self.grows * max(left, 0) // growth
        return max((self.today + more) // self.pods, self.least)


def _within_quotas(
    members: Sequence[Workload], quotas: Iterable[ResourceQuota]
) -> dict[ObjectKey, tuple[tuple[Recommended, ...], list[str], Caps]]:
    growths = {one.key: _growths(one) for one in members}
    settled = all(one.replicas is None or one.replicas == len(one.pods) for one in members)
    caps: dict[ObjectKey, dict[tuple[str, str], Quantity]] = {one.key: {} for one in members}
    names: dict[ObjectKey, dict[tuple[str, str], str]] = {one.key: {} for one in members}
    for name, resource, kind, left in _left(quotas):
        total = sum(
            growth.counted(kind) for listed in growths.values() for (_, r), growth in listed.items() if r == resource
        )
        if total <= max(left, 0):
            continue
        for key, listed in growths.items():
            for (container, r), growth in listed.items():
                if r == resource and growth.counted(kind):
                    nanos = growth.allowed(left, total) // _UNIT[r] * _UNIT[r]
                    place = container, r
                    if place not in caps[key] or nanos < caps[key][place].nanos:
                        caps[key][place] = Quantity.of(nanos // 10**9, binary=True) if r == MEMORY else Quantity(nanos)
                        names[key][place] = f"quota {name}"
    done: dict[ObjectKey, tuple[tuple[Recommended, ...], list[str], Caps]] = {}
    for one in members:
        own = caps[one.key]
        if not settled and one.held:
            own = {**own, **one.held}
        by = {place: names[one.key].get(place, "the quota of the namespace") for place in own}
        found, notes = capped(one.found, own, by)
        done[one.key] = found, notes, own
    return done


def _left(quotas: Iterable[ResourceQuota]) -> list[tuple[str, str, str, int]]:
    """Return what quotas leave: name, resource, requests or limits, nanos. One that cannot be read leaves no word."""
    found = []
    for quota in quotas:
        spec = quota.spec
        if spec.scopes or spec.scope_selector is not None:
            continue
        try:
            hard, used = parse_list(quota.status.hard), parse_list(quota.status.used)
        except InvalidInput:
            continue
        for name, (resource, kind) in _QUOTA_NAMES.items():
            if name in hard and name in used:
                found.append((quota.metadata.name, resource, kind, hard[name].nanos - used[name].nanos))
    return found


def _growths(workload: Workload) -> dict[tuple[str, str], _Growth]:
    requested: dict[str, list[ContainerAmounts]] = {}
    for pod in workload.pods:
        for container in pod.spec.containers or ():
            requested.setdefault(container.name, []).append(container_amounts(container.name, container.resources))
    pods = workload.replicas or len(workload.pods)
    found = {}
    for one in workload.found:
        own = requested.get(one.container, [])
        both = controlled_values(workload.policy, one.container) == REQUESTS_AND_LIMITS
        for resource in _UNIT:
            if resource not in one.target or not own:
                continue
            today = [container.requests.get(resource, Quantity(0)).nanos for container in own]
            limit = own[-1].limits.get(resource)
            scales = both and limit is not None and today[-1] > 0
            found[one.container, resource] = _Growth(
                pods=pods,
                today=sum(today),
                wanted=one.target[resource].nanos * pods,
                least=min(*today, one.target[resource].nanos),
                limit_ratio=(limit.nanos, today[-1]) if scales and limit is not None else None,
            )
    return found
