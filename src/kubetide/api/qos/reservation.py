"""What a node keeps for its system: the reservation annotation, the kubelet's reservation, CPUs of system daemons."""

from collections.abc import Mapping

import msgspec

from kubetide.api.objects.core import Node, ResourceList
from kubetide.api.objects.meta import ApiObject
from kubetide.api.objects.resources import parse_list
from kubetide.api.qos.qos import ANNOTATION_RESERVATION, ANNOTATION_SYSTEM_QOS
from kubetide.api.values.codec import decode_folded
from kubetide.api.values.cpuset import CpuSet, CpuSetError
from kubetide.api.values.quantity import ZERO, Quantity, parse_quantity
from kubetide.errors import InvalidInput


class Reservation(ApiObject, frozen=True, kw_only=True, gc=False):
    """The reservation annotation of a node."""

    resources: ResourceList | None = None
    reserved_cpus: str = msgspec.field(name="reservedCPUs", default="")
    apply_policy: str = ""


def reservation(annotations: Mapping[str, str] | None) -> Reservation | None:
    """Return the reservation annotation; None when absent, empty or broken."""
    text = (annotations or {}).get(ANNOTATION_RESERVATION, "")
    if not text:
        return None
    try:
        found = decode_folded(text, Reservation, what=ANNOTATION_RESERVATION)
        parse_list(found.resources)
    except InvalidInput:
        return None
    return found


def reserved_cpus(annotations: Mapping[str, str] | None) -> tuple[str, int]:
    """Return reserved CPUs as (text of the list, 0) or ("", count); a list wins over a quantity."""
    found = reservation(annotations)
    if found is None:
        return "", 0
    if found.reserved_cpus:
        return found.reserved_cpus, 0
    cpu = parse_quantity((found.resources or {}).get("cpu", 0))
    return "", max(-(-cpu.milli // 1000), 0)


def annotation_reserved(annotations: Mapping[str, str] | None) -> dict[str, Quantity] | None:
    """Return what the annotation reserves as resources; a CPU list counts by its length. None: nothing."""
    found = reservation(annotations)
    if found is None:
        return None
    resources = parse_list(found.resources)
    if found.reserved_cpus:
        try:
            resources["cpu"] = Quantity.of(len(CpuSet.parse(found.reserved_cpus)))
        except CpuSetError:
            return None
    return resources or None


def kubelet_reserved(node: Node) -> dict[str, Quantity]:
    """Return capacity minus allocatable for cpu and memory, never negative."""
    capacity, allocatable = parse_list(node.status.capacity), parse_list(node.status.allocatable)
    return {name: max(capacity.get(name, ZERO) - allocatable.get(name, ZERO), ZERO) for name in ("cpu", "memory")}


def node_reserved(node: Node) -> dict[str, Quantity]:
    """Return what must be left to the system: the larger of the kubelet's and the annotation's reservation."""
    reserved = kubelet_reserved(node)
    for name, quantity in (annotation_reserved(node.metadata.annotations) or {}).items():
        reserved[name] = max(reserved.get(name, ZERO), quantity)
    return reserved


class SystemQos(ApiObject, frozen=True, kw_only=True, gc=False):
    """The CPUs of system daemons."""

    cpuset: str = ""
    cpuset_exclusive: bool | None = None

    @property
    def exclusive(self) -> bool:
        """Exclusive unless it reports otherwise."""
        return self.cpuset_exclusive is not False


def system_qos(annotations: Mapping[str, str] | None) -> SystemQos | None:
    """Return the system QoS annotation: None without any annotations, an empty one when the key is absent.

    Raise DecodeError when it cannot be read.
    """
    if annotations is None:
        return None
    if ANNOTATION_SYSTEM_QOS not in annotations:
        return SystemQos()
    return decode_folded(annotations[ANNOTATION_SYSTEM_QOS], SystemQos, what=ANNOTATION_SYSTEM_QOS)
