"""Rules on windows of samples, to compare with: `krr`, `peak`, `static`, `current`.

They are what users come from. The numbers are those of the tools' documentation: krr's simple strategy takes p95 of
CPU and the peak of memory plus 15 % over 14 days, with floors of 10 millicores and 100 MiB.
"""

import math

import numpy as np

from kubetide.replay.core.policies import Decision, Fleet, Period
from kubetide.stats.buckets import Floats
from kubetide.vpa.core.policy import CPU, MEMORY

_DAY = 86400
_MIB = 1048576.0
_LEAST = {CPU: 0.001, MEMORY: _MIB}


def percentile(samples: Floats, share: float) -> Floats:
    """Return the smallest sample that `share` of a container's samples do not exceed; NaN where there is none."""
    ordered = np.sort(samples, axis=0)  # NaN last
    count = np.add.reduce(np.isfinite(ordered), axis=0)
    place = np.maximum(np.ceil(share * count).astype(np.int64) - 1, 0)
    found: Floats = np.take_along_axis(ordered, place[None], axis=0)[0]
    return found


class _Window:
    """The samples of the last days, by resource."""

    def __init__(self, fleet: Fleet, days: int) -> None:
        self._kept = math.ceil(days * _DAY / fleet.interval_seconds)
        self._samples = {name: np.zeros((0, fleet.size)) for name in sorted(fleet.resources)}

    def observe(self, period: Period) -> None:
        """Add a period, drop what is older than the window."""
        for name, samples in ((CPU, period.cpu), (MEMORY, period.memory)):
            if samples is not None:
                self._samples[name] = np.concatenate([self._samples[name], samples])[-self._kept :]

    def peak(self, resource: str) -> Floats | None:
        """Return the highest sample of each container; None for a resource that is not sampled."""
        if resource not in self._samples:
            return None
        highest: Floats = np.fmax.reduce(self._samples[resource], axis=0, initial=np.nan)
        return np.nan_to_num(highest)

    def percentile(self, resource: str, share: float) -> Floats | None:
        """Return the smallest sample that `share` of a container's samples do not exceed."""
        if resource not in self._samples:
            return None
        return np.nan_to_num(percentile(self._samples[resource], share))


class KrrPolicy:
    """krr's simple strategy."""

    def __init__(self, fleet: Fleet, *, days: int = 14, percentile: float = 0.95, factor: float = 1.15) -> None:
        self._window = _Window(fleet, days)
        self._percentile, self._factor = percentile, factor

    def observe(self, period: Period) -> None:
        """Add a period to the window."""
        self._window.observe(period)

    def decide(self) -> Decision:
        """Return p95 of CPU and the memory peak with its margin."""
        cpu, memory = self._window.percentile(CPU, self._percentile), self._window.peak(MEMORY)
        return Decision(
            cpu=None if cpu is None else np.maximum(cpu, 0.01),
            memory=None if memory is None else np.maximum(self._factor * memory, 100.0 * _MIB),
        )


class PeakPolicy:
    """The peak of the last days plus a margin."""

    def __init__(self, fleet: Fleet, *, days: int = 7, factor: float = 1.2) -> None:
        self._window = _Window(fleet, days)
        self._factor = factor

    def observe(self, period: Period) -> None:
        """Add a period to the window."""
        self._window.observe(period)

    def decide(self) -> Decision:
        """Return the peaks with their margin."""
        cpu, memory = self._window.peak(CPU), self._window.peak(MEMORY)
        return Decision(
            cpu=None if cpu is None else np.maximum(self._factor * cpu, _LEAST[CPU]),
            memory=None if memory is None else np.maximum(self._factor * memory, _LEAST[MEMORY]),
        )


class StaticPolicy:
    """The peak of the first week plus 20 %, as someone sets it once; until then it grows with what is seen."""

    def __init__(self, fleet: Fleet) -> None:
        self._first = PeakPolicy(fleet)
        self._left = 7 * _DAY
        self._period = fleet.period_seconds

    def observe(self, period: Period) -> None:
        """Look at the first week only."""
        if self._left > 0:
            self._first.observe(period)
        self._left -= self._period

    def decide(self) -> Decision:
        """Return what the first week showed."""
        return self._first.decide() if self._left > -self._period else Decision()


class CurrentPolicy:
    """Nothing is decided: what is in force stays, or what the recording says."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def observe(self, period: Period) -> None:
        """Look at nothing."""

    def decide(self) -> Decision:
        """Keep everything."""
        return Decision()


class OraclePolicy:
    """The clairvoyant: told the period before it happens, it takes its memory peak and its p95 of CPU.

    No policy with one request per period can be cheaper; it is the limit that others are compared with.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._ahead = _Window(fleet, 1)
        self._fleet = fleet

    def foresee(self, period: Period) -> None:
        """Look at what will happen."""
        self._ahead = _Window(self._fleet, 1)
        self._ahead.observe(period)

    def observe(self, period: Period) -> None:
        """Learn nothing: it knew already."""

    def decide(self) -> Decision:
        """Return what the period needs."""
        cpu, memory = self._ahead.percentile(CPU, 0.95), self._ahead.peak(MEMORY)
        return Decision(
            cpu=None if cpu is None else np.maximum(cpu, _LEAST[CPU]),
            memory=None if memory is None else np.maximum(memory, _LEAST[MEMORY]),
        )
