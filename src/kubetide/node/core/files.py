"""The table of kernel files the agent knows: where they lie on cgroup v1 and v2, which values they take.

A file is identified by its v1 name on both versions. Writing converts (`-1` becomes `max`, shares become a weight),
comparing understands what the kernel prints back, validation refuses a value before the kernel has to.

    check      always · directory: the file must be in the target directory · kube root: looked up there once
    merge      how a leveled update keeps parents at least as generous as their children (executor.plan)
"""

from dataclasses import dataclass
from enum import Enum

from kubetide.api.values.cpuset import CpuSet, CpuSetError, same_cpus
from kubetide.errors import InvalidInput
from kubetide.node.core.formats import cpu
from kubetide.node.core.formats.blkio import cost_line_needed, line_needed
from kubetide.node.core.formats.numbers import INT64_MAX, FormatError, signed


class Check(Enum):
    """How the agent finds out whether the kernel has a file."""

    ALWAYS = "always"
    DIRECTORY = "directory"
    KUBE_ROOT = "kube root"
    ROOT = "root"


class Merge(Enum):
    """How a value grows before its children do and shrinks after them."""

    NONE = "none"
    IF_LARGER = "if larger"
    IF_LOOSER = "if looser"


class Kind(Enum):
    """What the text of a file means."""

    TEXT = "text"
    QUOTA = "quota"
    PERIOD = "period"
    LIMIT = "limit"
    SHARES = "shares"
    CPUS = "cpus"
    DEVICE = "device line"
    COST = "cost line"


class ValueRefused(InvalidInput):
    """A value is outside what a kernel file takes."""


class NotOnThisVersion(InvalidInput):
    """A file does not exist on the node's cgroup version."""


Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupFile:
    """One kernel file below a cgroup."""

    name: str
    controller: str
    v2: str | None
    kind: Kind = Kind.TEXT
    range_v1: Range | None = None
    range_v2: Range | None = None
    check_v1: Check = Check.ALWAYS
    check_v2: Check = Check.ALWAYS
    merge: Merge = Merge.NONE
    only_v2: bool = False

    def check(self, version: int) -> Check:
        """Return how support is decided on a cgroup version."""
        return self.check_v1 if version == 1 else self.check_v2

    def relative(self, version: int, directory: str) -> str:
        """Return the path below the cgroup root; raise NotOnThisVersion."""
        directory = directory.strip("/")
        if version == 1:
            if self.only_v2:
                raise NotOnThisVersion(f"{self.name} does not exist on cgroup v1")
            parts = (self.controller, directory, self.name)
        else:
            if self.v2 is None:
                raise NotOnThisVersion(f"{self.name} does not exist on cgroup v2")
            parts = ("", directory, self.v2)
        return "/".join(part for part in parts if part)

    def validate(self, version: int, value: str) -> None:
        """Raise ValueRefused if the file would not take `value`."""
        if self.kind is Kind.CPUS:
            try:
                CpuSet.parse(value)
            except CpuSetError as error:
                raise ValueRefused(str(error), field=self.name) from error
            return
        if self.kind is Kind.DEVICE:
            fields = value.split(" ")
            if value == "" or (len(fields) == 2 and not in_range(fields[1], *(self.range_v1 or (0, INT64_MAX)))):
                raise ValueRefused(f"{value!r} is not a device line", field=self.name)
            return
        if self.kind is Kind.COST:
            if not _cost_line(value):
                raise ValueRefused(f"{value!r} is not a cost line", field=self.name)
            return
        bounds = self.range_v1 if version == 1 or self.kind is Kind.SHARES else self.range_v2
        if bounds is not None and not in_range(value, *bounds):
            raise ValueRefused(f"{value!r} is not in {bounds[0]}..{bounds[1]}", field=self.name)

    def to_kernel(self, version: int, value: str, current: str = "") -> str:
        """Return the text to write for `value`; `current` is what cpu.max holds when only its period changes."""
        if version == 1:
            return value
        if self.kind is Kind.SHARES:
            return str(cpu.shares_to_weight(value))
        if self.kind in (Kind.QUOTA, Kind.LIMIT):
            return "max" if value == "-1" else value
        if self.kind is Kind.PERIOD:
            quota = current.split()[0] if current.split() else "max"
            return f"{quota} {value}"
        return value

    def current(self, version: int, text: str) -> str:
        """Return the part of the file's text that the value is compared with."""
        text = text.strip("\n")
        if version == 2 and self.kind in (Kind.QUOTA, Kind.PERIOD):
            fields = text.split()
            return fields[0 if self.kind is Kind.QUOTA else -1] if fields else text
        return text

    def same(self, version: int, text: str, value: str) -> bool:
        """Return whether a file with this text already has `value`."""
        if self.kind is Kind.DEVICE:
            return not line_needed(text, value)
        if self.kind is Kind.COST:
            return not cost_line_needed(text, value)
        current = self.current(version, text)
        if self.kind is Kind.CPUS and same_cpus(current, value):
            return True
        target = value if self.kind is Kind.PERIOD else self.to_kernel(version, value)
        if current == target:
            return True
        if target == str(INT64_MAX) and current == "max":
            return True
        return self.kind is Kind.LIMIT and version == 1 and value == "-1" and _no_limit_v1(current)


