"""The loop over one block of containers: told a stretch of samples, asked for sizes, told the next.

A decision is made from the samples before it and holds for the samples after it. Memory that passes the limit in force
is told to the policy as an OOM kill, once per stretch and container, beside the OOM kills that were recorded: the usage
goes on as recorded, as if the container had been restarted with more (the loop is open).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kubetide.replay.core.figures import Cell, add_changes, clairvoyant_cpu, count, empty
from kubetide.replay.core.policies import Decision, Fleet, OomKill, Period, SizePolicy
from kubetide.replay.core.rules import CurrentPolicy, OraclePolicy
from kubetide.replay.core.spec import PolicySpec, Update, cooldown_seconds, maker_of
from kubetide.replay.core.update import InForce, Updater
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.core.policy import CPU, MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What holds for a block from its start: who is who, and what was recorded beside usage."""

    workloads: Ints
    """The workload of each container, numbered within the block."""
    names: Sequence[str]
    """Of the workloads."""
    interval_seconds: int
    period_seconds: int
    warmup_periods: int
    """Of each workload, from the period on in which it begins."""
    start_seconds: int
    sizes: Mapping[int, Sequence[tuple[int, float, float, float]]]
    """By container: from which second on, cores, bytes, memory limit; NaN for none."""
    oom_kills: Mapping[int, Sequence[tuple[int, float]]]
    """By container: second and bytes."""
    begins: Mapping[int, int] = field(default_factory=dict)
    """By workload: the second in which it began, where that is not its first sample."""
    counted_from: int = 0
    """The second before which nothing is counted, whoever is seen since when."""


def joined(blocks: Sequence[Recorded]) -> Recorded:
    """Return blocks of one recording side by side."""
    if len(blocks) == 1:
        return blocks[0]
    workloads: list[Ints] = []
    names: list[str] = []
    sizes: dict[int, Sequence[tuple[int, float, float, float]]] = {}
    oom_kills: dict[int, Sequence[tuple[int, float]]] = {}
    begins: dict[int, int] = {}
    width = 0
    for each in blocks:
        workloads.append(each.workloads + len(names))
        begins |= {len(names) + workload: second for workload, second in each.begins.items()}
        names += each.names
        sizes |= {width + column: found for column, found in each.sizes.items()}
        oom_kills |= {width + column: found for column, found in each.oom_kills.items()}
        width += each.workloads.size
    whole = np.concatenate(workloads)
    return replace(blocks[0], workloads=whole, names=tuple(names), sizes=sizes, oom_kills=oom_kills, begins=begins)


