"""Share pools: which CPUs latency-sensitive and best-effort pods may use together.

Both start from all CPUs that the kubelet did not pin itself. CPUs dedicated to a pod leave the LS pool; they leave
the BE pool only if the pod is LSE (an LSR pod shares its CPUs with best-effort work). Reserved CPUs leave both, and so
do those of system daemons if exclusive. CPUs reserved by the kubelet stay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.core import Pod
from kubetide.api.qos import qos, reservation
from kubetide.api.values.cpuset import CpuSet, CpuSetError
from kubetide.errors import KubetideError
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.topology.kubelet import PodAllocation
from kubetide.node.core.topology.take import take


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePool:
    """The shared CPUs of one NUMA node."""

    socket: int
    node: int
    cpus: CpuSet

    def to_json(self) -> dict[str, Any]:
        """Return the annotation form."""
        return {"socket": self.socket, "node": self.node, "cpuset": str(self.cpus)}


@dataclass(frozen=True, slots=True)
class SharePools:
    """The pools of both kinds of pods."""

    latency_sensitive: tuple[SharePool, ...]
    best_effort: tuple[SharePool, ...]


def cpu_topology(processors: Iterable[Processor]) -> dict[str, Any]:
    """Return the CPU topology annotation, by CPU id."""
    return {
        "detail": [
            {"id": one.cpu, "core": one.core, "socket": one.socket, "node": one.node}
            for one in sorted(processors, key=lambda processor: processor.cpu)
        ]
    }


def node_reserved(annotations: Mapping[str, str] | None, processors: Iterable[Processor]) -> CpuSet:
    """Return the CPUs that the node's annotation reserves, by list or by number; what cannot be met is nothing."""
    text, count = reservation.reserved_cpus(annotations)
    known = tuple(processors)
    try:
        if text:
            return CpuSet.parse(text)
        return take(known, CpuSet.of(one.cpu for one in known), count)
    except KubetideError:
        return CpuSet()


def _system_exclusive(annotations: Mapping[str, str] | None) -> CpuSet:
    found = reservation.system_qos(annotations)
    if found is None or not found.exclusive:
        return CpuSet()
    try:
        return CpuSet.parse(found.cpuset)
    except CpuSetError:
        return CpuSet()


def _grouped(processors: Iterable[Processor], pool: CpuSet, without: CpuSet) -> tuple[SharePool, ...]:
    groups: dict[tuple[int, int], set[int]] = {}
    for one in processors:
        if one.cpu in pool:
            groups.setdefault((one.socket, one.node), set()).add(one.cpu)
    return tuple(
        SharePool(socket=socket, node=node, cpus=CpuSet.of(groups[socket, node]) - without)
        for socket, node in sorted(groups)
    )


def share_pools(
    processors: Iterable[Processor],
    pods: Iterable[Pod],
    kubelet: Iterable[PodAllocation],
    reserved: CpuSet,
    annotations: Mapping[str, str] | None,
) -> SharePools:
    """Calculate the pools; raise DecodeError when the system QoS annotation cannot be read."""
    known = tuple(processors)
    without = reserved | _system_exclusive(annotations)
    shared = CpuSet.of(one.cpu for one in known)
    for allocation in kubelet:
        shared -= allocation.cpus
    latency_sensitive = best_effort = shared
    for pod in pods:
        dedicated = qos.dedicated_cpus(pod.metadata.annotations)
        if dedicated is None:
            continue
        latency_sensitive -= dedicated
        if qos.raw_qos(pod.metadata.labels) == qos.LSE:
            best_effort -= dedicated
    return SharePools(_grouped(known, latency_sensitive, without), _grouped(known, best_effort, without))
