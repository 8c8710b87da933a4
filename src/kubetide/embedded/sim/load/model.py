"""What the containers do: turns load into CPU demand and memory, once per tick, workload by workload.

Requests of a workload are shared by its ready pods, slightly unevenly; a pod that is starting burns its start-up CPU
instead; batch containers run flat out until their work is done. The arithmetic is that of `profile`, on whole columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kubetide.embedded.sim.load.curves import Curve, CurveLevels, Diurnal, levels_of, unit_hash
from kubetide.embedded.sim.load.profile import Profile, WorkloadKey, latency
from kubetide.embedded.sim.load.serving import ReadyTask, Served, Serving
from kubetide.embedded.sim.node.kernel import Kernel

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
class LoadGroup:
    """The containers of one workload that behave alike."""

    workload: WorkloadKey
    profile: Profile
    tasks: dict[int, Task] = field(default_factory=dict)
    level: float = 0.0


@dataclass(slots=True)
class TaskColumns:
    """All tasks of all groups side by side; `group` and `share` say whose level and whose share of it they have."""

    rows: npt.NDArray[np.intp]
    group: npt.NDArray[np.intp]
    share: Floats
    """The task's part of its workload's requests; 0 while it is not ready."""
    ready: npt.NDArray[np.bool_]
    """Whether requests cost it anything."""
    started: Floats
    idle: Floats
    """What it wants without requests; all that it wants while it is starting, or works through a batch."""
    per_request: Floats
    memory_base: Floats
    memory_per_request: Floats
    leak: Floats
    cache: Floats
    work: Floats
    disk: Floats
    disk_per_request: Floats
    rates: Floats
    leaks: bool
    """Whether any task leaks."""
    grows: bool
    """Whether any task holds more at some times than at others."""
    ends: bool
    """Whether any task has an end."""
    uses_disk: bool
    """Whether any task reads or writes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What several ticks set, a row each: the demand of every process, the rate of every task, and last levels."""

    demand: Floats
    rates: Floats
    levels: list[float]


@dataclass(frozen=True, slots=True)
class PodWork:
    """What one pod is doing: requests per second and their mean response time."""

    pod: str
    rate: float
    latency: float


class LoadObserver(Protocol):
    """Observes every step of the load model; it reads the cluster and changes nothing."""

    def killed(self, workload: WorkloadKey, requests: float) -> None:
        """A container was OOM-killed, and with it went so many requests."""
        ...

    def stepped(self, now: float) -> None:
        """Load, demands and grants are those of this second."""
        ...


class LoadModel:
    """All workloads. `done` gets the rows of batch containers whose work is finished."""

    def __init__(self, kernel: Kernel, *, seed: int, week_start: float, done: Callable[[int], None]) -> None:
        self._kernel = kernel
        self._seed = seed
        self._week_start = week_start
        self._done = done
        self._groups: dict[tuple[WorkloadKey, Profile], LoadGroup] = {}
        self._by_row: dict[int, LoadGroup] = {}
        self._columns: TaskColumns | None = None
        self._serving: Serving | None = None
        self._loaded: tuple[list[LoadGroup], CurveLevels] = ([], CurveLevels(()))
        """The groups with a load, laid out with the columns."""
        self.profiles: dict[WorkloadKey, Profile] = {}

    def profile_of(self, workload: WorkloadKey) -> Profile:
        return self.profiles.get(workload, Profile())

    def set_profile(self, workload: WorkloadKey, profile: Profile) -> None:
        """Give a workload another behaviour, also where it already runs."""
        self._kernel.catch_up()
        before = self.profile_of(workload)
        self.profiles[workload] = profile
        self._forget_layout()
        for (key, old), group in list(self._groups.items()):
            if key == workload:
                changed = profile if old == before else replace(old, curve=profile.curve)
                del self._groups[key, old]
                group.profile = changed
                merged = self._groups.setdefault((key, changed), group)
                if merged is not group:
                    merged.tasks |= group.tasks
                    for row in group.tasks:
                        self._by_row[row] = merged

    def set_load(self, workload: WorkloadKey, curve: Curve) -> None:
        """Change only the load of a workload."""
        self.set_profile(workload, replace(self.profile_of(workload), curve=curve))

    def start(self, row: int, *, workload: WorkloadKey, pod: str, profile: Profile, now: float, seed: int) -> None:
        """A container began to run."""
        self._kernel.catch_up()
        group = self._groups.setdefault((workload, profile), LoadGroup(workload, profile))
        swing = 2 * unit_hash(self._seed, seed) - 1
        group.tasks[row] = Task(row=row, pod=pod, started=now, weight=1 + profile.imbalance * swing)
        self._forget_layout()
        self._by_row[row] = group
        kernel = self._kernel
        kernel.demand[row] = profile.start_cpu if profile.work is None else profile.threads
        kernel.anon[row] = profile.memory_base
        kernel.cache_goal[row] = profile.cache
        kernel.demand_changed()

    def set_ready(self, row: int, ready: bool) -> None:
        """A container began, or ceased, to take requests."""
        self._kernel.catch_up()
        group = self._by_row.get(row)
        if group is not None:
            group.tasks[row].ready = ready
            self._forget_layout()

    def stop(self, row: int) -> None:
        """A container ended."""
        self._kernel.catch_up()
        group = self._by_row.pop(row, None)
        if group is not None:
            group.tasks.pop(row, None)
            self._forget_layout()
            if not group.tasks:
                self._groups.pop((group.workload, group.profile), None)

    def _forget_layout(self) -> None:
        """Tasks or their profiles changed: columns are laid out anew when they are needed."""
        self._columns = None
        self._serving = None

    def tick(self, now: float) -> None:
        """Set every demand to what it is from now on. The kernel must have been brought up to `now`."""
        columns = self._columns
        kernel = self._kernel
        memory_changes = columns is None or columns.grows
        if columns is None:
            columns = self._columns = self._lay_out()
            kernel.cache_goal[columns.rows] = columns.cache
        rows = columns.rows
        levels = self._levels(now)
        columns.rates = levels[columns.group] * columns.share if len(rows) else columns.rates
        kernel.demand[rows] = columns.idle + columns.rates * columns.per_request
        if memory_changes:
            held = columns.memory_base + columns.rates * columns.memory_per_request
            if columns.leaks:
                held += columns.leak * (now - columns.started) / 3600.0
            kernel.anon[rows] = held
        kernel.demand_changed(memory=memory_changes)
        if columns.uses_disk:
            wanted = columns.disk + columns.rates * columns.disk_per_request
            at_work = columns.ready | np.isfinite(columns.work)
            for row, amount in zip(rows.tolist(), np.where(at_work, wanted, 0.0).tolist(), strict=True):
                kernel.set_disk_use(row, amount)
        if columns.ends:
            for row in rows[kernel.usage[rows] >= columns.work].tolist():
                self._done(row)

    @property
    def at_rest(self) -> bool:
        """Whether ticks set demands and nothing else."""
        columns = self._columns
        return columns is not None and not (columns.grows or columns.ends or columns.uses_disk)

    def plan(self, times: Floats) -> Plan:
        """Return what ticks at these times would set, of a model at rest; nothing is changed."""
        columns = self._columns
        if columns is None:
            raise ValueError("the tasks of a model at rest are laid out")
        week = self._week_start + times
        days: dict[Diurnal, Floats] = {}
        known: dict[int, Floats] = {}
        levels = np.empty((len(times), len(self._groups)))
        for index, group in enumerate(self._groups.values()):
            curve = group.profile.curve
            if curve is None:
                levels[:, index] = group.level
                continue
            if id(curve) not in known:
                known[id(curve)] = levels_of(curve, times, week, days)
            levels[:, index] = known[id(curve)]
        rates = levels[:, columns.group] * columns.share
        demand = np.repeat(self._kernel.derived.demand[None, :], len(times), axis=0)
        demand[:, columns.rows] = columns.idle + rates * columns.per_request
        return Plan(demand, rates, levels[-1].tolist())

    def follow(self, plan: Plan) -> None:
        """Be where the last tick of a plan leaves the model."""
        if self._columns is not None:
            self._columns.rates = plan.rates[-1].copy()
        for group, level in zip(self._groups.values(), plan.levels, strict=True):
            group.level = level

    def _levels(self, now: float) -> Floats:
        loaded, levels = self._loaded
        for group, level in zip(loaded, levels.at(now, self._week_start + now), strict=True):
            group.level = level
        return np.array([group.level for group in self._groups.values()], dtype=np.float64)

    def _lay_out(self) -> TaskColumns:
        """Put all tasks side by side. A workload's load is shared by all its ready pods, whatever their profile."""
        curves = [(group, curve) for group in self._groups.values() if (curve := group.profile.curve) is not None]
        self._loaded = [group for group, _ in curves], CurveLevels(curve for _, curve in curves)
        weight: dict[WorkloadKey, float] = {}
        for group in self._groups.values():
            of_group = sum(task.weight for task in group.tasks.values() if task.ready)
            weight[group.workload] = weight.get(group.workload, 0.0) + of_group
        tasks = [
            (index, group.profile, task, weight[group.workload])
            for index, group in enumerate(self._groups.values())
            for task in group.tasks.values()
        ]

        def column(value: Callable[[Profile], float]) -> Floats:
            values = [value(group.profile) for group in self._groups.values()]
            return np.array(values, dtype=np.float64)[owner] if tasks else np.zeros(0)

        owner = np.array([index for index, *_ in tasks], dtype=np.intp)
        ready = np.array([task.ready and profile.work is None for _, profile, task, _ in tasks], dtype=np.bool_)
        idle = column(lambda p: p.cpu_idle + (p.cpu_steady or 0.0))
        starting = column(lambda p: p.start_cpu if p.work is None else p.threads)
        profiles = [group.profile for group in self._groups.values()]
        leaks = any(profile.leak_per_hour for profile in profiles)
        return TaskColumns(
            rows=np.array([task.row for _, _, task, _ in tasks], dtype=np.intp),
            group=owner,
            share=np.array(
                [task.weight / total if task.ready else 0.0 for _, _, task, total in tasks], dtype=np.float64
            ),
            ready=ready,
            started=np.array([task.started for _, _, task, _ in tasks], dtype=np.float64),
            idle=np.where(ready, idle, starting),
            per_request=np.where(ready, column(lambda p: p.cpu_per_request), 0.0),
            memory_base=column(lambda p: p.memory_base),
            memory_per_request=column(lambda p: p.memory_per_request),
            leak=column(lambda p: p.leak_per_hour)
            * np.array([task.weight for _, _, task, _ in tasks], dtype=np.float64),
            cache=column(lambda p: p.cache),
            work=column(lambda p: np.inf if p.work is None else p.work),
            disk=column(lambda p: p.disk),
            disk_per_request=column(lambda p: p.disk_per_request),
            rates=np.zeros(len(tasks)),
            leaks=leaks,
            grows=leaks or any(profile.memory_per_request for profile in profiles),
            ends=any(profile.work is not None for profile in profiles),
            uses_disk=any(profile.disk or profile.disk_per_request for profile in profiles),
        )

    def work_of(self, workload: WorkloadKey) -> list[PodWork]:
        """Return what each ready pod of a workload is doing."""
        self._kernel.catch_up()
        columns = self._columns
        if columns is None:
            return []
        rates = self.rates()
        return [
            PodWork(task.pod, rates[task.row], self._latency(task.row, group.profile))
            for group in self._groups.values()
            if group.workload == workload
            for task in group.tasks.values()
            if task.ready
        ]

    def served(self, now: float) -> dict[WorkloadKey, Served]:
        """Return what arrives at every workload with a load, and at which of its ready pods; nothing is changed."""
        self._kernel.catch_up()
        if self._serving is None:
            self._serving = Serving(self._ready())
        week = self._week_start + now
        curves = ((workload, profile.curve) for workload, profile in self.profiles.items())
        levels = {workload: curve.level(now, week) for workload, curve in curves if curve is not None}
        return self._serving.at(levels, self._kernel)

    def _ready(self) -> dict[WorkloadKey, list[ReadyTask]]:
        ready: dict[WorkloadKey, list[ReadyTask]] = {}
        for group in self._groups.values():
            seconds = group.profile.cpu_per_request
            for task in group.tasks.values():
                if task.ready:
                    ready.setdefault(group.workload, []).append(ReadyTask(task.row, task.weight, seconds))
        return ready

    def rates(self) -> dict[int, float]:
        """Return the requests per second of every container since the last tick, by row."""
        self._kernel.catch_up()
        columns = self._columns
        return {} if columns is None else dict(zip(columns.rows.tolist(), columns.rates.tolist(), strict=True))

    def _latency(self, row: int, profile: Profile) -> float:
        """A queue with one server: service time over what is left of the CPU the pod may have."""
        demand, granted = float(self._kernel.demand[row]), float(self._kernel.granted[row])
        room = granted if granted < demand - 1e-9 else float(self._kernel.cap[row])
        return latency(service_seconds=profile.cpu_per_request, demand=demand, granted=room)

    def levels(self) -> dict[WorkloadKey, float]:
        """Return the present load of every workload that has one."""
        self._kernel.catch_up()
        return {group.workload: group.level for group in self._groups.values() if group.profile.curve is not None}
