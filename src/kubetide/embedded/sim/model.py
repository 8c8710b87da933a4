"""What the containers do: turns load into CPU demand and memory, once per tick, workload by workload.

Requests of a workload are shared by its ready pods, slightly unevenly; a pod that is starting burns its start-up CPU
instead; batch containers run flat out until their work is done. The arithmetic is that of `profile`, on whole columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from kubetide.embedded.sim.kernel import Kernel
from kubetide.embedded.sim.load import Curve, unit_hash
from kubetide.embedded.sim.profile import Profile, latency

WorkloadKey = tuple[str, str]
"""Namespace and name of the topmost owner."""

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Task:
    """One container at work: its row, its pod, and since when."""

    row: int
    pod: str
    started: float
    weight: float
    ready: bool = False


@dataclass(slots=True)
class Group:
    """The containers of one workload that behave alike, as columns."""

    workload: WorkloadKey
    profile: Profile
    tasks: dict[int, Task] = field(default_factory=dict)
    stale: bool = True
    rows: npt.NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    started: Floats = field(default_factory=lambda: np.zeros(0))
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    ready: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    rates: Floats = field(default_factory=lambda: np.zeros(0))
    level: float = 0.0

    def columns(self) -> None:
        """Rebuild the columns after tasks came, went or changed."""
        tasks = list(self.tasks.values())
        self.rows = np.array([task.row for task in tasks], dtype=np.intp)
        self.started = np.array([task.started for task in tasks], dtype=np.float64)
        self.weights = np.array([task.weight for task in tasks], dtype=np.float64)
        self.ready = np.array([task.ready for task in tasks], dtype=np.bool_)
        self.rates = np.zeros(len(tasks))
        self.stale = False


@dataclass(frozen=True, slots=True)
class PodWork:
    """What one pod is doing: requests per second and their mean response time."""

    pod: str
    rate: float
    latency: float


class Model:
    """All workloads. `done` is told the rows of batch containers whose work is finished."""

    def __init__(self, kernel: Kernel, *, seed: int, week_start: float, done: Callable[[int], None]) -> None:
        self._kernel = kernel
        self._seed = seed
        self._week_start = week_start
        self._done = done
        self._groups: dict[tuple[WorkloadKey, Profile], Group] = {}
        self._by_row: dict[int, Group] = {}
        self.profiles: dict[WorkloadKey, Profile] = {}

    def profile_of(self, workload: WorkloadKey) -> Profile:
        return self.profiles.get(workload, Profile())

    def set_profile(self, workload: WorkloadKey, profile: Profile) -> None:
        """Give a workload another behaviour, also where it already runs."""
        before = self.profile_of(workload)
        self.profiles[workload] = profile
        for (key, old), group in list(self._groups.items()):
            if key == workload:
                changed = profile if old == before else replace(old, curve=profile.curve)
                del self._groups[key, old]
                group.profile = changed
                merged = self._groups.setdefault((key, changed), group)
                if merged is not group:
                    merged.tasks |= group.tasks
                    merged.stale = True
                    for row in group.tasks:
                        self._by_row[row] = merged

    def set_load(self, workload: WorkloadKey, curve: Curve) -> None:
        """Change only the load of a workload."""
        self.set_profile(workload, replace(self.profile_of(workload), curve=curve))

    def start(self, row: int, *, workload: WorkloadKey, pod: str, profile: Profile, now: float, seed: int) -> None:
        """A container began to run."""
        group = self._groups.setdefault((workload, profile), Group(workload, profile))
        swing = 2 * unit_hash(self._seed, seed) - 1
        group.tasks[row] = Task(row=row, pod=pod, started=now, weight=1 + profile.imbalance * swing)
        group.stale = True
        self._by_row[row] = group
        kernel = self._kernel
        kernel.demand[row] = profile.start_cpu if profile.work is None else profile.threads
        kernel.anon[row] = profile.memory_base
        kernel.cache_goal[row] = profile.cache
        kernel.demand_changed()

    def set_ready(self, row: int, ready: bool) -> None:
        """A container began, or ceased, to take requests."""
        group = self._by_row.get(row)
        if group is not None:
            group.tasks[row].ready = ready
            group.stale = True

    def stop(self, row: int) -> None:
        """A container ended."""
        group = self._by_row.pop(row, None)
        if group is not None:
            group.tasks.pop(row, None)
            group.stale = True
            if not group.tasks:
                self._groups.pop((group.workload, group.profile), None)

    def tick(self, now: float) -> None:
        """Set every demand to what it is from now on. The kernel must have been brought up to `now`."""
        levels: dict[int, float] = {}
        finished: list[int] = []
        shares = self._ready_weight()
        for group in self._groups.values():
            if group.stale:
                group.columns()
            profile = group.profile
            curve = profile.curve
            if curve is not None and id(curve) not in levels:
                levels[id(curve)] = curve.level(now, self._week_start + now)
            group.level = levels[id(curve)] if curve is not None else 0.0
            if profile.work is not None:
                used = self._kernel.usage[group.rows]
                finished += [int(row) for row in group.rows[used >= profile.work]]
            self._set_demand(group, now, shares.get(group.workload, 0.0))
        self._kernel.demand_changed()
        for row in finished:
            self._done(row)

    def _ready_weight(self) -> dict[WorkloadKey, float]:
        """A workload's load is shared by all its ready pods, also across a change of profile."""
        total: dict[WorkloadKey, float] = {}
        for group in self._groups.values():
            if group.stale:
                group.columns()
            weight = float(group.weights[group.ready].sum())
            total[group.workload] = total.get(group.workload, 0.0) + weight
        return total

    def _set_demand(self, group: Group, now: float, total_weight: float) -> None:
        profile, kernel, rows = group.profile, self._kernel, group.rows
        rates = group.level * group.weights / total_weight if total_weight > 0 else np.zeros(len(rows))
        group.rates = np.where(group.ready, rates, 0.0)
        busy = profile.cpu_idle + (profile.cpu_steady or 0.0) + group.rates * profile.cpu_per_request
        if profile.work is not None:
            kernel.demand[rows] = profile.threads
        else:
            kernel.demand[rows] = np.where(group.ready, busy, profile.start_cpu)
        kernel.anon[rows] = (
            profile.memory_base
            + group.rates * profile.memory_per_request
            + profile.leak_per_hour * (now - group.started) / 3600.0
        )
        kernel.cache_goal[rows] = profile.cache

    def work_of(self, workload: WorkloadKey) -> list[PodWork]:
        """Return what each ready pod of a workload is doing."""
        found = []
        for group in self._groups.values():
            if group.workload != workload or group.stale:
                continue
            profile = group.profile
            for task, rate in zip(group.tasks.values(), group.rates, strict=True):
                if task.ready:
                    found.append(PodWork(task.pod, float(rate), self._latency(task.row, profile)))
        return found

    def _latency(self, row: int, profile: Profile) -> float:
        """A queue with one server: service time over what is left of the CPU the pod may have."""
        demand, granted = float(self._kernel.demand[row]), float(self._kernel.granted[row])
        room = granted if granted < demand - 1e-9 else float(self._kernel.cap[row])
        return latency(service_seconds=profile.cpu_per_request, demand=demand, granted=room)

    def levels(self) -> dict[WorkloadKey, float]:
        """Return the present load of every workload that has one."""
        return {group.workload: group.level for group in self._groups.values() if group.profile.curve is not None}
