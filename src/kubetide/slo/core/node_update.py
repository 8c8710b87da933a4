"""From calculated resources to the node: what its status and annotations become, and whether to write at all.

Batch resources have two lives. The *origin* is what was calculated; it is recorded in an annotation before the
allocations of other schedulers on the node are taken off. Status is written when a resource moved by more than the
threshold; after the time threshold small drifts are written too, but never when nothing differs at all: an idle
cluster causes no writes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from kubetide.api.objects.core import Node, ResourceList
from kubetide.api.objects.meta import ApiObject
from kubetide.api.objects.resources import Amounts, add, parse_list
from kubetide.api.qos.qos import ANNOTATION_CPU_NORMALIZATION
from kubetide.api.values.codec import decode_folded
from kubetide.api.values.quantity import ZERO, Quantity, parse_quantity
from kubetide.errors import InvalidInput
from kubetide.slo.core.arithmetic import differs, scale_milli
from kubetide.slo.core.normalization import (
    AMPLIFICATION_ANNOTATION,
    Amplification,
    annotation_needs_write,
    ratio_above_one,
)
from kubetide.slo.core.overcommit.result import (
    BATCH_CPU,
    BATCH_RESOURCES,
    MID_RESOURCES,
    ResourceItem,
    update_time_threshold,
)

ORIGIN_ANNOTATION = "node.koordinator.sh/originExtendedAllocatable"
THIRD_PARTY_ANNOTATION = "node.koordinator.sh/thirdPartyAllocations"
OVERCOMMITTED = (*MID_RESOURCES, *BATCH_RESOURCES)


class ThirdPartyAllocation(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    priority: str = ""
    resources: ResourceList | None = None


class OriginAllocatable(ApiObject, frozen=True, kw_only=True, gc=False):
    resources: ResourceList | None = None


class ThirdPartyAllocations(ApiObject, frozen=True, kw_only=True, gc=False):
    allocations: tuple[ThirdPartyAllocation, ...] | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """The part of a node that is written here, as raw texts."""

    capacity: Mapping[str, Any]
    allocatable: Mapping[str, Any]
    annotations: Mapping[str, str]
    error: str = ""

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "NodeState":
        """Read the state off a raw Node."""
        status = node.get("status") or {}
        annotations = (node.get("metadata") or {}).get("annotations") or {}
        return cls(dict(status.get("capacity") or {}), dict(status.get("allocatable") or {}), dict(annotations))

    @classmethod
    def of_node(cls, node: Node) -> "NodeState":
        """Read the state off a typed Node."""
        return cls(node.status.capacity or {}, node.status.allocatable or {}, node.metadata.annotations or {})


def prepare(
    node: NodeState,
    items: Mapping[str, ResourceItem],
    annotations: Mapping[str, str],
    amplified: Amplification | None = None,
    owned: Collection[str] = OVERCOMMITTED,
) -> NodeState:
    """Return the node as it should be: normalization, amplification, mid, then batch resources.

    Only `owned` resources are touched: those of a plugin that is switched off, or that failed, stay as they are.
    """
    found = dict(node.annotations)
    if ANNOTATION_CPU_NORMALIZATION in annotations:
        found[ANNOTATION_CPU_NORMALIZATION] = annotations[ANNOTATION_CPU_NORMALIZATION]
    if amplified is not None:
        found.pop(AMPLIFICATION_ANNOTATION, None)
        if amplified.annotation is not None:
            found[AMPLIFICATION_ANNOTATION] = amplified.annotation
    state = NodeState(node.capacity, node.allocatable, found)
    if owned_by(owned, MID_RESOURCES):
        state = _with_resources(state, MID_RESOURCES, items, 1.0)
    return prepare_batch(state, items, annotations) if owned_by(owned, BATCH_RESOURCES) else state


def owned_by(owned: Collection[str], names: tuple[str, ...]) -> bool:
    """Return whether resources are among the owned ones."""
    return all(name in owned for name in names)


def prepare_batch(node: NodeState, items: Mapping[str, ResourceItem], annotations: Mapping[str, str]) -> NodeState:
    """Return the node with its batch resources, their origin recorded, other schedulers' allocations taken off."""
    state = _with_resources(node, BATCH_RESOURCES, items, ratio_above_one(annotations))
    origin = {name: str(parse_quantity(state.allocatable.get(name, "0"))) for name in BATCH_RESOURCES}
    recorded = _origin_annotation(node.annotations.get(ORIGIN_ANNOTATION), origin)
    state = NodeState(state.capacity, state.allocatable, {**state.annotations, ORIGIN_ANNOTATION: recorded})
    present = [name for name in BATCH_RESOURCES if name in state.allocatable]
    if not present:
        return state
    try:
        taken = _third_party(node.annotations.get(THIRD_PARTY_ANNOTATION))
    except InvalidInput as error:
        return NodeState(state.capacity, state.allocatable, state.annotations, error=str(error))
    if not taken:
        return state
    left = {name: str(max(parse_quantity(state.allocatable[name]) - taken.get(name, ZERO), ZERO)) for name in present}
    return NodeState({**state.capacity, **left}, {**state.allocatable, **left}, state.annotations)


