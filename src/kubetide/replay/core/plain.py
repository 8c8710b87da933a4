"""The recommender's own core, fed with recorded periods: the policy `vpa`.

Samples go through the same tables and histograms as in a cluster (`samples`, `aggregate`), targets through the same
estimate (`estimator`). An OOM kill is told at its time, between the samples before and after it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from kubetide.replay.core.policies import Decision, Fleet, OomKill, Period
from kubetide.stats.buckets import Floats, Ints
from kubetide.stats.percentiles import NOTHING
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.aggregate import Aggregates, Columns, Tuning
from kubetide.vpa.recommender.core.estimator import BOUNDS, Estimation, estimate, floors, measured, with_margin
from kubetide.vpa.recommender.core.samples import Containers

_Amounts = TypeVar("_Amounts", Ints, Floats)
_SECOND = 1_000_000
"""In microseconds, as histograms count time."""


class PlainModel:
    """One container of the recommender for every column, and one aggregate for every workload."""

    def __init__(
        self, size: int, interval_seconds: int, *, workloads: Ints | None = None, tuning: Tuning | None = None
    ) -> None:
        self._interval = interval_seconds
        group = np.arange(size) if workloads is None else workloads
        # All columns side by side in one block, so that a step is one operation on each.
        self.aggregates = Aggregates(tuning or Tuning(), block_width=max(1, int(group.max(initial=0)) + 1))
        self._containers = Containers(self.aggregates)
        made = np.array([self.aggregates.allocate(0) for _ in range(int(group.max(initial=-1)) + 1)], dtype=np.int64)
        self._slots: Ints = made[group]
        self._rows: Ints = np.array([self._containers.allocate(int(slot)) for slot in self._slots], dtype=np.int64)
        self._distinct: Ints = made
        self._of_column: Ints | None = workloads
        self._tables: dict[tuple[str, Estimation], Ints] = {}
        self._unseen = size > 0

    def add_cpu(self, samples: Floats, starts: Ints) -> None:
        """Add a period of CPU samples, in cores."""
        for columns, times in self._by_start(starts, samples.shape[0]):
            part = samples if columns is None else samples[:, columns]
            self._containers.add_cpu_grid(self._rows_at(columns), times, np.rint(part * 1000.0))

    def add_memory(self, samples: Floats, starts: Ints, ooms: Sequence[OomKill]) -> None:
        """Add a period of memory samples, in bytes, and the OOM kills in it.

        A running container never uses 0 bytes: such a record means that there was none. The recommender's windows
        would take a first sample of 0 for the peak of the whole day. The windows of a container begin with the period
        in which it is first seen: records are cut into periods, and where its windows began before is not known.
        """
        amounts = np.rint(np.where(samples > 0.0, samples, np.nan))
        if self._unseen:
            new = np.flatnonzero(~np.isnan(amounts).all(axis=0))
            self._containers.open_windows(self._rows[new], starts[new] * _SECOND)
            self._unseen = self._containers.without_window(self._rows)
        killed = np.array([oom.column for oom in ooms], dtype=np.int64)
        for columns, times in self._by_start(starts, samples.shape[0]):
            if killed.size:
                columns = np.setdiff1d(np.arange(self._rows.size) if columns is None else columns, killed)
            part = amounts if columns is None else amounts[:, columns]
            self._containers.add_memory_grid(self._rows_at(columns), times, part)
        for oom in ooms:
            self._add_killed(oom, amounts[:, oom.column], int(starts[oom.column]))

    def _add_killed(self, oom: OomKill, amounts: Floats, start: int) -> None:
        """Add the samples of a container around its OOM kill."""
        row, at = self._rows[[oom.column]], oom.at_seconds * _SECOND
        times = (start + np.arange(amounts.size) * self._interval) * _SECOND
        before = times < at
        for part in (before, ~before):
            if part.any():
                self._containers.add_memory_grid(row, times[part], amounts[part][:, None])
            if part is before:
                self._containers.add_oom(int(row[0]), at, int(oom.limit_bytes))

    def cpu_percentiles(self, shares: Sequence[float]) -> Floats:
        """Return percentiles of the CPU histograms in cores, one row each."""
        return self._spread(self._percentiles(CPU, tuple(shares)))

    def target(self, resource: str, estimation: Estimation) -> Ints:
        """Return the recommender's target: millicores or bytes."""
        share = estimation.percentiles(resource)[BOUNDS.index("target")]
        buckets = self._columns(resource).tracked_buckets(self._distinct, (share,))[0]
        return self._spread(self._targets(resource, estimation)[buckets])

    def _targets(self, resource: str, estimation: Estimation) -> Ints:
        """Return the target of every bucket that a percentile may be in, and that of an empty histogram behind them."""
        if (resource, estimation) not in self._tables:
            buckets = self._columns(resource).buckets
            values = np.append(buckets.ends(np.arange(buckets.count)), 0.0)
            raised = with_margin(measured(resource, values), np.full(values.size, estimation.margin))
            least = floors(resource, estimation, np.ones(values.size, dtype=np.int64))
            self._tables[resource, estimation] = np.maximum(raised, least)
        return self._tables[resource, estimation]

    def _percentiles(self, resource: str, shares: tuple[float, ...]) -> Floats:
        columns = self._columns(resource)
        buckets = columns.tracked_buckets(self._distinct, shares)
        values: Floats = np.where(buckets == NOTHING, 0.0, columns.buckets.ends(buckets))
        return values

    def amounts(self, resource: str, estimation: Estimation) -> Mapping[str, Ints]:
        """Return target, lower and upper bound: millicores or bytes."""
        aggregates, at = self.aggregates, self._distinct
        found = estimate(
            resource,
            self._percentiles(resource, estimation.percentiles(resource)),
            first=aggregates.first[at],
            last=aggregates.last[at],
            count=aggregates.count[at],
            margin=np.full(at.size, estimation.margin),
            containers=np.ones(at.size, dtype=np.int64),
            estimation=estimation,
        )
        return {bound: self._spread(each) for bound, each in found.items()}

    def _columns(self, resource: str) -> Columns:
        return self.aggregates.cpu if resource == CPU else self.aggregates.memory

    def _spread(self, values: _Amounts) -> _Amounts:
        """Return what holds for workloads as what holds for their containers."""
        return values if self._of_column is None else values[..., self._of_column]

    def _by_start(self, starts: Ints, steps: int) -> Iterator[tuple[Ints | None, Ints]]:
        """Yield the columns whose period begins at the same time (None: all), and the times of their samples."""
        offsets = np.arange(steps) * (self._interval * _SECOND)
        if starts.size and (starts == starts[0]).all():
            yield None, int(starts[0]) * _SECOND + offsets
            return
        for start in np.unique(starts):
            yield np.flatnonzero(starts == start), int(start) * _SECOND + offsets

    def _rows_at(self, columns: Ints | None) -> Ints:
        return self._rows if columns is None else self._rows[columns]