def _no_limit_v1(text: str) -> bool:
    try:
        return signed(text) >= 0x7FFFFFFFFFFFF000
    except FormatError:
        return False


def in_range(value: str, low: int, high: int) -> bool:
    """Return whether a text is `max` or a decimal integer within [low, high]."""
    if value == "max":
        return low <= INT64_MAX <= high
    try:
        return low <= signed(value) <= high
    except FormatError:
        return False


_MODEL_FIELDS = frozenset({"rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"})
_COST_BOUNDS = {
    **dict.fromkeys(("rpct", "wpct"), (0, 100)),
    **dict.fromkeys(("rlat", "wlat"), (0, INT64_MAX)),
    # The kernel refuses a model of which a value is 0.
    **dict.fromkeys(_MODEL_FIELDS, (1, INT64_MAX)),
}


def _cost_line(value: str) -> bool:
    """Return whether every number of a line of blkio.cost.qos or blkio.cost.model is one that the kernel takes."""
    if value == "":
        return False
    fields = (field.partition("=") for field in value.split(" ")[1:])
    return all(in_range(text, *_COST_BOUNDS[name]) for name, _, text in fields if name in _COST_BOUNDS)


_SIZE: Range = (0, INT64_MAX)


def _memory_qos(name: str, low: int, high: int) -> CgroupFile:
    """A file of kernels with extended memory QoS: in the kube root on v1, anywhere on v2."""
    return CgroupFile(
        name=name,
        controller="memory",
        v2=name,
        range_v1=(low, high),
        range_v2=(low, high),
        check_v1=Check.KUBE_ROOT,
        check_v2=Check.DIRECTORY,
    )


def _protection(name: str) -> CgroupFile:
    return CgroupFile(
        name=name,
        controller="memory",
        v2=name,
        range_v1=_SIZE,
        range_v2=_SIZE,
        check_v1=Check.KUBE_ROOT,
        merge=Merge.IF_LARGER,
    )


def _pressure(name: str) -> CgroupFile:
    return CgroupFile(name=name, controller="cpuacct", v2=name, check_v1=Check.KUBE_ROOT, check_v2=Check.KUBE_ROOT)


def _throttle(name: str) -> CgroupFile:
    return CgroupFile(
        name=name, controller="blkio", v2=None, kind=Kind.DEVICE, range_v1=_SIZE, check_v1=Check.KUBE_ROOT
    )


