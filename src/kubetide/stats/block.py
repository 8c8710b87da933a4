"""Blocks: histograms whose weights fade with a half-life, many side by side.

A `Block` is a matrix of weights with one row per bucket and one column per histogram, and per column a total, the
range of buckets that matter (`low`…`high`) and a reference time. A sample of weight w at time t is stored as
w·2^((t − reference)/half-life): newer samples count more and nothing has to be touched as time passes. When an
exponent would pass 100, the reference moves to the half-life multiple (counted from year 1 UTC) nearest to t and the
column is scaled once.

A `kubetide.stats.bank.Bank` is a growing list of blocks. So there is one implementation of each rule:

    add          bucket and total grow; a bucket that reaches epsilon joins the range
    subtract     bucket and total shrink, to exactly 0 below epsilon; then the range is tightened
    merge        the older side is moved to the younger reference; the source is never changed
    percentile   end of the first bucket of the range where the running sum reaches p·total

The checkpoint form is in `kubetide.stats.saved`, times in `kubetide.stats.instants`.
"""

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from kubetide.stats.buckets import Buckets, Floats, Ints
from kubetide.stats.instants import MICROSECOND, ZERO_TIME
from kubetide.stats.percentiles import TrackedPercentiles, reached, running_sums
from kubetide.stats.powers import power_of_two
from kubetide.stats.turns import ranks

MAX_EXPONENT = 100
# Upstream measures durations in 64-bit nanoseconds, so differences stop at about 292 years.
_LONGEST = 9_223_372_036_854_775


