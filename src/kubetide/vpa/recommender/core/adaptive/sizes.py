"""Adaptive sizes of a fleet: an hour of samples in, requests and limits out."""

from dataclasses import dataclass

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.recommender.core.adaptive.columns import FleetColumns, load_all, save_all
from kubetide.vpa.recommender.core.adaptive.cpu import CpuSizer
from kubetide.vpa.recommender.core.adaptive.distrust import Distrust
from kubetide.vpa.recommender.core.adaptive.hour import CpuHour, MemoryHour, cpu_hour, memory_hour
from kubetide.vpa.recommender.core.adaptive.margin import MarginSizer
from kubetide.vpa.recommender.core.adaptive.sharing import SharingSizer
from kubetide.vpa.recommender.core.adaptive.windows import Windows

_DAY = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """One number per container: cores and bytes. Without a limit of its own, the limit is the request."""

    cpu: Floats
    memory: Floats
    memory_limit: Floats | None = None


class Adaptive:
    """What was learned about a fleet of `size` containers, and the sizes that follow from it.

    With `limit_apart` memory is sized by two numbers (`sharing`), else by one (`margin`).
    """

    def __init__(self, size: int, *, limit_apart: bool) -> None:
        self.cpu = CpuSizer(size)
        self.windows = Windows(size)
        self.distrust = Distrust(size)
        self._margin = None if limit_apart else MarginSizer(self.windows)
        self._sharing = SharingSizer(self.windows) if limit_apart else None
        self._clock = FleetColumns(1, {"hours": 1})

    @property
    def size(self) -> int:
        """Return how many containers there are."""
        return self.cpu.columns.size

    def observe(self, *, cpu: Floats | None, memory: Floats | None) -> None:
        """Take in the samples of one hour: rows of samples by containers, NaN where there is none."""
        if memory is not None:
            self.note(_finite("memory", memory))
        self.close(
            None if cpu is None else cpu_hour(_finite("cpu", cpu), self.cpu.columns["request"][0]),
            None if memory is None else memory_hour(memory),
        )

    def note(self, memory: Floats) -> None:
        """Note moments of the running hour: rows of memory by containers, NaN where there is no sample."""
        if self._sharing is not None:
            self._sharing.note(memory)

    def close(self, cpu: CpuHour | None, memory: MemoryHour | None, *, day_ends: bool | None = None) -> None:
        """Take in what an hour came to; a day ends every 24 of them unless the caller knows better."""
        self._clock["hours"] += 1.0
        if day_ends is None:
            day_ends = bool(self._clock["hours"][0, 0] % _DAY == 0.0)
        self.distrust.fade()
        if cpu is not None:
            self.cpu.observe(cpu, day_ends=day_ends)
        if memory is not None:
            usual = self._sharing.base() if self._sharing is not None else None
            closed = self.windows.observe(memory, day_ends=day_ends)
            if self._margin is not None:
                self._margin.observe(closed)
            if self._sharing is not None and usual is not None:
                self._sharing.observe(memory, closed, day_ends=day_ends, usual=usual)

    def decide(self, percentiles: Floats | None) -> Sizes:
        """Return the sizes of now; `percentiles` are those of the plain CPU histograms (`cpu.PERCENTILES`).

        Without them CPU stays as it is: 0 where nothing was decided yet.
        """
        cpu = self.cpu.columns["request"][0] if percentiles is None else self.cpu.decide(percentiles)
        if self._sharing is not None:
            request, limit = self._sharing.decide(self.distrust)
            return Sizes(cpu=cpu, memory=request, memory_limit=limit)
        assert self._margin is not None
        return Sizes(cpu=cpu, memory=self._margin.decide(self.distrust))

    def in_force(self) -> Sizes:
        """Return the sizes that were decided last; 0 where none was."""
        memory = self._sharing or self._margin
        assert memory is not None
        limit = self._sharing.columns["limit"][0] if self._sharing is not None else None
        return Sizes(cpu=self.cpu.columns["request"][0], memory=memory.columns["request"][0], memory_limit=limit)

    def memory_figures(self, column: int) -> dict[str, float]:
        """Return what the memory of one container follows from."""
        if self._sharing is not None:
            return {"factor": float(self._sharing.fleet["factor"][0, 0])}
        assert self._margin is not None
        return {name: float(self._margin.columns[name][0, column]) for name in ("base", "movement")}

    def rearrange(self, source: Ints) -> None:
        """Make column `i` what column `source[i]` was; -1 is a new container."""
        for columns in self.tables():
            columns.rearrange(source)
        if self._sharing is not None:
            self._sharing.place()

    def save(self, column: int) -> Floats:
        """Return all that is remembered of one container."""
        return save_all(self.tables(), column)

    def load(self, column: int, numbers: Floats) -> None:
        """Continue one container from what was saved."""
        load_all(self.tables(), column, numbers)

    def save_fleet(self) -> Floats:
        """Return what the fleet has learned."""
        return save_all(self._fleet(), 0)

    def load_fleet(self, numbers: Floats) -> None:
        """Continue from what a fleet has saved."""
        load_all(self._fleet(), 0, numbers)

    def tables(self) -> list[FleetColumns]:
        """Return the tables with a column for each container."""
        memory = self._sharing or self._margin
        assert memory is not None
        return [self.cpu.columns, self.windows.columns, self.distrust.columns, memory.columns]

    def _fleet(self) -> list[FleetColumns]:
        memory = self._sharing or self._margin
        assert memory is not None
        return [self._clock, self.cpu.fleet, memory.fleet]


def _finite(name: str, samples: Floats) -> Floats:
    """Refuse what cannot have been measured: a negative or infinite sample would be learned for weeks."""
    if np.isinf(samples).any() or (samples < 0.0).any():
        raise InvalidInput("contains a sample that is negative or infinite", subject=name)
    return samples
