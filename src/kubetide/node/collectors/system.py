"""What is left of the node's usage when pods and host applications are taken off; never negative.

Parts older than the limit are not used: a difference of numbers from different times means nothing.
"""

from kubetide.node.collectors.base import Context, Round
from kubetide.node.series import kinds
from kubetide.node.series.store import key_of


class SystemCollector(Round):
    """Samples `sys_cpu_usage` and `sys_memory_usage`."""

    name = "SystemResourceCollector"

    def __init__(self, context: Context, interval: float, outdated: float) -> None:
        super().__init__(context, interval)
        self._outdated = outdated

    def collect(self) -> bool:
        """Subtract; a missing or old part skips the round."""
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
