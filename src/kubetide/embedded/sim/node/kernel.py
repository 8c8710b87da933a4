"""The kernels of all simulated nodes: processes as columns, so that thousands of pods cost a few array operations.

Between two changes every rate is constant, so counters are integrals: `advance(now)` adds rate × time to all of them
and may be called at any moment (the node agent reading a file does). `settle()` recomputes the rates after demand
or a cgroup setting changed:

    granted   = min(demand, quota, CPUs), or the fair share (`sharing`) on nodes where that is more than there is
    throttled = share of periods cut short: 0 below 80 % of the quota, all of them from 120 % on; a burst allowance
                moves the first bound up, because short peaks borrow from quiet periods, but not the long run
    stalled   = 1 − granted / demand, the cpu pressure of the group

Memory: anonymous memory is what the processes hold; page cache fills what its limit and the node leave. Anonymous
memory above a limit, or above the node, ends in an OOM kill (`memory.py`). Waiting for a disk is counted in `disks`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kubetide.embedded.sim.node.columns import Column, KernelColumns
from kubetide.embedded.sim.node.derived import Derived
from kubetide.embedded.sim.node.disks import Disks
from kubetide.embedded.sim.node.groups import CGroup, GroupTree
from kubetide.embedded.sim.node.memory import OomKill, find_kills, squeeze_cache
from kubetide.embedded.sim.node.sharing import distribute


@dataclass(slots=True)
class Machine:
    """One node: its size, its cgroup tree, and whether an inner group can limit what leaves get."""

    index: int
    name: str
    cpus: frozenset[int]
    memory_bytes: float
    tree: GroupTree
    dirty: bool = True
    bound: bool = False
    memory_groups: list[CGroup] = field(default_factory=list)
    quota_groups: list[CGroup] = field(default_factory=list)
    kernel_memory: float = 0.0
    retired_usage: float = 0.0


class Kernel(KernelColumns):
    """The table of processes and the machines they run on."""

    def __init__(self, rows: int = 256) -> None:
        super().__init__(rows)
        self.node: npt.NDArray[np.intp] = np.full(rows, -1, dtype=np.intp)
        self._groups: list[CGroup | None] = [None] * rows
        self._free: list[int] = []
        self._top = 0
        self.machines: list[Machine] = []
        self.now = 0.0
        self.disks = Disks()
        self._stale = True
        self._memory_stale = True
        self._fits = False
        """Whether memory is known to be enough for all."""
        self.derived = Derived.of(self, 0)
        self.catch_up: Callable[[], None] = lambda: None
        """Lives through ticks that were put off; whoever looks at the columns or changes anything calls it first."""

    # -- what there is -------------------------------------------------------------------------------------------

    def add_machine(self, name: str, *, cpus: int, memory_bytes: float) -> Machine:
        machine = Machine(
            index=len(self.machines),
            name=name,
            cpus=frozenset(range(cpus)),
            memory_bytes=memory_bytes,
            tree=GroupTree(),
        )
        self.machines.append(machine)
        return machine

    def start(self, machine: Machine, path: str, *, oom_adjust: float = 0.0) -> int:
        """Begin processes in the group at `path` and return their row."""
        group = machine.tree.make(path)
        if group.row is not None:
            raise ValueError(f"processes already run in {path}")
        row = self._free.pop() if self._free else self._top
        if row == self._top:
            self._top += 1
            if self._top > len(self.node):
                self._grow()
        self.clear(row)
        self.oom_adjust[row] = oom_adjust
        self.node[row] = machine.index
        self._groups[row] = group
        group.row = row
        self.changed(machine)
        return row

    def stop(self, row: int) -> None:
        """End processes; their usage stays counted in the group they ran in."""
        group = self._groups[row]
        if group is None:
            raise ValueError(f"row {row} is not in use")
        group.retired_usage += float(self.usage[row])
        group.retired_stalled = max(group.retired_stalled, float(self.stalled_seconds[row]))
        group.periods += float(self.periods[row])
        group.throttled += float(self.throttled[row])
        group.throttled_seconds += float(self.throttled_seconds[row])
        group.row = None
        self.disks.forget(row)
        machine = self.machines[int(self.node[row])]
        machine.retired_usage += float(self.usage[row])
        self.changed(machine)
        self.rest(row)
        self.node[row] = -1
        self._groups[row] = None
        self._free.append(row)

    def changed(self, machine: Machine) -> None:
        """Note that a setting in the machine's tree changed."""
        self.catch_up()
        machine.dirty = True
        self.demand_changed()

    def set_disk_use(self, row: int, bytes_per_second: float) -> None:
        """Set what processes want to read from and write to the disk of their machine."""
        group = self._groups[row]
        if group is not None:
            self.disks.want(row, group, int(self.node[row]), bytes_per_second)

    def demand_changed(self, *, memory: bool = True) -> None:
        """Note that a demand changed, or also a memory size or a cache goal."""
        self._stale = True
        if memory:
            self._memory_stale = True
            self._fits = False

    def _grow(self) -> None:
        self.enlarge()
        node = np.full(self.size, -1, dtype=np.intp)
        node[: len(self.node)] = self.node
        self.node = node
        self._groups.extend([None] * (self.size - len(self._groups)))

    # -- time ----------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Count everything up to `now` at the present rates."""
        self.catch_up()
        seconds = now - self.now
        if seconds <= 0:
            return
        if self._stale:
            self.settle()
        self.now = now
        self.count(self._top, seconds)
        if self.disks:
            self.disks.count(seconds)
        for machine in self.machines:
            for group in machine.quota_groups:
                quota = group.quota_cores
                if quota is not None and group.granted > 0:
                    group.periods += seconds * 1e6 / group.period_us
                    if group.want >= quota - 1e-9:
                        group.throttled += seconds * 1e6 / group.period_us
                        group.throttled_seconds += seconds

    @property
    def at_rest(self) -> bool:
        """Whether nothing but demands can change until somebody changes something else."""
        settled = self._fits and not self._stale and not self._memory_stale
        return settled and not self.disks and not self.derived.bound.any()

    def refresh(self, now: float) -> None:
        """Bring counters up to `now` and rates up to the latest change, for somebody who reads them."""
        self.advance(now)
        if self._stale:
            self.settle()

    def settle(self) -> None:
        """Recompute all rates from demands and settings."""
        self._stale = False
        dirty = [machine for machine in self.machines if machine.dirty]
        for machine in dirty:
            self._read_settings(machine)
        if dirty:
            self.derived = Derived.of(self, self._top)
        derived = self.derived
        demand = derived.demand
        granted = np.minimum(demand, derived.cap, out=derived.granted)
        wanted = np.bincount(derived.bins, weights=granted, minlength=len(self.machines))
        for index in ((wanted > derived.cpus) | derived.bound).nonzero()[0].tolist():
            self._share(self.machines[index], granted)
        rows = slice(0, self._top)
        self._settle_throttling(rows)
        self.stall[rows] = 0.0
        short = granted < demand
        if np.count_nonzero(short):
            self.stall[rows] = 1.0 - np.divide(granted, demand, out=np.ones_like(demand), where=short)
            self.pressed = True
        if self._memory_stale:
            self._settle_memory(rows)

    def _settle_memory(self, rows: slice) -> None:
        self._memory_stale = False
        derived = self.derived
        squeeze_cache(derived.memory, derived.capacity)
        self.memory_stall[rows] = 0.0
        held = derived.memory.anon + derived.memory.file
        full = held > derived.room
        if np.count_nonzero(full):
            fill = held / derived.limit
            self.memory_stall[rows] = np.where(full, np.minimum((fill - 0.95) / 0.05, 1.0) * 0.5, 0.0)
            self.pressed = True

    def _share(self, machine: Machine, granted: Column) -> None:
        demand, cap = self.demand, self.cap
        distribute(machine.tree.root, lambda row: float(min(demand[row], cap[row])), cpus=machine.cpus)
        for leaf in machine.tree.root.leaves():
            if leaf.row is not None:
                granted[leaf.row] = leaf.granted

    def _settle_throttling(self, rows: slice) -> None:
        demand, derived = self.derived.demand, self.derived
        self.period_rate[rows] = derived.period_rate * (demand > 0)
        if not np.count_nonzero(demand > derived.calm):
            self.throttle_rate[rows] = self.throttle_time_rate[rows] = 0.0
            return
        self.throttle_rate[rows], self.throttle_time_rate[rows] = derived.throttling(demand, self.period_rate[rows])

    def _read_settings(self, machine: Machine) -> None:
        """Copy what leaves are allowed into the columns and find inner groups that could limit them further."""
        machine.dirty = False
        machine.bound = False
        machine.quota_groups = []
        machine.memory_groups = []
        for group in machine.tree.root.walk():
            if group.cpus and group.cpus != machine.cpus:
                machine.bound = True
            row = group.row
            if row is not None:
                allowed = group.effective_cpus(machine.cpus)
                quota = group.quota_cores
                self.quota[row] = np.inf if quota is None else quota
                self.burst[row] = group.burst_cores
                self.period[row] = group.period_us / 1e6
                self.cap[row] = min(float(len(allowed)), self.quota[row])
                self.limit[row] = np.inf if group.memory_limit is None else float(group.memory_limit)
                continue
            if group.quota_us is not None and self._narrower(group, "quota"):
                machine.bound = True
                machine.quota_groups.append(group)
            if group.memory_limit is not None and self._narrower(group, "memory"):
                machine.memory_groups.append(group)

    def _narrower(self, group: CGroup, what: str) -> bool:
        """Whether the leaves below may together exceed the group's own limit."""
        total = 0.0
        for leaf in group.leaves():
            own = leaf.quota_cores if what == "quota" else leaf.memory_limit
            if own is None:
                return True
            total += own
        limit = group.quota_cores if what == "quota" else group.memory_limit
        return limit is not None and limit < total - 1e-9

    # -- memory --------------------------------------------------------------------------------------------------

    def out_of_memory(self) -> list[OomKill]:
        """Return who must die now; the caller stops them and asks again, since one death may be enough."""
        if self._stale:
            self.settle()
        if self._fits:
            return []
        kills = find_kills(self.derived.memory, self.machines)
        self._fits = not kills
        return kills

    # -- what a group sees ---------------------------------------------------------------------------------------

    def group_of(self, row: int) -> CGroup:
        group = self._groups[row]
        if group is None:
            raise ValueError(f"row {row} is not in use")
        return group

    def totals(self, usage: Column) -> list[tuple[float, float, float]]:
        """CPU seconds used, anonymous memory and page cache of every machine, in their order."""
        live = self.node[: self._top] >= 0
        node = self.node[: self._top][live]
        sums = [
            np.bincount(node, weights=column[: self._top][live], minlength=len(self.machines)).tolist()
            for column in (usage, self.anon, self.file)
        ]
        return [
            (machine.retired_usage + usage, anon, file)
            for machine, usage, anon, file in zip(self.machines, *sums, strict=True)
        ]

    def usage_of(self, group: CGroup) -> float:
        """CPU seconds used in the group, the dead included."""
        total = group.retired_usage
        if group.row is not None:
            total += float(self.usage[group.row])
        return total + sum(self.usage_of(child) for child in group.children.values())

    def memory_of(self, group: CGroup) -> tuple[float, float]:
        """Anonymous memory and page cache of the group, in bytes."""
        rows = [leaf.row for leaf in group.leaves() if leaf.row is not None]
        return float(self.anon[rows].sum()), float(self.file[rows].sum())

    def throttling_of(self, group: CGroup) -> tuple[float, float, float]:
        """Periods, throttled periods and throttled seconds; an inner group shows the worst of what is below it."""
        periods, throttled, seconds = group.periods, group.throttled, group.throttled_seconds
        if group.row is not None:
            row = group.row
            periods += float(self.periods[row])
            throttled += float(self.throttled[row])
            seconds += float(self.throttled_seconds[row])
        elif group.quota_us is not None:
            below = [self.throttling_of(child) for child in group.children.values()]
            if below:
                periods += max(b[0] for b in below)
                throttled += max(b[1] for b in below)
                seconds += max(b[2] for b in below)
        return periods, throttled, seconds

    def pressure_of(self, group: CGroup, kind: str) -> tuple[float, float, float, float]:
        """Pressure averages (0 to 1) over 10, 60 and 300 s and the stalled seconds: the worst leaf's."""
        rows = [leaf.row for leaf in group.leaves() if leaf.row is not None]
        if kind == "io":
            return self.disks.pressure_of(rows)
        prefix, total = ("some", "stalled_seconds") if kind == "cpu" else ("memory", "memory_stalled_seconds")
        if not rows:
            return 0.0, 0.0, 0.0, group.retired_stalled
        averages = [self.peak(f"{prefix}{window}", rows) for window in (10, 60, 300)]
        stalled = self.peak(total, rows)
        return averages[0], averages[1], averages[2], max(stalled, group.retired_stalled if kind == "cpu" else 0.0)
