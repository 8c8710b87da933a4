"""Batch resources of a node: what is left after a margin, the system and the high-priority pods.

    nodeReserved  = capacity · (100 − reclaimThreshold) / 100
    systemUsed    = max(measured system usage + host applications, systemReserved)
    byUsage       = max(capacity − nodeReserved − systemUsed     − used by high-priority pods,                0)
    byRequest     = max(capacity − nodeReserved − systemReserved − requested by high-priority pods,           0)
    byMaxUsageReq = max(capacity − nodeReserved − systemUsed     − the larger of both, pod by pod,            0)

    batch         = min(one of these by policy, capacity · ceiling)          (where a ceiling is set, from 1.7)

What each pod adds to the sums is in `overcommit.loads`. The same formulas give the share of each NUMA zone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubetide.api.objects.core import Node
from kubetide.api.objects.resources import CPU, MEMORY, Amounts, add, maximum, parse_list, subtract
from kubetide.api.objects.slo import NodeMetric, NodeResourceTopology, ResourceMap
from kubetide.api.qos.reservation import node_reserved
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import ZERO, Quantity
from kubetide.slo.core import compat as since
from kubetide.slo.core.arithmetic import divide, scale_milli, scale_value
from kubetide.slo.core.compat import NEWEST
from kubetide.slo.core.overcommit.claims import PodClaim
from kubetide.slo.core.overcommit.loads import (
    ABOVE_BATCH,
    NO_PAIR,
    Load,
    dangling,
    host_usage,
    pod_loads,
    share,
    total,
    usage_amounts,
)
from kubetide.slo.core.overcommit.result import (
    BATCH_CPU,
    BATCH_MEMORY,
    BATCH_RESOURCES,
    ResourceItem,
    degraded_reason,
    resets,
)

Raw = dict[str, Any]

_NOTHING: Amounts = {CPU: ZERO, MEMORY: ZERO}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Everything that is subtracted from the capacity."""

    capacity: Amounts
    node_reserved: Amounts
    system_reserved: Amounts
    system_used: Amounts
    requested: Amounts
    used: Amounts
    max_used_requested: Amounts


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The two resources, and the sums they came from (none when the node is degraded)."""

    items: tuple[ResourceItem, ...]
    sums: Sums | None = None
    lingering: Amounts = field(default_factory=dict)
    """What of the pods' usage is that of pods which have left."""


def calculate_batch(
    strategy: Raw,
    node: Node,
    pods: Sequence[PodClaim],
    metric: NodeMetric,
    topology: NodeResourceTopology | None,
    now: datetime,
    lingering: Sequence[Load] = (),
    compat: Compat = NEWEST,
) -> BatchResult:
    """Return batch-cpu and batch-memory of the node and, where its zones are known, of each zone.

    `lingering` is what pods that have left still count for (see `slo.continuity`).
    """
    reason = degraded_reason(metric, strategy, now)
    if reason is None and metric.status.node_metric is None:
        reason = "the last report has no node usage"
    if reason is not None:
        return BatchResult(resets(BATCH_RESOURCES, f"degraded: {reason}"))
    zone_names = _zones_with_resources(topology)
    leftovers = [Load(NO_PAIR, usage, usage) for _, usage in dangling(pods, metric)]
    loads = [*pod_loads(pods, metric, len(zone_names)), *leftovers, *lingering]
    sums = node_sums(strategy, node, loads, metric, compat)
    cpu, memory = by_policy(strategy, sums, compat)
    zone_cpu: dict[str, Quantity] = {}
    zone_memory: dict[str, Quantity] = {}
    if topology is not None and zone_names:
        for index, (name, allocatable) in enumerate(zone_names.items()):
            zone = _zone_sums(strategy, allocatable, sums, loads, index, len(zone_names))
            found_cpu, found_memory = by_policy(strategy, zone, compat)
            zone_cpu[name], zone_memory[name] = Quantity.of(found_cpu.milli), found_memory
    items = (
        ResourceItem(BATCH_CPU, Quantity.of(cpu.milli), zone_cpu, message=_message(strategy, sums, CPU)),
        ResourceItem(BATCH_MEMORY, memory, zone_memory, message=_message(strategy, sums, MEMORY)),
    )
    return BatchResult(items, sums, total(load.used for load in lingering) if lingering else {})


