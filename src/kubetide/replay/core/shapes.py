"""Classes of workloads by the shape of what they use, so that each class gets numbers of its own.

    growing   the memory peaks of the last third of the days are all 20 % above those of the first third
    bursty    the p95 of CPU is more than twice its median, on the whole
    steady    everything else

A workload is as its busiest pod. What grows is not also called bursty: the leak is what a size has to follow.
"""

import numpy as np

from kubetide.replay.core.rules import percentile
from kubetide.stats.buckets import Floats, Ints

SHAPES = ("steady", "bursty", "growing")
_GROWN = 1.2
_BURST = 2.0


class ShapeCount:
    """Told day after day what the containers of some workloads use."""

    def __init__(self, workloads: Ints, number: int) -> None:
        self._workloads, self._number = workloads, number
        self._days: list[tuple[Floats, Floats, Floats]] = []

    def observe(self, cpu: Floats, memory: Floats) -> None:
        """Take in a day: samples by containers."""
        peaks = np.fmax.reduce(memory, axis=0, initial=np.nan)
        parts = (peaks, percentile(cpu, 0.5), percentile(cpu, 0.95))
        first, second, third = (self._by_workload(each) for each in parts)
        self._days.append((first, second, third))

    def _by_workload(self, values: Floats) -> Floats:
        found = np.full(self._number, np.nan)
        np.fmax.at(found, self._workloads, values)
        return found

    def shapes(self) -> list[str]:
        """Return the shape of every workload."""
        peaks, medians, tops = (np.array(each) for each in zip(*self._days, strict=True))
        third = max(1, len(peaks) // 3)
        growing = np.fmin.reduce(peaks[-third:], axis=0) > _GROWN * np.fmax.reduce(peaks[:third], axis=0)
        bursty = np.nansum(tops, axis=0) > _BURST * np.nansum(medians, axis=0)
        return [SHAPES[2 if grows else int(bursts)] for grows, bursts in zip(growing, bursty, strict=True)]
