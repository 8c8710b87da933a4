"""The files of one cgroup directory, v1 and v2: what reading gives and what writing does or refuses.

The rules are the kernel's: v1 wants a child's quota and CPUs inside its parent's and answers EINVAL, EACCES or EBUSY;
v2 takes any value and applies the narrowest. Files that only Anolis kernels have exist when `anolis` is set.
"""

import errno
from collections.abc import Callable

from kubetide.api.values.cpuset import CpuSet, CpuSetError
from kubetide.embedded.sim.node.groups import CGroup
from kubetide.embedded.sim.node.kernel import Kernel, Machine

_UNLIMITED_V1 = 9223372036854771712
_PAGE = 4096

Reader = Callable[[CGroup], str]
Writer = Callable[[CGroup, str], None]

PASSIVE_ANOLIS = {
    "memory.wmark_ratio": "0",
    "memory.wmark_scale_factor": "50",
    "memory.wmark_min_adj": "0",
    "memory.priority": "0",
    "memory.use_priority_oom": "0",
}
PASSIVE_BLKIO = {
    "blkio.throttle.read_iops_device": "",
    "blkio.throttle.read_bps_device": "",
    "blkio.throttle.write_iops_device": "",
    "blkio.throttle.write_bps_device": "",
}


def refuse(code: int, group: CGroup, file: str) -> OSError:
    """Return the error a write to `file` ends in."""
    return OSError(code, errno.errorcode[code], f"{group.path}/{file}")


