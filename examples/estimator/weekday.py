"""An estimator of your own: the highest usage on working days, so that a job at the weekend does not count.

After `pip install ./examples/estimator`, `kubetide recommend --estimator weekday` uses it.
"""

import numpy as np

from kubetide.replay.core.policies import Decision, Fleet, Period

_DAY = 86400
_MONDAY = 4 * _DAY
"""The epoch began on a Thursday."""


class WeekdayPeak:
    """The peak of Monday to Friday."""

    def __init__(self, fleet: Fleet) -> None:
        self._interval = fleet.interval_seconds
        self._cpu = np.full(fleet.size, np.nan)
        self._memory = np.full(fleet.size, np.nan)

    def observe(self, period: Period) -> None:
        """Keep the highest sample of working days."""
        if period.cpu is None or period.memory is None:
            return
        times = period.starts[None, :] + np.arange(len(period.cpu))[:, None] * self._interval
        working = (times - _MONDAY) // _DAY % 7 < 5
        self._cpu = np.fmax(self._cpu, np.fmax.reduce(np.where(working, period.cpu, np.nan), axis=0))
        self._memory = np.fmax(self._memory, np.fmax.reduce(np.where(working, period.memory, np.nan), axis=0))

    def decide(self) -> Decision:
        """Return the peaks."""
        return Decision(cpu=self._cpu, memory=self._memory)
