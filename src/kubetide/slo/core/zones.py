"""Batch resources in the NUMA zones of a NodeResourceTopology, and how zone lists compare."""

from collections.abc import Mapping, Sequence
from typing import Any

from kubetide.api.values.quantity import ZERO, Quantity, parse_quantity
from kubetide.slo.core.arithmetic import differs, scale_milli
from kubetide.slo.core.normalization import ratio_above_one
from kubetide.slo.core.overcommit.result import BATCH_CPU, BATCH_RESOURCES

Raw = dict[str, Any]
_PARTS = ("capacity", "allocatable", "available")


def update_zones(
    zones: Sequence[Raw],
    values: Mapping[str, Mapping[str, Quantity]],
    annotations: Mapping[str, str] | None,
    threshold: float,
) -> tuple[list[Raw], bool]:
    """Return the zones with their batch resources set where they moved by more than the threshold, and whether any did.

    A zone without new values has nothing to lend: its batch resources become zero.
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
        resources[name] = {"name": name, **dict.fromkeys(_PARTS, str(wanted))}
        return True
    changed = False
    for part in _PARTS:
        old = parse_quantity(found.get(part) or "0")
        if differs({name: old}, {name: wanted}, name, threshold):
            found[part] = str(wanted)
            changed = True
    return changed


def _name(part: Raw) -> str:
    return str(part.get("name") or "")
