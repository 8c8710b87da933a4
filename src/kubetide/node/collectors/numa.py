"""Usage by NUMA node: busy ticks of its CPUs, memory that is neither free nor reclaimable, and what of it is no pod's.

    memory        = total - free - file pages of the node
    system memory = memory - anonymous and unevictable pages of all pods on that node, never negative

Pods are asked for their pages by node only now and then: it is one more file per pod, and consumers average minutes.
"""

from kubetide.node.collectors.base import READ_ERRORS, BaseCollector, Context, Previous, skips
from kubetide.node.core import files
from kubetide.node.core.formats import cpu, memory
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Key
from kubetide.node.core.series.store import key_of

NUMA_SECONDS = 10.0


class NumaCollector(BaseCollector):
    """Samples the `numa_node_…` kinds; a machine whose NUMA nodes are not known has none."""

    name = "NumaCollector"

    def __init__(self, context: Context, interval: float, tick_nanos: int) -> None:
        super().__init__(context, interval)
        self._tick_seconds = tick_nanos / 1e9
        self._ticks: Previous[dict[int, int]] = Previous(context.clock, interval)
        self._reader = context.reader

    def collect(self) -> bool:
        """Read every NUMA node; the first sync has no CPU."""
        facts, host, layout = self.context.store.facts, self.context.host, self.context.layout
        if not facts.numa:
            return True
        ticks = cpu.busy_ticks_by_cpu(host.read(layout.proc("stat")))
        before = self._ticks.swap("node", ticks)
        pods = self._pods()
        samples: list[tuple[Key, float]] = []
        for node in (one.node for one in facts.numa):
            label = (kinds.NUMA_NODE, str(node))
            path = layout.sys("bus/node/devices", f"node{node}", "meminfo")
            used = memory.meminfo(host.read(path), numa=True).usage_without_file_bytes
            samples.append((key_of(kinds.NUMA_MEMORY, label), float(used)))
            samples.append((key_of(kinds.NUMA_SYS_MEMORY, label), float(max(used - pods.get(node, 0), 0))))
            if before is not None:
                cpus = [one.cpu for one in facts.processors if one.node == node]
                busy = sum(max(ticks.get(one, 0) - before[1].get(one, ticks.get(one, 0)), 0) for one in cpus)
                samples.append((key_of(kinds.NUMA_CPU, label), busy * self._tick_seconds / before[0]))
        self.store(samples)
        return True

    def _pods(self) -> dict[int, int]:
        """Return the bytes that all pods have on each NUMA node; a pod that cannot be read counts for nothing."""
        total: dict[int, int] = {}
        for pod in self.context.pods():
            try:
                text = self._reader.text(files.MEMORY_NUMA_STAT, pod.directory)
                for node, size in memory.numa_usage(text, self.context.layout.version).items():
                    total[node] = total.get(node, 0) + size
            except READ_ERRORS as error:
                skips(pod, error)
        return total
