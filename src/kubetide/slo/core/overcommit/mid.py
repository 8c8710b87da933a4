"""Mid resources of a node: what prod pods are predicted to leave unused, and a share of what they never requested.

    until 1.5   mid = min(reclaimable, allocatable · threshold)
    1.6, 1.7    mid = min(reclaimable, unused, capacity · threshold) + unallocated · share
    from 1.8    mid = min(min(reclaimable, unused) + unallocated · share, capacity · threshold)
    static      mid = min(capacity · staticShare, capacity · threshold)                          (from 1.8)

    unused      = capacity − usage of the node
    unallocated = capacity − reserved for the system − requested by prod pods

A missing prediction is no reason to degrade from 1.6 on: the unallocated part does not rest on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubetide.api.objects.core import Node
from kubetide.api.objects.resources import CPU, MEMORY, Amounts, add, maximum, parse_list
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.qos.reservation import node_reserved
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import ZERO, Quantity, readable, readable_bytes
from kubetide.slo.core import compat as since
from kubetide.slo.core.arithmetic import scale_milli, scale_value
from kubetide.slo.core.compat import NEWEST
from kubetide.slo.core.overcommit.claims import PodClaim
from kubetide.slo.core.overcommit.loads import ABOVE_MID, host_usage, total, usage_amounts
from kubetide.slo.core.overcommit.result import (
    MID_CPU,
    MID_MEMORY,
    MID_RESOURCES,
    ResourceItem,
    degraded_reason,
    resets,
)

Raw = dict[str, Any]

STATIC = "static"


@dataclass(frozen=True, slots=True)
class _Shares:
    """The percentages of one resource, as factors."""

    ceiling: float
    unallocated: float
    static: float


def calculate_mid(
    strategy: Raw,
    node: Node,
    pods: Sequence[PodClaim],
    metric: NodeMetric,
    now: datetime,
    compat: Compat = NEWEST,
) -> tuple[ResourceItem, ...]:
    """Return mid-cpu and mid-memory of the node."""
    reason = degraded_reason(metric, strategy, now)
    predicted = metric.status.prod_reclaimable_metric
    predicted_resources = predicted.resource.resources if predicted is not None else None
    unallocated_counts = compat.has(since.MID_UNALLOCATED)
    if reason is None and unallocated_counts and metric.status.node_metric is None:
        reason = "the last report has no node usage"
    if reason is None and not unallocated_counts and predicted_resources is None:
        reason = "no prediction of reclaimable resources was reported"
    if reason is not None:
        return resets(MID_RESOURCES, f"degraded: {reason}")
    size = parse_list(node.status.capacity if unallocated_counts else node.status.allocatable)
    size = {name: size.get(name, ZERO) for name in (CPU, MEMORY)}
    reclaimable = parse_list(predicted_resources)
    if unallocated_counts:
        unused, unallocated = _unused(size, metric), _unallocated(size, node, pods, metric)
    else:
        unused, unallocated = size, {CPU: ZERO, MEMORY: ZERO}
    is_static = compat.has(since.MID_STATIC) and strategy.get("midReclaimMode") == STATIC
    items = []
    for resource, name in ((CPU, MID_CPU), (MEMORY, MID_MEMORY)):
        shares = _shares(strategy, "CPU" if resource == CPU else "Memory")
        ceiling = _scaled(resource, size[resource], shares.ceiling)
        if is_static:
            amount = min(_scaled(resource, size[resource], shares.static), ceiling)
            message = f"static: {shares.static:.0%} of the node, cap {_shown(resource, ceiling)}"
        else:
            found = reclaimable.get(resource, ZERO)
            part = _scaled(resource, unallocated[resource], shares.unallocated)
            rest = max(min(_whole(resource, found), _whole(resource, unused[resource])), 0)
            amount = min(rest + part, ceiling) if compat.has(since.MID_CEILING) else min(rest, max(ceiling, 0)) + part
            message = (
                f"reclaimable {readable(resource, str(found))}, unused {readable(resource, str(unused[resource]))}, "
                f"of unallocated {_shown(resource, part)}, cap {_shown(resource, ceiling)}"
            )
        items.append(ResourceItem(name, Quantity.of(amount, binary=resource == MEMORY), message=message))
    return tuple(items)


def _shown(resource: str, amount: int) -> str:
    """Return an amount in milli-CPU or bytes as people read it."""
    return f"{amount}m" if resource == CPU else readable_bytes(amount)


def _unused(capacity: Amounts, metric: NodeMetric) -> Amounts:
    """Return what the node does not use; nothing where its usage is not known."""
    measured = metric.status.node_metric
    usage = parse_list(measured.node_usage.resources if measured is not None else None)
    if CPU not in usage or MEMORY not in usage:
        return {CPU: ZERO, MEMORY: ZERO}
    return {name: capacity[name] - usage[name] for name in (CPU, MEMORY)}


def _unallocated(capacity: Amounts, node: Node, pods: Sequence[PodClaim], metric: NodeMetric) -> Amounts:
    """Return what neither the system nor a prod pod has a claim on."""
    measured = metric.status.node_metric
    system = add(usage_amounts(measured.system_usage), host_usage(metric, ABOVE_MID)) if measured is not None else {}
    reserved = maximum(node_reserved(node), system)
    requested = total((pod.cpu_nanos, pod.memory_nanos) for pod in pods if pod.active and pod.prod)
    return {name: max(capacity[name] - reserved.get(name, ZERO) - requested[name], ZERO) for name in (CPU, MEMORY)}


def _shares(strategy: Raw, resource: str) -> _Shares:
    ceiling = strategy.get(f"mid{resource}ThresholdPercent")
    return _Shares(
        ceiling=1.0 if ceiling is None else float(ceiling) / 100.0,
        unallocated=float(strategy.get("midUnallocatedPercent") or 0) / 100.0,
        static=float(strategy.get(f"midStatic{resource}ReservedPercent") or 0) / 100.0,
    )


def _whole(resource: str, amount: Quantity) -> int:
    return amount.milli if resource == CPU else amount.value


def _scaled(resource: str, amount: Quantity, share: float) -> int:
    """Return a share in milli-cores or bytes, cut off as the product of doubles comes out."""
    return scale_milli(amount, share).milli if resource == CPU else scale_value(amount, share).value
