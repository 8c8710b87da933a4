"""Bucket schemes: which bucket a value falls into, and where buckets begin.

Bucket 0 is [0, f); bucket b starts at f·(r^b − 1)/(r − 1): each is r times as wide as the last.

The last bucket is open: everything above the maximum lands there. `epsilon` is the weight below which a bucket counts
as empty. Bucket starts reproduce upstream to the bit (`_power`), because a recommendation is a bucket edge and
edges are truncated to whole millicores and bytes afterwards.

The bucket of a value v is the whole part of ln(v·(r − 1)/f + 1) / ln r, each operation rounded to the nearest float,
which need not agree with the starts in the last bit. A logarithm taken at run time may be another one on another CPU.
But every step of the formula grows with v, so each bucket has a first value; these are found once, with logarithms in
decimal arithmetic, and a value is only ever compared with them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Twice the digits of a float: a logarithm is never so close to the middle between two floats.
_DECIMAL = Context(prec=34)
_FRACTION_BITS = 52
_MOST_CELLS = 1 << 22


def _power(base: float, exponent: int) -> float:
    """Return base^exponent by squaring mantissa and exponent apart, as upstream's `Pow` does."""
    mantissa, shift = math.frexp(base)
    result, result_shift = 1.0, 0
    remaining = abs(exponent)
    while remaining:
        if remaining & 1:
            result *= mantissa
            result_shift += shift
        mantissa *= mantissa
        shift *= 2
        if mantissa < 0.5:
            mantissa += mantissa
            shift -= 1
        remaining >>= 1
    if exponent < 0:
        return math.ldexp(1.0 / result, -result_shift)
    return math.ldexp(result, result_shift)


class _FirstValues:
    """The first value of every bucket but bucket 0, and a shortcut to the right one.

    The upper bits of a float, its exponent and the first digits of its fraction, number the cells of a grid that is
    fine enough to hold at most one first value each. So the bucket of a value is that of the start of its cell, or the
    next one if the value has reached its first value: one comparison instead of a search.
    """

    __slots__ = ("_at_start", "_first_cell", "_next", "_shift", "values")

    def __init__(self, values: Floats) -> None:
        self.values = values
        bits = values.view(np.int64)
        self._shift = _FRACTION_BITS
        while self._shift and (np.diff(bits >> self._shift) == 0).any():
            self._shift -= 1
        # One more cell at each end, for all that is smaller and all that is larger.
        lowest, highest = (int(bits[end]) >> self._shift for end in (0, -1)) if bits.size else (1, 0)
        if highest - lowest > _MOST_CELLS:
            raise ValueError("the buckets are too narrow for their range")
        cells = np.arange(lowest - 1, highest + 2)
        self._first_cell = lowest - 1
        self._at_start = np.searchsorted(values, (cells << self._shift).view(np.float64), side="right")
        # Nothing reaches the bucket after the last one.
        self._next = np.append(values, math.nan)

    def find(self, given: Floats) -> Ints:
        """Return the bucket of every value."""
        cell = (given.view(np.int64) >> self._shift) - self._first_cell
        found = self._at_start.take(cell, mode="clip")
        found = found + (given >= self._next.take(found))
        unknown = np.isnan(given)
        return np.where(unknown, 0, found) if unknown.any() else found


@dataclass(frozen=True, slots=True)
class Buckets:
    """A bucket scheme. Two histograms can be merged only when their schemes are equal."""

    maximum: float
    first: float
    ratio: float
    epsilon: float
    starts: Floats = field(compare=False, repr=False)
    firsts: "_FirstValues" = field(compare=False, repr=False)

    @property
    def count(self) -> int:
        """Return the number of buckets."""
        return len(self.starts)

    def find(self, values: npt.ArrayLike) -> Ints:
        """Return the bucket of every value; what lies outside the scheme goes to the nearest end, NaN to bucket 0."""
        return self.firsts.find(np.asarray(values, dtype=np.float64))

    def ends(self, buckets: npt.ArrayLike) -> Floats:
        """Return the value that stands for each bucket: its end, or the start of the last, which has no end."""
        index = np.minimum(np.asarray(buckets, dtype=np.int64) + 1, self.count - 1)
        ends: Floats = self.starts[index]
        return ends

    def tightened(self, weights: Floats, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Return the ranges of columns without the buckets at either end that weigh less than epsilon."""
        heavy = weights >= self.epsilon
        rows, last = np.arange(self.count)[:, None], self.count - 1
        above, below = heavy & (rows >= low), heavy & (rows <= high)
        new_low: Ints = np.where(above.any(axis=0), above.argmax(axis=0), last)
        new_high: Ints = np.where(below.any(axis=0), last - below[::-1].argmax(axis=0), 0)
        return new_low, new_high


def exponential(*, maximum: float, first: float, ratio: float, epsilon: float) -> Buckets:
    """Return a scheme whose buckets grow by `ratio`; raises ValueError when a parameter cannot be used."""
    if not (maximum > 0 and first > 0 and ratio > 1 and epsilon > 0):
        raise ValueError("maximum, first bucket and epsilon must be positive and the ratio above 1")
    step, growth = _log(ratio), ratio - 1.0
    count = math.ceil(_log(maximum * growth / first + 1.0) / step) + 1
    starts = np.array([0.0] + [first * (_power(ratio, b) - 1.0) / growth for b in range(1, count)])
    numbers = np.arange(1.0, count)
    logs = _smallest(lambda log: log / step >= numbers, count - 1)
    inner = np.array([_first_with_log(log) for log in logs.tolist()])
    values = _smallest(lambda value: value * growth / first + 1.0 >= inner, count - 1)
    return Buckets(maximum, first, ratio, epsilon, starts, _FirstValues(np.maximum(values, first)))


def _log(value: float) -> float:
    """Return the float nearest to the natural logarithm."""
    return float(_DECIMAL.ln(Decimal(value)))


def _first_with_log(log: float) -> float:
    """Return the smallest float whose logarithm, rounded to the nearest float, is `log` or more."""
    middle = _DECIMAL.divide(_DECIMAL.add(Decimal(log), Decimal(math.nextafter(log, -math.inf))), Decimal(2))
    edge = _DECIMAL.exp(middle)
    nearest = float(edge)
    return nearest if Decimal(nearest) >= edge else math.nextafter(nearest, math.inf)


def _smallest(reached: Callable[[Floats], npt.NDArray[np.bool_]], count: int) -> Floats:
    """Return for each of `count` rising conditions the smallest float that meets it."""
    # Positive floats have the order of their bits, so bisecting the bits looks at each of 64 places once.
    low = np.zeros(count, dtype=np.int64)
    high = np.full(count, math.inf).view(np.int64)
    with np.errstate(over="ignore"):
        while (low < high).any():
            middle = low + (high - low) // 2
            there = reached(middle.view(np.float64))
            low, high = np.where(there, low, middle + 1), np.where(there, middle, high)
    return low.view(np.float64)