def resources_need_write(old: NodeState, new: NodeState, threshold: float, names: tuple[str, ...]) -> bool:
    """Return whether an allocatable resource moved by more than the threshold."""
    before, after = _amounts(old.allocatable, names), _amounts(new.allocatable, names)
    return any(differs(before, after, name, threshold) for name in names)


def status_needs_write(
    strategy: Mapping[str, Any],
    old: NodeState,
    new: NodeState,
    since: timedelta | None,
    names: tuple[str, ...] = OVERCOMMITTED,
) -> bool:
    """Return whether the status must be written; `since` is the time since this process wrote it (None: never)."""
    if not new.capacity or not new.allocatable:
        return False
    if resources_need_write(old, new, float(strategy.get("resourceDiffThreshold") or 0), names):
        return True
    return (since is None or since > update_time_threshold(strategy)) and anything_differs(old, new, names)


def annotations_to_write(old: NodeState, new: NodeState) -> tuple[str, ...]:
    """Return which of the normalization and amplification annotations must be written; one that is right is not."""
    needed = []
    if annotation_needs_write(old.annotations, new.annotations):
        needed.append(ANNOTATION_CPU_NORMALIZATION)
    if old.annotations.get(AMPLIFICATION_ANNOTATION) != new.annotations.get(AMPLIFICATION_ANNOTATION):
        needed.append(AMPLIFICATION_ANNOTATION)
    return tuple(needed)


def anything_differs(old: NodeState, new: NodeState, names: tuple[str, ...] = OVERCOMMITTED) -> bool:
    """Return whether one of our resources, or the recorded origin, has another value."""
    if origin_resources(old.annotations) != origin_resources(new.annotations):
        return True
    return any(
        _amounts(before, names) != _amounts(after, names)
        for before, after in ((old.allocatable, new.allocatable), (old.capacity, new.capacity))
    )


def _with_resources(
    node: NodeState, names: tuple[str, ...], items: Mapping[str, ResourceItem], ratio: float
) -> NodeState:
    capacity, allocatable = dict(node.capacity), dict(node.allocatable)
    for name in names:
        item = items.get(name)
        if item is None or item.reset or item.quantity is None:
            capacity.pop(name, None)
            allocatable.pop(name, None)
            continue
        quantity = scale_milli(item.quantity, ratio) if name == BATCH_CPU and ratio > 1 else item.quantity
        # Extended resources are whole numbers.
        capacity[name] = allocatable[name] = str(Quantity.of(quantity.value))
    return NodeState(capacity, allocatable, node.annotations)


def _origin_annotation(text: str | None, origin: Mapping[str, str]) -> str:
    """Record the origin beside what others recorded there; content that cannot be read is replaced."""
    merged = {**(_read_origin(text) or {}), **origin}
    return msgspec.json.encode({"resources": {name: merged[name] for name in sorted(merged)}}).decode()


def _read_origin(text: str | None) -> ResourceList | None:
    """Return the recorded resources; None if they cannot be read."""
    try:
        found = decode_folded(text, OriginAllocatable, what=ORIGIN_ANNOTATION).resources if text else None
        parse_list(found)
    except InvalidInput:
        return None
    return found or {}


def origin_resources(annotations: Mapping[str, str]) -> Amounts:
    """Return what was recorded as calculated; empty if nothing is, or nothing that can be read."""
    return parse_list(_read_origin(annotations.get(ORIGIN_ANNOTATION)))


def _third_party(text: str | None) -> Amounts:
    if not text:
        return {}
    found = decode_folded(text, ThirdPartyAllocations, what=THIRD_PARTY_ANNOTATION)
    amounts = [(each.priority, parse_list(each.resources)) for each in found.allocations or ()]
    return add(*(taken for priority, taken in amounts if priority == "koord-batch"))


def _amounts(resources: Mapping[str, Any], names: tuple[str, ...]) -> Amounts:
    return parse_list({name: resources[name] for name in names if name in resources})
