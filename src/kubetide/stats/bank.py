"""A bank: histograms by the hundred thousand, in columns that come and go.

    bank = Bank(buckets, half_life)
    column = bank.allocate()                                # an empty histogram; bank.free([column]) gives it back
    bank.add(columns, values, weights, times)               # many samples at once, in order, columns may repeat
    bank.add_grid(columns, values, weight, times)           # one row of values per time, one column each
    bank.subtract(columns, values, weights, times)
    bank.replace(columns, old, new, weight, times, back)    # mixed, in order: back[i] takes old[i] back first
    merged = bank.merged(columns, groups, count)            # many into few: a Block; the sources stay as they are
    bank.select(columns).percentiles([0.5, 0.9, 0.95])      # one row per p, one value per column
    bank.tracked_buckets(columns, (0.9,))                   # the buckets of percentiles, fast where little changed
    bank.select(columns).empty()                            # emptiness; save(block) gives checkpoint forms
    bank.load(column, saved)                                # and back

Columns live in blocks of fixed width, so growing never copies what is there and temporary arrays stay small.
The rules of each operation are those of `kubetide.stats.block.Block`.
"""

from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from kubetide.stats.block import Block
from kubetide.stats.buckets import Buckets, Floats, Ints
from kubetide.stats.percentiles import TrackedPercentiles
from kubetide.stats.saved import Saved, load

BLOCK_WIDTH = 1024


class Bank:
    """Columns of equal scheme and half-life, allocated and freed one by one."""

    def __init__(self, buckets: Buckets, half_life: timedelta | None, *, block_width: int = BLOCK_WIDTH) -> None:
        self.buckets = buckets
        self.half_life = half_life
        self._width = block_width
        self._blocks: list[Block] = []
        self._free: list[int] = []

    @property
    def capacity(self) -> int:
        """Return how many columns exist, used or free."""
        return len(self._blocks) * self._width

    def __len__(self) -> int:
        """Return how many columns are in use."""
        return self.capacity - len(self._free)

    def allocate(self) -> int:
        """Return the number of an empty column."""
        if not self._free:
            start = self.capacity
            self._blocks.append(Block(self.buckets, self.half_life, self._width))
            self._free.extend(range(start + self._width - 1, start - 1, -1))
        return self._free.pop()

    def free(self, columns: npt.ArrayLike) -> None:
        """Empty columns and give them back."""
        at = np.atleast_1d(np.asarray(columns, dtype=np.int64))
        for block, inside, _ in self._split(at):
            block.reset(inside)
        self._free.extend(at.tolist())

    def add(self, columns: npt.ArrayLike, values: npt.ArrayLike, weights: npt.ArrayLike, times: npt.ArrayLike) -> None:
        """Add samples in order; a column may occur many times."""
        at, value, weight, time = _aligned(columns, values, weights, times)
        for block, inside, which in self._split(at):
            block.add(inside, value[which], weight[which], time[which])

    def add_grid(self, columns: Ints, values: npt.NDArray[np.float64], weight: float, times: Ints) -> None:
        """Add a sample per row of `values` to each column given, oldest row first; NaN is no sample."""
        for block, inside, which in self._split(columns):
            block.add_grid(inside, values if which.size == columns.size else values[:, which], weight, times)

    def subtract(
        self, columns: npt.ArrayLike, values: npt.ArrayLike, weights: npt.ArrayLike, times: npt.ArrayLike
    ) -> None:
        """Take back samples, in order; a column may occur many times."""
        at, value, weight, time = _aligned(columns, values, weights, times)
        for block, inside, which in self._split(at):
            block.subtract(inside, value[which], weight[which], time[which])

    def replace(
        self, columns: Ints, old: Floats, new: Floats, weight: float, times: Ints, back: npt.NDArray[np.bool_]
    ) -> None:
        """Take `old[i]` back where `back[i]`, then add `new[i]`, in order; a column may occur many times."""
        for block, inside, which in self._split(columns):
            block.replace(inside, old[which], new[which], weight, times[which], back[which])

    def select(self, columns: npt.ArrayLike) -> Block:
        """Return copies of columns as one block, in the order given."""
        at = np.atleast_1d(np.asarray(columns, dtype=np.int64))
        parts = list(self._split(at))
        if len(parts) == 1:
            return parts[0][0].select(parts[0][1])
        result = Block(self.buckets, self.half_life, at.size)
        for block, inside, which in parts:
            result.put(which, block.select(inside))
        return result

    def tracked_buckets(self, columns: Ints, shares: tuple[float, ...]) -> Ints:
        """Return `select(columns).percentile_buckets(shares)`, -1 where empty, for who asks again and again."""
        found = np.empty((len(shares), columns.size), dtype=np.int64)
        for block, inside, which in self._split(columns):
            tracked = block.tracked
            if tracked is None or tracked.shares != shares:
                tracked = block.tracked = TrackedPercentiles(block, shares)
            found[:, which] = tracked.buckets(inside)
        return found

    def put(self, columns: npt.ArrayLike, source: Block) -> None:
        """Overwrite columns with those of a block."""
        at = np.atleast_1d(np.asarray(columns, dtype=np.int64))
        for block, inside, which in self._split(at):
            block.put(inside, source.select(which))

    def merged(self, columns: npt.ArrayLike, groups: npt.ArrayLike, count: int) -> Block:
        """Return `count` new histograms: number g is the merge of all columns whose group is g."""
        at = np.atleast_1d(np.asarray(columns, dtype=np.int64))
        group = np.atleast_1d(np.asarray(groups, dtype=np.int64))
        result = Block(self.buckets, self.half_life, count)
        for block, inside, which in self._split(at):
            result.merge(group[which], block, inside)
        return result

    def load(self, column: int, saved: Saved) -> None:
        """Add a checkpoint form to a column, whose reference is replaced; raises ValueError when it is bad."""
        load(self._blocks[column // self._width], column % self._width, saved)

    def _split(self, at: Ints) -> Iterator[tuple[Block, Ints, Ints]]:
        """Yield each block touched, with the columns inside it and their positions in `at`, order kept."""
        if not at.size:
            return
        number = at // self._width
        first = int(number[0])
        if (number == first).all():
            yield self._blocks[first], at - first * self._width, np.arange(at.size)
            return
        order = np.argsort(number, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(number[order]) != 0])
        for which in np.split(order, starts[1:]):
            block = int(number[which[0]])
            yield self._blocks[block], at[which] - block * self._width, which


def _aligned(
    columns: npt.ArrayLike, values: npt.ArrayLike, weights: npt.ArrayLike, times: npt.ArrayLike
) -> tuple[Ints, npt.NDArray[np.float64], npt.NDArray[np.float64], Ints]:
    at = np.atleast_1d(np.asarray(columns, dtype=np.int64))
    value = np.broadcast_to(np.asarray(values, dtype=np.float64), at.shape)
    weight = np.broadcast_to(np.asarray(weights, dtype=np.float64), at.shape)
    time = np.broadcast_to(np.asarray(times, dtype=np.int64), at.shape)
    return at, value, weight, time
