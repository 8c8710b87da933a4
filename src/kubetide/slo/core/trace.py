"""How the numbers of a node came about, as JSON: what `explain` shows and the dashboard draws."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kubetide.api.objects.core import Node
from kubetide.api.objects.resources import format_list
from kubetide.api.objects.slo import NodeMetric
from kubetide.slo.core.node_update import NodeState
from kubetide.slo.core.overcommit.batch import Sums
from kubetide.slo.core.overcommit.result import ResourceItem

Raw = dict[str, Any]


def trace(
    node: Node,
    strategy: Mapping[str, Any],
    metric: NodeMetric | None,
    sums: Sums | None,
    items: Iterable[ResourceItem],
    new: NodeState,
    now: datetime,
) -> Raw:
    """Return the inputs with their ages, the sums and the resources; `new` is the node as it should be."""
    reported = metric.status.update_time if metric is not None else None
    return {
        "node": node.metadata.name,
        "at": now.isoformat(),
        "strategy": dict(strategy),
        "reportedPods": len(metric.status.pods_metric or ()) if metric is not None else 0,
        "reportAgeSeconds": None if reported is None else (now - reported).total_seconds(),
        "sums": None if sums is None else _sums(sums),
        "items": [
            {
                "resource": item.name,
                "quantity": None if item.quantity is None else str(item.quantity),
                "zones": {zone: str(quantity) for zone, quantity in item.zones.items()},
                "reset": item.reset,
                "reason": item.message,
                "onNode": new.allocatable.get(item.name),
            }
            for item in items
        ],
    }


def _sums(sums: Sums) -> Raw:
    return {
        "capacity": format_list(sums.capacity),
        "margin": format_list(sums.node_reserved),
        "systemReserved": format_list(sums.system_reserved),
        "systemUsed": format_list(sums.system_used),
        "podsRequested": format_list(sums.requested),
        "podsUsed": format_list(sums.used),
        "podsMaxUsedRequested": format_list(sums.max_used_requested),
    }
