"""From samples to sizes: the estimators by name.

    vpa             the recommender's own model: decaying histograms, daily memory peaks, p90 + 15 %; `minimum` has its
                    least size of a pod
    adaptive        sizes that learn from what they would have cost
    krr             p95 of CPU, peak + 15 % of memory
    percentile=95   that percentile of CPU, peak of memory, over all pods together

All but the last are policies of the replay, so what is recommended here is what a replay judges. An estimator of your
own is a callable from a `Fleet` to a `SizePolicy`, found by the entry point `kubetide.estimators`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.recommend.core.workloads import Usage
from kubetide.replay.core.plain import VpaPolicy
from kubetide.replay.core.policies import Decision, Fleet, OomKill, Period, SizePolicy, size_policy
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.estimator import Estimation, floors

Maker = Callable[[Fleet], SizePolicy]
BUILT_IN = ("vpa", "adaptive", "krr")
_DAY = 86400
COLUMNS = 512
"""Pods estimated in one go: bounds the memory of a large cluster."""


def estimator(name: str, others: Mapping[str, Maker]) -> Maker:
    """Return the maker of an estimator."""
    if name in others:
        return others[name]
    if name == "vpa":
        # Without the pod minimum: what usage needs and what the minimum adds are told apart.
        return partial(VpaPolicy, estimation=Estimation(min_cpu_millis=0.0, min_memory_bytes=0.0))
    if name in BUILT_IN:
        return size_policy(name)
    head, _, number = name.partition("=")
    if head == "percentile":
        try:
            percent = float(number)
        except ValueError:
            percent = -1.0
        if not 0 < percent <= 100:
            raise InvalidInput(f"{number!r} is not a percentile between 0 and 100", field="--estimator")
        return partial(PercentilePolicy, share=percent / 100)
    known = ", ".join([*BUILT_IN, "percentile=95", *sorted(others)])
    raise InvalidInput(f"unknown estimator {name!r}, known are {known}", field="--estimator")


def minimum(name: str, shared_by: int, others: Mapping[str, Maker]) -> tuple[int, int]:
    """Return millicores and bytes below which no container is sized; the containers of a pod share its minimum."""
    return (0, 0) if name != "vpa" or name in others else _pod_minimum(shared_by)


@cache
def _pod_minimum(shared_by: int) -> tuple[int, int]:
    cpu, memory = (floors(resource, Estimation(), np.array([shared_by])) for resource in (CPU, MEMORY))
    return int(cpu[0]), int(memory[0])


def percentile_used(name: str) -> str:
    """Return which percentile an estimator looks at, for people."""
    if name.startswith("percentile="):
        return f"p{name.partition('=')[2]} of CPU, peak of memory"
    return {
        "vpa": "p90 of CPU and of daily memory peaks, +15 %",
        "krr": "p95 of CPU, peak of memory +15 %",
        "adaptive": "learned",
    }.get(name, name)


class PercentilePolicy:
    """A percentile of CPU and the peak of memory over the samples of all pods of a workload."""

    def __init__(self, fleet: Fleet, *, share: float) -> None:
        self._fleet, self._share = fleet, share
        self._cpu: list[Floats] = []
        self._memory: list[Floats] = []

    def observe(self, period: Period) -> None:
        """Keep the samples."""
        if period.cpu is not None:
            self._cpu.append(period.cpu)
        if period.memory is not None:
            self._memory.append(period.memory)

    def decide(self) -> Decision:
        """Return the percentile of each workload in each of its columns."""
        return Decision(cpu=self._each(self._cpu, self._share), memory=self._each(self._memory, 1.0))

    def _each(self, parts: Sequence[Floats], share: float) -> Floats | None:
        if not parts:
            return None
        samples = np.concatenate(parts)
        result = np.full(self._fleet.size, np.nan)
        groups = np.arange(self._fleet.size) if self._fleet.workloads is None else self._fleet.workloads
        for group in np.unique(groups):
            mine = samples[:, groups == group]
            ordered = np.sort(mine[np.isfinite(mine)])
            if ordered.size:
                result[groups == group] = ordered[max(0, int(np.ceil(share * ordered.size)) - 1)]
        return result


@dataclass(frozen=True, slots=True)
class Estimated:
    """Cores and bytes for one container; NaN where the estimator has nothing to go by."""

    size: tuple[float, float]
    """From all samples."""
    by_day: tuple[tuple[float, float], ...] = ()
    """What it would have been at the end of each day but the last, from the samples until then; NaN before the first:
    an estimator may have a least size also for what it has never seen."""


def estimate_all(usages: Sequence[Usage], make: Maker) -> list[Estimated]:
    """Return the estimate of each container."""
    found: list[Estimated] = []
    batch: list[Usage] = []
    for usage in usages:
        same = not batch or (batch[0].start, batch[0].step, len(batch[0].cpu)) == (
            usage.start,
            usage.step,
            len(usage.cpu),
        )
        if batch and (not same or sum(len(each.pods) for each in batch) + len(usage.pods) > COLUMNS):
            found += _estimate(batch, make)
            batch = []
        batch.append(usage)
    return found + (_estimate(batch, make) if batch else [])


def _estimate(batch: Sequence[Usage], make: Maker) -> list[Estimated]:
    first = batch[0]
    groups: Ints = np.repeat(np.arange(len(batch)), [len(each.pods) for each in batch])
    if not groups.size:
        return [Estimated((np.nan, np.nan))] * len(batch)
    cpu = np.concatenate([each.cpu for each in batch], axis=1)
    memory = np.concatenate([each.memory for each in batch], axis=1)
    offsets = np.concatenate(([0], np.cumsum([len(each.pods) for each in batch])))
    kills = sorted(
        (
            OomKill(int(offset) + kill.column, kill.at_seconds, kill.limit_bytes)
            for offset, each in zip(offsets, batch, strict=False)
            for kill in each.ooms
        ),
        key=lambda kill: kill.at_seconds,
    )
    fleet = Fleet(
        size=groups.size,
        interval_seconds=first.step,
        period_seconds=_DAY,
        resources=frozenset((CPU, MEMORY)),
        workloads=groups,
    )
    policy = make(fleet)
    steps = steps_of_a_day(first.step)
    days: list[list[tuple[float, float]]] = []
    known = tuple(_known_from(samples, groups) for samples in (cpu, memory))
    for begin in range(0, len(cpu), steps):
        at = first.start + begin * first.step
        until = at + steps * first.step
        policy.observe(
            Period(
                starts=np.full(groups.size, at, dtype=np.int64),
                cpu=cpu[begin : begin + steps],
                memory=memory[begin : begin + steps],
                ooms=tuple(kill for kill in kills if at <= kill.at_seconds < until),
            )
        )
        decision = policy.decide()
        sizes = (
            np.where(since < begin + steps, _highest(size, groups), np.nan)
            for since, size in zip(known, (decision.cpu, decision.memory), strict=True)
        )
        days.append([(float(cores), float(size)) for cores, size in zip(*sizes, strict=True)])
    return [Estimated(days[-1][place], tuple(day[place] for day in days[:-1])) for place in range(len(batch))]


def steps_of_a_day(step: int) -> int:
    """Return how many steps a day has; a step may be longer than a day."""
    return max(1, _DAY // step)


def _known_from(samples: Floats, groups: Ints) -> Ints:
    """Return the step of the first sample of each container; one that never comes where it has none."""
    never = np.iinfo(np.int64).max
    there = np.isfinite(samples)
    first = np.where(there.any(axis=0), there.argmax(axis=0), never)
    result = np.full(int(groups[-1]) + 1, never)
    np.minimum.at(result, groups, first)
    return result


def _highest(sizes: Floats | None, groups: Ints) -> Floats:
    """Return the largest size that any pod of each container needs."""
    count = int(groups[-1]) + 1
    result = np.full(count, np.nan)
    if sizes is not None:
        np.fmax.at(result, groups, sizes)
    return result
