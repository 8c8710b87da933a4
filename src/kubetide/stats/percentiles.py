"""Percentiles of a block: the end of the first bucket where the running sum reaches p·total.

`TrackedPercentiles` follow their block and search again only where the last answer may have become another one.
A new sample rarely moves a percentile to another bucket. Beside the answer b of every column two sums are kept: of the
weights below b, and of those up to b. As long as p·total lies between them the answer stays.

    below < p·total ≤ upto      (for the highest bucket of the range the second half is not asked)

The sums are updated by adding, so their last bits may differ from those of a running sum. They decide only where no
rounding could change the result (`_DOUBT`); all other columns, and those that changed in another way than by one more
sample, are searched from the lowest bucket. So every answer is that of `Block.percentile_buckets`, to the bit.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kubetide.stats.buckets import Floats, Ints

if TYPE_CHECKING:
    from kubetide.stats.block import Block

NOTHING = -1
"""The answer of an empty column."""
_DOUBT = 1e-9
"""Of the total. A sum of n positive floats is off by at most n·2^-53: this allows for millions of samples."""


def running_sums(block: "Block") -> tuple[int, Floats]:
    """Return the lowest bucket of any range, and the running sums of every column from there on."""
    lowest, highest = int(block.low.min(initial=block.buckets.count - 1)), int(block.high.max(initial=0))
    rows = np.arange(lowest, highest + 1)[:, None]
    sums: Floats = np.where(rows >= block.low, block.weights[lowest : highest + 1], 0.0).cumsum(axis=0)
    return lowest, sums


def reached(block: "Block", lowest: int, sums: Floats, ps: Sequence[float]) -> Ints:
    """Return per p and column the bucket where the running sum reaches p·total; meaningless where empty."""
    # Running sums never fall, so the buckets that stay below come before the one that reaches.
    found = np.array([lowest + np.count_nonzero(sums < p * block.total, axis=0) for p in ps])
    # The highest bucket is never tested: it is the answer when nothing stopped before, whatever rounding did.
    answer: Ints = np.minimum(np.maximum(found, block.low), block.high)
    return answer


class TrackedPercentiles:
    """Percentiles of all columns of a block."""

    def __init__(self, block: "Block", shares: tuple[float, ...]) -> None:
        self._block = block
        self.shares = shares
        self._shares: Floats = np.array(shares)[:, None]
        shape = (len(shares), block.width)
        self._answers: Ints = np.full(shape, NOTHING)
        self._below: Floats = np.zeros(shape)
        self._upto: Floats = np.zeros(shape)
        self._stale: npt.NDArray[np.bool_] = np.ones(block.width, dtype=np.bool_)

    def forget(self, columns: Ints) -> None:
        """Search these columns again when somebody asks."""
        self._stale[columns] = True

    def added(self, columns: Ints, buckets: Ints, weights: Floats, lows: Ints) -> None:
        """Take in one more sample for each of distinct columns; `lows` is where their ranges began before."""
        block = self._block
        answers, total = self._answers[:, columns], block.total[columns]
        below = self._below[:, columns] + np.where(buckets < answers, weights, 0.0)
        upto = self._upto[:, columns] + np.where(buckets <= answers, weights, 0.0)
        self._below[:, columns], self._upto[:, columns] = below, upto
        need, doubt = self._shares * total, _DOUBT * total
        sure = (below + doubt < need) & ((upto - doubt >= need) | (answers == block.high[columns]))
        self._stale[columns] |= ~sure.all(axis=0) | (buckets < lows)

    def buckets(self, columns: Ints) -> Ints:
        """Return a row per share with the bucket of each column; `NOTHING` where it is empty."""
        stale = np.flatnonzero(self._stale)
        if stale.size:
            whole = 2 * stale.size > self._stale.size
            part = self._block if whole else self._block.select(stale)
            self._search(part, slice(None) if whole else stale)
            self._stale[:] = False
        return self._answers[:, columns]

    def _search(self, part: "Block", at: slice | Ints) -> None:
        lowest, sums = running_sums(part)
        found = reached(part, lowest, sums, self.shares)
        every, padded = np.arange(part.width), np.concatenate([np.zeros((1, part.width)), sums])
        place = np.clip(found - lowest, 0, len(sums) - 1)
        self._below[:, at], self._upto[:, at] = padded[place, every], padded[place + 1, every]
        self._answers[:, at] = np.where(part.empty(), NOTHING, found)
