"""Adaptive sizes of a fleet: an hour of samples in, requests and limits out."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.stats.buckets import Floats
from kubetide.vpa.recommender.core.adaptive.columns import FleetColumns, Form
from kubetide.vpa.recommender.core.adaptive.cpu import CpuSizer
from kubetide.vpa.recommender.core.adaptive.margin import MarginSizer
from kubetide.vpa.recommender.core.adaptive.sharing import SharingSizer
from kubetide.vpa.recommender.core.adaptive.windows import Windows

VERSION = 1
"""Of the checkpoint form."""
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
        self._windows = Windows(size)
        self._margin = None if limit_apart else MarginSizer(self._windows)
        self._sharing = SharingSizer(self._windows) if limit_apart else None
        self._clock = FleetColumns(1, {"hours": 1})

    def observe(self, *, cpu: Floats | None, memory: Floats | None) -> None:
        """Take in the samples of one hour: rows of samples by containers, NaN where there is none."""
        self._clock["hours"] += 1.0
        day_ends = bool(self._clock["hours"][0, 0] % _DAY == 0.0)
        if cpu is not None:
            self.cpu.observe(_finite("cpu", cpu), day_ends=day_ends)
        if memory is not None:
            samples = _finite("memory", memory)
            usual = self._sharing.base() if self._sharing is not None else None
            closed = self._windows.observe(samples, day_ends=day_ends)
            if self._margin is not None:
                self._margin.observe(closed)
            if self._sharing is not None and usual is not None:
                self._sharing.observe(samples, closed, day_ends=day_ends, usual=usual)

    def decide(self, percentiles: Floats) -> Sizes:
        """Return the sizes of now; `percentiles` are those of the plain CPU histograms (`cpu.PERCENTILES`)."""
        cpu = self.cpu.decide(percentiles)
        if self._sharing is not None:
            request, limit = self._sharing.decide()
            return Sizes(cpu=cpu, memory=request, memory_limit=limit)
        assert self._margin is not None
        return Sizes(cpu=cpu, memory=self._margin.decide())

    def save(self, column: int) -> dict[str, Form]:
        """Return the checkpoint form of one container."""
        return {name: columns.save(column) for name, columns in self._containers().items()}

    def load(self, column: int, form: Mapping[str, object]) -> None:
        """Continue one container from its checkpoint form."""
        _load(self._containers(), column, form)

    def save_fleet(self) -> dict[str, object]:
        """Return the checkpoint form of what the fleet has learned."""
        return {"version": VERSION, **{name: columns.save(0) for name, columns in self._fleet().items()}}

    def load_fleet(self, form: Mapping[str, object]) -> None:
        """Continue from the checkpoint form of a fleet."""
        if form.get("version") != VERSION:
            raise InvalidInput(f"must be {VERSION}", subject="adaptive checkpoint", field="version")
        _load(self._fleet(), 0, form)

    def _containers(self) -> dict[str, FleetColumns]:
        return {"cpu": self.cpu.columns, "windows": self._windows.columns, **self._memory_columns("columns")}

    def _fleet(self) -> dict[str, FleetColumns]:
        return {"clock": self._clock, "cpu": self.cpu.fleet, **self._memory_columns("fleet")}

    def _memory_columns(self, which: str) -> dict[str, FleetColumns]:
        sizers = {"margin": self._margin, "sharing": self._sharing}
        return {name: getattr(sizer, which) for name, sizer in sizers.items() if sizer is not None}


def _load(parts: Mapping[str, FleetColumns], column: int, form: Mapping[str, object]) -> None:
    for name, columns in parts.items():
        part = form.get(name)
        if not isinstance(part, Mapping):
            raise InvalidInput("must be an object", subject="adaptive checkpoint", field=name)
        columns.load(column, part)


def _finite(name: str, samples: Floats) -> Floats:
    """Refuse what cannot have been measured: a negative or infinite sample would be learned for weeks."""
    if np.isinf(samples).any() or (samples < 0.0).any():
        raise InvalidInput("contains a sample that is negative or infinite", subject=name)
    return samples
