"""Logical values of a cgroup, whatever its version: quota, usage, statistics, pressure.

A missing file raises FileNotFoundError, an unreadable one FormatError. Unlimited is -1.
"""

from dataclasses import dataclass

from kubetide.api.values.cpuset import CpuSet
from kubetide.node.core import files
from kubetide.node.core.files import CgroupFile
from kubetide.node.core.formats import cpu, memory, psi
from kubetide.node.core.formats.numbers import limit, signed, unsigned
from kubetide.node.core.layout import Layout
from kubetide.node.host.protocol import Host


@dataclass(frozen=True, slots=True)
class CgroupPressure:
    """Pressure of one cgroup on its three resources."""

    cpu: psi.Pressure
    memory: psi.Pressure
    io: psi.Pressure


@dataclass(frozen=True, slots=True)
class CgroupReader:
    """Reads values of cgroups given by their relative directory."""

    host: Host
    layout: Layout

    def text(self, file: CgroupFile, directory: str) -> str:
        """Return the text of a file without surrounding newlines."""
        return self.host.read(self.layout.cgroup_file(file, directory)).strip("\n")

    def cpu_quota(self, directory: str) -> int:
        """Return the CFS quota in microseconds."""
        text = self.text(files.CPU_QUOTA, directory)
        return limit(text, "quota") if self.layout.version == 1 else cpu.quota_v2(text)

    def cpu_period(self, directory: str) -> int:
        """Return the CFS period in microseconds."""
        text = self.text(files.CPU_PERIOD, directory)
        return signed(text, "period") if self.layout.version == 1 else cpu.period_v2(text)

    def cpu_shares(self, directory: str) -> int:
        """Return the CPU shares; on v2 converted from the weight."""
        value = signed(self.text(files.CPU_SHARES, directory), "shares")
        return value if self.layout.version == 1 else cpu.weight_to_shares(value)

    def cpuset_text(self, directory: str) -> str:
        """Return the CPU list that is in force (on v2 the configured one may be empty)."""
        return self.text(files.CPUSET if self.layout.version == 1 else files.CPUSET_EFFECTIVE, directory)

    def cpuset(self, directory: str) -> CpuSet:
        """Return the CPUs that are in force."""
        return CpuSet.parse(self.cpuset_text(directory))

    def cpu_usage_nanos(self, directory: str) -> int:
        """Return the CPU time used so far in nanoseconds."""
        text = self.text(files.CPUACCT_USAGE, directory)
        return unsigned(text, "cpuacct.usage") if self.layout.version == 1 else cpu.usage_nanos_v2(text)

    def throttling(self, directory: str) -> cpu.Throttling:
        """Return the throttling counters."""
        return cpu.throttling(self.text(files.CPU_STAT, directory), self.layout.version)

    def memory_limit(self, directory: str) -> int:
        """Return the memory limit in bytes."""
        value = limit(self.text(files.MEMORY_LIMIT, directory), "memory limit")
        return memory.hierarchical_limit(value)

    def memory_usage(self, directory: str) -> int:
        """Return the memory in use in bytes, page cache included."""
        return unsigned(self.text(files.MEMORY_USAGE, directory), "memory usage")

    def memory_stat(self, directory: str) -> memory.MemoryStat:
        """Return the memory statistics."""
        return memory.memory_stat(self.text(files.MEMORY_STAT, directory), self.layout.version)

    def cold_bytes(self, directory: str) -> int:
        """Return the bytes of file pages that were not touched for long; v1 with kidled only."""
        text = self.host.read(self.layout.cgroup_file(files.MEMORY_IDLE_PAGES, directory))
        return memory.idle_page_stats(text).cold_bytes()

    def pressure(self, directory: str) -> CgroupPressure:
        """Return the pressure on CPU, memory and I/O."""
        cpu_, memory_, io = (
            psi.pressure(self.text(file, directory))
            for file in (files.CPU_PRESSURE, files.MEMORY_PRESSURE, files.IO_PRESSURE)
        )
        return CgroupPressure(cpu_, memory_, io)

    def processes(self, directory: str) -> tuple[int, ...]:
        """Return the ids of the processes in a cgroup."""
        return tuple(int(word) for word in self.text(files.PROCS, directory).split())


MOST_PATHS = 20_000


class PathCache:
    """Paths of cgroup files, built and checked once: the same thousands of them are read and written every second."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._known: dict[tuple[str, str], str] = {}

    def path(self, file: CgroupFile, directory: str) -> str:
        """Return the absolute path of a cgroup file; raise NotOnThisVersion or EscapesRoot."""
        key = (file.name, directory)
        path = self._known.get(key)
        if path is None:
            if len(self._known) >= MOST_PATHS:
                self.clear()
            path = self._known[key] = self._layout.cgroup_file(file, directory)
        return path

    def clear(self) -> None:
        """Forget all paths, those of cgroups that are gone among them."""
        self._known.clear()
