"""What one hour of samples comes to, for a container or for all replicas of one.

Replays have the samples of an hour as a matrix (`cpu_hour`, `memory_hour`). A recommender has a few samples of each
container in every loop and keeps running figures instead (`RunningHour`), a fixed count of numbers per column that can
be saved at any moment. Samples of replicas are samples of their workload: the size is one for all of them, so what it
would have cost is counted over all. For the percentile of the hour alone their mean stands in.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.recommender.core.adaptive.columns import NO_SAMPLE, FleetColumns

HIGH_SHARE: Final = 0.9
_TOP: Final = 13
"""The largest samples of an hour that are kept: the highest tenth of two a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuHour:
    """CPU by container, in cores; `peak` and `high` are NaN where there is no sample."""

    count: Floats
    total: Floats
    above: Floats
    """How many samples lay above the request in force."""
    peak: Floats
    high: Floats
    """What 90 % of the samples do not exceed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHour:
    """Memory by container, in bytes; `peak` is NaN where there is no sample."""

    count: Floats
    total: Floats
    peak: Floats


def cpu_hour(samples: Floats, request: Floats) -> CpuHour:
    """Return what samples by containers come to, NaN where there is none."""
    have = np.isfinite(samples)
    count = np.add.reduce(have, axis=0)
    seen = count > 0
    ordered = np.sort(np.where(have, samples, -1.0), axis=0)
    high = np.take_along_axis(ordered, (len(samples) - 1 - _below_top(count))[None], axis=0)[0]
    return CpuHour(
        count=count.astype(np.float64),
        total=np.add.reduce(np.where(have, samples, 0.0), axis=0),
        above=np.add.reduce(have & (samples > request), axis=0).astype(np.float64),
        peak=np.where(seen, ordered[-1], NO_SAMPLE),
        high=np.where(seen, high, NO_SAMPLE),
    )


def memory_hour(samples: Floats) -> MemoryHour:
    """Return what samples by containers come to, NaN where there is none."""
    have = np.isfinite(samples)
    return MemoryHour(
        count=np.add.reduce(have, axis=0).astype(np.float64),
        total=np.add.reduce(np.where(have, samples, 0.0), axis=0),
        peak=np.fmax.reduce(samples, axis=0),
    )


def _below_top(count: Ints) -> Ints:
    """Return how many places below the largest sample the one lies that 90 % do not exceed."""
    places: Ints = count - np.ceil(HIGH_SHARE * count).astype(np.int64)
    return places


class RunningHour:
    """The hour that is running, for all containers."""

    def __init__(self, size: int) -> None:
        self.columns = FleetColumns(
            size,
            {
                "cpu count": 1,
                "cpu total": 1,
                "cpu above": 1,
                "cpu peak": 1,
                "cpu loops": 1,
                "cpu top": _TOP,
                "memory count": 1,
                "memory total": 1,
                "memory peak": 1,
            },
            empty={"cpu peak": NO_SAMPLE, "cpu top": NO_SAMPLE, "memory peak": NO_SAMPLE},
        )

    def add_cpu(self, columns: Ints, samples: Floats, request: Floats) -> None:
        """Add the samples of one loop, in cores; a column occurs once for each of its replicas."""
        own, size = self.columns, self.columns.size
        count = np.bincount(columns, minlength=size).astype(np.float64)
        total = np.bincount(columns, weights=samples, minlength=size)
        seen = count > 0.0
        own["cpu count"] += count
        own["cpu total"] += total
        own["cpu above"] += np.bincount(columns, weights=samples > request[columns], minlength=size)
        own["cpu loops"] += seen
        np.fmax.at(own["cpu peak"][0], columns, samples)
        # An insertion into each column's descending list, all columns at once.
        top = own["cpu top"]
        lower = np.where(seen, total / np.maximum(count, 1.0), NO_SAMPLE)
        for place in range(_TOP):
            higher = np.fmax(top[place], lower)
            lower = np.where(np.isnan(top[place]), NO_SAMPLE, np.fmin(top[place], lower))
            top[place] = higher

    def add_memory(self, columns: Ints, samples: Floats) -> Floats:
        """Add the samples of one loop, in bytes; return the largest of each column, NaN where there is none."""
        own, size = self.columns, self.columns.size
        own["memory count"] += np.bincount(columns, minlength=size)
        own["memory total"] += np.bincount(columns, weights=samples, minlength=size)
        largest = np.full(size, NO_SAMPLE)
        np.fmax.at(largest, columns, samples)
        own["memory peak"] = np.fmax(own["memory peak"][0], largest)
        return largest

    def add_oom(self, column: int, needed: float) -> None:
        """Note that a container ran out of memory and would have needed so much."""
        self.columns["memory peak"][0, column] = np.fmax(self.columns["memory peak"][0, column], needed)

    def close(self) -> tuple[CpuHour, MemoryHour]:
        """Return what the hour came to, and begin the next one."""
        own = self.columns
        place = np.minimum(_below_top(own["cpu loops"][0].astype(np.int64)), _TOP - 1)
        cpu = CpuHour(
            count=own["cpu count"][0].copy(),
            total=own["cpu total"][0].copy(),
            above=own["cpu above"][0].copy(),
            peak=own["cpu peak"][0].copy(),
            high=np.take_along_axis(own["cpu top"], place[None], axis=0)[0].copy(),
        )
        memory = MemoryHour(
            count=own["memory count"][0].copy(),
            total=own["memory total"][0].copy(),
            peak=own["memory peak"][0].copy(),
        )
        own.clear()
        return cpu, memory