def _integer(text: str, group: CGroup, file: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise refuse(errno.EINVAL, group, file) from None


def _shares_to_weight(shares: int) -> int:
    return max(1, min(10_000, round(shares * 100 / 1024)))


class CgroupFiles:
    """Readers and writers by controller and file name, for one machine."""

    def __init__(self, kernel: Kernel, machine: Machine, *, version: int, anolis: bool) -> None:
        self._kernel = kernel
        self._machine = machine
        self._version = version
        self._anolis = anolis
        self.readers: dict[tuple[str, str], Reader] = {}
        self.writers: dict[tuple[str, str], Writer] = {}
        if version == 1:
            self._make_v1()
        else:
            self._make_v2()

    def _file(self, controller: str, name: str, read: Reader, write: Writer | None = None) -> None:
        key = (controller if self._version == 1 else "", name)
        self.readers[key] = read
        if write is not None:
            self.writers[key] = write

    def _passive(self, controller: str, name: str, default: str) -> None:
        """A file that remembers what was written and changes nothing in the model."""

        def write(group: CGroup, text: str) -> None:
            group.extra[name] = text.strip()

        self._file(controller, name, lambda group: group.extra.get(name, default), write)

    # -- v1 ------------------------------------------------------------------------------------------------------

    def _make_v1(self) -> None:
        self._file("cpu", "cpu.shares", lambda g: str(g.shares), self._write_shares)
        self._file("cpu", "cpu.cfs_quota_us", lambda g: str(-1 if g.quota_us is None else g.quota_us), self._quota_v1)
        self._file("cpu", "cpu.cfs_period_us", lambda g: str(g.period_us), self._write_period)
        self._file("cpu", "cpu.cfs_burst_us", lambda g: str(g.burst_us), self._write_burst)
        self._file("cpu", "cpu.stat", self._cpu_stat_v1)
        self._file("cpuacct", "cpuacct.usage", lambda g: str(int(self._kernel.usage_of(g) * 1e9)))
        self._file("cpuacct", "cpuacct.stat", self._cpuacct_stat)
        self._file("cpuset", "cpuset.cpus", self._cpus, self._write_cpus_v1)
        self._file("cpuset", "cpuset.effective_cpus", self._effective_cpus)
        self._passive("cpuset", "cpuset.mems", "0")
        for controller in ("cpu", "cpuacct", "cpuset", "memory", "blkio", "perf_event"):
            self._file(controller, "cgroup.procs", self._procs, lambda g, text: None)
            self._file(controller, "tasks", self._procs, lambda g, text: None)
        self._file("memory", "memory.usage_in_bytes", lambda g: str(int(sum(self._kernel.memory_of(g)))))
        self._file("memory", "memory.limit_in_bytes", self._limit_v1, self._write_limit)
        self._file("memory", "memory.stat", self._memory_stat_v1)
        self._file("memory", "memory.numa_stat", self._numa_stat_v1)
        for name in PASSIVE_BLKIO:
            self._passive("blkio", name, "")
        if self._anolis:
            self._file("cpu", "cpu.bvt_warp_ns", lambda g: str(g.bvt), self._write_bvt)
            self._file("cpu", "cpu.idle", lambda g: str(g.idle), self._write_idle)
            for kind in ("cpu", "memory", "io"):
                self._file("cpuacct", f"{kind}.pressure", lambda g, kind=kind: self._pressure(g, kind))  # type: ignore[misc]
            self._protection("memory")
            for name, default in PASSIVE_ANOLIS.items():
                self._passive("memory", name, default)
            self._passive("memory", "memory.oom.group", "0")
            self._passive("blkio", "blkio.cost.weight", "")
            self._passive("blkio", "blkio.cost.qos", "")

    def _quota_v1(self, group: CGroup, text: str) -> None:
        value = _integer(text, group, "cpu.cfs_quota_us")
        if value >= 0 and value < 1000:
            raise refuse(errno.EINVAL, group, "cpu.cfs_quota_us")
        quota = None if value < 0 else value
        ratio = None if quota is None else quota / group.period_us
        above = group.parent
        while above is not None:  # the nearest limited ancestor must allow it
            limit = above.quota_cores
            if limit is not None:
                if ratio is not None and ratio > limit + 1e-9:
                    raise refuse(errno.EINVAL, group, "cpu.cfs_quota_us")
                break
            above = above.parent
        if ratio is not None:
            for below in group.walk():
                own = below.quota_cores
                if below is not group and own is not None and own > ratio + 1e-9:
                    raise refuse(errno.EINVAL, group, "cpu.cfs_quota_us")
        group.quota_us = quota

    def _cpu_stat_v1(self, group: CGroup) -> str:
        periods, throttled, seconds = self._kernel.throttling_of(group)
        return f"nr_periods {int(periods)}\nnr_throttled {int(throttled)}\nthrottled_time {int(seconds * 1e9)}\n"

    def _cpuacct_stat(self, group: CGroup) -> str:
        ticks = int(self._kernel.usage_of(group) * 100)
        return f"user {ticks * 4 // 5}\nsystem {ticks - ticks * 4 // 5}\n"

    def _write_cpus_v1(self, group: CGroup, text: str) -> None:
        cpus = self._parse_cpus(group, text)
        if group.parent is not None and not cpus <= group.parent.effective_cpus(self._machine.cpus):
            raise refuse(errno.EACCES, group, "cpuset.cpus")
        if any(child.cpus and not child.cpus <= cpus for child in group.children.values()):
            raise refuse(errno.EBUSY, group, "cpuset.cpus")
        group.cpus = cpus or None

    def _limit_v1(self, group: CGroup) -> str:
        return str(_UNLIMITED_V1 if group.memory_limit is None else group.memory_limit)

    def _memory_stat_v1(self, group: CGroup) -> str:
        anon, file = self._kernel.memory_of(group)
        inactive = int(file) // 2
        values = {
            "cache": int(file), "rss": int(anon), "inactive_anon": 0, "active_anon": int(anon),
            "inactive_file": inactive, "active_file": int(file) - inactive, "unevictable": 0,
        }  # fmt: skip
        lines = [f"{name} {value}" for name, value in values.items()]
        return "\n".join([*lines, *(f"total_{line}" for line in lines)]) + "\n"

    def _numa_stat_v1(self, group: CGroup) -> str:
        pages = int(sum(self._kernel.memory_of(group))) // _PAGE
        return f"total={pages} N0={pages}\n"

    # -- v2 ------------------------------------------------------------------------------------------------------

    def _make_v2(self) -> None:
        self._file("", "cpu.weight", lambda g: str(_shares_to_weight(g.shares)), self._write_weight)
        self._file("", "cpu.max", self._cpu_max, self._write_cpu_max)
        self._file("", "cpu.max.burst", lambda g: str(g.burst_us), self._write_burst)
        self._file("", "cpu.idle", lambda g: str(g.idle), self._write_idle)
        self._file("", "cpu.stat", self._cpu_stat_v2)
        self._file("", "cpuset.cpus", self._cpus, self._write_cpus_v2)
        self._file("", "cpuset.cpus.effective", self._effective_cpus)
        self._passive("", "cpuset.mems", "")
        self._file("", "cgroup.procs", self._procs, lambda g, text: None)
        self._file("", "cgroup.threads", self._procs, lambda g, text: None)
        self._file("", "cgroup.controllers", lambda g: "cpuset cpu io memory pids")
        self._file("", "memory.current", lambda g: str(int(sum(self._kernel.memory_of(g)))))
        self._file(
            "", "memory.max", lambda g: "max" if g.memory_limit is None else str(g.memory_limit), self._write_limit
        )
        self._file("", "memory.stat", self._memory_stat_v2)
        self._file("", "memory.numa_stat", self._numa_stat_v2)
        self._passive("", "memory.oom.group", "0")
        self._passive("", "io.max", "")
        self._protection("")
        for kind in ("cpu", "memory", "io"):
            self._file("", f"{kind}.pressure", lambda g, kind=kind: self._pressure(g, kind))  # type: ignore[misc]
        if self._anolis:
            self._file("", "cpu.bvt_warp_ns", lambda g: str(g.bvt), self._write_bvt)
            for name, default in PASSIVE_ANOLIS.items():
                self._passive("", name, default)

    def _write_weight(self, group: CGroup, text: str) -> None:
        weight = _integer(text, group, "cpu.weight")
        if not 1 <= weight <= 10_000:
            raise refuse(errno.ERANGE, group, "cpu.weight")
        group.shares = round(weight * 1024 / 100)

    def _cpu_max(self, group: CGroup) -> str:
        return f"{'max' if group.quota_us is None else group.quota_us} {group.period_us}"

    def _write_cpu_max(self, group: CGroup, text: str) -> None:
        fields = text.split()
        if not 1 <= len(fields) <= 2:
            raise refuse(errno.EINVAL, group, "cpu.max")
        quota = None if fields[0] == "max" else _integer(fields[0], group, "cpu.max")
        period = group.period_us if len(fields) == 1 else _integer(fields[1], group, "cpu.max")
        if (quota is not None and quota < 1000) or not 1000 <= period <= 1_000_000:
            raise refuse(errno.EINVAL, group, "cpu.max")
        group.quota_us, group.period_us = quota, period

    def _cpu_stat_v2(self, group: CGroup) -> str:
        periods, throttled, seconds = self._kernel.throttling_of(group)
        usage = int(self._kernel.usage_of(group) * 1e6)
        return (
            f"usage_usec {usage}\nuser_usec {usage * 4 // 5}\nsystem_usec {usage - usage * 4 // 5}\n"
            f"nr_periods {int(periods)}\nnr_throttled {int(throttled)}\nthrottled_usec {int(seconds * 1e6)}\n"
            "nr_bursts 0\nburst_usec 0\n"
        )

    def _write_cpus_v2(self, group: CGroup, text: str) -> None:
        group.cpus = self._parse_cpus(group, text) or None

    def _memory_stat_v2(self, group: CGroup) -> str:
        anon, file = self._kernel.memory_of(group)
        inactive = int(file) // 2
        return (
            f"anon {int(anon)}\nfile {int(file)}\nkernel 0\nshmem 0\ninactive_anon {int(anon)}\nactive_anon 0\n"
            f"inactive_file {inactive}\nactive_file {int(file) - inactive}\nunevictable 0\n"
        )

    def _numa_stat_v2(self, group: CGroup) -> str:
        anon, file = self._kernel.memory_of(group)
        return f"anon N0={int(anon)}\nfile N0={int(file)}\n"

    # -- both ----------------------------------------------------------------------------------------------------

    def _protection(self, controller: str) -> None:
        def limit(text: str, group: CGroup, file: str) -> int | None:
            return None if text.strip() == "max" else _integer(text, group, file)

        def write_high(group: CGroup, text: str) -> None:
            group.memory_high = limit(text, group, "memory.high")

        def write_low(group: CGroup, text: str) -> None:
            value = limit(text, group, "memory.low")
            group.memory_low = 2**63 - 1 if value is None else value

        def write_min(group: CGroup, text: str) -> None:
            value = limit(text, group, "memory.min")
            group.memory_min = 2**63 - 1 if value is None else value

        self._file(
            controller, "memory.high", lambda g: "max" if g.memory_high is None else str(g.memory_high), write_high
        )
        self._file(controller, "memory.low", lambda g: str(g.memory_low), write_low)
        self._file(controller, "memory.min", lambda g: str(g.memory_min), write_min)

    def _write_shares(self, group: CGroup, text: str) -> None:
        group.shares = max(2, min(262_144, _integer(text, group, "cpu.shares")))

    def _write_period(self, group: CGroup, text: str) -> None:
        period = _integer(text, group, "cpu.cfs_period_us")
        if not 1000 <= period <= 1_000_000:
            raise refuse(errno.EINVAL, group, "cpu.cfs_period_us")
        group.period_us = period

    def _write_burst(self, group: CGroup, text: str) -> None:
        burst = _integer(text, group, "cpu.max.burst")
        if burst < 0 or (group.quota_us is not None and burst > group.quota_us):
            raise refuse(errno.EINVAL, group, "cpu.max.burst")
        group.burst_us = burst

    def _write_idle(self, group: CGroup, text: str) -> None:
        idle = _integer(text, group, "cpu.idle")
        if idle not in (0, 1):
            raise refuse(errno.EINVAL, group, "cpu.idle")
        group.idle = idle

    def _write_bvt(self, group: CGroup, text: str) -> None:
        bvt = _integer(text, group, "cpu.bvt_warp_ns")
        if not -1 <= bvt <= 2:
            raise refuse(errno.EINVAL, group, "cpu.bvt_warp_ns")
        group.bvt = bvt

    def _write_limit(self, group: CGroup, text: str) -> None:
        text = text.strip()
        value = -1 if text == "max" else _integer(text, group, "memory.limit")
        if value < 0:
            group.memory_limit = None
            return
        if self._version == 1 and self._kernel.memory_of(group)[0] > value:
            raise refuse(errno.EBUSY, group, "memory.limit_in_bytes")
        group.memory_limit = value // _PAGE * _PAGE

    def _parse_cpus(self, group: CGroup, text: str) -> frozenset[int]:
        try:
            cpus = CpuSet.parse(text.strip()).ids
        except CpuSetError as error:
            raise refuse(errno.EINVAL, group, "cpuset.cpus") from error
        if not cpus <= self._machine.cpus:
            raise refuse(errno.EINVAL, group, "cpuset.cpus")
        return cpus

    def _cpus(self, group: CGroup) -> str:
        if self._version == 1 and not group.cpus:  # v1 groups are made with their parent's set copied in
            return self._effective_cpus(group)
        return str(CpuSet.of(group.cpus or ()))

    def _effective_cpus(self, group: CGroup) -> str:
        return str(CpuSet.of(group.effective_cpus(self._machine.cpus)))

    def _procs(self, group: CGroup) -> str:
        return f"{1000 + group.row}\n" if group.row is not None else ""

    def _pressure(self, group: CGroup, kind: str) -> str:
        return pressure_text(self._kernel.pressure_of(group, kind), full=True)


def pressure_text(values: tuple[float, float, float, float], *, full: bool) -> str:
    """Return the text of a pressure file; of the stalled time a third is counted as nobody making progress."""
    ten, minute, five, total = values
    lines = [f"some avg10={ten * 100:.2f} avg60={minute * 100:.2f} avg300={five * 100:.2f} total={int(total * 1e6)}"]
    if full:
        lines.append(
            f"full avg10={ten * 100 / 3:.2f} avg60={minute * 100 / 3:.2f} avg300={five * 100 / 3:.2f} "
            f"total={int(total * 1e6 / 3)}"
        )
    return "\n".join(lines) + "\n"
