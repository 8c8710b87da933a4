"""Memory by windows: what a container used at most, and on average, in each window of its life.

A window is a day. In the first day of a container it is an hour, so that short histories have some to learn from; when
that day ends its hours become one window. `Windows` keeps the peaks of the last 28, averages of peak and mean (slow
ones of days, quick ones of hours), and the day that is running.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from kubetide.stats.buckets import Floats
from kubetide.vpa.recommender.core.adaptive.columns import NO_SAMPLE, FleetColumns
from kubetide.vpa.recommender.core.adaptive.hour import MemoryHour

Mask = npt.NDArray[np.bool_]

KEPT: Final = 28
"""Four weeks: what happens every week or month is remembered, what happened once is not for ever."""
_AVERAGED: Final = 28.0
_AVERAGED_HOURS: Final = 2.0
"""Windows that slow averages reach back, and how many where they are hours: days differ, and what comes is between all
of them; an hour is much like the one before, and an average of the whole first day lags behind what grows in it."""
_LEAST_HOURS: Final = 12.0
"""A container that was seen for less of its first day stays young for another one."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The windows that an hour closed: of which containers, whether each was a day, and what was used in it."""

    which: Mask
    day: Mask
    peak: Floats


class Windows:
    """The windows of all containers."""

    def __init__(self, size: int) -> None:
        self.columns = FleetColumns(
            size,
            {
                "peaks": KEPT,
                "today": 1,
                "sum": 1,
                "count": 1,
                "hours": 1,
                "grown": 1,
                "mean": 1,
                "peak": 1,
                "weight": 1,
            },
            empty={"peaks": NO_SAMPLE, "today": NO_SAMPLE},
        )

    @property
    def grown(self) -> Mask:
        """Which containers have a whole day behind them."""
        grown: Mask = self.columns["grown"][0] > 0.0
        return grown

    def known(self) -> Mask:
        """Return which containers were ever seen."""
        seen: Mask = self.columns["hours"][0] > 0.0
        return seen

    def recent(self, count: int) -> Floats:
        """Return the peak of the last windows, the running one included; 0 where there is none."""
        own = self.columns
        highest: Floats = np.nan_to_num(np.fmax(np.fmax.reduce(own["peaks"][-count:], axis=0), own["today"][0]))
        return highest

    def usual(self) -> tuple[Floats, Floats]:
        """Return the average over windows of what was used on average and at most."""
        own = self.columns
        fresh = own["weight"][0] <= 0.0
        running = own["sum"][0] / np.maximum(own["count"][0], 1.0)
        mean = np.where(fresh, running, own["mean"][0])
        peak = np.where(fresh, np.nan_to_num(own["today"][0]), own["peak"][0])
        return mean, peak

    def observe(self, hour: MemoryHour, *, day_ends: bool) -> Closed:
        """Take in an hour, in bytes."""
        own = self.columns
        count, total, peak = hour.count, hour.total, hour.peak
        seen = count > 0.0
        own["today"] = np.fmax(own["today"][0], peak)
        own["sum"] += total
        own["count"] += count
        own["hours"] += seen
        young = seen & ~self.grown
        self._close(young, peak, total / np.maximum(count, 1.0))
        if not day_ends:
            return Closed(young, np.zeros_like(young), np.nan_to_num(peak))
        today, mean = own["today"][0].copy(), own["sum"][0] / np.maximum(own["count"][0], 1.0)
        day = np.isfinite(today) & (self.grown | (own["hours"][0] >= _LEAST_HOURS))
        becomes = day & ~self.grown
        own["peaks"][:, becomes] = NO_SAMPLE
        own["weight"] = np.where(becomes, 0.0, own["weight"][0])
        was_grown = day & ~becomes
        self._close(day, today, mean)
        own["grown"] = np.where(day, 1.0, own["grown"][0])
        own["today"], own["sum"], own["count"] = np.full((1, 1), NO_SAMPLE), np.zeros((1, 1)), np.zeros((1, 1))
        return Closed(young & ~becomes | was_grown, was_grown, np.nan_to_num(np.where(was_grown, today, peak)))

    def _close(self, which: Mask, peak: Floats, mean: Floats) -> None:
        own = self.columns
        # Row by row: four weeks of a large fleet are not copied for an hour.
        for older, newer in pairwise([*own["peaks"], peak]):
            np.copyto(older, newer, where=which)
        weight = np.minimum(own["weight"][0] + 1.0, np.where(self.grown, _AVERAGED, _AVERAGED_HOURS))
        for name, value in (("mean", mean), ("peak", np.nan_to_num(peak))):
            old = np.where(own["weight"][0] > 0.0, own[name][0], 0.0)
            own[name] = np.where(which, old + (value - old) / weight, own[name][0])
        own["weight"] = np.where(which, weight, own["weight"][0])
