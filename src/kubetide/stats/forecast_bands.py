"""Levels above what is usual: recent means and a forecast, each plus some widths of its own usual error.

Noise around a level is not forecast better by anything than by a mean over the right time, and no histogram of hours
ago knows how wide the noise is now. So four centres (means over about 10, 33 and 100 steps, and the forecast of an
ensemble) are compared with what came, each error counting for about 120 steps, and five widths of it are offered above
every centre. Who uses them finds out which centre and width pay.

Errors are counted in units of the root of the centre, as counts of independent requests scatter. Only additions,
products, divisions and roots: the same series gives the same numbers on every machine.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kubetide.stats.forecast import finite_numbers

Floats = NDArray[np.float64]

WIDTHS: Final = (2.0, 3.0, 4.0, 5.5, 8.0)
CENTRES: Final = ("mean of 10 steps", "mean of 33 steps", "mean of 100 steps", "forecast")

_SHARES: Final = np.array((0.1, 0.03, 0.01))
_MEMORY_STEPS: Final = 120
_FIRST_WIDTH: Final = 0.25
_OFFSET: Final = 0.5  # an idle workload scatters too


class Bands:
    """Centres of one series and their usual errors; give it every value with `update`."""

    def __init__(self, *, lead_steps: int) -> None:
        self._lead = lead_steps
        self._means: Floats | None = None
        self._seen = 0
        self._pending: deque[Floats] = deque()
        self._recent: deque[float] = deque(maxlen=lead_steps)
        self._multiples = np.array(WIDTHS)
        self.widths: Floats = np.full(len(CENTRES), _FIRST_WIDTH)
        self.count = 0

    def update(self, value: float, forecast: float) -> Floats:
        """Learn the next value and return the levels: all widths above the first centre, above the second, …"""
        self._recent.append(value)
        if len(self._pending) >= self._lead:
            self._learn(self._pending.popleft(), max(self._recent))
        self._seen += 1
        means = np.full(len(_SHARES), value) if self._means is None else self._means
        self._means = means + np.maximum(_SHARES, 1 / self._seen) * (value - means)
        centres = np.append(self._means, forecast)
        self._pending.append(centres)
        widths = self.widths * np.sqrt(centres + _OFFSET)
        levels: Floats = centres[:, None] + widths[:, None] * self._multiples
        return levels.ravel()

    def _learn(self, centres: Floats, came: float) -> None:
        errors = np.abs(came - centres) / np.sqrt(centres + _OFFSET)
        if self.count == 0:
            self.widths = np.maximum(errors, _FIRST_WIDTH)
        else:
            self.widths = self.widths + max(1 / _MEMORY_STEPS, 1 / (self.count + 3)) * (errors - self.widths)
        self.count += 1

    def saved(self) -> dict[str, Any]:
        """Return what was learned; the means follow again from the series itself."""
        return {"widths": [round(float(width), 4) for width in self.widths], "count": [self.count]}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what `saved` returned; raise InvalidInput where it cannot be used."""
        widths = finite_numbers(saved, "widths", len(CENTRES))
        (count,) = finite_numbers(saved, "count", 1)
        self.widths, self.count = np.array(widths), int(count)
