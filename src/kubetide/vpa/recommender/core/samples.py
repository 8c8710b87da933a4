"""Samples of containers: which count, and what they do to the aggregates.

    CPU      accepted when not negative and newer than the last one; weight 0.1 at its time
    memory   accepted when not negative and not older than the last one; only the peak of each window counts,
             with weight 1 at the window's end, replaced by subtract and add when it grows
    OOM      max(used + minimum bump, used × ratio), used = max(request, usage peak); discarded when more than an
             interval older than the last sample; may move the time of the last sample back

A window opens with the first sample and ends one interval (24 h) later. Containers are rows of a table, so that a
whole cluster's samples are a handful of array operations.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kubetide.stats.buckets import Floats, Ints
from kubetide.stats.instants import ZERO_TIME
from kubetide.stats.turns import ranks
from kubetide.vpa.recommender.core.aggregate import MINIMAL_WEIGHT, Aggregates

Mask = npt.NDArray[np.bool_]

NO_AGGREGATE = -1
"""The aggregate was collected; the next sample makes a new one."""
DETACHED = -2
"""A relabelled container whose aggregate was collected: its samples go nowhere, as upstream."""
_INTEGERS = ("aggregate", "home", "last_cpu", "last_memory", "window_end", "cpu_limit")
_FLOATS = ("peak", "oom_peak")


class _Peaks(NamedTuple):
    """Peaks of windows before and after a sample each, and which of them grew or are new."""

    slots: Ints
    old: Floats
    new: Floats
    ends: Ints
    grows: Mask
    counts: Mask


class Containers:
    """The table of live containers.

    `relinked` marks those tied to their aggregate directly by a label change, `home` is the aggregate that holds the
    peak of the running window: after a label change it is not the container's own.
    """

    def __init__(self, aggregates: Aggregates, *, oom_age_from_window: bool = False) -> None:
        self._aggregates = aggregates
        self._oom_age_from_window = oom_age_from_window
        self._free: list[int] = []
        self._size = 0
        self.changes = 0
        """How often a container was added or forgotten: rows stand for the same ones as long as this stays."""
        self.aggregate: Ints = np.zeros(0, dtype=np.int64)
        self.home: Ints = np.zeros(0, dtype=np.int64)
        self.last_cpu: Ints = np.zeros(0, dtype=np.int64)
        self.last_memory: Ints = np.zeros(0, dtype=np.int64)
        self.window_end: Ints = np.zeros(0, dtype=np.int64)
        self.cpu_limit: Ints = np.zeros(0, dtype=np.int64)
        """In millicores; 0 without one."""
        self.peak: Floats = np.zeros(0)
        self.oom_peak: Floats = np.zeros(0)
        self.relinked: Mask = np.zeros(0, dtype=np.bool_)

    def __len__(self) -> int:
        return self._size - len(self._free)

    def allocate(self, aggregate: int) -> int:
        """Return the row of a new container."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self.changes += 1
        self.aggregate[row] = aggregate
        self.home[row] = NO_AGGREGATE
        self.last_cpu[row] = self.last_memory[row] = self.window_end[row] = ZERO_TIME
        self.peak[row] = self.oom_peak[row] = 0.0
        self.relinked[row] = False
        self.cpu_limit[row] = 0
        return row

    def free(self, row: int) -> None:
        """Forget a container."""
        self._free.append(row)
        self.changes += 1

    def add_cpu(self, rows: Ints, times: Ints, millis: Ints) -> Mask:
        """Add CPU samples in order; return which were accepted."""
        accepted = np.zeros(rows.size, dtype=np.bool_)
        for turn in ranks(rows):
            row, time = rows[turn], times[turn]
            good = (millis[turn] >= 0) & (time > self.last_cpu[row])
            accepted[turn] = good
            self.last_cpu[row[good]] = time[good]
        taken = accepted & (self.aggregate[rows] >= 0)
        slots, when = self.aggregate[rows[taken]], times[taken]
        self._aggregates.note_cpu(slots, when)
        self._aggregates.cpu.add(slots, millis[taken] / 1000.0, MINIMAL_WEIGHT, when)
        return accepted

    def add_memory(self, rows: Ints, times: Ints, amounts: Ints, *, oom: bool = False) -> Mask:
        """Add memory samples in order; return which were accepted."""
        accepted = np.zeros(rows.size, dtype=np.bool_)
        for turn in ranks(rows):
            accepted[turn] = self._memory_turn(rows[turn], times[turn], amounts[turn], oom=oom)
        return accepted

    def add_cpu_grid(self, rows: Ints, times: Ints, millis: Floats) -> None:
        """Add a CPU sample per line of `millis` to each of distinct rows, all of a line at one time; NaN is none.

        Equal to `add_cpu` line by line, which containers go whose last sample is not older than the first line.
        """
        slots = self.aggregate[rows]
        if times.size == 1 and (slots >= 0).all():
            there = np.flatnonzero((millis[0] >= 0.0) & (times[0] > self.last_cpu[rows]))
            self.last_cpu[rows[there]] = times[0]
            self._aggregates.note_cpu(slots[there], np.full(there.size, times[0]))
            self._aggregates.cpu.add_grid(slots[there], millis[:, there] / 1000.0, MINIMAL_WEIGHT, times)
            return
        plain = (slots >= 0) & (self.last_cpu[rows] < times[0]) & ~(millis < 0.0).any(axis=0)
        if not plain.all():
            # Containers of one aggregate are added in order, so all of them go line by line.
            plain &= ~np.isin(slots, slots[~plain])
            for line, at in zip(millis[:, ~plain], times, strict=True):
                there = ~np.isnan(line)
                row = rows[~plain][there]
                self.add_cpu(row, np.full(row.size, at), line[there].astype(np.int64))
            rows, slots, millis = rows[plain], slots[plain], millis[:, plain]
        there = ~np.isnan(millis)
        some = there.any(axis=0)
        if some.any():
            first, last = there.argmax(axis=0)[some], (times.size - 1 - there[::-1].argmax(axis=0))[some]
            self.last_cpu[rows[some]] = times[last]
            self._aggregates.note_cpu_spans(slots[some], times[first], times[last], there[:, some].sum(axis=0))
            self._aggregates.cpu.add_grid(slots, millis / 1000.0, MINIMAL_WEIGHT, times)

    def add_memory_grid(self, rows: Ints, times: Ints, amounts: Floats) -> None:
        """Add a memory sample per line of `amounts` to each of distinct rows; NaN is none. Equal to line by line.

        Most samples neither pass the peak of their window nor find it over: those are only noted as seen. From the
        others it follows what is taken back and what is added, which then happens in the order of lines.
        """
        if times.size == 1:
            there = np.flatnonzero(~np.isnan(amounts[0]))
            self._memory_turn(rows[there], np.full(there.size, times[0]), amounts[0, there], oom=False)
            return
        if (amounts < 0.0).any() or (times[0] < self.last_memory[rows]).any():
            amounts = np.where((amounts < 0.0) | (times[:, None] < self.last_memory[rows]), np.nan, amounts)
        highest = np.fmax.reduce(amounts, axis=0)
        some = ~np.isnan(highest)
        self._note_memory(rows[some], times, amounts[:, some] if not some.all() else amounts)
        peak = np.maximum(self.peak[rows], self.oom_peak[rows])
        places = np.flatnonzero(some & ((highest > peak) | (self.window_end[rows] <= times[-1])))
        values, lines, after = amounts[:, places], np.arange(times.size)[:, None], np.full(places.size, -1)
        found: list[tuple[Ints, Ints, _Peaks]] = []
        while places.size:
            peak = np.maximum(self.peak[rows[places]], self.oom_peak[rows[places]])
            over = (times[:, None] >= self.window_end[rows[places]]) & ~np.isnan(values)
            matters = ((values > peak) | over) & (lines > after)
            left = matters.any(axis=0)
            if not left.all():
                places, values, matters = places[left], values[:, left], matters[:, left]
            after = matters.argmax(axis=0)
            line = values[after, np.arange(places.size)]
            found.append((after, places, self._open_or_grow(rows[places], times[after], line, oom=False)))
        if found:
            order = np.lexsort([np.concatenate([each[place] for each in found]) for place in (1, 0)])
            parts = zip(*(each[2] for each in found), strict=True)
            self._replace(_Peaks(*(np.concatenate(part)[order] for part in parts)))

    def _note_memory(self, rows: Ints, times: Ints, amounts: Floats) -> None:
        """Remember when memory was last seen."""
        known = ~np.isnan(amounts[-1])
        if known.all():
            self.last_memory[rows] = times[-1]
            return
        there = ~np.isnan(amounts)
        self.last_memory[rows] = times[times.size - 1 - there[::-1].argmax(axis=0)]

    def _memory_turn(self, rows: Ints, times: Ints, amounts: Ints | Floats, *, oom: bool) -> Mask:
        good: Mask = amounts >= 0
        if not oom:
            good &= times >= self.last_memory[rows]
        seen = rows[good]
        self.last_memory[seen] = times[good]
        # What neither passes the peak of its window nor finds it over changes nothing.
        passes = amounts[good] > np.maximum(self.peak[seen], self.oom_peak[seen])
        matters = np.flatnonzero(good)[passes | (times[good] >= self.window_end[seen])]
        if matters.size:
            amount = amounts[matters].astype(np.float64)
            self._replace(self._open_or_grow(rows[matters], times[matters], amount, oom=oom))
        return good

    def _open_or_grow(self, row: Ints, time: Ints, amount: Floats, *, oom: bool) -> "_Peaks":
        """Bring windows and peaks of distinct rows up to date; return what that means for the histograms."""
        unset = self.window_end[row] == ZERO_TIME
        self.window_end[row[unset]] = time[unset]
        end = self.window_end[row]
        old = np.maximum(self.peak[row], self.oom_peak[row])
        inside = time < end
        grows = inside & (old != 0) & (amount > old)
        opens = ~inside
        slots = self.aggregate[row]
        interval = self._intervals(slots)
        new_end = np.where(opens, end + (time - end) // interval * interval + interval, end)
        self.window_end[row] = new_end
        self.peak[row[opens]] = 0.0
        self.oom_peak[row[opens]] = 0.0
        counts = grows | opens
        (self.oom_peak if oom else self.peak)[row[counts]] = amount[counts]
        self.home[row[counts]] = slots[counts]
        return _Peaks(slots, old, amount, new_end, grows, counts)

    def _replace(self, peaks: "_Peaks") -> None:
        """Take back the old peaks that grew and add the new ones, container by container."""
        which = np.flatnonzero(peaks.counts & (peaks.slots >= 0))
        if which.size:
            old, new, grows = peaks.old[which], peaks.new[which], peaks.grows[which]
            self._aggregates.memory.replace(peaks.slots[which], old, new, 1.0, peaks.ends[which], grows)

    def _intervals(self, slots: Ints) -> Ints:
        default = self._aggregates.default.interval.total_seconds() * 1_000_000
        known = self._aggregates.interval[np.maximum(slots, 0)] if self._aggregates.interval.size else slots
        intervals: Ints = np.where(slots >= 0, known, int(default))
        return intervals

    def add_oom(self, row: int, time: int, memory: int) -> bool:
        """Add one OOM kill; return whether it counted."""
        slot = int(self.aggregate[row])
        interval = int(self._intervals(np.array([slot]))[0])
        # Measured from the last sample. From the end of the window (VPA 1.7) an OOM kill that is reported right after
        # the sample that opened the window, and happened a second before it, would be lost.
        newest = self.window_end[row] if self._oom_age_from_window else self.last_memory[row]
        if newest != ZERO_TIME and time < newest - interval:
            return False
        needed = self.oom_need(row, memory)
        return bool(self.add_memory(np.array([row]), np.array([time]), np.array([needed]), oom=True)[0])

    def oom_need(self, row: int, memory: int) -> int:
        """Return the memory that a container OOM killed with this request, or usage, is taken to need."""
        slot, tuning = int(self.aggregate[row]), self._aggregates.default
        ratio, least = tuning.oom_ratio, tuning.oom_min_bytes
        if slot >= 0:
            ratio, least = float(self._aggregates.oom_ratio[slot]), float(self._aggregates.oom_min[slot])
        used = max(float(memory), float(self.peak[row]))
        return int(max(min(used + least, 1e14), min(float(int(used * ratio)), 1e14)))

    def open_windows(self, rows: Ints, starts: Ints) -> None:
        """Let the windows of containers that have none yet begin at a given time instead of with their first sample."""
        unset = self.window_end[rows] == ZERO_TIME
        self.window_end[rows[unset]] = starts[unset]

    def without_window(self, rows: Ints) -> bool:
        """Return whether any of these containers has no window yet."""
        return bool((self.window_end[rows] == ZERO_TIME).any())

    def restore_window(self, row: int, *, end: int, peak: float, oom_peak: float, last: int, last_cpu: int) -> None:
        """Continue a window that was open when the last checkpoint was written, putting its peak back."""
        self.window_end[row], self.last_memory[row] = end, last
        self.peak[row], self.oom_peak[row] = peak, oom_peak
        self.last_cpu[row] = last_cpu
        slot = self.home[row] = int(self.aggregate[row])
        highest = max(peak, oom_peak)
        if slot >= 0 and highest > 0:
            self._aggregates.memory.add(np.array([slot]), np.array([highest]), 1.0, np.array([end]))

    def _grow(self) -> None:
        start, self._size = self._size, max(256, self._size * 3 // 2)
        for name in (*_INTEGERS, *_FLOATS, "relinked"):
            old = getattr(self, name)
            grown = np.zeros(self._size, dtype=old.dtype)
            grown[:start] = old
            setattr(self, name, grown)
        self._free.extend(range(self._size - 1, start - 1, -1))
