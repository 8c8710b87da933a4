"""Zones of a NodeResourceTopology: one per NUMA node, with its CPUs, memory and huge pages.

Zones are raw dicts: what others put into our zones (batch resources, attributes, costs) stays, zones that are not
ours any more are dropped. An object is written only when something that counts has changed.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kubetide.api.qos import qos
from kubetide.api.values.codec import decode_raw
from kubetide.api.values.quantity import ZERO, Quantity, parse_quantity
from kubetide.errors import InvalidInput, KubetideError
from kubetide.node.core.formats.processors import NumaNode, Processor, index

Raw = dict[str, Any]

ZONE_TYPE = "Node"
_HUGE_PAGE_BYTES = {"1Gi": 1 << 30, "2Mi": 2 << 20}
_COMPARED = ("cpu", "memory")

ANNOTATIONS = (
    qos.ANNOTATION_CPU_BASIC_INFO,
    qos.ANNOTATION_CPU_TOPOLOGY,
    qos.ANNOTATION_LS_SHARE_POOLS,
    qos.ANNOTATION_BE_SHARE_POOLS,
    qos.ANNOTATION_CPU_MANAGER,
    qos.ANNOTATION_POD_CPU_ALLOCS,
    qos.ANNOTATION_RESERVATION,
    qos.ANNOTATION_SYSTEM_QOS,
)
"""The annotations that the agent keeps."""
LABELS = (qos.LABEL_NUMA_RESERVATION,)
"""The labels of the node that the agent copies."""


class ZonesUnknown(KubetideError):
    """CPU and memory facts do not fit together."""


def _resource(name: str, quantity: Quantity, reserved: Quantity = ZERO) -> Raw:
    text = str(quantity)
    return {
        "name": name,
        "capacity": text,
        "allocatable": str(max(quantity - reserved, ZERO)) if reserved > ZERO else text,
        "available": text,
    }


def _part(reserved: Mapping[str, Quantity] | None, name: str, count: int) -> Quantity:
    """Return the part of a reservation that one of `count` zones bears, rounded up to a milli-CPU or a byte."""
    whole = (reserved or {}).get(name, ZERO)
    if name == "cpu":
        return Quantity.of_milli(-(-whole.milli // count))
    return Quantity.of(-(-whole.value // count), binary=True)


def zones(
    processors: Iterable[Processor],
    numa: Iterable[NumaNode],
    *,
    huge_pages: bool,
    reserved: Mapping[str, Quantity] | None = None,
) -> list[Raw]:
    """Return our zones; raise ZonesUnknown if CPUs and memory disagree about the NUMA nodes.

    Of what is reserved, every zone gives an equal part off its allocatable CPU and memory.
    """
    cpus = index(processors).by_node
    memory = tuple(numa)
    if not cpus or len(cpus) != len(memory):
        raise ZonesUnknown(f"{len(cpus)} NUMA nodes by CPU, {len(memory)} by memory")
    result: list[Raw] = []
    for one in memory:
        pages = {size: one.huge_pages.get(size, 0) if huge_pages else 0 for size in _HUGE_PAGE_BYTES}
        huge = {size: count * _HUGE_PAGE_BYTES[size] for size, count in pages.items()}
        rest = one.memory.total_bytes - sum(huge.values())
        resources = [
            _resource("cpu", Quantity.of(len(cpus.get(one.node, ()))), _part(reserved, "cpu", len(memory))),
            *(_resource(f"hugepages-{size}", Quantity.of(amount, binary=True)) for size, amount in huge.items()),
            _resource("memory", Quantity.of(rest, binary=True), _part(reserved, "memory", len(memory))),
        ]
        result.append({"name": f"node-{one.node}", "type": ZONE_TYPE, "resources": sorted(resources, key=_name)})
    return sorted(result, key=_name)


def _name(item: Mapping[str, Any]) -> str:
    return str(item.get("name", ""))


def merge_zones(old: Iterable[Raw] | None, new: Iterable[Raw]) -> list[Raw]:
    """Lay our zones over the existing ones: foreign zones go, foreign resources and fields of our zones stay."""
    existing = {_name(zone): zone for zone in old or ()}
    result: list[Raw] = []
    for zone in new:
        before = existing.get(_name(zone), {})
        resources = {_name(one): one for one in before.get("resources") or ()}
        for resource in zone.get("resources") or ():
            resources[_name(resource)] = {**resources.get(_name(resource), {}), **resource}
        result.append({**before, **zone, "resources": sorted((dict(one) for one in resources.values()), key=_name)})
    return sorted(result, key=_name)


def _same_quantity(left: Any, right: Any) -> bool:
    """Return whether two amounts are equal; the second is our own and valid, so that equal texts are not parsed."""
    if left == right:
        return True
    try:
        return parse_quantity(left if left is not None else 0) == parse_quantity(right if right is not None else 0)
    except InvalidInput:
        return False


def _same_zones(old: Iterable[Raw] | None, new: Iterable[Raw] | None) -> bool:
    left, right = sorted(old or (), key=_name), sorted(new or (), key=_name)
    if len(left) != len(right):
        return False
    for one, other in zip(left, right, strict=True):
        if _name(one) != _name(other) or one.get("type") != other.get("type"):
            return False
        before = {_name(item): item for item in one.get("resources") or ()}
        after = {_name(item): item for item in other.get("resources") or ()}
        for name in {*_COMPARED, *after}:
            if (name in before) != (name in after):
                return False
            if name in before and not all(
                _same_quantity(before[name].get(part), after[name].get(part))
                for part in ("capacity", "allocatable", "available")
            ):
                return False
    return True


def _same_json(left: str, right: str) -> bool:
    """Return whether two texts say the same; the second is our own and valid, so that equal texts are not decoded."""
    try:
        return left == right or bool(decode_raw(left) == decode_raw(right))
    except InvalidInput:
        return False


def labels_of(node_labels: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels that the NodeResourceTopology takes over from its node."""
    return {name: text for name in LABELS if (text := (node_labels or {}).get(name)) == "true"}


def changed(
    old: Mapping[str, Any] | None,
    annotations: Mapping[str, str],
    policy: str,
    new: Iterable[Raw],
    labels: Mapping[str, str] | None = None,
) -> bool:
    """Return whether an existing NodeResourceTopology must be written."""
    if old is None:
        return True
    present = (old.get("metadata") or {}).get("labels") or {}
    if any(present.get(name) != (labels or {}).get(name) for name in LABELS):
        return True
    before = (old.get("metadata") or {}).get("annotations")
    if not before:
        return True
    if list(old.get("topologyPolicies") or ()) != [policy]:
        return True
    for name in ANNOTATIONS:
        if (name in before) != (name in annotations):
            return True
        if name in before and not _same_json(before[name], annotations[name]):
            return True
    return not _same_zones(old.get("zones"), new)
