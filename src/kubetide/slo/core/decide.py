"""Decides about one node: its batch and mid resources, what must be written for them, and how they came about.

Everything that is needed lies in the observation; the same function serves the controller, `explain` and the tests.
A plugin that cannot calculate contributes nothing and leaves what is there; it never empties the node by accident.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from kubetide.api.objects.core import Node
from kubetide.api.objects.resources import Amounts, format_list, parse_list
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.qos.qos import ANNOTATION_CPU_NORMALIZATION
from kubetide.api.values.quantity import ZERO
from kubetide.errors import InvalidInput
from kubetide.slo.core import compat
from kubetide.slo.core.continuity import Departure, before_scaling, limit_growth, lingering, unknown_past
from kubetide.slo.core.devices import DEVICE_RESOURCES, DeviceOptions, device_labels, with_devices
from kubetide.slo.core.node_update import (
    ORIGIN_ANNOTATION,
    OVERCOMMITTED,
    NodeState,
    annotations_to_write,
    origin_resources,
    prepare,
    status_needs_write,
)
from kubetide.slo.core.normalization import (
    AMPLIFICATION_ANNOTATION,
    Amplification,
    NormalizationError,
    amplification,
    normalization_annotation,
    ratio_above_one,
    strategy_of,
)
from kubetide.slo.core.observation import NodeDecision, NodeObservation, PluginProblem
from kubetide.slo.core.overcommit.batch import BatchResult, calculate_batch
from kubetide.slo.core.overcommit.mid import calculate_mid
from kubetide.slo.core.overcommit.result import (
    BATCH_RESOURCES,
    MID_RESOURCES,
    ResourceItem,
    aggregation_window,
    degrade_time,
    resets,
    update_time_threshold,
)
from kubetide.slo.core.patches import metadata_patch, status_patch, zones_patch
from kubetide.slo.core.strategy import colocation_disabled, node_strategy
from kubetide.slo.core.trace import trace
from kubetide.slo.settings import SloSettings

Raw = dict[str, Any]
T = TypeVar("T")


def decide_node(seen: NodeObservation, settings: SloSettings, now: datetime) -> NodeDecision:
    """Decide the batch and mid resources of a node and what must be written."""
    strategy = node_strategy(seen.colocation, seen.node, settings.version) or {}
    if colocation_disabled(seen.colocation, seen.node):
        return _reset(seen, settings, strategy, now)
    problems: list[PluginProblem] = []
    annotations = _normalization(seen, settings, problems)
    amplified = _amplification(seen, settings, problems)
    mid = _mid(seen, settings, strategy, now, problems)
    batch, held = _batch(seen, settings, strategy, annotations, now, problems)
    items = (*(mid or ()), *(batch.items if batch is not None else ()))
    owned = (*(MID_RESOURCES if mid is not None else ()), *(BATCH_RESOURCES if batch is not None else ()))
    by_name = {item.name: item for item in items}
    old = NodeState.of_node(seen.node)
    new = prepare(old, by_name, annotations, amplified, owned)
    devices = _devices(settings)
    state = new
    new = (
        _guarded(lambda: with_devices(state, seen.device, devices), "GPUDeviceResource", "NodePrepare", problems)
        or state
    )
    if new.error:
        problems.append(PluginProblem("BatchResource", "NodePrepare", new.error))
    zones = _guarded(
        lambda: zones_patch(seen, by_name, annotations, strategy), "BatchResource", "NodePreUpdate", problems
    )
    labels = device_labels(seen.device, seen.node.metadata.labels or {}, devices)
    written = (*OVERCOMMITTED, *DEVICE_RESOURCES)
    return NodeDecision(
        status_patch=status_patch(old, new, (*owned, *DEVICE_RESOURCES))
        if status_needs_write(strategy, old, new, seen.since_status_write, written)
        else None,
        metadata_patch=metadata_patch(old, new, annotations_to_write(old, new), labels),
        zones=zones,
        zones_version=seen.topology_version,
        look_again_after=_next_look(strategy, seen.metric, now),
        steady_for=steady_for(seen, settings, strategy, now),
        items=items,
        problems=tuple(problems),
        held=held,
        trace=trace(seen.node, strategy, seen.metric, batch.sums if batch is not None else None, items, new, now)
        | {
            "enabled": True,
            "compat": settings.compat,
            "pods": len(seen.pods),
            "lingering": format_list(batch.lingering) if batch is not None else {},
            "problems": [f"{problem.plugin}: {problem.message}" for problem in problems],
        },
    )


def _reset(seen: NodeObservation, settings: SloSettings, strategy: Raw, now: datetime) -> NodeDecision:
    """Colocation is off: take batch and mid resources away. The normalization annotation stays."""
    owned = _owned(settings)
    items = resets(owned, "colocation is disabled")
    old = NodeState.of_node(seen.node)
    amplified = Amplification(None) if settings.calculates("ResourceAmplification") else None
    new = prepare(old, {item.name: item for item in items}, {}, amplified, owned)
    if not any(name in old.allocatable or name in old.capacity for name in owned):
        # Nothing is overcommitted, so nothing is worth recording either.
        new = NodeState(new.capacity, new.allocatable, _same_origin(new.annotations, old.annotations))
    return NodeDecision(
        status_patch=status_patch(old, new, owned)
        if status_needs_write(strategy, old, new, seen.since_status_write)
        else None,
        metadata_patch=metadata_patch(old, new, (AMPLIFICATION_ANNOTATION,)),
        items=items,
        disabled=True,
        trace=trace(seen.node, strategy, seen.metric, None, items, new, now)
        | {"enabled": False, "compat": settings.compat, "pods": len(seen.pods), "problems": []},
    )


def _owned(settings: SloSettings) -> tuple[str, ...]:
    """Return the resources whose plugins are switched on; others are not ours to write."""
    plugins = {"MidResource": MID_RESOURCES, "BatchResource": BATCH_RESOURCES}
    return tuple(name for plugin, names in plugins.items() if settings.calculates(plugin) for name in names)


def _devices(settings: SloSettings) -> DeviceOptions:
    """Return which devices are copied; before they were plugins, GPUs were copied always."""
    return DeviceOptions(
        gpus=settings.calculates("GPUDeviceResource") or not settings.version.has(compat.DEVICE_PLUGINS),
        rdma=settings.calculates("RDMADeviceResource"),
        share_count=settings.gate("EnableSyncGPUSharedResource"),
        compat=settings.version,
    )


def _guarded(calculate: Callable[[], T], plugin: str, stage: str, problems: list[PluginProblem]) -> T | None:
    """Return what a plugin calculates; None, and a problem, if something it reads cannot be read."""
    try:
        return calculate()
    except InvalidInput as error:
        problems.append(PluginProblem(plugin, stage, str(error)))
        return None


def _mid(
    seen: NodeObservation, settings: SloSettings, strategy: Raw, now: datetime, problems: list[PluginProblem]
) -> tuple[ResourceItem, ...] | None:
    """Return the mid resources; None if they are not calculated, or cannot be."""
    if not settings.calculates("MidResource") or seen.node.status.allocatable is None:
        return None
    metric = seen.metric if seen.metric is not None else NodeMetric()
    return _guarded(
        lambda: calculate_mid(strategy, seen.node, seen.pods, metric, now, settings.version),
        "MidResource",
        "ResourceCalculate",
        problems,
    )


def _batch(
    seen: NodeObservation,
    settings: SloSettings,
    strategy: Raw,
    annotations: Mapping[str, str],
    now: datetime,
    problems: list[PluginProblem],
) -> tuple[BatchResult | None, tuple[Departure, ...]]:
    """Return the batch resources (None: not calculated), and what is held back for a past that is not known."""
    if not settings.calculates("BatchResource"):
        return None, ()
    metric = seen.metric if seen.metric is not None else NodeMetric()
    window = aggregation_window(strategy)
    current = before_scaling(_batch_on(seen.node), ratio_above_one(annotations))

    def calculated(departures: Sequence[Departure]) -> BatchResult:
        still_counted = lingering(departures, seen.pods, metric, window, now) if settings.gradual_release else ()
        return calculate_batch(
            strategy, seen.node, seen.pods, metric, seen.topology, now, still_counted, settings.version
        )

    def steadied() -> tuple[BatchResult, tuple[Departure, ...]]:
        held: tuple[Departure, ...] = ()
        found = calculated(seen.departures)
        if settings.gradual_release and seen.watched_for is not None and seen.watched_for < window:
            held = unknown_past(found.items, current, seen.pods, metric, now)
            found = calculated((*seen.departures, *held))
        capacity = parse_list(_only(seen.node.status.capacity or {}, ("cpu", "memory")))
        return replace(found, items=limit_growth(found.items, current, capacity, settings.growth_limit_percent)), held

    return _guarded(steadied, "BatchResource", "ResourceCalculate", problems) or (None, ())


def _batch_on(node: Node) -> Amounts:
    """Return the batch resources of a node, before allocations of other schedulers are taken off."""
    shown = parse_list(_only(node.status.allocatable or {}, BATCH_RESOURCES))
    origin = origin_resources(node.metadata.annotations or {})
    return {name: max(quantity, origin.get(name, ZERO)) for name, quantity in shown.items()}


def _same_origin(annotations: Mapping[str, str], old: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in annotations.items() if name != ORIGIN_ANNOTATION}
    return {**kept, **({ORIGIN_ANNOTATION: old[ORIGIN_ANNOTATION]} if ORIGIN_ANNOTATION in old else {})}


def _normalization(seen: NodeObservation, settings: SloSettings, problems: list[PluginProblem]) -> dict[str, str]:
    if not settings.calculates("CPUNormalization"):
        return {}
    strategy = strategy_of(seen.normalization, seen.node)
    info = seen.topology_annotations.get("node.koordinator.sh/cpu-basic-info")
    try:
        return {ANNOTATION_CPU_NORMALIZATION: normalization_annotation(strategy, seen.node, info)}
    except NormalizationError as error:
        problems.append(PluginProblem("CPUNormalization", "ResourceCalculate", str(error)))
        return {}


def _amplification(seen: NodeObservation, settings: SloSettings, problems: list[PluginProblem]) -> Amplification | None:
    if not settings.calculates("ResourceAmplification"):
        return None
    found = amplification(seen.node, strategy_of(seen.amplification, seen.node))
    if found.error:
        problems.append(PluginProblem("ResourceAmplification", "ResourceCalculate", found.error))
    return found


def _next_look(strategy: Raw, metric: NodeMetric | None, now: datetime) -> timedelta | None:
    """Return when the report will be too old: nobody sends an event for that."""
    if metric is None or metric.status.update_time is None:
        return None
    wait = degrade_time(strategy) - (now - metric.status.update_time) + timedelta(seconds=1)
    return wait if wait > timedelta(0) else None


def steady_for(seen: NodeObservation, settings: SloSettings, strategy: Raw, now: datetime) -> timedelta | None:
    """Return how long the same observation leads to the same decision; None: until something in it changes.

    Time itself counts in three places: a report becomes too old, small drifts are written once the last write is old
    enough, and what has left the node is released over a window.
    """
    window, limit = aggregation_window(strategy), update_time_threshold(strategy)
    if settings.gradual_release and (
        seen.watched_for is not None or any(now - departure.left_at <= window for departure in seen.departures)
    ):
        return timedelta(0)
    ends = [limit - since for since in (seen.since_status_write, seen.since_zone_write) if since is not None]
    ends = [end for end in ends if end >= timedelta(0)]
    look = _next_look(strategy, seen.metric, now)
    return min([*ends, *([look - timedelta(seconds=1)] if look is not None else [])], default=None)


def _only(resources: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: resources[name] for name in names if name in resources}
