"""The node as a whole: busy CPU ticks and memory that is not available.

cpu = ticks since the last reading / ticks in the time elapsed        memory = MemTotal - MemAvailable
"""

from kubetide.node.collectors.base import BaseCollector, Context, Previous
from kubetide.node.core.formats import cpu, memory
from kubetide.node.core.series import kinds
from kubetide.node.core.series.store import key_of


class NodeCollector(BaseCollector):
    """Samples `node_cpu_usage` and `node_memory_usage` together."""

    name = "NodeResourceCollector"

    def __init__(self, context: Context, interval: float, tick_nanos: int) -> None:
        super().__init__(context, interval)
        self._tick_seconds = tick_nanos / 1e9
        self._ticks: Previous[int] = Previous(context.clock, interval)
        self._cores = context.telemetry.gauge(
            "koordlet_node_used_cpu_cores", "Cores in use on the node.", ("node",)
        ).labels(context.node_name)
        self._memory = context.telemetry.gauge(
            "koordlet_node_used_memory_bytes", "Memory in use on the node without page cache.", ("node",)
        ).labels(context.node_name)

    def collect(self) -> bool:
        """Read both; the first sync has no CPU and stores nothing."""
        ticks = cpu.busy_ticks(self.context.host.read(self.context.layout.proc("stat")))
        found = memory.meminfo(self.context.host.read(self.context.layout.proc("meminfo")))
        before = self._ticks.swap("node", ticks)
        if before is None or ticks < before[1]:
            return False
        elapsed, previous = before
        cores = (ticks - previous) / (elapsed / self._tick_seconds)
        used = float(found.usage_bytes)
        self.store([(key_of(kinds.NODE_CPU), cores), (key_of(kinds.NODE_MEMORY), used)])
        self.context.shared.node = (self.context.clock.monotonic(), cores, used)
        self._cores.set(cores)
        self._memory.set(used)
        return True


# What is left of the node's usage when pods and host applications are taken off; never negative.


class SystemCollector(BaseCollector):
    """Samples `sys_cpu_usage` and `sys_memory_usage`."""

    name = "SystemResourceCollector"

    def __init__(self, context: Context, interval: float, outdated: float) -> None:
        super().__init__(context, interval)
        self._outdated = outdated

    def collect(self) -> bool:
        """Subtract; a missing or old part skips the sync."""
        shared = self.context.shared
        now = self.context.clock.monotonic()
        parts = (shared.node, shared.host_applications, *shared.pods.values())
        if not shared.pods or any(part is None or now - part[0] > self._outdated for part in parts):
            return False
        assert shared.node is not None
        assert shared.host_applications is not None
        cpu = shared.node[1] - sum(part[1] for part in shared.pods.values()) - shared.host_applications[1]
        memory = shared.node[2] - sum(part[2] for part in shared.pods.values()) - shared.host_applications[2]
        self.store([(key_of(kinds.SYS_CPU), max(cpu, 0.0)), (key_of(kinds.SYS_MEMORY), max(memory, 0.0))])
        return True
