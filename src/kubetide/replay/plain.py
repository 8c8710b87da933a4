"""The recommender's own core, fed with recorded periods: the policy `vpa`.

Samples go through the same tables and histograms as in a cluster (`samples`, `aggregate`), targets through the same
estimate (`estimator`). An OOM kill is told at its time, between the samples before and after it.
"""

from collections.abc import Sequence

import numpy as np

from kubetide.replay.policies import Decision, Fleet, OomKill, Period
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.aggregate import Aggregates, Tuning
from kubetide.vpa.recommender.core.estimator import Estimation, estimate
from kubetide.vpa.recommender.core.samples import Containers

_SECOND = 1_000_000
"""In microseconds, as histograms count time."""


class PlainModel:
    """One aggregate and one container of the recommender for every column."""

    def __init__(self, size: int, interval_seconds: int) -> None:
        self._interval = interval_seconds
        self.aggregates = Aggregates(Tuning())
        self._containers = Containers(self.aggregates)
        self._slots: Ints = np.array([self.aggregates.allocate(0) for _ in range(size)], dtype=np.int64)
        self._rows: Ints = np.array([self._containers.allocate(int(slot)) for slot in self._slots], dtype=np.int64)

    def add_cpu(self, samples: Floats, starts: Ints) -> None:
        """Add a period of CPU samples, in cores."""
        rows, times, values = self._ordered(samples, starts)
        self._containers.add_cpu(rows, times, np.rint(values * 1000.0).astype(np.int64))

    def add_memory(self, samples: Floats, starts: Ints, ooms: Sequence[OomKill]) -> None:
        """Add a period of memory samples, in bytes, and the OOM kills in it.

        A running container never uses 0 bytes: such a record means that there was none. The recommender's windows
        would take a first sample of 0 for the peak of the whole day.
        """
        samples = np.where(samples > 0.0, samples, np.nan)
        rows, times, values = self._ordered(samples, starts)
        killed = np.full(self._rows.max(initial=0) + 1, np.iinfo(np.int64).max)
        for oom in ooms:
            killed[self._rows[oom.column]] = oom.at_seconds * _SECOND
        before = times < killed[rows]
        amounts = np.rint(values).astype(np.int64)
        self._containers.add_memory(rows[before], times[before], amounts[before])
        for oom in ooms:
            self._containers.add_oom(int(self._rows[oom.column]), oom.at_seconds * _SECOND, int(oom.limit_bytes))
        self._containers.add_memory(rows[~before], times[~before], amounts[~before])

    def cpu_percentiles(self, shares: Sequence[float]) -> Floats:
        """Return percentiles of the CPU histograms in cores, one row each."""
        return self.aggregates.cpu.select(self._slots).percentiles(shares)

    def target(self, resource: str, estimation: Estimation) -> Ints:
        """Return the recommender's target: millicores or bytes."""
        columns = self.aggregates.cpu if resource == CPU else self.aggregates.memory
        aggregates, size = self.aggregates, self._slots.size
        amounts = estimate(
            resource,
            columns.select(self._slots).percentiles(estimation.percentiles(resource)),
            first=aggregates.first[self._slots],
            last=aggregates.last[self._slots],
            count=aggregates.count[self._slots],
            margin=np.full(size, estimation.margin),
            containers=np.ones(size, dtype=np.int64),
            estimation=estimation,
        )
        return amounts["target"]

    def _ordered(self, samples: Floats, starts: Ints) -> tuple[Ints, Ints, Floats]:
        """Return rows, times and values of the samples there are, in the order of their taking."""
        step, column = np.nonzero(np.isfinite(samples))
        times = (starts[column] + step * self._interval) * _SECOND
        return self._rows[column], times, samples[step, column]


class VpaPolicy:
    """The recommender's target, applied every period."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._model = PlainModel(fleet.size, fleet.interval_seconds)
        self._estimation = Estimation()

    def observe(self, period: Period) -> None:
        """Feed the recommender's core."""
        if period.cpu is not None:
            self._model.add_cpu(period.cpu, period.starts)
        if period.memory is not None:
            self._model.add_memory(period.memory, period.starts, period.ooms)

    def decide(self) -> Decision:
        """Return the targets."""
        resources = self._fleet.resources
        return Decision(
            cpu=self._model.target(CPU, self._estimation) / 1000.0 if CPU in resources else None,
            memory=self._model.target(MEMORY, self._estimation).astype(np.float64) if MEMORY in resources else None,
        )
