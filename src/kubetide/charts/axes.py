"""Axes: which range is shown, where the ticks stand, how a value is written.

Ticks stand on round numbers of the unit: 1, 2 and 5 times a power of ten for cores, counts and money, powers of two for
bytes, and clock steps (a minute, six hours, a day) for time. The step is the smallest that gives no more ticks than
there is room for.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import count


class Unit(StrEnum):
    """What an axis measures; decides steps and notation."""

    TIME = "time"
    CORES = "cores"
    BYTES = "bytes"
    COUNT = "count"
    RATIO = "ratio"
    MONEY = "money"
    NUMBER = "number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of a chart. Times are seconds since the epoch, in UTC."""

    unit: Unit
    label: str = ""
    low: float | None = None
    """Fixed lower end; without it the data decides (amounts start at zero)."""
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis with its range settled."""

    unit: Unit
    low: float
    high: float

    def at(self, value: float) -> float:
        """Return where a value lies, 0 at the lower end and 1 at the upper."""
        return (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[float]:
        """Return at most `most` round values within the range."""
        steps = _steps(self.unit)
        for step in steps:
            # A hair of tolerance: 1 / 0.2 must reach its fifth step whatever the last bit of 0.2 is.
            first = math.ceil(self.low / step - 1e-9)
            last = math.floor(self.high / step + 1e-9)
            if last - first + 1 <= max(most, 1):
                return [number * step for number in range(first, last + 1)]
        raise AssertionError("steps grow without end")

    def written(self, value: float) -> str:
        """Return a tick's text."""
        if self.unit is Unit.TIME:
            return _written_time(value, span=self.high - self.low)
        return written(value, self.unit)


def settle(axis: Axis, lowest: float | None, highest: float | None) -> Scale:
    """Return the range that shows the data, never empty; `None` stands for no data at all."""
    low = axis.low if axis.low is not None else lowest
    high = axis.high if axis.high is not None else highest
    if low is None or high is None:
        low, high = (0.0, 1.0) if low is None else (low, low + 1.0)
    if axis.unit is not Unit.TIME and axis.low is None and low > 0:
        low = 0.0
    if axis.unit is not Unit.TIME and axis.high is None:
        high += (high - low) * 0.05
    if high <= low:
        high = low + (60.0 if axis.unit is Unit.TIME else max(abs(low) * 0.1, _least(axis.unit)))
    return Scale(axis.unit, low, high)


def written(value: float, unit: Unit) -> str:
    """Return a value as people read it: `250m`, `1.5`, `454Mi`, `78 %`."""
    match unit:
        case Unit.BYTES:
            return _written_bytes(value)
        case Unit.CORES:
            return f"{value * 1000:.0f}m" if 0 < abs(value) < 1 else _short(value)
        case Unit.RATIO:
            return f"{_short(value * 100)} %"
        case Unit.TIME:
            return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M")
        case _:
            return _short(value)


def _least(unit: Unit) -> float:
    return 1024.0 * 1024 if unit is Unit.BYTES else 1.0


_CLOCK_STEPS = (
    1, 5, 15, 30, 60, 300, 900, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600,
    86400, 2 * 86400, 7 * 86400, 14 * 86400, 28 * 86400,
)  # fmt: skip


def _steps(unit: Unit) -> Iterator[float]:
    """Return round steps from tiny ones upwards, without end."""
    if unit is Unit.TIME:
        yield from _CLOCK_STEPS
        for doubled in count(1):
            yield float(_CLOCK_STEPS[-1] << doubled)
    if unit is Unit.BYTES:
        step = 1.0
        while True:
            yield step
            step *= 2
    for exponent in count(0 if unit is Unit.COUNT else -9):
        yield from (float(f"{digit}e{exponent}") for digit in (1, 2, 5))


def _written_time(value: float, *, span: float) -> str:
    moment = datetime.fromtimestamp(value, UTC)
    if span <= 600:
        return moment.strftime("%H:%M:%S")
    if span <= 36 * 3600:
        return moment.strftime("%H:%M")
    return moment.strftime("%d %b") if value % 86400 == 0 else moment.strftime("%d %b %H:%M")


_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def _written_bytes(value: float) -> str:
    power = 0
    while abs(value) >= 1024 and power < len(_BINARY) - 1:
        value /= 1024
        power += 1
    return f"{_short(value)}{_BINARY[power]}"


_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))


def _short(value: float) -> str:
    """Return a number with three digits that matter, without trailing zeros."""
    for size, suffix in _DECIMAL:
        if abs(value) >= size:
            divisor = 1e3 if suffix == "k" else size
            return f"{value / divisor:.3g}{suffix}"
    if value == round(value):
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
