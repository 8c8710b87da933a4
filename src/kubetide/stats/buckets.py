"""Bucket schemes: which bucket a value falls into, and where buckets begin.

    exponential   bucket 0 is [0, f); bucket b starts at f·(r^b − 1)/(r − 1): each is r times as wide as the last
    linear        bucket b starts at b·s

The last bucket is open: everything above the maximum lands there. `epsilon` is the weight below which a bucket counts
as empty. Bucket starts reproduce the reference to the bit (`_power`), because a recommendation is a bucket edge and
edges are truncated to whole millicores and bytes afterwards.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def _power(base: float, exponent: int) -> float:
    """Return base^exponent by squaring mantissa and exponent apart, as the reference's `Pow` does."""
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


@dataclass(frozen=True, slots=True)
class Buckets:
    """A bucket scheme. Two histograms can be merged only when their schemes are equal."""

    kind: str
    maximum: float
    first: float
    ratio: float
    epsilon: float
    starts: Floats = field(compare=False, repr=False)

    @property
    def count(self) -> int:
        """Return the number of buckets."""
        return len(self.starts)

    def find(self, values: npt.ArrayLike) -> Ints:
        """Return the bucket of every value; what lies outside the scheme goes to the nearest end."""
        given = np.asarray(values, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            if self.kind == "linear":
                position = given / self.first
            else:
                inner = given * (self.ratio - 1.0) / self.first + 1.0
                position = np.log(inner) / math.log(self.ratio)
                position = np.where(given < self.first, 0.0, position)
        return np.clip(np.nan_to_num(position, nan=0.0), 0, self.count - 1).astype(np.int64)

    def ends(self, buckets: npt.ArrayLike) -> Floats:
        """Return the value that stands for each bucket: its end, or the start of the last, which has no end."""
        index = np.minimum(np.asarray(buckets, dtype=np.int64) + 1, self.count - 1)
        ends: Floats = self.starts[index]
        return ends


def exponential(*, maximum: float, first: float, ratio: float, epsilon: float) -> Buckets:
    """Return a scheme whose buckets grow by `ratio`; raises ValueError when a parameter cannot be used."""
    if not (maximum > 0 and first > 0 and ratio > 1 and epsilon > 0):
        raise ValueError("maximum, first bucket and epsilon must be positive and the ratio above 1")
    count = math.ceil(math.log(maximum * (ratio - 1.0) / first + 1.0) / math.log(ratio)) + 1
    starts = np.array([0.0] + [first * (_power(ratio, b) - 1.0) / (ratio - 1.0) for b in range(1, count)])
    return Buckets("exponential", maximum, first, ratio, epsilon, starts)


def linear(*, maximum: float, size: float, epsilon: float) -> Buckets:
    """Return a scheme of equal buckets; raises ValueError when a parameter cannot be used."""
    if not (maximum > 0 and size > 0 and epsilon > 0):
        raise ValueError("maximum, bucket size and epsilon must be positive")
    count = math.ceil(maximum / size) + 1
    return Buckets("linear", maximum, size, 1.0, epsilon, np.arange(count, dtype=np.float64) * size)
