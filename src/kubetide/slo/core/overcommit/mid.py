"""What a node can lend to mid-tier work: the part of the prod pods' resources that prediction says stays unused.

mid = max(min(predicted reclaimable, allocatable · threshold), 0)
"""

from datetime import datetime
from typing import Any

from kubetide.api.objects.core import Node
from kubetide.api.objects.resources import CPU, MEMORY, parse_list
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.values.quantity import ZERO, Quantity
from kubetide.slo.core.arithmetic import scale_milli, scale_value
from kubetide.slo.core.overcommit.result import (
    MID_CPU,
    MID_MEMORY,
    MID_RESOURCES,
    ResourceItem,
    degraded_reason,
    resets,
)

Raw = dict[str, Any]


def calculate_mid(strategy: Raw, node: Node, metric: NodeMetric, now: datetime) -> tuple[ResourceItem, ...]:
    """Return mid-cpu and mid-memory of the node."""
    reclaimable_metric = metric.status.prod_reclaimable_metric
    reason = degraded_reason(metric, strategy, now)
    if reason is None and (reclaimable_metric is None or reclaimable_metric.resource.resources is None):
        reason = "no prediction of reclaimable resources was reported"
    if reason is not None or reclaimable_metric is None:
        return resets(MID_RESOURCES, f"degraded: {reason}")
    reclaimable = parse_list(reclaimable_metric.resource.resources)
    allocatable = parse_list(node.status.allocatable)
    cpu_share, memory_share = _share(strategy, "midCPUThresholdPercent"), _share(strategy, "midMemoryThresholdPercent")
    cpu_cap = scale_milli(allocatable.get(CPU, ZERO), cpu_share).milli
    memory_cap = scale_value(allocatable.get(MEMORY, ZERO), memory_share).value
    cpu = max(min(reclaimable.get(CPU, ZERO).milli, cpu_cap), 0)
    memory = max(min(reclaimable.get(MEMORY, ZERO).value, memory_cap), 0)
    return (
        ResourceItem(MID_CPU, Quantity.of(cpu), message=f"reclaimable {reclaimable.get(CPU, ZERO)}, cap {cpu_cap}m"),
        ResourceItem(
            MID_MEMORY,
            Quantity.of(memory, binary=True),
            message=f"reclaimable {reclaimable.get(MEMORY, ZERO)}, cap {memory_cap}",
        ),
    )


def _share(strategy: Raw, name: str) -> float:
    percent = strategy.get(name)
    return 1.0 if percent is None else float(percent) / 100.0
