"""What must be written, as small as possible: only our own resources and annotations, only where they change."""

from collections.abc import Mapping, Sequence
from typing import Any

from kubetide.api.values.quantity import ZERO, Quantity, parse_quantity
from kubetide.slo.core.arithmetic import differs, scale_milli
from kubetide.slo.core.node_update import ORIGIN_ANNOTATION, NodeState
from kubetide.slo.core.normalization import ratio_above_one
from kubetide.slo.core.observation import NodeObservation
from kubetide.slo.core.overcommit.result import BATCH_CPU, BATCH_RESOURCES, ResourceItem, update_time_threshold

Raw = dict[str, Any]
_ZONE_PARTS = ("capacity", "allocatable", "available")


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
    annotations = metadata_patch(old, new, (ORIGIN_ANNOTATION,))
    return {**({"status": status} if status else {}), **(annotations or {})}


def metadata_patch(
    old: NodeState, new: NodeState, names: Sequence[str], labels: Mapping[str, str] | None = None
) -> Raw | None:
    """Return the merge patch for the named annotations that change, and for labels."""
    changes = {
        name: new.annotations.get(name) for name in names if old.annotations.get(name) != new.annotations.get(name)
    }
    parts = {**({"annotations": changes} if changes else {}), **({"labels": dict(labels)} if labels else {})}
    return {"metadata": parts} if parts else None


def update_zones(
    zones: Sequence[Raw],
    values: Mapping[str, Mapping[str, Quantity]],
    annotations: Mapping[str, str] | None,
    threshold: float,
) -> tuple[list[Raw], bool]:
    """Return the zones with their batch resources set where they moved by more than the threshold, and whether any did.

    A zone without new values has nothing left: its batch resources become zero.
    """
    ratio = ratio_above_one(annotations)
    changed = False
    result = []
    for zone in zones:
        resources = {_name(resource): dict(resource) for resource in zone.get("resources") or ()}
        for name in BATCH_RESOURCES:
            wanted = _wanted(values.get(_name(zone)), name, ratio)
            changed = _set(resources, name, wanted, threshold) or changed
        result.append({**zone, "resources": [resources[name] for name in sorted(resources)]})
    return result, changed


def _wanted(values: Mapping[str, Quantity] | None, name: str, ratio: float) -> Quantity:
    quantity = (values or {}).get(name, ZERO)
    return scale_milli(quantity, ratio) if name == BATCH_CPU and ratio > 1 else quantity


def _set(resources: dict[str, Raw], name: str, wanted: Quantity, threshold: float) -> bool:
    found = resources.get(name)
    if found is None:
        resources[name] = {"name": name, **dict.fromkeys(_ZONE_PARTS, str(wanted))}
        return True
    changed = False
    for part in _ZONE_PARTS:
        old = parse_quantity(found.get(part) or "0")
        if differs({name: old}, {name: wanted}, name, threshold):
            found[part] = str(wanted)
            changed = True
    return changed


def _name(part: Raw) -> str:
    return str(part.get("name") or "")