class VpaPolicy:
    """The recommender's target."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        estimation: Estimation | None = None,
        tuning: Tuning | None = None,
        with_bounds: bool = False,
    ) -> None:
        self._fleet = fleet
        self._model = PlainModel(fleet.size, fleet.interval_seconds, workloads=fleet.workloads, tuning=tuning)
        self._estimation = estimation or Estimation()
        self._with_bounds = with_bounds

    def observe(self, period: Period) -> None:
        """Feed the recommender's core."""
        if period.cpu is not None:
            self._model.add_cpu(period.cpu, period.starts)
        if period.memory is not None:
            self._model.add_memory(period.memory, period.starts, period.ooms)

    def decide(self) -> Decision:
        """Return the targets, and their bounds where somebody asks for them."""
        found: dict[str, Floats] = {}
        bounds: dict[str, tuple[Floats, Floats]] = {}
        for resource, unit in ((CPU, 1000.0), (MEMORY, 1.0)):
            if resource not in self._fleet.resources:
                continue
            if self._with_bounds:
                amounts = self._model.amounts(resource, self._estimation)
                found[resource] = amounts["target"] / unit
                bounds[resource] = amounts["lower"] / unit, amounts["upper"] / unit
            else:
                found[resource] = self._model.target(resource, self._estimation) / unit
        return Decision(
            cpu=found.get(CPU),
            memory=found.get(MEMORY),
            cpu_bounds=bounds.get(CPU),
            memory_bounds=bounds.get(MEMORY),
        )
