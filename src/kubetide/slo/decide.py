"""One node, one decision: what it lends, what must be written for that, and how it came about.

Everything that is needed lies in the observation; the same function serves the controller, `explain` and the tests.
A plugin that cannot calculate contributes nothing and leaves what is there; it never empties the node by accident.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.core import Node
from kubetide.api.qos import ANNOTATION_CPU_NORMALIZATION
from kubetide.api.quantity import Quantity
from kubetide.api.resources import Amounts, parse_list
from kubetide.api.slo import Device, NodeMetric, NodeResourceTopology
from kubetide.slo.continuity import Departure, limit_growth, lingering
from kubetide.slo.devices import GPU_RESOURCES, gpu_labels, gpu_resources, gpus_differ, gpus_need_write, with_gpus
from kubetide.slo.nodewrite import (
    ORIGIN_ANNOTATION,
    NodeState,
    metadata_needs_write,
    prepare,
    status_needs_write,
)
from kubetide.slo.normalization import (
    AMPLIFICATION_ANNOTATION,
    Amplification,
    NormalizationError,
    amplification,
    normalization_annotation,
    normalization_strategy,
)
from kubetide.slo.overcommit.batch import BatchResult, Sums, calculate_batch
from kubetide.slo.overcommit.claims import PodClaim
from kubetide.slo.overcommit.mid import calculate_mid
from kubetide.slo.overcommit.result import BATCH_RESOURCES, MID_RESOURCES, ResourceItem, resets
from kubetide.slo.settings import SloSettings
from kubetide.slo.strategy import colocation_disabled, node_strategy
from kubetide.slo.zones import update_zones

Raw = dict[str, Any]

_OVERCOMMITTED = (*MID_RESOURCES, *BATCH_RESOURCES)
_ANNOTATIONS = (ANNOTATION_CPU_NORMALIZATION, AMPLIFICATION_ANNOTATION, ORIGIN_ANNOTATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObservation:
    """All that is known about a node at one instant."""

    node: Node
    pods: Sequence[PodClaim]
    metric: NodeMetric | None
    topology: NodeResourceTopology | None
    zones: Sequence[Raw]
    """The zones of the topology as they are stored, with the fields that kubetide does not know."""
    topology_annotations: Mapping[str, str]
    device: Device | None
    colocation: Mapping[str, Any]
    normalization: Mapping[str, Any]
    since_status_write: timedelta | None = None
    since_zone_write: timedelta | None = None
    since_device_write: timedelta | None = None
    departures: Sequence[Departure] = ()


@dataclass(frozen=True, slots=True)
class PluginProblem:
    """A plugin that could not do its part, and at which stage."""

    plugin: str
    stage: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDecision:
    """What to write (None: leave alone), when to look again, and why."""

    status_patch: Raw | None = None
    metadata_patch: Raw | None = None
    zones: list[Raw] | None = None
    device_patch: Raw | None = None
    look_again_after: timedelta | None = None
    items: tuple[ResourceItem, ...] = ()
    problems: tuple[PluginProblem, ...] = ()
    disabled: bool = False
    """Colocation is off: what was lent is taken away."""
    trace: Raw = field(default_factory=dict)


def decide_node(seen: NodeObservation, settings: SloSettings, now: datetime) -> NodeDecision:
    """Decide what one node lends and what must be written."""
    strategy = node_strategy(seen.colocation, seen.node) or {}
    if colocation_disabled(seen.colocation, seen.node):
        return _reset(seen, strategy, now)
    problems: list[PluginProblem] = []
    annotations = _normalization(seen, settings, problems)
    amplified = _amplification(seen, settings, problems)
    metric = seen.metric if seen.metric is not None else NodeMetric()
    items: list[ResourceItem] = []
    if settings.calculates("MidResource") and seen.node.status.allocatable is not None:
        items += calculate_mid(strategy, seen.node, metric, now)
    batch = BatchResult(())
    if settings.calculates("BatchResource"):
        still_counted = lingering(seen.departures, _window(strategy), now) if settings.gradual_release else None
        batch = calculate_batch(strategy, seen.node, seen.pods, metric, seen.topology, now, still_counted)
        current = parse_list(_only(seen.node.status.allocatable or {}, BATCH_RESOURCES))
        capacity = parse_list(_only(seen.node.status.capacity or {}, ("cpu", "memory")))
        items += limit_growth(batch.items, current, capacity, settings.growth_limit_percent)
    by_name = {item.name: item for item in items}
    old = NodeState.of_node(seen.node)
    new = prepare(old, by_name, annotations, amplified)
    if new.error:
        problems.append(PluginProblem("BatchResource", "NodePrepare", new.error))
    zones, zones_differ = _zones(seen, by_name, annotations, strategy)
    return NodeDecision(
        status_patch=_status_patch(old, new, _OVERCOMMITTED)
        if status_needs_write(strategy, old, new, seen.since_status_write)
        else None,
        metadata_patch=_annotations_patch(old, new, _ANNOTATIONS[:2]) if metadata_needs_write(old, new) else None,
        zones=zones if zones_differ else None,
        device_patch=_device_patch(seen, strategy),
        look_again_after=_next_look(strategy, metric, now),
        items=tuple(items),
        problems=tuple(problems),
        trace=_trace(seen, strategy, batch.sums, items, new, now)
        | {"problems": [f"{problem.plugin}: {problem.message}" for problem in problems]},
    )


def _reset(seen: NodeObservation, strategy: Raw, now: datetime) -> NodeDecision:
    """Colocation is off: take away what is lent. The normalization annotation stays."""
    items = resets(_OVERCOMMITTED, "colocation is disabled")
    old = NodeState.of_node(seen.node)
    new = prepare(old, {item.name: item for item in items}, {}, Amplification(None))
    if not any(name in old.allocatable or name in old.capacity for name in _OVERCOMMITTED):
        # Nothing is lent, so nothing is worth recording either.
        new = NodeState(new.capacity, new.allocatable, _same_origin(new.annotations, old.annotations))
    return NodeDecision(
        status_patch=_status_patch(old, new, _OVERCOMMITTED)
        if status_needs_write(strategy, old, new, seen.since_status_write)
        else None,
        metadata_patch=_annotations_patch(old, new, (AMPLIFICATION_ANNOTATION,))
        if AMPLIFICATION_ANNOTATION in old.annotations
        else None,
        items=items,
        disabled=True,
        trace=_trace(seen, strategy, None, list(items), new, now),
    )


def _same_origin(annotations: Mapping[str, str], old: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in annotations.items() if name != ORIGIN_ANNOTATION}
    return {**kept, **({ORIGIN_ANNOTATION: old[ORIGIN_ANNOTATION]} if ORIGIN_ANNOTATION in old else {})}


def _normalization(seen: NodeObservation, settings: SloSettings, problems: list[PluginProblem]) -> dict[str, str]:
    if not settings.calculates("CPUNormalization"):
        return {}
    strategy = normalization_strategy(seen.normalization, seen.node)
    info = seen.topology_annotations.get("node.koordinator.sh/cpu-basic-info")
    try:
        return {ANNOTATION_CPU_NORMALIZATION: normalization_annotation(strategy, seen.node, info)}
    except NormalizationError as error:
        problems.append(PluginProblem("CPUNormalization", "ResourceCalculate", str(error)))
        return {}


def _amplification(seen: NodeObservation, settings: SloSettings, problems: list[PluginProblem]) -> Amplification | None:
    if not settings.calculates("ResourceAmplification"):
        return None
    found = amplification(seen.node)
    if found.error:
        problems.append(PluginProblem("ResourceAmplification", "ResourceCalculate", found.error))
    return found


def _zones(
    seen: NodeObservation, items: Mapping[str, ResourceItem], annotations: Mapping[str, str], strategy: Raw
) -> tuple[list[Raw], bool]:
    """Return the zones and whether they must be written."""
    names = [name for name in BATCH_RESOURCES if name in items and items[name].zones]
    if not names or not seen.zones:
        return [], False
    values: dict[str, dict[str, Quantity]] = {}
    for name in names:
        for zone, quantity in items[name].zones.items():
            values.setdefault(zone, {})[name] = quantity
    threshold = float(strategy.get("resourceDiffThreshold") or 0)
    zones, changed = update_zones(seen.zones, values, annotations, threshold)
    if changed:
        return zones, True
    limit = timedelta(seconds=int(strategy.get("updateTimeThresholdSeconds") or 0))
    if seen.since_zone_write is not None and seen.since_zone_write <= limit:
        return [], False
    return update_zones(seen.zones, values, annotations, 0.0)


def _device_patch(seen: NodeObservation, strategy: Raw) -> Raw | None:
    old = NodeState.of_node(seen.node)
    new = with_gpus(old, seen.device)
    threshold = float(strategy.get("resourceDiffThreshold") or 0)
    limit = timedelta(seconds=int(strategy.get("updateTimeThresholdSeconds") or 0))
    late = seen.since_device_write is None or seen.since_device_write > limit
    patch: Raw = {}
    if gpus_need_write(old, new, threshold) or (late and gpus_differ(old, new)):
        patch = _status_patch(old, new, GPU_RESOURCES) or {}
    if seen.device is not None and gpu_resources(seen.device):
        labels = gpu_labels(seen.device, seen.node.metadata.labels or {})
        if labels:
            patch["labels"] = labels
    return patch or None


def _status_patch(old: NodeState, new: NodeState, names: Sequence[str]) -> Raw:
    """Return the merge patch that sets, changes and removes just our resources, and records their origin."""
    status: Raw = {}
    for part, before, after in (
        ("capacity", old.capacity, new.capacity),
        ("allocatable", old.allocatable, new.allocatable),
    ):
        changes = {name: after.get(name) for name in names if before.get(name) != after.get(name)}
        if changes:
            status[part] = changes
    annotations = _annotations_patch(old, new, (ORIGIN_ANNOTATION,))
    return {**({"status": status} if status else {}), **(annotations or {})}


def _annotations_patch(old: NodeState, new: NodeState, names: Sequence[str]) -> Raw | None:
    changes = {
        name: new.annotations.get(name) for name in names if old.annotations.get(name) != new.annotations.get(name)
    }
    return {"metadata": {"annotations": changes}} if changes else None


def _next_look(strategy: Raw, metric: NodeMetric, now: datetime) -> timedelta | None:
    """Return when the report will be too old: nobody sends an event for that."""
    if metric.status.update_time is None:
        return None
    limit = metric.status.update_time + timedelta(minutes=int(strategy.get("degradeTimeMinutes") or 0))
    wait = limit - now + timedelta(seconds=1)
    return wait if wait > timedelta(0) else None


def _window(strategy: Raw) -> timedelta:
    return timedelta(seconds=int(strategy.get("metricAggregateDurationSeconds") or 300))


def _only(resources: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: resources[name] for name in names if name in resources}


def _trace(
    seen: NodeObservation,
    strategy: Raw,
    sums: Sums | None,
    items: Sequence[ResourceItem],
    new: NodeState,
    now: datetime,
) -> Raw:
    """Return how the numbers came about, as JSON."""
    metric = seen.metric
    reported = metric.status.update_time if metric is not None else None
    return {
        "node": seen.node.metadata.name,
        "at": now.isoformat(),
        "enabled": not colocation_disabled(seen.colocation, seen.node),
        "strategy": strategy,
        "pods": len(seen.pods),
        "reportedPods": len(metric.status.pods_metric or ()) if metric is not None else 0,
        "reportAgeSeconds": None if reported is None else (now - reported).total_seconds(),
        "sums": None if sums is None else _sums_trace(sums),
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


def _sums_trace(sums: Sums) -> Raw:
    def text(amounts: Amounts) -> dict[str, str]:
        return {name: str(amount) for name, amount in amounts.items()}

    return {
        "capacity": text(sums.capacity),
        "margin": text(sums.node_reserved),
        "systemReserved": text(sums.system_reserved),
        "systemUsed": text(sums.system_used),
        "podsRequested": text(sums.requested),
        "podsUsed": text(sums.used),
        "podsMaxUsedRequested": text(sums.max_used_requested),
    }
