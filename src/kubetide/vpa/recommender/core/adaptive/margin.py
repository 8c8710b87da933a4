"""Memory as one number (limit = request): a margin whose price is compared with what it insures against.

The base is what a container certainly needs: the highest peak of its last windows, or the third highest of four weeks.
By how much may the next window exceed it? Jumps are counted in units of the container's own movement (the mean change
from one window's peak to the next) and pooled over the fleet: their distribution S(z) is learned online. Then

    request = base + z · movement,  where z minimises  z · movement / M + PRICE · S(z)

with M the mean peak of the fleet: reserving M for one window costs 1, an OOM kill costs PRICE of these. So small
containers are insured generously, because it costs next to nothing, and large calm ones closely.

A request moves only when the expected cost falls by more than a move is worth (memory may need a restart), or when
it is out of proportion; between, it stays.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from kubetide.stats.buckets import Floats
from kubetide.vpa.recommender.core.adaptive.columns import FleetColumns, parts
from kubetide.vpa.recommender.core.adaptive.distrust import Distrust
from kubetide.vpa.recommender.core.adaptive.windows import Closed, Windows

Mask = npt.NDArray[np.bool_]

PRICE: Final = 20.0
LEAST_BYTES: Final = 1048576.0
MOVE: Final = 0.2
"""What a change of the request must save in each window, in mean peaks of the fleet."""
_SHRINK, _GROW = 1.0 / 3.0, 3.0
"""A request that is three times or a third of what it should be moves whatever it saves."""
_RECENT: Final = 3
_RANK: Final = 3
_LEAST_MOVEMENT: Final = 0.01
_FIRST_MOVEMENT: Final = 0.1
_KEEP: Final = 0.98
_PRIOR: Final = 1.0
_HOURS_COUNT: Final = 5.0
"""The fleet's hourly jumps stand in for that many daily ones until there are some."""
_SLOW: Final = 0.1
GRID: Final = np.concatenate([np.arange(-40, 40) * 0.1, np.arange(8, 24) * 0.5, np.arange(3, 15) * 4.0])
_ZERO: Final = 40


class MarginSizer:
    """Requests in bytes that are limits too."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.columns = FleetColumns(windows.columns.size, {"base": 1, "movement": 1, "request": 1})
        self.fleet = FleetColumns(1, {"hour jumps": len(GRID) + 1, "day jumps": len(GRID) + 1, "mean peak": 1})

    def observe(self, closed: Closed) -> None:
        """Learn how far the windows that just closed went beyond what was known before them."""
        own, fleet = self.columns, self.fleet
        learned = closed.which & (own["base"][0] > 0.0)
        for name, which in (("day jumps", learned & closed.day), ("hour jumps", learned & ~closed.day)):
            if which.any():
                jump = (closed.peak[which] - own["base"][0][which]) / own["movement"][0][which]
                counted = np.bincount(np.searchsorted(GRID, jump), minlength=len(GRID) + 1)
                fleet[name] = _KEEP * fleet[name] + counted[:, None]
        self._note_mean_peak()
        base, movement = self._base(), self._movement()
        own["base"] = np.where(closed.which, base, own["base"][0])
        own["movement"] = np.where(closed.which, movement, own["movement"][0])

    def decide(self, distrust: Distrust | None = None) -> Floats:
        """Return requests in bytes."""
        own = self.columns
        price = PRICE if distrust is None else PRICE * distrust.caution()
        mean_peak = max(float(self.fleet["mean peak"][0, 0]), LEAST_BYTES)
        base = self._base()
        movement = np.maximum(self._movement(), own["movement"][0])
        day, hour = self._survival()
        grown = self._windows.grown
        unit = movement / mean_peak
        cost, margin = np.full(base.shape, np.inf), np.zeros(base.shape)
        for place in range(_ZERO, len(GRID)):
            here = GRID[place] * unit + price * np.where(grown, day[place], hour[place])
            better = here < cost
            cost, margin = np.where(better, here, cost), np.where(better, GRID[place], margin)
        best = np.maximum(base + margin * movement, LEAST_BYTES)
        least = np.zeros(base.shape) if distrust is None else distrust.floor()
        best = np.maximum(best, least)
        current = own["request"][0]
        safe = np.where(movement > 0.0, movement, 1.0)
        place = np.clip(np.searchsorted(GRID, (current - base) / safe, side="right") - 1, 0, len(GRID) - 1)
        staying = (current - base) / mean_peak + price * np.where(grown, day[place], hour[place])
        moves = (staying - cost > MOVE) | (best < _SHRINK * current) | (best > _GROW * current) | (current < least)
        own["request"] = np.where(self._windows.known() & (moves | (current <= 0.0)), best, current)
        request: Floats = np.maximum(own["request"][0], LEAST_BYTES)
        return request

    def _base(self) -> Floats:
        windows = self._windows
        base = windows.recent(_RECENT)
        for part in parts(base.size):
            peaks = windows.columns["peaks"][:, part]
            descending = -np.sort(-np.nan_to_num(peaks, nan=0.0), axis=0)
            count = np.add.reduce(np.isfinite(peaks), axis=0)
            place = np.minimum(_RANK, np.maximum(count, 1)) - 1
            ranked = np.take_along_axis(descending, place[None], axis=0)[0]
            base[part] = np.maximum(base[part], ranked)
        return base

    def _movement(self) -> Floats:
        """Return the mean change between the peaks of neighbouring windows, with a floor."""
        peaks = self._windows.columns["peaks"]
        movement = np.maximum(self.columns["movement"][0], _FIRST_MOVEMENT * self._windows.recent(_RECENT))
        for part in parts(movement.size):
            change = np.abs(np.diff(peaks[:, part], axis=0))
            have = np.isfinite(change)
            count = np.add.reduce(have, axis=0)
            mean = np.add.reduce(np.where(have, change, 0.0), axis=0) / np.maximum(count, 1)
            movement[part] = np.where(count > 0, mean, movement[part])
        least = _LEAST_MOVEMENT * max(float(self.fleet["mean peak"][0, 0]), LEAST_BYTES)
        result: Floats = np.maximum(movement, least)
        return result

    def _note_mean_peak(self) -> None:
        own = self._windows.columns
        last = own["peaks"][-1]
        seen = np.isfinite(last)
        if seen.any():
            now = float(np.add.accumulate(last[seen])[-1]) / float(np.count_nonzero(seen))
            before = float(self.fleet["mean peak"][0, 0])
            self.fleet["mean peak"] = np.full((1, 1), now if before <= 0.0 else before + _SLOW * (now - before))

    def _survival(self) -> tuple[Floats, Floats]:
        """Return for every place of the grid how likely the next day, and the next hour, jumps beyond it."""
        day, hour = self.fleet["day jumps"][:, 0], self.fleet["hour jumps"][:, 0]
        many = float(np.add.accumulate(hour)[-1])
        if many > 0.0:
            day = day + hour * (_HOURS_COUNT / many)
        return _beyond(day), _beyond(hour)


def _beyond(counts: Floats) -> Floats:
    """Return the share of jumps beyond each place; a few that were never seen are added, ever rarer further out."""
    sums = np.add.accumulate(counts)
    reach = 1.0 + np.maximum(GRID, 0.0)
    share: Floats = (sums[-1] - sums[:-1] + _PRIOR / (reach * reach)) / (sums[-1] + _PRIOR)
    return share
