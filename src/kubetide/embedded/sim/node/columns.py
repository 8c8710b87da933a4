"""The numbers of all simulated processes, one column each, in one block.

Columns that are counted together lie side by side, in the same order, so that bringing six counters or six averages
up to date is a few array operations however many processes there are.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from kubetide.stats.powers import exponential_of

Column = npt.NDArray[np.float64]

COUNTERS = ("usage", "periods", "throttled", "throttled_seconds", "stalled_seconds", "memory_stalled_seconds")
RATES = ("granted", "period_rate", "throttle_rate", "throttle_time_rate", "stall", "memory_stall")
"""What each counter grows by in a second."""
AVERAGES = ("some10", "some60", "some300", "memory10", "memory60", "memory300")
"""Fading averages of the last two rates."""
STATE = ("demand", "anon", "file", "cache_goal")
SETTINGS = ("cap", "quota", "burst", "period", "limit", "oom_adjust")
NAMES = (*COUNTERS, *RATES, *AVERAGES, *STATE, *SETTINGS)

_COUNTED = slice(0, len(COUNTERS))
_RATED = slice(len(COUNTERS), len(COUNTERS) + len(RATES))
_AVERAGED = slice(_RATED.stop, _RATED.stop + len(AVERAGES))
_STALLS = slice(_RATED.stop - 2, _RATED.stop)
_WINDOWS = np.array([[10.0], [60.0], [300.0]])


@lru_cache(maxsize=64)
def _fading(seconds: float) -> Column:
    """Return what is left of each average after so many seconds: few lengths, over and over."""
    return exponential_of(-seconds / _WINDOWS)


@dataclass(frozen=True, slots=True)
class _Live:
    """The part of the block that is counted: the first `rows` of counters and rates, and room for what is added."""

    rows: int
    counters: npt.NDArray[np.float64]
    rates: npt.NDArray[np.float64]
    growth: npt.NDArray[np.float64]

    @classmethod
    def of(cls, block: npt.NDArray[np.float64], rows: int) -> "_Live":
        return cls(rows, block[_COUNTED, :rows], block[_RATED, :rows], np.zeros((len(COUNTERS), rows)))


class KernelColumns:
    """The block, and its columns by name."""

    usage: Column
    periods: Column
    throttled: Column
    throttled_seconds: Column
    stalled_seconds: Column
    memory_stalled_seconds: Column
    granted: Column
    period_rate: Column
    throttle_rate: Column
    throttle_time_rate: Column
    stall: Column
    memory_stall: Column
    some10: Column
    some60: Column
    some300: Column
    memory10: Column
    memory60: Column
    memory300: Column
    demand: Column
    anon: Column
    file: Column
    cache_goal: Column
    cap: Column
    quota: Column
    burst: Column
    period: Column
    limit: Column
    oom_adjust: Column

    def __init__(self, rows: int) -> None:
        self.pressed = False
        """Whether anything ever stalled: until then all averages are zero and stay so."""
        self._lay_out(np.zeros((len(NAMES), rows)))

    def _lay_out(self, block: npt.NDArray[np.float64]) -> None:
        self._block = block
        self._averages = block[_AVERAGED].reshape(2, 3, block.shape[1])
        self._live = _Live.of(block, 0)
        for name, column in zip(NAMES, block, strict=True):
            setattr(self, name, column)

    @property
    def size(self) -> int:
        """How many rows there is room for."""
        return len(self.usage)

    def enlarge(self) -> None:
        """Make room for as many rows again."""
        self._lay_out(np.concatenate([self._block, np.zeros_like(self._block)], axis=1))

    def clear(self, row: int) -> None:
        """Begin a row anew."""
        self._block[:, row] = 0.0

    def rest(self, row: int) -> None:
        """Let a row want, hold and get nothing; what it counted stays."""
        self._block[_RATED, row] = 0.0
        self.demand[row] = self.anon[row] = self.file[row] = self.cache_goal[row] = 0.0

    def count(self, rows: int, seconds: float) -> None:
        """Let the first `rows` go on for so many seconds at their present rates."""
        live = self._live
        if live.rows != rows:
            live = self._live = _Live.of(self._block, rows)
        np.multiply(live.rates, seconds, out=live.growth)
        np.add(live.counters, live.growth, out=live.counters)
        if self.pressed:
            self.fade(self._block[_STALLS, None, :rows], rows, seconds)

    def fade(self, stalls: npt.NDArray[np.float64], rows: int, seconds: float) -> None:
        """Let the averages of the first `rows` come nearer to rates that lasted so many seconds."""
        averages = self._averages[:, :, :rows]
        averages -= stalls
        averages *= _fading(seconds)
        averages += stalls

    def peak(self, name: str, rows: list[int]) -> float:
        """Return the largest value of a column among some rows."""
        column: Column = getattr(self, name)
        # A container is one row, which NumPy would copy to look at.
        return float(column[rows[0]] if len(rows) == 1 else column[rows].max())
