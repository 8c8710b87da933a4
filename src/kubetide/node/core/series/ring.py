"""The recent past in memory: float64 rings, one group of series per producer.

All series of a group are sampled together, so they share one ring of timestamps; a value that is missing at a tick
is NaN. A series is a row of a matrix (contiguous in time, so that a window is a slice); rows are handed out in
chunks, which are never moved, and come back when a series has had no sample for the whole length of the ring. That
bounds memory by the number of series alive at once, however many pods come and go. Series of containers, of which only
the last moments are looked at, have groups of their own with a shorter ring.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kubetide.node.core.series.kinds import BRIEF, BRIEF_SECONDS, PROPERTIES, check_query, check_sample
from kubetide.node.core.series.query import AVG, EMPTY, Floats, Millis, Points, points_of

CHUNK_ROWS = 64
Properties = tuple[tuple[str, str], ...]
Key = tuple[str, Properties]


def series_key(kind: str, properties: Mapping[str, str] | None = None) -> Key:
    """Return the identity of a series; raise SeriesError if the properties are not those of the kind."""
    given = properties or {}
    check_sample(kind, given)
    return kind, tuple(sorted(given.items()))


@dataclass(slots=True)
class _Row:
    chunk: Floats
    index: int
    last_tick: int


@dataclass(slots=True)
class SeriesGroup:
    """Series that are sampled together."""

    capacity: int
    millis: Millis = field(init=False)
    tick: int = 0
    """Number of batches so far; the ring position is `tick % capacity`."""
    rows: dict[Key, _Row] = field(default_factory=dict)
    _disorder: int = 0
    """The tick until which times may be out of order in the ring, because a clock went back."""
    _free: list[_Row] = field(default_factory=list)
    _chunks: list[Floats] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.millis = np.full(self.capacity, np.iinfo(np.int64).min, dtype=np.int64)

    def append(self, at: int, samples: Iterable[tuple[Key, float]]) -> list[Key]:
        """Store one batch; return the series that are new."""
        position = self.tick % self.capacity
        if self.tick and at < self.millis[position - 1]:
            self._disorder = self.tick + self.capacity
        self._clear_column(position)
        self.millis[position] = at
        self.tick += 1
        new: list[Key] = []
        for key, value in samples:
            row = self.rows.get(key)
            if row is None:
                row = self.rows[key] = self._allocate()
                new.append(key)
            row.chunk[row.index, position] = value
            row.last_tick = self.tick
        return new

    def _clear_column(self, position: int) -> None:
        if self.tick >= self.capacity:
            for chunk in self._chunks:
                chunk[:, position] = np.nan

    def _allocate(self) -> _Row:
        if not self._free:
            chunk = np.full((CHUNK_ROWS, self.capacity), np.nan, dtype=np.float64)
            self._chunks.append(chunk)
            self._free.extend(_Row(chunk, index, 0) for index in range(CHUNK_ROWS - 1, -1, -1))
        row = self._free.pop()
        row.last_tick = self.tick
        return row

    def expire(self) -> list[Key]:
        """Give back the rows of series that have no sample left in the ring; return their keys."""
        gone = [key for key, row in self.rows.items() if self.tick - row.last_tick >= self.capacity]
        for key in gone:
            row = self.rows.pop(key)
            row.chunk[row.index, :] = np.nan
            self._free.append(row)
        return gone

    def window(self, start: int, end: int) -> Millis:
        """Return the ring positions whose time lies in [start, end], in stored order.

        Times grow, so both ends are found by bisection, however long the ring is. After a clock went back the whole
        ring is looked through until those times have left it.
        """
        position = self.tick % self.capacity
        if self.tick < self._disorder:
            count = min(self.tick, self.capacity)
            order = np.arange(self.tick - count, self.tick, dtype=np.int64) % self.capacity
            times = self.millis[order]
            selected: Millis = order[(times >= start) & (times <= end)]
            return selected
        newer = _between(self.millis, 0, position, start, end)
        if self.tick < self.capacity or (len(newer) and newer[0] > 0):
            return newer
        older = _between(self.millis, position, self.capacity, start, end)
        return np.concatenate([older, newer]) if len(older) else newer

    def points(self, key: Key, positions: Millis) -> Points:
        """Return the samples of a series at the given positions."""
        row = self.rows.get(key)
        if row is None or not len(positions):
            return EMPTY
        values = row.chunk[row.index, positions]
        present = ~np.isnan(values)
        return points_of(self.millis[positions][present], values[present])

    def newest_first(self, start: int, end: int) -> list[int]:
        """Return the positions in [start, end] from the newest time back; of equal times the first stored first."""
        positions = self.window(start, end)
        order = np.argsort(-self.millis[positions], kind="stable")
        found: list[int] = positions[order].tolist()
        return found

    def first_of(self, keys: Iterable[Key], positions: Sequence[int]) -> Iterator[tuple[Key, float]]:
        """Yield the first value that each series has at these positions; a column of a chunk is read at once."""
        if not positions:
            return
        columns: dict[int, list[float]] = {}
        for key in keys:
            row = self.rows[key]
            column = columns.get(id(row.chunk))
            if column is None:
                column = columns[id(row.chunk)] = row.chunk[:, positions[0]].tolist()
            value = column[row.index]
            if value == value:  # not missing
                yield key, value
                continue
            present = row.chunk[row.index, positions]
            present = present[~np.isnan(present)]
            if len(present):
                yield key, float(present[0])

    def averages_of(self, keys: Iterable[Key], positions: Millis) -> Iterator[tuple[Key, float]]:
        """Yield the average of each series at these positions, as `Points.aggregate` has it, a chunk at once."""
        count = len(positions)
        if not count:
            return
        sums: dict[int, list[float]] = {}
        for key in keys:
            row = self.rows[key]
            summed = sums.get(id(row.chunk))
            if summed is None:
                # One after the other, as in a query; a series that misses a value is not a number here.
                summed = sums[id(row.chunk)] = np.cumsum(row.chunk[:, positions], axis=1)[:, -1].tolist()
            total = summed[row.index]
            if total == total:
                yield key, total / count
            elif (average := self.points(key, positions).aggregate(AVG)) is not None:
                yield key, average

    @property
    def nbytes(self) -> int:
        """Memory of the ring in bytes."""
        return self.millis.nbytes + sum(chunk.nbytes for chunk in self._chunks)


def _value_of(key: Key, label: str) -> str:
    """Return the value of a property of a series; most have just one."""
    properties = key[1]
    return properties[0][1] if len(properties) == 1 else dict(properties)[label]


def _between(times: Millis, first: int, last: int, start: int, end: int) -> Millis:
    """Return the positions in [first, last) whose times, which grow there, lie in [start, end]."""
    part = times[first:last]
    low, high = np.searchsorted(part, start, "left"), np.searchsorted(part, end, "right")
    return np.arange(first + int(low), first + int(high), dtype=np.int64)


class Ring:
    """All groups, and which series of a kind there are."""

    def __init__(self, retention_seconds: float = 2100.0) -> None:
        self.retention_seconds = retention_seconds
        self.groups: dict[str, SeriesGroup] = {}
        self._by_kind: dict[str, dict[Properties, str]] = {}

    def append(self, name: str, interval_seconds: float, at: int, samples: Iterable[tuple[Key, float]]) -> None:
        """Store one batch of a producer at a time in milliseconds; its first sample decides how long it is kept."""
        listed = list(samples)
        group = self.groups.get(name)
        if group is None:
            if not listed:
                return
            brief = listed[0][0][0] in BRIEF
            seconds = min(self.retention_seconds, BRIEF_SECONDS) if brief else self.retention_seconds
            group = self.groups[name] = SeriesGroup(max(int(seconds / max(interval_seconds, 0.1)), 16))
        for kind, properties in group.append(at, listed):
            self._by_kind.setdefault(kind, {})[properties] = name

    def expire(self) -> int:
        """Forget series without recent samples; return how many."""
        forgotten = 0
        for group in self.groups.values():
            for kind, properties in group.expire():
                self._by_kind.get(kind, {}).pop(properties, None)
                forgotten += 1
        return forgotten

    def matching(self, kind: str, properties: Mapping[str, str] | None = None) -> Iterator[tuple[Key, SeriesGroup]]:
        """Yield the series of a kind that have the given properties."""
        given = properties or {}
        check_query(kind, given)
        series = self._by_kind.get(kind, {})
        if not given:
            for found, name in list(series.items()):
                yield (kind, found), self.groups[name]
            return
        if len(given) == len(PROPERTIES[kind]):
            exact = tuple(sorted(given.items()))
            if exact in series:
                yield (kind, exact), self.groups[series[exact]]
            return
        wanted = given.items()
        for found, name in list(series.items()):
            if wanted <= dict(found).items():
                yield (kind, found), self.groups[name]

    def query(self, kind: str, properties: Mapping[str, str] | None, start: int, end: int) -> Points:
        """Return the samples of all matching series within [start, end] milliseconds, one series after the other."""
        parts = [
            points
            for key, group in self.matching(kind, properties)
            if len(points := group.points(key, group.window(start, end)))
        ]
        if not parts:
            return EMPTY
        if len(parts) == 1:
            return parts[0]
        return Points(
            np.concatenate([part.millis for part in parts]),
            np.concatenate([part.values for part in parts]),
            span_millis=parts[-1].span_millis,
        )

    def query_each(self, kind: str, label: str, start: int, end: int) -> dict[str, Points]:
        """Return the samples of every series of a kind by the value of one property; windows are found once."""
        result: dict[str, Points] = {}
        windows: dict[int, Millis] = {}
        for key, group in self.matching(kind):
            positions = windows.get(id(group))
            if positions is None:
                positions = windows[id(group)] = group.window(start, end)
            points = group.points(key, positions)
            if len(points):
                result[_value_of(key, label)] = points
        return result

    def latest_each(self, kind: str, label: str, start: int, end: int) -> dict[str, float]:
        """Return the newest value of every series of a kind within [start, end], by the value of one property."""
        return {
            _value_of(key, label): value
            for group, keys in self._by_group(kind)
            for key, value in group.first_of(keys, group.newest_first(start, end))
        }

    def averages_each(self, kind: str, label: str, start: int, end: int) -> dict[str, float]:
        """Return the average of every series of a kind within [start, end], by the value of one property."""
        return {
            _value_of(key, label): value
            for group, keys in self._by_group(kind)
            for key, value in group.averages_of(keys, group.window(start, end))
        }

    def _by_group(self, kind: str) -> Iterable[tuple[SeriesGroup, list[Key]]]:
        check_query(kind, {})
        keys: dict[str, list[Key]] = {}
        for properties, name in self._by_kind.get(kind, {}).items():
            keys.setdefault(name, []).append((kind, properties))
        return [(self.groups[name], found) for name, found in keys.items()]

    @property
    def series_count(self) -> int:
        """Number of series with recent samples."""
        return sum(len(group.rows) for group in self.groups.values())

    @property
    def nbytes(self) -> int:
        """Memory of all groups in bytes."""
        return sum(group.nbytes for group in self.groups.values())
