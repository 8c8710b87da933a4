"""What a workload needs as a whole: CPU of all its pods together, smoothed, and its peak in each of the last 24 hours.

How much one pod uses says little once an autoscaler keeps it near a target: there it is the target that one sees. The
sum does not depend on how many pods share it. What it is now is smoothed over five minutes, the window in which an
autoscaler believes a drop. Peaks are of demand smoothed over half an hour: what is shorter is answered by the count, or
lies within its tolerance, and the highest of a day of noise would make pods some percent larger than any hour needs.

Workloads are rows, so that the same arithmetic serves the recommender and a model of thousands of them.
"""

from typing import Final

import numpy as np

from kubetide.stats.buckets import Floats, Ints

HOURS: Final = 24
SMOOTHING_SECONDS: Final = 300.0
PEAK_SECONDS: Final = 1800.0
_HOUR: Final = 3600


class Demand:
    """The demand of workloads in millicores, one row each."""

    def __init__(self, rows: int) -> None:
        self.smoothed: Floats = np.full(rows, np.nan)
        self.lasting: Floats = np.full(rows, np.nan)
        """Smoothed over half an hour, or over all that was seen where that is less."""
        self.peaks: Floats = np.full((rows, HOURS), np.nan)
        """The highest lasting demand of each hour; the hour of the day in UTC is its place."""
        self.seen: Ints = np.zeros(rows, dtype=np.int64)
        """When demand was added last, in seconds."""
        self.since: Ints = np.zeros(rows, dtype=np.int64)
        """When it was added first."""

    def add(self, demand: Floats, at_seconds: int) -> None:
        """Add what pods use together now; NaN where it is not known."""
        known = np.flatnonzero(~np.isnan(demand) & (self.seen < at_seconds))
        if not known.size:
            return
        before, given = self.smoothed[known], demand[known]
        passed = (at_seconds - self.seen[known]).astype(np.float64)
        fresh = np.isnan(before)
        self.since[known[fresh]] = at_seconds
        lasted = (at_seconds - self.since[known]).astype(np.float64)
        self.smoothed[known] = _nearer(before, given, passed / (SMOOTHING_SECONDS + passed))
        share = passed / (np.minimum(PEAK_SECONDS, lasted) + passed)
        self.lasting[known] = _nearer(self.lasting[known], given, share)
        self._expire(known, at_seconds)
        place = at_seconds // _HOUR % HOURS
        # At first the mean jumps with every sample: the highest of that is no peak.
        peaks = np.where(lasted < PEAK_SECONDS, np.nan, self.peaks[known, place])
        self.peaks[known, place] = np.fmax(peaks, self.lasting[known])
        self.seen[known] = at_seconds

    def _expire(self, rows: Ints, at_seconds: int) -> None:
        """Forget the hours of a day ago that began since demand was added last."""
        hour, before = at_seconds // _HOUR, self.seen[rows] // _HOUR
        for back in range(HOURS):
            begun = rows[before < hour - back]
            if not begun.size:
                break
            self.peaks[begun, (hour - back) % HOURS] = np.nan

    def peak(self) -> Floats:
        """Return the highest demand of the day; NaN where nothing is known."""
        highest: Floats = np.fmax.reduce(self.peaks, axis=1)
        return highest


def _nearer(before: Floats, given: Floats, share: Floats) -> Floats:
    """Move means by a share towards what is given; those that are not known yet begin there."""
    start = np.where(np.isnan(before), given, before)
    moved: Floats = start + share * (given - start)
    return moved