class Block:
    """Histograms of one scheme and half-life (None: weights do not fade), one per column."""

    __slots__ = ("buckets", "half_life", "high", "low", "reference", "total", "tracked", "weights")

    def __init__(self, buckets: Buckets, half_life: timedelta | None, width: int = 1) -> None:
        if half_life is not None and half_life <= timedelta(0):
            raise ValueError("the half-life must be positive")
        self.buckets = buckets
        self.half_life = 0 if half_life is None else half_life // MICROSECOND
        self.weights: Floats = np.zeros((buckets.count, width))
        self.total: Floats = np.zeros(width)
        self.low: Ints = np.full(width, buckets.count - 1, dtype=np.int64)
        self.high: Ints = np.zeros(width, dtype=np.int64)
        self.reference: Ints = np.full(width, ZERO_TIME, dtype=np.int64)
        self.tracked: TrackedPercentiles | None = None

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return len(self.total)

    def reset(self, columns: npt.ArrayLike) -> None:
        """Empty the given columns."""
        at = _indexes(columns)
        self.weights[:, at] = 0.0
        self.total[at] = 0.0
        self.low[at] = self.buckets.count - 1
        self.high[at] = 0
        self.reference[at] = ZERO_TIME
        self._changed(at)

    def select(self, columns: npt.ArrayLike) -> "Block":
        """Return a new block holding copies of the given columns, in that order."""
        at = _indexes(columns)
        copy = object.__new__(Block)
        copy.buckets, copy.half_life = self.buckets, self.half_life
        copy.weights = np.take(self.weights, at, axis=1)
        copy.total, copy.reference = self.total[at], self.reference[at]
        copy.low, copy.high, copy.tracked = self.low[at], self.high[at], None
        return copy

    def put(self, columns: npt.ArrayLike, other: "Block") -> None:
        """Overwrite the given columns with those of `other`."""
        at = _indexes(columns)
        self.weights[:, at] = other.weights
        self.total[at], self.reference[at] = other.total, other.reference
        self.low[at], self.high[at] = other.low, other.high
        self._changed(at)

    # ------------------------------------------------------------------ samples

    def add(self, columns: npt.ArrayLike, values: npt.ArrayLike, weights: npt.ArrayLike, times: npt.ArrayLike) -> None:
        """Add samples in order; a column may occur many times. Equal to adding them one by one."""
        at, bucket, weight, time = self._samples(columns, values, weights, times)
        while at.size:
            if not self.half_life:
                self._add(at, bucket, weight)
                return
            late = time > self.reference[at] + MAX_EXPONENT * self.half_life
            if not late.any():
                self._add(at, bucket, weight * self._factor(at, time))
                return
            # Up to its first late sample a column is plain sums; there the reference moves, and the rest comes next.
            order = np.arange(at.size)
            first = np.full(self.width, at.size, dtype=np.int64)
            np.minimum.at(first, at[late], order[late])
            turn = first[at]
            early = order < turn
            if early.any():
                self._add(at[early], bucket[early], weight[early] * self._factor(at[early], time[early]))
            now = order == turn
            self.move(at[now], time[now])
            self._add(at[now], bucket[now], weight[now] * self._factor(at[now], time[now]))
            rest = order > turn
            at, bucket, weight, time = at[rest], bucket[rest], weight[rest], time[rest]

    def add_grid(self, columns: Ints, values: Floats, weight: float, times: Ints) -> None:
        """Add a sample per row of `values` to each column given, oldest row first; NaN is no sample.

        Equal to adding them one by one. The rows of a grid share their times, so a power is computed per row and
        reference instead of per sample.
        """
        late = self.reference[columns] + MAX_EXPONENT * self.half_life
        if not (values.size and self.half_life) or (times[-1] > late).any():
            row, place = np.nonzero(~np.isnan(values))
            self.add(columns[place], values[row, place], weight, times[row])
            return
        if times.size == 1 and np.bincount(columns).max() == 1:
            self._add_line(columns, values[0], weight, times)
            return
        references, which = np.unique(self.reference[columns], return_inverse=True)
        apart = np.clip(times[:, None] - references, -_LONGEST, _LONGEST)
        powers = weight * power_of_two(apart / self.half_life)
        stored = powers[:, which] if references.size > 1 else np.broadcast_to(powers, values.shape)
        bucket = self.buckets.find(values)
        cell = bucket * self.width + columns
        there = ~np.isnan(values)
        if not there.all() or np.bincount(columns).max() > 1 or float(powers.min()) < self.buckets.epsilon:
            at = np.broadcast_to(columns, values.shape)[there]
            self._add_cells(at, bucket[there], cell[there], stored[there])
            return
        np.add.at(self.weights.reshape(-1), cell.reshape(-1), stored.reshape(-1))
        total = self.total[columns]
        for row in stored:
            total += row
        self.total[columns] = total
        self.low[columns] = np.minimum(self.low[columns], bucket.min(axis=0))
        self.high[columns] = np.maximum(self.high[columns], bucket.max(axis=0))
        self._changed(columns)

    def _add_line(self, columns: Ints, values: Floats, weight: float, times: Ints) -> None:
        """Add one sample to each of distinct columns, all at one time; NaN is no sample."""
        unknown = np.isnan(values)
        if unknown.any():
            columns, values = columns[~unknown], values[~unknown]
        references = self.reference[columns]
        if columns.size and (references == references[0]).all():
            references = references[:1]
        stored = weight * power_of_two(np.clip(times - references, -_LONGEST, _LONGEST) / self.half_life)
        bucket, lows = self.buckets.find(values), self.low[columns]
        self._add_distinct(columns, bucket, np.broadcast_to(stored, columns.shape))
        if self.tracked is not None:
            self.tracked.added(columns, bucket, stored, lows)

    def subtract(
        self, columns: npt.ArrayLike, values: npt.ArrayLike, weights: npt.ArrayLike, times: npt.ArrayLike
    ) -> None:
        """Take back samples, in order; a column may occur many times."""
        at, bucket, weight, time = self._samples(columns, values, weights, times)
        for turn in ranks(at):
            self._take_back(at[turn], bucket[turn], weight[turn] * self._factor_at(at[turn], time[turn]))

    def replace(
        self, columns: Ints, old: Floats, new: Floats, weight: float, times: Ints, back: npt.NDArray[np.bool_]
    ) -> None:
        """Take `old[i]` back where `back[i]`, then add `new[i]`, in order; a column may occur many times."""
        # Where nothing is taken back, order only matters inside `add`, which keeps it.
        mixed = np.zeros(self.width, dtype=np.bool_)
        mixed[columns[back]] = True
        plain = ~mixed[columns]
        if plain.any():
            self.add(columns[plain], new[plain], weight, times[plain])
        where = np.flatnonzero(~plain)
        for turn in ranks(columns[where]):
            at, now, taken = columns[where[turn]], times[where[turn]], back[where[turn]]
            stored = np.full(at.size, weight) * self._factor_at(at, now)
            self._take_back(at[taken], self.buckets.find(old[where[turn]][taken]), stored[taken])
            self._add_distinct(at, self.buckets.find(new[where[turn]]), stored)
            self._changed(at)

    def _add_distinct(self, at: Ints, bucket: Ints, weight: Floats) -> None:
        """Add one sample to each of distinct columns."""
        self.total[at] += weight
        flat, cell = self.weights.reshape(-1), bucket * self.width + at
        held = flat[cell] + weight
        flat[cell] = held
        counts = held >= self.buckets.epsilon
        low, high = self.low[at], self.high[at]
        self.low[at] = np.where(counts & (bucket < low), bucket, low)
        self.high[at] = np.where(counts & (bucket > high), bucket, high)

    def _factor_at(self, at: Ints, time: Ints) -> Floats | float:
        """Return what weights of distinct columns are stored with, whose references move where they must."""
        if not self.half_life:
            return 1.0
        late = time > self.reference[at] + MAX_EXPONENT * self.half_life
        if late.any():
            self.move(at[late], time[late])
        return self._factor(at, time)

    def _take_back(self, at: Ints, bucket: Ints, weight: Floats) -> None:
        """Take one sample back from each of distinct columns."""
        self.total[at] = self._less(self.total[at], weight)
        left = self._less(self.weights[bucket, at], weight)
        self.weights[bucket, at] = left
        self._changed(at)
        # Ranges are always tight, so one can only shrink when the bucket at its end falls below epsilon.
        edge = (left < self.buckets.epsilon) & ((bucket == self.low[at]) | (bucket == self.high[at]))
        if edge.any():
            self.tighten(at[edge])

    def _less(self, have: Floats, weight: Floats) -> Floats:
        left = have - weight
        return np.where(left < self.buckets.epsilon, 0.0, left)

    def _samples(
        self, columns: npt.ArrayLike, values: npt.ArrayLike, weights: npt.ArrayLike, times: npt.ArrayLike
    ) -> tuple[Ints, Ints, Floats, Ints]:
        at = _indexes(columns)
        bucket = np.broadcast_to(self.buckets.find(values), at.shape)
        weight = np.broadcast_to(np.asarray(weights, dtype=np.float64), at.shape)
        time = np.broadcast_to(np.asarray(times, dtype=np.int64), at.shape)
        if (weight < 0).any():
            raise ValueError("a sample cannot have a negative weight")
        return at, bucket, weight, time

    def _factor(self, at: Ints, time: Ints) -> Floats:
        return power_of_two(np.clip(time - self.reference[at], -_LONGEST, _LONGEST) / self.half_life)

    def _add(self, at: Ints, bucket: Ints, weight: Floats) -> None:
        self._add_cells(at, bucket, bucket * self.width + at, weight)

    def _add_cells(self, at: Ints, bucket: Ints, cell: Ints, weight: Floats) -> None:
        # A flat view (blocks are contiguous): adding at one index is much faster than at a pair.
        np.add.at(self.weights.reshape(-1), cell, weight)
        np.add.at(self.total, at, weight)
        self._widen(at, bucket, cell)
        self._changed(at)

    def _widen(self, at: Ints, bucket: Ints, cell: Ints) -> None:
        """Let the buckets just added to that reached epsilon join their ranges."""
        # Weights only grow here, so looking once at the end finds every bucket that reached epsilon on the way.
        counts = self.weights.reshape(-1)[cell] >= self.buckets.epsilon
        if not counts.all():
            at, bucket = at[counts], bucket[counts]
        np.minimum.at(self.low, at, bucket)
        np.maximum.at(self.high, at, bucket)

    def _changed(self, at: Ints) -> None:
        if self.tracked is not None:
            self.tracked.forget(at)

    # ------------------------------------------------------------------ time

    def rounded(self, times: Ints) -> Ints:
        """Return the multiple of the half-life, counted from year 1, nearest to each time; halves go up."""
        since = times - ZERO_TIME
        over = since % self.half_life
        nearest: Ints = np.where(over * 2 < self.half_life, times - over, times + (self.half_life - over))
        return nearest

    def move(self, columns: npt.ArrayLike, times: npt.ArrayLike) -> None:
        """Move the reference of distinct columns to the multiple nearest to `times`, scaling what is stored."""
        at = _indexes(columns)
        new = self.rounded(np.broadcast_to(np.asarray(times, dtype=np.int64), at.shape))
        exponent = self._exponent(self.reference[at], new)
        self.reference[at] = new
        used = self.low[at] <= self.high[at]
        self.total[at] = np.ldexp(self.total[at], exponent)
        if used.any():
            where, power = at[used], exponent[used]
            inside = self._inside(self.low[where], self.high[where])
            column = self.weights[:, where]
            self.weights[:, where] = np.where(inside, np.ldexp(column, power), column)
            self.tighten(where)

    def _exponent(self, old: Ints, new: Ints) -> npt.NDArray[np.int32]:
        steps = np.floor(np.clip(old - new, -_LONGEST, _LONGEST) / self.half_life + 0.5)
        exponent: npt.NDArray[np.int32] = np.clip(steps, -5000, 5000).astype(np.int32)
        return exponent

    def _inside(self, low: Ints, high: Ints) -> npt.NDArray[np.bool_]:
        rows = np.arange(self.buckets.count)[:, None]
        inside: npt.NDArray[np.bool_] = (rows >= low) & (rows <= high)
        return inside

    def tighten(self, at: Ints) -> None:
        """Draw the ranges of columns in to the buckets that reach epsilon."""
        self.low[at], self.high[at] = self.buckets.tightened(self.weights[:, at], self.low[at], self.high[at])
        self._changed(at)

    # ------------------------------------------------------------------ merging

    def merge(self, columns: npt.ArrayLike, source: "Block", source_columns: npt.ArrayLike | None = None) -> None:
        """Add `source_columns[i]` of `source` (all, when not given) to `columns[i]`; the source stays as it is.

        A column may take several sources, and a source may go to several columns.
        """
        if source.buckets != self.buckets or source.half_life != self.half_life:
            raise ValueError("histograms of different options cannot be merged")
        into = _indexes(columns)
        origin = np.arange(source.width) if source_columns is None else _indexes(source_columns)
        if not into.size:
            return
        if self.half_life:
            exponent = self._align(into, source.reference[origin])
            apart = exponent != 0
            if apart.any():
                self._merge_scaled(into[apart], source.select(origin[apart]), exponent[apart])
                into, origin = into[~apart], origin[~apart]
        for turn in ranks(origin):
            self._merge_entries(into[turn], source, origin[turn])

    def _align(self, into: Ints, references: Ints) -> npt.NDArray[np.int32]:
        """Move targets to the youngest reference; return the power of two that each source then needs."""
        younger = references > self.reference[into]
        if younger.any():
            target = np.full(self.width, ZERO_TIME, dtype=np.int64)
            np.maximum.at(target, into[younger], references[younger])
            moved = np.unique(into[younger])
            self.move(moved, target[moved])
        now = self.reference[into]
        apart = references != now
        if not apart.any():
            return np.zeros(into.size, dtype=np.int32)
        return np.where(apart, self._exponent(references, self.rounded(now)), 0).astype(np.int32)

    def _merge_scaled(self, into: Ints, part: "Block", exponent: npt.NDArray[np.int32]) -> None:
        """Merge sources whose reference is older: scaled, and without the edges that fall below epsilon by it."""
        inside = self._inside(part.low, part.high)
        part.weights = np.ascontiguousarray(np.where(inside, np.ldexp(part.weights, exponent), part.weights))
        part.total = np.ldexp(part.total, exponent)
        part.tighten(np.arange(part.width))
        self._merge_entries(into, part, np.arange(part.width))

    def _merge_entries(self, into: Ints, source: "Block", origin: Ints) -> None:
        """Add the entries of distinct source columns: few buckets of a histogram are used, only those are touched."""
        if origin.size * 4 < source.width:
            source, origin = source.select(origin), np.arange(origin.size)
        target = np.full(source.width, -1, dtype=np.int64)
        target[origin] = into
        flat, bucket, column = source.entries(origin)
        group = target[column]
        if origin.size < source.width:
            kept = group >= 0
            flat, bucket, group = flat[kept], bucket[kept], group[kept]
        np.add.at(self.weights.reshape(-1), bucket * self.width + group, source.weights.reshape(-1)[flat])
        np.add.at(self.total, into, source.total[origin])
        np.minimum.at(self.low, into, source.low[origin])
        np.maximum.at(self.high, into, source.high[origin])
        self._changed(into)

    # ------------------------------------------------------------------ reading

    def entries(self, columns: Ints) -> tuple[Ints, Ints, Ints]:
        """Return flat index, bucket and column of every weight in range, at least for the columns given."""
        lowest = int(self.low[columns].min(initial=self.buckets.count - 1))
        highest = int(self.high[columns].max(initial=0))
        # A comparison first: finding true bits is many times faster than finding numbers other than zero.
        flat = np.flatnonzero(self.weights[lowest : highest + 1] > 0.0) + lowest * self.width
        bucket, column = np.divmod(flat, self.width)
        kept = (bucket >= self.low[column]) & (bucket <= self.high[column])
        if not kept.all():
            flat, bucket, column = flat[kept], bucket[kept], column[kept]
        return flat, bucket, column

    def empty(self) -> npt.NDArray[np.bool_]:
        """Return which columns hold no weight worth counting."""
        lowest = self.weights[self.low, np.arange(self.width)]
        return lowest < self.buckets.epsilon

    def percentile_buckets(self, ps: Sequence[float]) -> Ints:
        """Return a row per p with the bucket of every column; meaningless where it is empty."""
        return reached(self, *running_sums(self), ps)

    def percentiles(self, ps: Sequence[float]) -> Floats:
        """Return one row per p with the percentile of every column; 0 where a column is empty."""
        ends = self.buckets.ends(self.percentile_buckets(ps))
        values: Floats = np.where(self.empty(), 0.0, ends)
        return values


def _indexes(columns: npt.ArrayLike) -> Ints:
    return np.atleast_1d(np.asarray(columns, dtype=np.int64))
