"""Picking CPUs by topology, packed as the kubelet's static CPU manager does.

Whole free sockets while at least a socket's worth is needed, then whole free NUMA nodes, then whole free cores, then
single CPUs. Among equals the one with the fewest free CPUs comes first, so that large holes stay large; then the
lowest id. The order of cores is: sockets, their NUMA nodes, their cores.
"""

from collections.abc import Callable, Iterable

from kubetide.api.values.cpuset import CpuSet
from kubetide.errors import KubetideError
from kubetide.node.core.formats.processors import Processor


class NotEnoughCpus(KubetideError):
    """More CPUs are needed than are free."""


def take(processors: Iterable[Processor], available: CpuSet, count: int) -> CpuSet:
    """Return `count` of the available CPUs; raise NotEnoughCpus."""
    if count <= 0:
        return CpuSet()
    picker = _Picker({one.cpu: one for one in processors}, set(available))
    if count > len(picker.free):
        raise NotEnoughCpus(f"{count} CPUs needed, {len(picker.free)} are free")
    return picker.pick(count)


class _Picker:
    def __init__(self, all_cpus: dict[int, Processor], available: set[int]) -> None:
        self.all = all_cpus
        self.free = {cpu for cpu in available if cpu in all_cpus}
        self.taken: set[int] = set()
        self.needed = 0

    def pick(self, count: int) -> CpuSet:
        self.needed = count
        for groups in (self._sockets, self._numa_nodes, self._cores):
            self._take_whole(groups())
        for core in self._cores():
            for cpu in sorted(core & self.free):
                if self.needed > 0:
                    self._take({cpu})
        return CpuSet.of(self.taken)

    def _take(self, cpus: set[int]) -> None:
        self.taken |= cpus
        self.free -= cpus
        self.needed -= len(cpus)

    def _take_whole(self, groups: list[set[int]]) -> None:
        for group in groups:
            if group <= self.free and len(group) <= self.needed:
                self._take(group)

    def _groups(self, within: set[int], key: Callable[[Processor], int]) -> list[set[int]]:
        """Group CPUs, leaving out groups without a free one: fewest free first, then lowest id."""
        groups: dict[int, set[int]] = {}
        for cpu in within:
            groups.setdefault(key(self.all[cpu]), set()).add(cpu)
        order = sorted(groups, key=lambda identity: (len(groups[identity] & self.free), identity))
        return [groups[identity] for identity in order if groups[identity] & self.free]

    def _sockets(self) -> list[set[int]]:
        return self._groups(set(self.all), lambda one: one.socket)

    def _numa_nodes(self) -> list[set[int]]:
        return [node for socket in self._sockets() for node in self._groups(socket, lambda one: one.node)]

    def _cores(self) -> list[set[int]]:
        return [core for node in self._numa_nodes() for core in self._groups(node, lambda one: one.core)]
