"""What must be written, as small as possible: only our own resources and annotations, only where they change."""

from collections.abc import Mapping, Sequence
from typing import Any

from kubetide.api.values.quantity import Quantity
from kubetide.slo.core.devices import (
    GPU_RESOURCES,
    gpu_labels,
    gpu_resources,
    gpus_differ,
    gpus_need_write,
    with_gpus,
)
from kubetide.slo.core.node_update import ORIGIN_ANNOTATION, NodeState
from kubetide.slo.core.observation import NodeObservation
from kubetide.slo.core.overcommit.result import BATCH_RESOURCES, ResourceItem, update_time_threshold
from kubetide.slo.core.zones import update_zones

Raw = dict[str, Any]


def zones_patch(
    seen: NodeObservation, items: Mapping[str, ResourceItem], annotations: Mapping[str, str], strategy: Raw
) -> list[Raw] | None:
    """Return the zones if they must be written."""
    names = [name for name in BATCH_RESOURCES if name in items and items[name].zones]
    if not names or not seen.zones:
        return None
    values: dict[str, dict[str, Quantity]] = {}
    for name in names:
        for zone, quantity in items[name].zones.items():
            values.setdefault(zone, {})[name] = quantity
    threshold = float(strategy.get("resourceDiffThreshold") or 0)
    zones, changed = update_zones(seen.zones, values, annotations, threshold)
    if not changed and (seen.since_zone_write is None or seen.since_zone_write > update_time_threshold(strategy)):
        zones, changed = update_zones(seen.zones, values, annotations, 0.0)
    return zones if changed else None


def device_patch(seen: NodeObservation, strategy: Raw) -> Raw | None:
    """Return the patch for the GPUs of the node: resources and labels."""
    old = NodeState.of_node(seen.node)
    new = with_gpus(old, seen.device)
    threshold = float(strategy.get("resourceDiffThreshold") or 0)
    late = seen.since_device_write is None or seen.since_device_write > update_time_threshold(strategy)
    patch: Raw = {}
    if gpus_need_write(old, new, threshold) or (late and gpus_differ(old, new)):
        patch = status_patch(old, new, GPU_RESOURCES) or {}
    if seen.device is not None and gpu_resources(seen.device):
        labels = gpu_labels(seen.device, seen.node.metadata.labels or {})
        if labels:
            patch["labels"] = labels
    return patch or None


def status_patch(old: NodeState, new: NodeState, names: Sequence[str]) -> Raw:
    """Return the merge patch that sets, changes and removes just our resources, and records their origin."""
    status: Raw = {}
    for part, before, after in (
        ("capacity", old.capacity, new.capacity),
        ("allocatable", old.allocatable, new.allocatable),
    ):
        changes = {name: after.get(name) for name in names if before.get(name) != after.get(name)}
        if changes:
            status[part] = changes
    annotations = annotations_patch(old, new, (ORIGIN_ANNOTATION,))
    return {**({"status": status} if status else {}), **(annotations or {})}


def annotations_patch(old: NodeState, new: NodeState, names: Sequence[str]) -> Raw | None:
    """Return the merge patch for the named annotations, if one of them changes."""
    changes = {
        name: new.annotations.get(name) for name in names if old.annotations.get(name) != new.annotations.get(name)
    }
    return {"metadata": {"annotations": changes}} if changes else None
