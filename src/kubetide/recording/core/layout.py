"""How containers are put into blocks, and how rows become a grid of samples.

All containers of a workload go into one block, so that a block can be replayed without any other: what is learned of a
workload is learned of all its pods. A grid has one row per interval and one column per container; a sample belongs to
the interval in which it was taken. Of two samples in one interval the later counts, and the others are counted as
duplicates: nothing is averaged, nothing is filled in.
"""

from dataclasses import dataclass

import numpy as np

from kubetide.stats.buckets import Floats, Ints

Workload = tuple[str, str, str]
"""Namespace, kind, name."""
ABSENT = -1
PERIODS = (86400, 3600, 900, 60)


class Blocks:
    """Gives every workload a block."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._by_workload: dict[Workload, int] = {}
        self._filled: list[int] = []

    def of(self, workload: Workload) -> int:
        """Return the block of one more container of a workload."""
        block = self._by_workload.get(workload)
        if block is None:
            if not self._filled or self._filled[-1] >= self._size:
                self._filled.append(0)
            block = self._by_workload[workload] = len(self._filled) - 1
        self._filled[block] += 1
        return block


@dataclass(frozen=True, slots=True)
class Rows:
    """Usage as it is stored: one row per sample, times in microseconds, `ABSENT` where there is no amount."""

    containers: Ints
    times: Ints
    cpu_micros: Ints
    memory_bytes: Ints
    throttled: Floats | None = None

    def __len__(self) -> int:
        return int(self.containers.size)


@dataclass(frozen=True, slots=True)
class Grid:
    """Samples by interval and container: cores and bytes, NaN where there is none."""

    containers: Ints
    start_seconds: int
    cpu: Floats
    memory: Floats
    throttled: Floats | None
    duplicates: int


def grid(rows: Rows, containers: Ints, *, start_seconds: int, steps: int, interval_seconds: int) -> Grid:
    """Lay rows out as intervals by containers; rows outside the stretch or of other containers are left out."""
    width = containers.size
    if _is_full(rows, containers, start_seconds, steps, interval_seconds):
        shape = (width, steps)
        shaped = [_amounts(each.reshape(shape).T) for each in (rows.cpu_micros, rows.memory_bytes)]
        throttled = None if rows.throttled is None else np.ascontiguousarray(rows.throttled.reshape(shape).T)
        return Grid(containers, start_seconds, shaped[0] / 1e6, shaped[1], throttled, 0)
    column = np.searchsorted(containers, rows.containers)
    column = np.minimum(column, max(width - 1, 0))
    step = (rows.times // 1_000_000 - start_seconds) // interval_seconds
    here = (step >= 0) & (step < steps) & ((containers[column] == rows.containers) if width else False)
    order = np.flatnonzero(here & ((rows.cpu_micros >= 0) | (rows.memory_bytes >= 0)))
    if order.size and (np.diff(rows.times[order]) < 0).any():
        order = order[np.argsort(rows.times[order], kind="stable")]
    place = step[order] * width + column[order]
    found = []
    for amounts in (rows.cpu_micros, rows.memory_bytes):
        flat = np.full(steps * width, np.nan)
        kept = order[amounts[order] >= 0]
        # Assigned in the order of time: the last sample of an interval stays.
        flat[step[kept] * width + column[kept]] = amounts[kept]
        found.append(flat.reshape(steps, width))
    throttled = None
    if rows.throttled is not None:
        flat = np.full(steps * width, np.nan)
        flat[place] = rows.throttled[order]
        throttled = flat.reshape(steps, width)
    duplicates = int(order.size - np.unique(place).size)
    return Grid(containers, start_seconds, found[0] / 1e6, found[1], throttled, duplicates)


def _is_full(rows: Rows, containers: Ints, start_seconds: int, steps: int, interval_seconds: int) -> bool:
    """Return whether there is exactly one row for every interval of every container, container by container."""
    if len(rows) != containers.size * steps or not len(rows):
        return False
    if not (rows.containers.reshape(-1, steps) == containers[:, None]).all():
        return False
    expected = (start_seconds + np.arange(steps) * interval_seconds) * 1_000_000
    return bool((rows.times.reshape(-1, steps) == expected).all())


def _amounts(whole: Ints) -> Floats:
    amounts = np.ascontiguousarray(whole, dtype=np.float64)
    amounts[amounts < 0] = np.nan
    return amounts


def rates(times: Ints, counters: Floats) -> tuple[Ints, Floats]:
    """Return the rate between neighbouring readings of a counter, dated at the later one.

    A counter that goes back was reset: what was counted in between is not known, and no rate is made of it. Neither is
    one of two readings of the same time.
    """
    if times.size < 2:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    seconds = np.diff(times) / 1_000_000
    grown = np.diff(counters)
    good = (seconds > 0) & (grown >= 0) & np.isfinite(grown)
    return times[1:][good], grown[good] / seconds[good]


def period_of(seconds: float, interval_seconds: int) -> int:
    """Return what replays of so long a recording count as a period: three of them fit, so that two are counted.

    Of a recording that is shorter than three of the shortest, that one.
    """
    fitting = [period for period in PERIODS if period % interval_seconds == 0] or [PERIODS[0]]
    return next((period for period in fitting if seconds >= 3 * period), fitting[-1])
