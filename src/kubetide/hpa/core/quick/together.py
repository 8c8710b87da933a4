"""Autoscalers at rest, all of a sync period together: the arithmetic of `rest.ask` on arrays.

What is left of a sync period in which little happens is a sum per autoscaler (`quick.rows`) and a few comparisons of
columns.
"""

from collections.abc import Sequence

import numpy as np

from kubetide.hpa.core.quick.filing import LARGEST_PLAIN
from kubetide.hpa.core.quick.rest import Asked
from kubetide.hpa.core.quick.rows import EXACT, Row
from kubetide.hpa.core.replicas import INT32_MAX
from kubetide.hpa.core.status import LITTLE


def ask_together(rows: Sequence[Row], used: Sequence[int]) -> list[Asked | None]:
    """Return for each what `ask` returns, or None where something about it is not plain."""
    if not rows:
        return []
    current, count, requested, of_requests, target, shown, shown_percent = np.array(
        [row.numbers or _NO_NUMBERS for row in rows], dtype=np.int64
    ).T
    low, high = np.array([(1.0 - row.rest.tolerance.down, 1.0 + row.rest.tolerance.up) for row in rows]).T
    total = np.array(used, dtype=np.int64)
    # A larger sum could not be multiplied by a hundred within 64 bits.
    plain = (total >= 0) & (total <= LARGEST_PLAIN)
    total = np.where(plain, total, 0)
    share = of_requests > 0
    average, percent = total // count, total * 100 // requested
    plain &= (average < EXACT) & (percent < EXACT)
    ratio = np.where(share, percent, average) / target.astype(np.float64)
    wanted = np.ceil(np.minimum(ratio * count.astype(np.float64), INT32_MAX)).astype(np.int64)
    proposal = np.where((low <= ratio) & (ratio <= high), current, wanted)
    same_percent = np.where(share, percent, -1) == shown_percent
    same = (average == shown) & same_percent
    off = np.abs(percent - shown_percent)
    near_percent = (shown_percent >= 0) & (off < np.maximum(LITTLE * shown_percent, 1))
    near = (shown >= 0) & (np.abs(average - shown) < LITTLE * shown) & np.where(share, near_percent, same_percent)
    found = zip(plain.tolist(), proposal.tolist(), same.tolist(), near.tolist(), strict=True)
    return [Asked(count, equal, close) if fits else None for fits, count, equal, close in found]


_NO_NUMBERS = (1, 1, 1, 0, 1, -1, -1)
