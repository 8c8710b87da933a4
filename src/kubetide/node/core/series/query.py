"""Aggregates over a window of samples.

    avg                mean in stored order
    p50 p90 p95 p99    sorted ascending, the element at index max(int(n * p) - 1, 0), the product in single precision
    last               the value with the greatest time; of equal times the first
    count              number of samples; the only aggregate of an empty window

The index rule picks low ranks and depends on single precision for some n; consumers have tuned thresholds to it.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Millis = npt.NDArray[np.int64]

AVG, P50, P90, P95, P99, LAST, COUNT = "avg", "p50", "p90", "p95", "p99", "last", "count"
PERCENTILES: Final = {P50: 0.5, P90: 0.9, P95: 0.95, P99: 0.99}


def percentile_index(count: int, fraction: float) -> int:
    """Return the index of a percentile among `count` sorted values."""
    return max(int(np.float32(count) * np.float32(fraction)) - 1, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """The samples of a query in stored order."""

    millis: Millis
    values: Floats
    span_millis: int = 0
    """Time between the first and the last sample; with several series, of the last series read."""

    def __len__(self) -> int:
        return len(self.values)

    def aggregate(self, kind: str) -> float | None:
        """Return one aggregate; None for an empty window, except for count. An unknown name means the average."""
        count = len(self.values)
        if kind == COUNT:
            return float(count)
        if count == 0:
            return None
        if kind == LAST:
            return float(self.values[int(np.argmax(self.millis))])
        fraction = PERCENTILES.get(kind)
        if fraction is not None:
            index = percentile_index(count, fraction)
            return float(np.partition(self.values, index)[index])
        # cumsum adds one after the other, as upstream does; a pairwise sum would differ in the last bits.
        return float(np.cumsum(self.values)[-1]) / count


def points_of(millis: Millis, values: Floats) -> Points:
    """Return the samples of one series."""
    return Points(millis, values, span_millis=int(millis[-1] - millis[0]) if len(millis) else 0)


EMPTY = Points(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64))
