"""Memory files: cgroup statistics, meminfo, pages per NUMA node, idle pages.

usage                    inactive_anon + active_anon + unevictable
usage with page cache    usage + active_file + inactive_file
node usage               MemTotal - MemAvailable
with page cache          MemTotal - MemFree
"""

from dataclasses import dataclass
from typing import NamedTuple

from kubetide.node.core.formats.numbers import FormatError, counters, is_index, unsigned

NO_LIMIT_V1 = 0x7FFFFFFFFFFFF000
PAGE_BYTES = 4096

_STAT_FIELDS = ("inactive_file", "active_file", "inactive_anon", "active_anon", "unevictable")
_STAT_V1 = ("total_cache", "total_rss", *(f"total_{name}" for name in _STAT_FIELDS))
_STAT_V2 = ("file", "anon", *_STAT_FIELDS)


class MemoryStat(NamedTuple):
    """The part of `memory.stat` that usage is made of, in bytes; a tuple: hundreds are made a second."""

    cache: int
    rss: int
    inactive_file: int
    active_file: int
    inactive_anon: int
    active_anon: int
    unevictable: int

    @property
    def usage(self) -> int:
        """Bytes in use without page cache."""
        return self.inactive_anon + self.active_anon + self.unevictable

    @property
    def usage_with_page_cache(self) -> int:
        """Bytes in use, page cache included."""
        return self.usage + self.active_file + self.inactive_file


def memory_stat(text: str, version: int) -> MemoryStat:
    """Parse `memory.stat`; all seven fields must be there."""
    return MemoryStat(*counters(text, _STAT_V1 if version == 1 else _STAT_V2))


@dataclass(frozen=True, slots=True)
class MemInfo:
    """/proc/meminfo, or the meminfo of one NUMA node: names to numbers, sizes in kB; a missing name counts 0."""

    values: dict[str, int]

    def __getitem__(self, name: str) -> int:
        return self.values.get(name, 0)

    @property
    def total_bytes(self) -> int:
        return self["MemTotal"] * 1024

    @property
    def usage_bytes(self) -> int:
        """Bytes in use that the kernel could not give back; never negative."""
        return max(self["MemTotal"] - self["MemAvailable"], 0) * 1024

    @property
    def usage_with_page_cache_bytes(self) -> int:
        """Bytes in use, page cache included; never negative."""
        return max(self["MemTotal"] - self["MemFree"], 0) * 1024

    @property
    def working_set_bytes(self) -> int:
        """Bytes in use without file pages that were not touched for long, as kubelets count them; never negative."""
        return max(self["MemTotal"] - self["MemFree"] - self["Inactive(file)"], 0) * 1024

    @property
    def usage_without_file_bytes(self) -> int:
        """Bytes in use without reclaimable file pages; for NUMA nodes, which do not say what is available."""
        reclaimable = self["Active(file)"] + self["Inactive(file)"]
        return max(self["MemTotal"] - self["MemFree"] - reclaimable, 0) * 1024


def numa_usage(text: str, version: int) -> dict[int, int]:
    """Return the bytes without page cache that a cgroup has on each NUMA node, from `memory.numa_stat`.

    v1 counts pages and needs the lines of the whole subtree, v2 counts bytes.
    """
    names = ("hierarchical_anon", "hierarchical_unevictable") if version == 1 else ("anon", "unevictable")
    unit = PAGE_BYTES if version == 1 else 1
    usage: dict[int, int] = {}
    found = 0
    for line in text.split("\n"):
        words = line.split()
        if not words or words[0].partition("=")[0] not in names:
            continue
        found += 1
        for word in words[1:]:
            node, equals, amount = word.partition("=")
            if not equals or not node.startswith("N") or not is_index(node[1:]):
                raise FormatError(f"{word!r} in memory.numa_stat is no NUMA node")
            usage[int(node[1:])] = usage.get(int(node[1:]), 0) + unsigned(amount, node) * unit
    if found != len(names):
        raise FormatError("memory.numa_stat lacks lines")
    return usage