class SizeReplay:
    """One policy of sizes on one block."""

    def __init__(self, spec: PolicySpec, recorded: Recorded) -> None:
        assert spec.sizes is not None
        self._recorded = recorded
        interval = recorded.interval_seconds
        every = recorded.period_seconds if spec.every_seconds is None else spec.every_seconds
        self._steps = max(1, every // interval)
        width = recorded.workloads.size
        self._fleet = Fleet(
            size=width,
            interval_seconds=interval,
            period_seconds=self._steps * interval,
            resources=frozenset({CPU, MEMORY}),
            workloads=recorded.workloads if len(recorded.names) < width else None,
        )
        self._policy: SizePolicy = maker_of(spec.sizes)(self._fleet)
        rule: Update = spec.sizes.update
        self._restarts = rule.by == "eviction"
        self._updater = Updater(rule, cooldown_seconds(rule), self._fleet.workloads)
        self.in_force = InForce.none(width)
        self.requests: Sequence[Floats] = ()
        """What was in force for each sample of the stretch fed last: cores, bytes, memory limit."""
        self._moves: dict[int, Ints] = {}
        """By the second in which a period begins: how often the request of each container moved in it."""
        self.sums: Floats = empty(len(recorded.names))
        self._counts_from = np.full(len(recorded.names), np.inf)
        """The second from which each workload counts; not known until it is seen, unless it was recorded."""
        for workload, second in recorded.begins.items():
            period = (second - recorded.start_seconds) // recorded.period_seconds
            self._begin(np.array([workload]), recorded.start_seconds + period * recorded.period_seconds)

    def feed(
        self, cpu: Floats, memory: Floats, throttled: Floats | None, start_seconds: int, plans: Sequence[Floats]
    ) -> None:
        """Replay samples (intervals by containers) that begin at a second; `plans` are the clairvoyant's per cell."""
        steps = cpu.shape[0]
        requests = [np.empty(cpu.shape) for _ in range(3)]
        at = 0
        interval = self._recorded.interval_seconds
        while at < steps:
            upto = min(steps, at + self._steps)
            seconds = start_seconds + at * interval
            self._before(Period(starts=self._starts(seconds), cpu=cpu[at:upto], memory=memory[at:upto]), seconds)
            for kept, mine in zip(
                requests, (self.in_force.cpu, self.in_force.memory, self.in_force.memory_limit), strict=True
            ):
                kept[at:upto] = mine
            period = Period(
                starts=self._starts(seconds),
                cpu=cpu[at:upto],
                memory=memory[at:upto],
                ooms=self._killed(memory[at:upto], seconds),
            )
            self._policy.observe(period)
            self._put(self._policy.decide(), start_seconds + upto * interval)
            at = upto
        self.requests = requests
        self._count(cpu, memory, throttled, requests, start_seconds, plans)

    def _starts(self, seconds: int) -> Ints:
        return np.full(self._fleet.size, seconds, dtype=np.int64)

    def _before(self, period: Period, seconds: int) -> None:
        """Let the clairvoyant see what comes, and take recorded sizes over where nothing else decides."""
        if isinstance(self._policy, OraclePolicy):
            self._policy.foresee(period)
            self._put(self._policy.decide(), seconds)
        elif isinstance(self._policy, CurrentPolicy) or np.isnan(self.in_force.cpu).any():
            self._take_recorded(seconds)

    def _take_recorded(self, seconds: int) -> None:
        follows = isinstance(self._policy, CurrentPolicy)
        for column, sizes in self._recorded.sizes.items():
            if not follows and not np.isnan(self.in_force.cpu[column]):
                continue
            held = [size for size in sizes if size[0] <= seconds]
            if held:
                _, cpu, memory, limit = held[-1]
                old = self.in_force.cpu[column], self.in_force.memory[column]
                self.in_force.cpu[column], self.in_force.memory[column], self.in_force.memory_limit[column] = (
                    cpu,
                    memory,
                    limit,
                )
                if follows and any(
                    b == b and abs(a / b - 1.0) > 0.01 for a, b in zip((cpu, memory), old, strict=True) if b
                ):
                    self._moved_in(seconds)[column] += 1

    def _put(self, decision: Decision, at_seconds: int) -> None:
        if decision.cpu is not None or decision.memory is not None:
            moved = self._updater.apply(decision, self.in_force, at_seconds)
            if moved.any():
                # A move at the end of a period is one of the containers that lived in it.
                mine = self._moved_in(at_seconds - 1)
                mine += moved

    def _moved_in(self, second: int) -> Ints:
        """Return how often the requests moved in the period of this second, to be counted up."""
        start, length = self._recorded.start_seconds, self._recorded.period_seconds
        begins = start + (second - start) // length * length
        if begins not in self._moves:
            self._moves[begins] = np.zeros(self._fleet.size, dtype=np.int64)
        return self._moves[begins]

    def _killed(self, memory: Floats, seconds: int) -> tuple[OomKill, ...]:
        limit = np.where(np.isnan(self.in_force.memory_limit), self.in_force.memory, self.in_force.memory_limit)
        above = memory > limit
        interval = self._recorded.interval_seconds
        found = {
            int(column): OomKill(int(column), seconds + int(above[:, column].argmax()) * interval, float(limit[column]))
            for column in np.flatnonzero(above.any(axis=0))
        }
        ends = seconds + memory.shape[0] * interval
        for column, kills in self._recorded.oom_kills.items():
            for at, amount in kills:
                if seconds <= at < ends:
                    found.setdefault(column, OomKill(column, at, amount))
        return tuple(found[column] for column in sorted(found))

    def _count(
        self,
        cpu: Floats,
        memory: Floats,
        throttled: Floats | None,
        requests: Sequence[Floats],
        start_seconds: int,
        plans: Sequence[Floats],
    ) -> None:
        recorded = self._recorded
        length = recorded.period_seconds // recorded.interval_seconds
        for number, plan in enumerate(plans):
            part = slice(number * length, (number + 1) * length)
            begins = start_seconds + number * recorded.period_seconds
            self._note_new(begins, cpu[part], memory[part])
            counted = (self._counts_from <= begins)[recorded.workloads]
            if not counted.any():
                continue
            every = bool(counted.all())
            cell = Cell(
                cpu=cpu[part] if every else np.where(counted, cpu[part], np.nan),
                memory=memory[part] if every else np.where(counted, memory[part], np.nan),
                throttled=None if throttled is None else throttled[part],
                cpu_request=requests[0][part],
                memory_request=requests[1][part],
                memory_limit=requests[2][part],
                cpu_plan=plan,
                interval_seconds=recorded.interval_seconds,
            )
            seen = count(self.sums, cell, recorded.workloads)
            if begins in self._moves:
                changed = np.where(seen, self._moves[begins], 0)
                restarts = changed if self._restarts else np.zeros_like(changed)
                add_changes(self.sums, changed, restarts, recorded.workloads)
        self._moves.clear()

    def _note_new(self, begins: int, cpu: Floats, memory: Floats) -> None:
        """Note from when on workloads count that are seen for the first time in a period."""
        if not np.isinf(self._counts_from).any():
            return
        recorded = self._recorded
        there = (~np.isnan(cpu) | ~np.isnan(memory)).any(axis=0)
        seen = np.zeros(len(recorded.names), dtype=np.bool_)
        seen[recorded.workloads[there]] = True
        self._begin(np.flatnonzero(seen & np.isinf(self._counts_from)), begins)

    def _begin(self, workloads: Ints, second: int) -> None:
        """Let workloads count from the end of the warm-up on that begins in a period."""
        warm = second + self._recorded.warmup_periods * self._recorded.period_seconds
        self._counts_from[workloads] = max(warm, self._recorded.counted_from)


def clairvoyant_plans(cpu: Floats, recorded: Recorded) -> list[Floats]:
    """Return the clairvoyant's CPU request of every cell that begins in this stretch; the last may be short."""
    length = recorded.period_seconds // recorded.interval_seconds
    return [clairvoyant_cpu(cpu[at : at + length]) for at in range(0, cpu.shape[0], length)]
