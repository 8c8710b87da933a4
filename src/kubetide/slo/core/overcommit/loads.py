"""What takes from a node: each high-priority pod, and usage that is still reported for pods that are gone.

A pod without metrics counts with its request: unknown is not empty. Usage reported for a pod that is no longer in
the list still counts, by the priority it was reported with. A pod with dedicated cores (LSE) gives no CPU back.
Sums over all pods of a node run on plain integers (nanos).
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubetide.api.objects.resources import CPU, MEMORY, Amounts
from kubetide.api.objects.slo import NodeMetric, ResourceMap
from kubetide.api.values.quantity import ZERO, Notation, Quantity, parse_quantity
from kubetide.slo.core.arithmetic import divide
from kubetide.slo.core.overcommit.claims import LOW_PRIORITIES, PodClaim

Pair = tuple[int, int]
"""CPU and memory in nanos."""
NO_PAIR: Pair = (0, 0)


@dataclass(frozen=True, slots=True)
class Load:
    """What one high-priority pod (or a leftover metric) adds to the three sums."""

    requested: Pair
    used: Pair
    largest: Pair
    zones: tuple[int, ...] | None = None
    """The zones over which it is spread; None: all of them."""


def pod_load(pod: PodClaim, usage: Pair | None, zones: int = 0) -> Load:
    """Return what a pod adds; `usage` is None before its first metrics."""
    request = pod.cpu_nanos, pod.memory_nanos
    where = pod.zones(zones) if zones else None
    if usage is None:
        return Load(request, request, request, where)
    largest = max(request[0], usage[0]), max(request[1], usage[1])
    return Load(request, (request[0], usage[1]) if pod.dedicated else usage, largest, where)


def pod_loads(pods: Sequence[PodClaim], metric: NodeMetric, zones: int) -> list[Load]:
    """Return what the active high-priority pods add."""
    reported = {(each.namespace, each.name): each.pod_usage for each in metric.status.pods_metric or ()}
    loads = []
    for pod in pods:
        if pod.active and not pod.low_priority:
            found = reported.get(pod.key)
            loads.append(pod_load(pod, None if found is None else usage_pair(found), zones))
    return loads


def dangling(pods: Sequence[PodClaim], metric: NodeMetric) -> list[tuple[tuple[str, str], Pair]]:
    """Return the usage of pods, by namespace and name, that are reported but no longer active in the list."""
    known = {pod.key for pod in pods if pod.active}
    return [
        ((reported.namespace, reported.name), usage_pair(reported.pod_usage))
        for reported in metric.status.pods_metric or ()
        if (reported.namespace, reported.name) not in known and reported.priority not in LOW_PRIORITIES
    ]


def reported_usage(metric: NodeMetric | None, key: tuple[str, str]) -> Pair | None:
    """Return what a pod used by the last report; None if it is not in it."""
    for reported in (metric.status.pods_metric if metric is not None else None) or ():
        if (reported.namespace, reported.name) == key:
            return usage_pair(reported.pod_usage)
    return None


def usage_pair(usage: ResourceMap) -> Pair:
    """Read CPU and memory off a reported usage."""
    resources = usage.resources or {}
    return parse_quantity(resources.get(CPU, "0")).nanos, parse_quantity(resources.get(MEMORY, "0")).nanos


ABOVE_MID = frozenset({"koord-prod"})
ABOVE_BATCH = frozenset({"koord-prod", "koord-mid"})


def host_usage(metric: NodeMetric, priorities: Container[str] | None) -> Amounts:
    """Return what host applications of these priority classes use; None: of all but the low ones."""
    return total(
        usage_pair(each.usage)
        for each in metric.status.host_application_metric or ()
        if (each.priority in priorities if priorities is not None else each.priority not in LOW_PRIORITIES)
    )


def usage_amounts(usage: ResourceMap) -> Amounts:
    """Read CPU and memory off a reported usage, as amounts."""
    return total((usage_pair(usage),))


def total(pairs: Iterable[Pair]) -> Amounts:
    """Sum pairs."""
    cpu = memory = 0
    for pair in pairs:
        cpu += pair[0]
        memory += pair[1]
    return {CPU: Quantity(cpu), MEMORY: Quantity(memory, Notation.BINARY)}


def share(pair: Pair, parts: int) -> Pair:
    """Return an even share, rounded as the protocol says."""
    shares: Mapping[str, Quantity] = divide({CPU: Quantity(pair[0]), MEMORY: Quantity(pair[1])}, parts)
    return shares.get(CPU, ZERO).nanos, shares.get(MEMORY, ZERO).nanos