def meminfo(text: str, *, numa: bool = False) -> MemInfo:
    """Parse meminfo; lines of a NUMA node begin with two words (`Node 0`) that are cut off."""
    values: dict[str, int] = {}
    for line in text.split("\n"):
        if numa:
            words = line.split(None, 2)
            if len(words) < 3:
                continue
            line = words[2]
        name, colon, rest = line.partition(":")
        if not colon:
            continue
        numbers = rest.split()
        try:
            values[name.strip()] = unsigned(numbers[0]) if numbers else 0
        except FormatError:
            values[name.strip()] = 0
    return MemInfo(values)


def oom_kills(text: str) -> int:
    """Return how many processes of a cgroup were OOM killed, from `memory.events` or `memory.oom_control`."""
    (kills,) = counters(text, ("oom_kill",))
    return kills


def limits_reached(text: str) -> int:
    """Return how often a cgroup reached memory.high or memory.max, from `memory.events`; v1 does not count it."""
    return sum(counters(text, ("high", "max")))


def hierarchical_limit(value: int) -> int:
    """Return -1 for the number by which cgroup v1 says "no limit"."""
    return -1 if value >= NO_LIMIT_V1 else value


_IDLE_LINES = 31
_IDLE_ROWS = 17
_IDLE_COLUMNS = 8
_COLD_ROWS = ("cfei", "dfei", "cfui", "dfui")
COLD_BOUNDARY = 5


@dataclass(frozen=True, slots=True)
class IdlePageStats:
    """`memory.idle_page_stats` of the kidled kernel thread: bytes by kind of page and by how long they were idle."""

    version: str
    page_scans: int
    slab_scans: int
    scan_period_seconds: int
    use_hierarchy: int
    buckets: tuple[int, ...]
    rows: dict[str, tuple[int, ...]]

    def cold_bytes(self, boundary: int = COLD_BOUNDARY) -> int:
        """Return the bytes of inactive file pages that were idle for at least the bucket `boundary`."""
        return sum(sum(self.rows[name][boundary:]) for name in _COLD_ROWS)


def idle_page_stats(text: str) -> IdlePageStats:
    """Parse `memory.idle_page_stats`: 14 comment lines and 17 rows, in 31 lines."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) != _IDLE_LINES:
        raise FormatError(f"memory.idle_page_stats has {len(lines)} lines instead of {_IDLE_LINES}")
    header: dict[str, str] = {}
    rows: dict[str, tuple[int, ...]] = {}
    for line in lines:
        stripped = line.strip()
        if stripped.startswith("#"):
            name, colon, value = stripped.lstrip("#").partition(":")
            if colon:
                header.setdefault(name.strip(), value.strip())
            continue
        words = stripped.split()
        if len(words) != _IDLE_COLUMNS + 1:
            raise FormatError(f"row {stripped!r} of memory.idle_page_stats does not have {_IDLE_COLUMNS} columns")
        rows[words[0]] = tuple(unsigned(word, words[0]) for word in words[1:])
    if len(rows) != _IDLE_ROWS or any(name not in rows for name in _COLD_ROWS):
        raise FormatError("memory.idle_page_stats lacks rows")
    return IdlePageStats(
        version=header.get("version", ""),
        page_scans=unsigned(header.get("page_scans", ""), "page_scans"),
        slab_scans=unsigned(header.get("slab_scans", ""), "slab_scans"),
        scan_period_seconds=unsigned(header.get("scan_period_in_seconds", ""), "scan_period_in_seconds"),
        use_hierarchy=unsigned(header.get("use_hierarchy", ""), "use_hierarchy"),
        buckets=tuple(unsigned(item.strip(), "bucket") for item in header.get("buckets", "").split(",")),
        rows=rows,
    )