CPU_STAT = CgroupFile(name="cpu.stat", controller="cpu", v2="cpu.stat")
CPU_SHARES = CgroupFile(
    name="cpu.shares", controller="cpu", v2="cpu.weight", kind=Kind.SHARES, range_v1=(cpu.MIN_SHARES, cpu.MAX_SHARES)
)
CPU_QUOTA = CgroupFile(name="cpu.cfs_quota_us", controller="cpu", v2="cpu.max", kind=Kind.QUOTA, merge=Merge.IF_LARGER)
CPU_PERIOD = CgroupFile(name="cpu.cfs_period_us", controller="cpu", v2="cpu.max", kind=Kind.PERIOD)
CPU_BURST = CgroupFile(
    name="cpu.cfs_burst_us",
    controller="cpu",
    v2="cpu.max.burst",
    range_v1=(0, 100_000_000),
    range_v2=_SIZE,
    check_v1=Check.DIRECTORY,
    check_v2=Check.KUBE_ROOT,
)
CPU_BVT = CgroupFile(
    name="cpu.bvt_warp_ns",
    controller="cpu",
    v2="cpu.bvt_warp_ns",
    range_v1=(-1, 2),
    range_v2=(-1, 2),
    check_v1=Check.DIRECTORY,
    check_v2=Check.DIRECTORY,
)
CPU_IDLE = CgroupFile(
    name="cpu.idle",
    controller="cpu",
    v2="cpu.idle",
    range_v1=(0, 1),
    range_v2=(0, 1),
    check_v1=Check.KUBE_ROOT,
    check_v2=Check.KUBE_ROOT,
)
TASKS = CgroupFile(name="tasks", controller="cpu", v2="cgroup.threads")
PROCS = CgroupFile(name="cgroup.procs", controller="cpu", v2="cgroup.procs")
CPUSET = CgroupFile(name="cpuset.cpus", controller="cpuset", v2="cpuset.cpus", kind=Kind.CPUS, merge=Merge.IF_LOOSER)
CPUSET_EFFECTIVE = CgroupFile(
    name="cpuset.cpus.effective", controller="cpuset", v2="cpuset.cpus.effective", kind=Kind.CPUS, only_v2=True
)
CPUACCT_STAT = CgroupFile(name="cpuacct.stat", controller="cpuacct", v2="cpu.stat")
CPUACCT_USAGE = CgroupFile(name="cpuacct.usage", controller="cpuacct", v2="cpu.stat")
CPU_PRESSURE = _pressure("cpu.pressure")
MEMORY_PRESSURE = _pressure("memory.pressure")
IO_PRESSURE = _pressure("io.pressure")
MEMORY_LIMIT = CgroupFile(name="memory.limit_in_bytes", controller="memory", v2="memory.max", kind=Kind.LIMIT)
MEMORY_USAGE = CgroupFile(name="memory.usage_in_bytes", controller="memory", v2="memory.current")
MEMORY_STAT = CgroupFile(name="memory.stat", controller="memory", v2="memory.stat")
MEMORY_EVENTS = CgroupFile(name="memory.oom_control", controller="memory", v2="memory.events")
MEMORY_NUMA_STAT = CgroupFile(name="memory.numa_stat", controller="memory", v2="memory.numa_stat")
MEMORY_MIN = _protection("memory.min")
MEMORY_LOW = _protection("memory.low")
MEMORY_HIGH = _protection("memory.high")
MEMORY_WMARK_RATIO = _memory_qos("memory.wmark_ratio", 0, 100)
MEMORY_WMARK_SCALE = _memory_qos("memory.wmark_scale_factor", 1, 1000)
MEMORY_WMARK_MIN_ADJ = _memory_qos("memory.wmark_min_adj", -25, 50)
MEMORY_PRIORITY = _memory_qos("memory.priority", 0, 12)
MEMORY_USE_PRIORITY_OOM = _memory_qos("memory.use_priority_oom", 0, 1)
MEMORY_OOM_GROUP = _memory_qos("memory.oom.group", 0, 1)
MEMORY_PAGE_CACHE_ENABLE = _memory_qos("memory.pagecache_limit.enable", 0, 1)
MEMORY_PAGE_CACHE_SIZE = _memory_qos("memory.pagecache_limit.size", 0, INT64_MAX)
MEMORY_PAGE_CACHE_SYNC = _memory_qos("memory.pagecache_limit.sync", 0, 1)
MEMORY_IDLE_PAGES = CgroupFile(name="memory.idle_page_stats", controller="memory", v2=None, check_v1=Check.KUBE_ROOT)
NET_CLASS = CgroupFile(
    name="net_cls.classid", controller="net_cls", v2=None, range_v1=(0, 0xFFFFFFFF), check_v1=Check.DIRECTORY
)
BLKIO_READ_IOPS = _throttle("blkio.throttle.read_iops_device")
BLKIO_READ_BPS = _throttle("blkio.throttle.read_bps_device")
BLKIO_WRITE_IOPS = _throttle("blkio.throttle.write_iops_device")
BLKIO_WRITE_BPS = _throttle("blkio.throttle.write_bps_device")
BLKIO_COST_WEIGHT = CgroupFile(
    name="blkio.cost.weight",
    controller="blkio",
    v2="blkio/blkio.cost.weight",
    kind=Kind.DEVICE,
    range_v1=(1, 100),
    check_v1=Check.KUBE_ROOT,
    check_v2=Check.KUBE_ROOT,
)
BLKIO_COST_MODEL = CgroupFile(
    name="blkio.cost.model",
    controller="blkio",
    v2="blkio/blkio.cost.model",
    kind=Kind.COST,
    check_v1=Check.ROOT,
    check_v2=Check.ROOT,
)
BLKIO_COST_QOS = CgroupFile(
    name="blkio.cost.qos",
    controller="blkio",
    v2="blkio/blkio.cost.qos",
    kind=Kind.COST,
    check_v1=Check.ROOT,
    check_v2=Check.ROOT,
)

