"""Two limits beyond upstream that updater and webhook share, so that both always mean the same pod.

Memory is never shrunk below what is in use:

    floor = ceil(usage * 1.2)             usage: the largest of the same container in any pod of the workload
    target = max(target, min(floor, request)),  and target = request while the usage is unknown

A pod is never made larger than every node: when the new requests of all containers fit no node, what was to grow is
scaled down until the pod fits the node that offers most of what it needs, but not below what the pod asks for today.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from kubetide.api.objects.metrics import PodMetrics
from kubetide.api.objects.resources import CPU, MEMORY, Amounts
from kubetide.api.values.quantity import Quantity, memory_bytes, readable_bytes

HEADROOM = 0.2

Usage = Mapping[str, int]
"""Memory in use, in bytes, by container name: the largest in any pod of the workload."""

_UNIT = {CPU: 10**6, MEMORY: 10**9}
"""Nanos in the smallest amount that is requested: a millicore, a byte."""


def memory_usage(pod: PodMetrics) -> dict[str, int]:
    """Return the memory that each container of a pod uses, in bytes."""
    return {
        container.name: memory_bytes(container.usage[MEMORY])
        for container in pod.containers or ()
        if container.usage is not None and MEMORY in container.usage
    }


def largest_usage(pods: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the largest usage of each container over the pods of a workload."""
    largest: dict[str, int] = {}
    for usage in pods:
        for container, amount in usage.items():
            largest[container] = max(amount, largest.get(container, 0))
    return largest


def memory_floor(used: int, *, headroom: float = HEADROOM) -> Quantity:
    """Return the least memory that a container with this usage may be given."""
    share = Fraction(str(headroom))
    return Quantity.of(-((-used * (share + 1)) // 1), binary=True)


def hold_memory(
    target: Quantity, request: Quantity | None, used: int | None, *, headroom: float = HEADROOM
) -> tuple[Quantity, str]:
    """Return the memory target that does not take away what is in use, and the reason if it had to be raised."""
    if request is None or target >= request:
        return target, ""
    if used is None:
        return request, "memory not shrunk: its usage is unknown"
    floor = memory_floor(used, headroom=headroom)
    if target >= floor:
        return target, ""
    if floor >= request:
        return request, f"memory not shrunk: {readable_bytes(used)} are in use"
    return floor, f"memory kept at usage plus {headroom:.0%}"


def fits_somewhere(total: Mapping[str, Quantity], nodes: Sequence[Mapping[str, Quantity]]) -> bool:
    """Return whether some node offers what a pod asks for in all. Without any known node the answer is yes."""
    return not nodes or any(
        all(resource not in node or resource not in total or total[resource] <= node[resource] for resource in _UNIT)
        for node in nodes
    )


def fit(
    wanted: Mapping[str, Amounts],
    today: Mapping[str, Mapping[str, Quantity]],
    beside: Mapping[str, Quantity],
    nodes: Sequence[Mapping[str, Quantity]],
) -> tuple[dict[str, Amounts], frozenset[str]]:
    """Scale new requests down until the pod fits a node; return them and the resources that were scaled.

    `wanted` and `today` are requests by container, `beside` what the pod asks for besides (overhead, containers that
    are not changed).
    """
    result = {name: dict(amounts) for name, amounts in wanted.items()}
    total = {resource: _sum(result.values(), resource) + beside.get(resource, Quantity(0)) for resource in _UNIT}
    if fits_somewhere(total, nodes):
        return result, frozenset()
    least = {
        name: {
            resource: min(today.get(name, {}).get(resource, Quantity(0)), amount) for resource, amount in each.items()
        }
        for name, each in result.items()
    }
    bottom = {resource: _sum(least.values(), resource) + beside.get(resource, Quantity(0)) for resource in _UNIT}
    # Nothing goes below what the pod asks for today, so a node that cannot hold that is of no use to it.
    best = max(
        [node for node in nodes if fits_somewhere(bottom, [node])] or nodes, key=lambda node: _share(total, node)
    )
    scaled: set[str] = set()
    for resource, unit in _UNIT.items():
        offered = best.get(resource)
        if offered is None or total[resource] <= offered:
            continue
        room = max(offered.nanos - beside.get(resource, Quantity(0)).nanos, 0)
        asked = {name: each[resource].nanos for name, each in result.items() if resource in each}
        kept = _scaled(asked, {name: least[name][resource].nanos for name in asked}, room, unit)
        for name, nanos in kept.items():
            if nanos != asked[name]:
                result[name][resource] = Quantity(nanos, result[name][resource].notation)
                scaled.add(resource)
    return result, frozenset(scaled)


def _scaled(asked: Mapping[str, int], least: Mapping[str, int], room: int, unit: int) -> dict[str, int]:
    """Share out `room` in proportion to what is asked for; who would get less than `least` gets that instead.

    What those get beyond their share the others go without, so that the sum fits as long as the least of all does.
    """
    held: dict[str, int] = {}
    while True:
        left = max(room - sum(held.values()), 0)
        free = {name: amount for name, amount in asked.items() if name not in held}
        total = sum(free.values())
        shares = {name: amount * left // total // unit * unit if total else 0 for name, amount in free.items()}
        below = {name: least[name] for name, share in shares.items() if share < least[name]}
        if not below:
            return {**held, **shares}
        held |= below


def _share(total: Mapping[str, Quantity], node: Mapping[str, Quantity]) -> Fraction:
    """Return the part of a pod that a node could hold: the scarcest resource decides."""
    parts = [
        Fraction(node[resource].nanos, total[resource].nanos)
        for resource in _UNIT
        if resource in total and total[resource].nanos > 0 and resource in node
    ]
    return min(parts, default=Fraction(1))


def _sum(lists: Iterable[Mapping[str, Quantity]], resource: str) -> Quantity:
    return Quantity(sum(amounts[resource].nanos for amounts in lists if resource in amounts))


def largest(nodes: Iterable[Mapping[str, Quantity]]) -> tuple[dict[str, Quantity], ...]:
    """Return the nodes that no other node beats in every resource: the rest can never be the best choice."""
    kept: list[dict[str, Quantity]] = []
    for node in nodes:
        offer = {resource: node[resource] for resource in _UNIT if resource in node}
        if not offer or any(_covers(other, offer) for other in kept):
            continue
        kept = [other for other in kept if not _covers(offer, other)]
        kept.append(offer)
    return tuple(kept)


def _covers(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> bool:
    return all(resource in one and one[resource] >= amount for resource, amount in other.items())
