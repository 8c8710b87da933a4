"""Logical values of a cgroup, whatever its version: quota, usage, statistics, pressure.

A missing file raises FileNotFoundError, an unreadable one FormatError. Unlimited is -1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

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


FEWEST_NEW_PATHS = 256
_PRESSURES = (files.CPU_PRESSURE, files.MEMORY_PRESSURE, files.IO_PRESSURE)
_LOOKS = 4
"""How often all cgroups are looked at, about, before those that were not are forgotten."""
Value = TypeVar("Value")


class PathCache:
    """Paths of cgroup files, built and checked once: the same thousands of them are read and written every second.

    Two generations: what nobody asked for while half as many paths were built as are in use belongs to a cgroup that
    is gone.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._known: dict[tuple[str, str], str] = {}
        self._before: dict[tuple[str, str], str] = {}
        self._built = 0

    def __len__(self) -> int:
        return len(self._known) + len(self._before)

    def path(self, file: CgroupFile, directory: str) -> str:
        """Return the absolute path of a cgroup file; raise NotOnThisVersion or EscapesRoot."""
        key = (file.name, directory)
        path = self._known.get(key)
        if path is None:
            path = self._before.pop(key, None)
            if path is None:
                path = self._layout.cgroup_file(file, directory)
                self._built += 1
            self._known[key] = path
            if self._built > max(FEWEST_NEW_PATHS, len(self._known) // 3):
                self._known, self._before, self._built = {}, self._known, 0
        return path


class _LastParsed(Generic[Value]):
    """What the text of a file was last parsed to, by cgroup: that of an idle container is the same every second.

    Two generations: what nobody looked at while all others were looked at a few times belongs to a cgroup that is gone.
    """

    def __init__(self, parse: Callable[[str, int], Value], version: int) -> None:
        self._parse = parse
        self._version = version
        self._seen: dict[str, tuple[str, Value]] = {}
        self._before: dict[str, tuple[str, Value]] = {}
        self._looks = 0

    def of(self, directory: str, text: str) -> Value:
        self._looks += 1
        if self._looks > _LOOKS * max(len(self._seen), 1):
            self._seen, self._before, self._looks = {}, self._seen, 1
        seen = self._seen.get(directory)
        if seen is None or seen[0] != text:
            seen = self._before.get(directory)
            if seen is None or seen[0] != text:
                seen = (text, self._parse(text, self._version))
            self._seen[directory] = seen
        return seen[1]


def _pressure(text: str, version: int) -> psi.Pressure:
    return psi.pressure(text)


class CgroupReader:
    """Reads values of cgroups given by their relative directory."""

    def __init__(self, host: Host, layout: Layout) -> None:
        self.host = host
        self.layout = layout
        self._paths = PathCache(layout)
        self._throttling = _LastParsed(cpu.throttling, layout.version)
        self._memory = _LastParsed(memory.memory_stat, layout.version)
        self._pressures = tuple((file, _LastParsed(_pressure, layout.version)) for file in _PRESSURES)

    def text(self, file: CgroupFile, directory: str) -> str:
        """Return the text of a file without surrounding newlines."""
        return self.host.read(self._paths.path(file, directory)).strip("\n")

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
        return self._throttling.of(directory, self.text(files.CPU_STAT, directory))

    def memory_limit(self, directory: str) -> int:
        """Return the memory limit in bytes."""
        value = limit(self.text(files.MEMORY_LIMIT, directory), "memory limit")
        return memory.hierarchical_limit(value)

    def memory_usage(self, directory: str) -> int:
        """Return the memory in use in bytes, page cache included."""
        return unsigned(self.text(files.MEMORY_USAGE, directory), "memory usage")

    def memory_stat(self, directory: str) -> memory.MemoryStat:
        """Return the memory statistics."""
        return self._memory.of(directory, self.text(files.MEMORY_STAT, directory))

    def oom_kills(self, directory: str) -> int:
        """Return how many processes were OOM killed so far; of a cgroup and those below it on v2, of itself on v1."""
        return memory.oom_kills(self.text(files.MEMORY_EVENTS, directory))

    def limits_reached(self, directory: str) -> int:
        """Return how often a cgroup reached one of its memory limits so far; v2 only."""
        return memory.limits_reached(self.text(files.MEMORY_EVENTS, directory))

    def memory_high(self, directory: str) -> int:
        """Return above which usage a cgroup is slowed down, in bytes; -1 without one."""
        return memory.hierarchical_limit(limit(self.text(files.MEMORY_HIGH, directory), "memory.high"))

    def memory_pressure(self, directory: str) -> float | None:
        """Return the share of the last 10 s in which some task waited for memory; None where the kernel has none."""
        found = psi.pressure(self.text(files.MEMORY_PRESSURE, directory))
        return found.some.avg10 / 100 if found.some_supported else None

    def cold_bytes(self, directory: str) -> int:
        """Return the bytes of file pages that were not touched for long; v1 with kidled only."""
        text = self.host.read(self.layout.cgroup_file(files.MEMORY_IDLE_PAGES, directory))
        return memory.idle_page_stats(text).cold_bytes()

    def pressure(self, directory: str) -> CgroupPressure:
        """Return the pressure on CPU, memory and I/O."""
        cpu_, memory_, io = (parsed.of(directory, self.text(file, directory)) for file, parsed in self._pressures)
        return CgroupPressure(cpu_, memory_, io)

    def processes(self, directory: str) -> tuple[int, ...]:
        """Return the ids of the processes in a cgroup."""
        return tuple(int(word) for word in self.text(files.PROCS, directory).split())
