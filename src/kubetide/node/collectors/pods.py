"""Pods and their containers: CPU time since the last reading, anonymous and unevictable memory.

A pod that cannot be read, or is read for the first time, skips its containers too. The sum over all pods of the
sync is left for the system collector, also when it is zero.
"""

from kubetide.node.collectors.base import READ_ERRORS, BaseCollector, Context, Previous, skips
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Key
from kubetide.node.core.series.store import key_of


class UsageReader:
    """CPU rate and memory of cgroups."""

    def __init__(self, context: Context, interval: float) -> None:
        self._reader = context.reader
        self._nanos: Previous[int] = Previous(context.clock, interval)

    def read(self, identity: str, directory: str) -> tuple[float, int] | None:
        """Return (cores, bytes) of a cgroup; None on the first reading or when a counter went backwards."""
        nanos = self._reader.cpu_usage_nanos(directory)
        # At once: the time of a counter is the time it was read, not when the rest of the sync was done.
        before = self._nanos.swap(identity, nanos)
        used = self._reader.memory_stat(directory).usage
        if before is None or nanos < before[1]:
            return None
        return (nanos - before[1]) / (before[0] * 1e9), used

    def forget_old(self) -> None:
        """Drop readings of cgroups that are gone."""
        self._nanos.forget_old()


class PodCollector(BaseCollector):
    """Samples CPU and memory of pods and containers."""

    name = "PodResourceCollector"

    def __init__(self, context: Context, interval: float) -> None:
        super().__init__(context, interval)
        self._usage = UsageReader(context, interval)

    def collect(self) -> bool:
        """Read every pod and its containers."""
        samples: list[tuple[Key, float]] = []
        inside: list[tuple[Key, float]] = []
        total_cpu = total_memory = 0.0
        for pod in self.context.pods():
            try:
                usage = self._usage.read(pod.uid, pod.directory)
            except READ_ERRORS as error:
                skips(pod, error)
                continue
            if usage is None:
                continue
            cores, used = usage
            total_cpu += cores
            total_memory += used
            uid = (kinds.POD_UID, pod.uid)
            samples.append((key_of(kinds.POD_CPU, uid), cores))
            samples.append((key_of(kinds.POD_MEMORY, uid), float(used)))
            for container in pod.containers:
                if not container.directory:
                    continue
                try:
                    inner = self._usage.read(container.id, container.directory)
                except READ_ERRORS as error:
                    skips(pod, error)
                    continue
                if inner is not None:
                    identity = (kinds.CONTAINER_ID, container.id)
                    inside.append((key_of(kinds.CONTAINER_CPU, identity), inner[0]))
                    inside.append((key_of(kinds.CONTAINER_MEMORY, identity), float(inner[1])))
        self._usage.forget_old()
        self.store(samples)
        self.store(inside, of="containers")
        self.context.shared.pods[self.name] = (self.context.clock.monotonic(), total_cpu, total_memory)
        return True