def node_sums(strategy: Raw, node: Node, loads: Iterable[Load], metric: NodeMetric, compat: Compat = NEWEST) -> Sums:
    """Add up the node. Capacity is the node's capacity, not what the kubelet made of it."""
    found = parse_list(node.status.capacity)
    capacity = {name: found.get(name, ZERO) for name in (CPU, MEMORY)}
    system_reserved = {name: node_reserved(node).get(name, ZERO) for name in (CPU, MEMORY)}
    measured = metric.status.node_metric
    system = usage_amounts(measured.system_usage if measured else ResourceMap())
    counted = ABOVE_BATCH if compat.has(since.HOST_APPLICATION_PRIORITY) else None
    system = add(system, host_usage(metric, counted))
    everything = tuple(loads)
    return Sums(
        capacity=capacity,
        node_reserved=reserve(strategy, capacity),
        system_reserved=system_reserved,
        system_used=maximum(system, system_reserved),
        requested=total(load.requested for load in everything),
        used=total(load.used for load in everything),
        max_used_requested=total(load.largest for load in everything),
    )


def by_policy(strategy: Mapping[str, Any] | None, sums: Sums, compat: Compat = NEWEST) -> tuple[Quantity, Quantity]:
    """Return the CPU and memory that the chosen policies leave."""
    policies = strategy or {}
    by_usage = _left(sums.capacity, sums.node_reserved, sums.system_used, sums.used)
    by_request = _left(sums.capacity, sums.node_reserved, sums.system_reserved, sums.requested)
    by_largest = _left(sums.capacity, sums.node_reserved, sums.system_used, sums.max_used_requested)
    cpu = by_largest if policies.get("cpuCalculatePolicy") == "maxUsageRequest" else by_usage
    memory = {"request": by_request, "maxUsageRequest": by_largest}.get(
        policies.get("memoryCalculatePolicy") or "", by_usage
    )
    if not compat.has(since.BATCH_CEILING):
        return cpu[CPU], memory[MEMORY]
    cpu_share, memory_share = policies.get("batchCPUThresholdPercent"), policies.get("batchMemoryThresholdPercent")
    return (
        cpu[CPU] if cpu_share is None else min(cpu[CPU], scale_milli(sums.capacity[CPU], cpu_share / 100.0)),
        memory[MEMORY]
        if memory_share is None
        else min(memory[MEMORY], scale_value(sums.capacity[MEMORY], memory_share / 100.0)),
    )


def reserve(strategy: Mapping[str, Any], capacity: Mapping[str, Quantity]) -> Amounts:
    """Return the margin that is never overcommitted. A threshold above 100 makes it negative."""
    return {
        CPU: scale_milli(capacity.get(CPU, ZERO), _kept_back(strategy.get("cpuReclaimThresholdPercent"))),
        MEMORY: scale_value(capacity.get(MEMORY, ZERO), _kept_back(strategy.get("memoryReclaimThresholdPercent"))),
    }


def _zone_sums(strategy: Raw, allocatable: Amounts, node: Sums, loads: Iterable[Load], index: int, count: int) -> Sums:
    requested, used, largest = [], [], []
    for load in loads:
        zones = load.zones if load.zones is not None else tuple(range(count))
        for _ in range(zones.count(index)):
            requested.append(share(load.requested, len(zones)))
            used.append(share(load.used, len(zones)))
            largest.append(share(load.largest, len(zones)))
    return Sums(
        capacity=allocatable,
        node_reserved=reserve(strategy, allocatable),
        system_reserved=divide(node.system_reserved, count),
        system_used=divide(node.system_used, count),
        requested=total(requested),
        used=total(used),
        max_used_requested=total(largest),
    )


def _zones_with_resources(topology: NodeResourceTopology | None) -> dict[str, Amounts]:
    """Return the allocatable CPU and memory by zone name, if any zone has one of them."""
    zones: dict[str, Amounts] = {}
    useful = False
    for zone in topology.zones or () if topology else ():
        found = parse_list({r.name: r.allocatable for r in zone.resources or () if r.name in (CPU, MEMORY)})
        useful = useful or bool(found)
        zones[zone.name] = {**_NOTHING, **found}
    return zones if useful else {}


def _left(capacity: Amounts, *taken: Amounts) -> Amounts:
    rest = capacity
    for amounts in taken:
        rest = subtract(rest, amounts)
    return maximum(rest, _NOTHING)


def _kept_back(percent: Any) -> float:
    return (100 - int(percent or 0)) / 100.0


def _message(strategy: Raw, sums: Sums, resource: str) -> str:
    """Return how the number came about, for status and explain."""
    policy = strategy.get(f"{resource}CalculatePolicy") or "usage"
    pods = {"request": sums.requested, "maxUsageRequest": sums.max_used_requested}.get(policy, sums.used)
    system = sums.system_reserved if (resource, policy) == (MEMORY, "request") else sums.system_used
    return (
        f"{policy}: capacity {sums.capacity[resource]} - margin {sums.node_reserved[resource]}"
        f" - system {system.get(resource, ZERO)} - high-priority pods {pods[resource]}"
    )
