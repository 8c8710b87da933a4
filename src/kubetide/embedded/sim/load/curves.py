"""Load curves: how much work arrives at each moment, the same for the same seed.

A curve maps time to a level (requests per second, or any unit the workload's costs are given in). It is a pure
function: noise comes from a hash of (seed, second), not from a generator with state, so a curve can be asked in any
order and any number of times.

Time is given twice: `elapsed` seconds since the scenario began (steps, ramps, spikes and traces count from there) and
`week` seconds since Monday 00:00 of the scenario's calendar (days and weeks count from there).
"""

import csv
import io
import math
from bisect import bisect_right
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kubetide.errors import InvalidInput
from kubetide.stats.powers import cosine_of_turns, cosines_of_turns, power

Floats = npt.NDArray[np.float64]

HOUR = 3600.0
DAY = 24 * HOUR
WEEK = 7 * DAY


class Curve(Protocol):
    """Anything that has a level at every moment."""

    def level(self, elapsed: float, week: float) -> float:
        """Return the level at this moment, never negative."""
        ...


@lru_cache(maxsize=4096)
def unit_hash(*parts: int) -> float:
    """Return a number in [0, 1) that depends on nothing but `parts` (splitmix64 rounds)."""
    return _mixed(*parts) / 2.0**64


def _mixed(*parts: int) -> int:
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state + (part & 0xFFFFFFFFFFFFFFFF) + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state


