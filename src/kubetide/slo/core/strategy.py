"""The colocation strategy of one node: the ConfigMap's choice, then the node's own annotation, then its labels."""

from collections.abc import Mapping
from typing import Any

from kubetide.api.objects.core import Node
from kubetide.api.qos.slo_merge import COLOCATION, overlay
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import parse_float
from kubetide.errors import DecodeError, InvalidInput
from kubetide.slo.core import compat as since
from kubetide.slo.core import shapes
from kubetide.slo.core.compat import NEWEST
from kubetide.slo.core.config import acceptance_problem, choose, own_fields, read_shape

Raw = dict[str, Any]

STRATEGY_ANNOTATION = "node.koordinator.sh/colocation-strategy"
CPU_RECLAIM_LABEL = "node.koordinator.sh/cpu-reclaim-ratio"
MEMORY_RECLAIM_LABEL = "node.koordinator.sh/memory-reclaim-ratio"
MID_STATIC_CPU_LABEL = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
MID_STATIC_MEMORY_LABEL = "node.koordinator.sh/mid-static-memory-reserved-ratio"
_RECLAIM_LABELS = {
    CPU_RECLAIM_LABEL: "cpuReclaimThresholdPercent",
    MEMORY_RECLAIM_LABEL: "memoryReclaimThresholdPercent",
}
_STATIC_LABELS = {
    MID_STATIC_CPU_LABEL: "midStaticCPUReservedPercent",
    MID_STATIC_MEMORY_LABEL: "midStaticMemoryReservedPercent",
}
_MOST_PERCENT = 2**63 - 1


def node_strategy(config: Mapping[str, Any] | None, node: Node | None, compat: Compat = NEWEST) -> Raw | None:
    """Return the effective strategy; labels beat the annotation, the annotation beats the ConfigMap."""
    if config is None or node is None:
        return None
    labels = node.metadata.labels or {}
    strategy: Raw = {name: value for name, value in config.items() if name != "nodeConfigs"}
    if (entry := choose(config.get("nodeConfigs"), labels)) is not None:
        strategy = overlay(strategy, own_fields(entry))
    strategy = overlay(strategy, _annotated(node, compat))
    ratios = _RECLAIM_LABELS | (_STATIC_LABELS if compat.has(since.MID_STATIC) else {})
    for label, field in ratios.items():
        if (percent := _percent(labels.get(label))) is not None:
            strategy[field] = percent
    return strategy


def colocation_disabled(config: Mapping[str, Any] | None, node: Node | None) -> bool:
    """Return whether nothing of a node may be overcommitted: it cannot switch on what the cluster switched off."""
    if not config or config.get("enable") is not True:
        return True
    strategy = node_strategy(config, node)
    return strategy is None or strategy.get("enable") is not True


def metric_spec(
    config: Mapping[str, Any] | None, *, error: bool, node: Node | None, old: Raw | None, compat: Compat = NEWEST
) -> Raw:
    """Return the NodeMetric spec of a node. While the colocation text is bad an existing spec stays as it is.

    The four fields come from the strategy or from the defaults, never from both: what a strategy leaves open (one
    that was merged over the defaults leaves nothing open) stays open here too, and the agent completes it.
    """
    if old is not None and error:
        return old
    chosen: Mapping[str, Any] = COLOCATION
    strategy = node_strategy(config, node, compat)
    if strategy is not None and acceptance_problem(strategy, compat) is None and strategy.get("enable") is True:
        chosen = strategy
    policy = {field: chosen[name] for name, field in _METRIC_FIELDS.items() if chosen.get(name) is not None}
    return {"metricCollectPolicy": policy}


_METRIC_FIELDS = {
    "metricAggregateDurationSeconds": "aggregateDurationSeconds",
    "metricReportIntervalSeconds": "reportIntervalSeconds",
    "metricAggregatePolicy": "nodeAggregatePolicy",
    "metricMemoryCollectPolicy": "nodeMemoryCollectPolicy",
}


def _annotated(node: Node, compat: Compat) -> Raw:
    """Return the strategy that the node's annotation holds; text that cannot be read says nothing."""
    text = (node.metadata.annotations or {}).get(STRATEGY_ANNOTATION)
    if not text:
        return {}
    try:
        return read_shape(text, shapes.ColocationStrategy, what=STRATEGY_ANNOTATION, compat=compat)
    except DecodeError:
        return {}


def _percent(text: str | None) -> int | None:
    """Turn a ratio label into whole percent, cut off as the product of doubles comes out (0.29 gives 28)."""
    if text is None:
        return None
    try:
        ratio = parse_float(text)
    except InvalidInput:
        return None
    percent = ratio * 100
    return int(percent) if ratio >= 0 and percent <= _MOST_PERCENT else None
