"""Short forecasts that earn their weight: the largest value expected before a pod asked for now is ready.

Six simple forecasters look at the same series: the last value, its trend, its recent mean, and how the same minutes of
the last hours, days and weeks moved. Each is charged its absolute error with slow forgetting, and the forecast is their
mean weighted by

    1 / error^6

so that the best two or three decide and the others are ready for the day on which they are right. A season forecasts
the *movement* from this minute to the next ones and not the level: a quiet day keeps its own level and still sees the
jump at nine o'clock.

Only additions, products and divisions: the same series gives the same numbers on every machine.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kubetide.errors import InvalidInput

Floats = NDArray[np.float64]

SLOT_SECONDS: Final = 60
SEASONS: Final = (("hour", 60, 0.3), ("day", 1440, 0.4), ("week", 10080, 0.6))
"""Name, minutes, and how much the newest season counts against the older ones in the same minute."""
FORECASTERS: Final = ("last", "trend", "mean", *(name for name, _, _ in SEASONS))

_MEMORY_STEPS: Final = 480  # errors are forgotten over two hours of 15 s steps: services change their character
_WARM_UP: Final = 20  # a forecaster with fewer errors on record is not listened to
_MEAN_SHARE: Final = 0.1
_LEAST_ERROR: Final = 1e-3  # in units of demand; a flat series must not divide by nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The largest value expected before the horizon ends, and the weight of each forecaster."""

    value: float
    weights: dict[str, float]


class Season:
    """A moving mean of a series for every minute of its season; unknown minutes hold NaN."""

    def __init__(self, minutes: int, newest_share: float) -> None:
        self._slots: Floats = np.full(minutes, np.nan)
        self._share = newest_share

    def learn(self, minute: int, value: float) -> None:
        slot = minute % len(self._slots)
        past = float(self._slots[slot])
        self._slots[slot] = value if past != past else past + self._share * (value - past)

    def movement(self, now: int, first: int, last: int) -> float | None:
        """Return by how much the largest of the minutes `first` to `last` lies above `now`, if all are known."""
        slots, length = self._slots, len(self._slots)
        here = float(slots[now % length])
        largest = -1.0
        for minute in range(first, last + 1):
            value = float(slots[minute % length])
            if value != value:
                return None
            largest = max(largest, value)
        return None if here != here else largest - here


class Ensemble:
    """Forecasts of one series at equal steps; give it every value with `update`."""

    def __init__(self, *, step_seconds: int, lead_steps: int) -> None:
        self._step, self._lead = step_seconds, lead_steps
        self._seasons = [Season(minutes, share) for _, minutes, share in SEASONS]
        self._values: deque[float] = deque(maxlen=lead_steps + 1)
        self._pending: deque[list[float | None]] = deque()
        self._mean: float | None = None
        self._minute_sum, self._minute_count = 0.0, 0
        self.errors: list[float] = [_LEAST_ERROR] * len(FORECASTERS)
        self.counts: list[int] = [0] * len(FORECASTERS)

    def update(self, at_seconds: int, value: float) -> Forecast:
        """Learn the value of the step that begins at `at_seconds` and forecast the steps after it."""
        self._values.append(value)
        self._settle()
        self._mean = value if self._mean is None else self._mean + _MEAN_SHARE * (value - self._mean)
        parts = self._parts(at_seconds, value)
        self._pending.append(parts)
        self._learn_season(at_seconds, value)
        return self._blend(parts)

    def _settle(self) -> None:
        """Charge the forecast whose horizon has just ended."""
        if len(self._pending) < self._lead:
            return
        parts = self._pending.popleft()
        reached = max(list(self._values)[-self._lead :])
        for which, part in enumerate(parts):
            if part is None:
                continue
            count = self.counts[which]
            share = max(1 / _MEMORY_STEPS, 1 / (count + 1))
            self.errors[which] += share * (abs(reached - part) - self.errors[which])
            self.counts[which] = count + 1

    def _learn_season(self, at_seconds: int, value: float) -> None:
        minute = at_seconds // SLOT_SECONDS
        self._minute_sum += value
        self._minute_count += 1
        if (at_seconds + self._step) // SLOT_SECONDS == minute:
            return
        for season in self._seasons:
            season.learn(minute, self._minute_sum / self._minute_count)
        self._minute_sum, self._minute_count = 0.0, 0

    def _parts(self, at_seconds: int, value: float) -> list[float | None]:
        trend = 2 * value - self._values[0] if len(self._values) > self._lead else value
        first = (at_seconds + self._step) // SLOT_SECONDS
        last = (at_seconds + self._lead * self._step) // SLOT_SECONDS
        parts: list[float | None] = [value, max(0.0, trend), self._mean]
        for season in self._seasons:
            movement = season.movement(at_seconds // SLOT_SECONDS, first, last)
            parts.append(None if movement is None else max(0.0, value + movement))
        return parts

    def _blend(self, parts: list[float | None]) -> Forecast:
        weights: dict[str, float] = {}
        total = blended = 0.0
        for which, part in enumerate(parts):
            if part is None or (which and self.counts[which] <= _WARM_UP):
                continue
            error = self.errors[which] + _LEAST_ERROR
            weight = 1 / (error * error * error * error * error * error)
            total += weight
            blended += weight * part
            weights[FORECASTERS[which]] = weight
        shares = {name: weight / total for name, weight in weights.items()}
        return Forecast(value=blended / total, weights=shares)

    def keep_seasons(self, other: "Ensemble") -> None:
        """Take over how the minutes of another one's seasons moved."""
        self._seasons = other._seasons

    def saved(self) -> dict[str, Any]:
        """Return what was learned about the forecasters; seasons fill again from the series itself."""
        return {"errors": [round(error, 5) for error in self.errors], "counts": list(self.counts)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what `saved` returned; raise InvalidInput where it cannot be used."""
        errors = finite_numbers(saved, "errors", len(FORECASTERS))
        counts = finite_numbers(saved, "counts", len(FORECASTERS))
        self.errors, self.counts = errors, [int(count) for count in counts]


def finite_numbers(saved: Mapping[str, Any], name: str, length: int) -> list[float]:
    """Return a list of numbers from 0 up that was saved under a name; raise InvalidInput where it is none."""
    values = saved.get(name)
    if not isinstance(values, list) or len(values) != length:
        raise InvalidInput(f"it is not a list of {length} numbers", field=name)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise InvalidInput(f"{value!r} is not a finite number from 0 up", field=name)
    return [float(value) for value in values]
