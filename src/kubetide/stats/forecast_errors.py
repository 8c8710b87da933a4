"""How wrong forecasts were, and the level that is cheapest given that.

Errors are kept as a histogram of ratios, (what came + 1) / (forecast + 1), with slow forgetting. From it the cheapest
level of capacity follows, for a price of not having enough:

    level + price x sum over ratios above the level of (share x what would come)

Six states have histograms of their own: calm and stirred times, since an error is more likely right after errors, each
at rest, rising, and jumping above the mean of the last minutes, since who jumps goes on or falls back. While one is
thin, the pooled one stands in. Adding 1 keeps small loads from looking wild: one request instead of none is not an
infinite surprise.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kubetide.errors import InvalidInput
from kubetide.stats.forecast import finite_numbers

Floats = NDArray[np.float64]

STATES: Final = 6
_BUCKETS: Final = 130
_FIRST_RATIO: Final = 0.4
_GROWTH: Final = 1.03  # a coarser one costs a calm workload of some twenty replicas one of them
_FORGET: Final = 0.9995  # per step: an error counts half after six hours of 15 s steps
_PRIOR: Final = 5.0  # forecasts believed before the first: right on the whole, sometimes a fifth too low
_POOLED: Final = 20.0  # errors that the pooled histogram counts for beside the one of the present state
_OFFSET: Final = 1.0
_FAST: Final = 0.15
_SLOW: Final = 1 / 960
_MEAN_SHARE: Final = 0.1
_RISING: Final = 1.08
_JUMPING: Final = 1.25


def _ratios() -> Floats:
    ratios = [_FIRST_RATIO]
    while len(ratios) < _BUCKETS:
        ratios.append(ratios[-1] * _GROWTH)
    return np.array(ratios)


def _prior(ratios: Floats) -> Floats:
    beyond = 1 + np.maximum(ratios - 0.94, 0.0) * 10
    return np.where(ratios >= 0.94, 0.1125 * _PRIOR / (beyond * beyond * beyond * beyond), 0.0)


RATIOS: Final = _ratios()


class ForecastErrors:
    """The ratios of what came to what was forecast, in every state."""

    def __init__(self) -> None:
        prior = _prior(RATIOS)
        self._pooled: Floats = prior.copy()
        self._states: list[Floats] = [prior.copy() for _ in range(STATES)]
        self._mean: float | None = None
        self._fast = self._slow = 0.1
        self.count = 0

    def state(self, value: float) -> int:
        """Return the state at the next value of the series: whether the last minutes erred more, how far it rose."""
        mean = value if self._mean is None else self._mean
        self._mean = mean + _MEAN_SHARE * (value - mean)
        rise = (value + _OFFSET) / (mean + _OFFSET)
        return 3 * (self._fast >= self._slow) + (rise > _RISING) + (rise > _JUMPING)

    @property
    def typical(self) -> float:
        """Return the mean relative error, recent errors counting most."""
        return self._slow

    def learn(self, forecast: float, came: float, *, state: int) -> None:
        """Take in what came after a forecast that was made in a state."""
        ratio = (came + _OFFSET) / (forecast + _OFFSET)
        bucket = min(int(np.searchsorted(RATIOS, ratio)), _BUCKETS - 1)
        for histogram in (self._states[state], self._pooled):
            histogram *= _FORGET
            histogram[bucket] += 1
        self.count += 1
        error = abs(ratio - 1)
        self._fast += _FAST * (error - self._fast)
        self._slow += max(_SLOW, 1 / (self.count + 2)) * (error - self._slow)

    def levels(self, forecast: float, prices: Floats, *, slack: float, state: int) -> Floats:
        """Return the cheapest whole level for each price; a level carries `1 + slack` times itself without harm."""
        shares = self._states[state] + self._pooled * (_POOLED / float(self._pooled.cumsum()[-1]))
        needs = RATIOS * (forecast + _OFFSET) - _OFFSET
        levels = np.maximum(np.ceil(needs / (1 + slack) - 1e-9), 1.0)[::-1]
        above = (shares * np.maximum(needs, 0.0))[::-1].cumsum()
        missed = np.concatenate(([0.0], above[:-1])) / float(shares.cumsum()[-1])
        costs = levels + prices[:, None] * missed
        return np.asarray(levels[costs.argmin(axis=1)], dtype=np.float64)

    def saved(self) -> dict[str, Any]:
        """Return the histograms as alternating buckets and weights, those that hold something."""
        rows = (self._pooled, *self._states)
        return {
            "moments": [self.count, round(self._fast, 5), round(self._slow, 5)],
            "ratios": [[x for i in np.nonzero(row >= 0.5)[0] for x in (int(i), round(float(row[i])))] for row in rows],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what `saved` returned; raise InvalidInput where it cannot be used."""
        count, fast, slow = finite_numbers(saved, "moments", 3)
        ratios = saved.get("ratios")
        if not isinstance(ratios, list) or len(ratios) != STATES + 1:
            raise InvalidInput(f"it is not {STATES + 1} histograms", field="ratios")
        rows = [self._row(row) for row in ratios]
        self.count, self._fast, self._slow = int(count), fast, slow
        self._pooled, self._states = rows[0], rows[1:]

    @staticmethod
    def _row(pairs: Any) -> Floats:
        length = len(pairs) if isinstance(pairs, list) else 0
        numbers = finite_numbers({"ratios": pairs}, "ratios", length)
        row = _prior(RATIOS) * 0.01  # never empty: a level must come out of any histogram
        if length % 2 or any(bucket >= _BUCKETS for bucket in numbers[::2]):
            raise InvalidInput(f"a bucket is not one of {_BUCKETS}", field="ratios")
        for bucket, weight in zip(numbers[::2], numbers[1::2], strict=True):
            row[int(bucket)] += weight
        return row