def unit_hashes(seed: int, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return `unit_hash(seed, number)` for many numbers."""
    state = np.full(len(numbers), _mixed(seed), dtype=np.uint64)
    state += numbers.astype(np.uint64)
    state += np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return state.astype(np.float64) / 2.0**64


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant level."""

    value: float

    def level(self, elapsed: float, week: float) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Step:
    """A staircase: each (second, level) holds until the next. Before the first one the level is `initial`."""

    steps: tuple[tuple[float, float], ...]
    initial: float = 0.0

    def level(self, elapsed: float, week: float) -> float:
        index = bisect_right(self.steps, (elapsed, math.inf))
        return self.steps[index - 1][1] if index else self.initial


@dataclass(frozen=True, slots=True)
class Ramp:
    """A straight line from `low` at `begin` to `high` after `duration`, level before and after."""

    low: float
    high: float
    begin: float
    duration: float

    def level(self, elapsed: float, week: float) -> float:
        share = min(1.0, max(0.0, (elapsed - self.begin) / self.duration))
        return self.low + (self.high - self.low) * share


@dataclass(frozen=True, slots=True)
class Diurnal:
    """A day: lowest twelve hours away from `peak_hour`, highest at it. `sharpness` above 1 narrows the busy hours."""

    low: float
    high: float
    peak_hour: float = 14.0
    sharpness: float = 1.0

    def level(self, elapsed: float, week: float) -> float:
        half_wave = cosine_of_turns((week / DAY - self.peak_hour / 24.0) / 2)
        return self.low + (self.high - self.low) * power(half_wave * half_wave, self.sharpness)

    def levels(self, week: Floats) -> Floats:
        half_wave = cosines_of_turns((week / DAY - self.peak_hour / 24.0) / 2)
        square = half_wave * half_wave
        if self.sharpness != 1.0:
            square = np.array([power(each, self.sharpness) for each in square.tolist()])
        return self.low + (self.high - self.low) * square


@dataclass(frozen=True, slots=True)
class Weekly:
    """A day's curve times a factor for each weekday, Monday first."""

    day: Curve
    factors: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0, 0.6, 0.5)

    def level(self, elapsed: float, week: float) -> float:
        return self.day.level(elapsed, week) * self.factors[int(week % WEEK // DAY)]


@dataclass(frozen=True, slots=True)
class Spike:
    """`base`, and for `duration` from `begin` on `peak`; again each `every` seconds if that is given."""

    base: float
    peak: float
    begin: float
    duration: float
    every: float | None = None

    def level(self, elapsed: float, week: float) -> float:
        since = elapsed - self.begin
        if since >= 0 and self.every is not None:
            since %= self.every
        return self.peak if 0 <= since < self.duration else self.base


@dataclass(frozen=True, slots=True)
class Trace:
    """Measured points (second, level) with straight lines between; after the last point it repeats or holds."""

    points: tuple[tuple[float, float], ...]
    repeat: bool = False

    def level(self, elapsed: float, week: float) -> float:
        end = self.points[-1][0]
        if self.repeat and end > 0:
            elapsed %= end
        index = bisect_right(self.points, (elapsed, math.inf))
        if index == 0:
            return self.points[0][1]
        if index == len(self.points):
            return self.points[-1][1]
        (left, low), (right, high) = self.points[index - 1], self.points[index]
        return low + (high - low) * (elapsed - left) / (right - left)


@dataclass(frozen=True, slots=True)
class Noisy:
    """Another curve, times a factor in 1 ± `amount` that changes every `period` seconds."""

    curve: Curve
    amount: float
    seed: int
    period: float = 15.0

    def level(self, elapsed: float, week: float) -> float:
        swing = 2 * unit_hash(self.seed, math.floor(elapsed / self.period)) - 1
        level = self.curve.level(elapsed, week) * (1 + self.amount * swing)
        return level if level > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Surge:
    """Another curve, and `factor` times of it for `duration` seconds from `begin` on."""

    curve: Curve
    factor: float
    begin: float
    duration: float

    def level(self, elapsed: float, week: float) -> float:
        level = self.curve.level(elapsed, week)
        return level * self.factor if 0 <= elapsed - self.begin < self.duration else level


class CurveLevels:
    """The levels of many curves at one moment after the other, the very numbers that `level` returns for each.

    Workloads often share a day, which is worked out once for all of them, and noise stays the same for some moments.
    """

    def __init__(self, curves: Iterable[Curve]) -> None:
        self._plain: list[Curve] = []
        """Curves without noise, each once."""
        self._noises: list[tuple[Noisy, int] | None] = []
        self._places: list[int] = []
        self._factors: list[float] = []
        self._steps: list[int | None] = []
        self._periods: list[float] = []
        places: dict[Hashable, int] = {}
        for curve in curves:
            noise, inner = (curve, curve.curve) if isinstance(curve, Noisy) else (None, curve)
            place = places.setdefault(inner if isinstance(inner, Diurnal) else id(inner), len(self._plain))
            if place == len(self._plain):
                self._plain.append(inner)
            self._places.append(place)
            if noise is not None and noise.period not in self._periods:
                self._periods.append(noise.period)
            self._noises.append(None if noise is None else (noise, self._periods.index(noise.period)))
            self._factors.append(1.0)
            self._steps.append(None)

    def at(self, elapsed: float, week: float) -> list[float]:
        """Return the level of each curve."""
        plain = [curve.level(elapsed, week) for curve in self._plain]
        steps = [math.floor(elapsed / period) for period in self._periods]
        levels = [plain[place] for place in self._places]
        for number, noise in enumerate(self._noises):
            if noise is not None:
                curve, period = noise
                step = steps[period]
                if step != self._steps[number]:
                    self._steps[number] = step
                    self._factors[number] = 1 + curve.amount * (2 * unit_hash(curve.seed, step) - 1)
                level = levels[number] * self._factors[number]
                levels[number] = level if level > 0.0 else 0.0
        return levels


def levels_of(curve: Curve, elapsed: Floats, week: Floats, days: dict[Diurnal, Floats]) -> Floats:
    """Return the levels of a curve at many moments, the very numbers that `level` returns for each.

    Workloads often share a day: `days` keeps those that were worked out for the same moments.
    """
    if isinstance(curve, Noisy):
        swing = 2 * unit_hashes(curve.seed, np.floor(elapsed / curve.period).astype(np.int64)) - 1
        levels = levels_of(curve.curve, elapsed, week, days) * (1 + curve.amount * swing)
        return np.where(levels > 0.0, levels, 0.0)
    if isinstance(curve, Diurnal):
        found = days.get(curve)
        if found is None:
            found = days[curve] = curve.levels(week)
        return found
    return np.array([curve.level(*at) for at in zip(elapsed.tolist(), week.tolist(), strict=True)], dtype=np.float64)


def trace_from_csv(text: str, *, subject: str = "trace", repeat: bool = False) -> Trace:
    """Read `seconds,level` lines; a first line that is not numbers is a heading. Seconds must rise."""
    points: list[tuple[float, float]] = []
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not row or row[0].lstrip().startswith("#"):
            continue
        try:
            second, level = float(row[0]), float(row[1])
        except (ValueError, IndexError) as error:
            if not points and number == 1:
                continue
            raise InvalidInput(f"expected 'seconds,level', found {','.join(row)!r}", subject=subject,
                               field=f"line {number}") from error  # fmt: skip
        if not (math.isfinite(second) and math.isfinite(level)) or level < 0:
            raise InvalidInput("values must be finite and not negative", subject=subject, field=f"line {number}")
        if points and second <= points[-1][0]:
            raise InvalidInput(f"time {second:g} does not rise", subject=subject, field=f"line {number}")
        points.append((second, level))
    if not points:
        raise InvalidInput("no points", subject=subject)
    return Trace(tuple(points), repeat=repeat)