CGROUP_FILES: dict[str, CgroupFile] = {
    file.name: file
    for file in (
        *(CPU_STAT, CPU_SHARES, CPU_QUOTA, CPU_PERIOD, CPU_BURST, CPU_BVT, CPU_IDLE, TASKS, PROCS, CPUSET),
        *(CPUSET_EFFECTIVE, CPUACCT_STAT, CPUACCT_USAGE, CPU_PRESSURE, MEMORY_PRESSURE, IO_PRESSURE),
        *(MEMORY_LIMIT, MEMORY_USAGE, MEMORY_STAT, MEMORY_NUMA_STAT, MEMORY_MIN, MEMORY_LOW, MEMORY_HIGH),
        *(MEMORY_WMARK_RATIO, MEMORY_WMARK_SCALE, MEMORY_WMARK_MIN_ADJ, MEMORY_PRIORITY),
        *(MEMORY_USE_PRIORITY_OOM, MEMORY_OOM_GROUP, MEMORY_IDLE_PAGES, MEMORY_EVENTS),
        *(MEMORY_PAGE_CACHE_ENABLE, MEMORY_PAGE_CACHE_SIZE, MEMORY_PAGE_CACHE_SYNC),
        *(BLKIO_READ_IOPS, BLKIO_READ_BPS, BLKIO_WRITE_IOPS, BLKIO_WRITE_BPS),
        *(BLKIO_COST_WEIGHT, BLKIO_COST_MODEL, BLKIO_COST_QOS, NET_CLASS),
    )
}


class Root(Enum):
    """Which of the configurable roots a system file lies under."""

    PROC = "proc"
    SYS = "sys"
    SYS_FS = "sys_fs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFile:
    """A kernel setting outside the cgroup tree."""

    name: str
    root: Root
    path: str
    bounds: Range | None = None
    optional: bool = True

    def validate(self, value: str) -> None:
        """Raise ValueRefused if the file would not take `value`."""
        if self.bounds is not None and not in_range(value, *self.bounds):
            raise ValueRefused(f"{value!r} is not in {self.bounds[0]}..{self.bounds[1]}", field=self.name)


MIN_FREE_KBYTES = SystemFile(
    name="min_free_kbytes", root=Root.PROC, path="sys/vm/min_free_kbytes", bounds=(10240, 10485760), optional=False
)
WATERMARK_SCALE_FACTOR = SystemFile(
    name="watermark_scale_factor",
    root=Root.PROC,
    path="sys/vm/watermark_scale_factor",
    bounds=(10, 400),
    optional=False,
)
REAP_BACKGROUND = SystemFile(
    name="reap_background", root=Root.SYS, path="kernel/mm/memcg_reaper/reap_background", bounds=(0, 1)
)
KIDLED_SCAN_PERIOD = SystemFile(
    name="scan_period_in_seconds", root=Root.SYS, path="kernel/mm/kidled/scan_period_in_seconds", bounds=_SIZE
)
KIDLED_USE_HIERARCHY = SystemFile(
    name="use_hierarchy", root=Root.SYS, path="kernel/mm/kidled/use_hierarchy", bounds=(0, 1)
)
SCHED_FEATURES = SystemFile(name="sched_features", root=Root.SYS, path="kernel/debug/sched_features")
SCHED_GROUP_IDENTITY = SystemFile(
    name="sched_group_identity_enabled", root=Root.PROC, path="sys/kernel/sched_group_identity_enabled", bounds=(0, 1)
)
SCHED_IDLE_SAVER_WMARK = SystemFile(
    name="sched_idle_saver_wmark", root=Root.PROC, path="sys/kernel/sched_idle_saver_wmark"
)
PAGE_CACHE_LIMIT = SystemFile(
    name="pagecache_limit", root=Root.SYS, path="kernel/mm/pagecache_limit/enabled", bounds=(0, 1)
)
SCHED_CORE = SystemFile(name="sched_core", root=Root.PROC, path="sys/kernel/sched_core", bounds=(0, 1))
RESCTRL_CBM_MASK = SystemFile(name="cbm_mask", root=Root.SYS_FS, path="resctrl/info/L3/cbm_mask")


def resctrl_file(group: str, name: str) -> SystemFile:
    """Return `schemata` or `tasks` of a resctrl group; the root group has an empty name."""
    path = "/".join(part for part in ("resctrl", group, name) if part)
    return SystemFile(name=name, root=Root.SYS_FS, path=path)
