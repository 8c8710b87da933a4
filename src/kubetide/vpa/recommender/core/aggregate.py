"""Aggregates: what is known of a container name under one label set, in columns.

An aggregate is a number. Behind it stand two histogram columns (CPU in cores, memory peaks in bytes), the first and
last CPU sample, their count, and the tuning that its VPA asks for. Pods with equal labels share aggregates, which is
how history outlives pods. Half-lives may differ between VPAs, so columns live in one bank per half-life; nearly
always that is one bank.

    expired   no CPU sample for interval × count (8 days), or, without any, that long since creation
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kubetide.stats.bank import BLOCK_WIDTH, Bank
from kubetide.stats.block import Block
from kubetide.stats.buckets import Buckets, Floats, Ints, exponential
from kubetide.stats.instants import ZERO_TIME
from kubetide.stats.saved import Saved

MINIMAL_WEIGHT = 0.1
EPSILON = 0.001 * MINIMAL_WEIGHT
CPU_BUCKETS = exponential(maximum=1000.0, first=0.01, ratio=1.05, epsilon=EPSILON)
MEMORY_BUCKETS = exponential(maximum=1e12, first=1e7, ratio=1.05, epsilon=EPSILON)
DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How samples of an aggregate are weighed; a VPA may ask for its own."""

    cpu_half_life: timedelta = DAY
    memory_half_life: timedelta = DAY
    interval: timedelta = DAY
    interval_count: int = 8
    oom_ratio: float = 1.2
    oom_min_bytes: float = 100.0 * 1024 * 1024


class Columns:
    """Histogram columns of one resource over several half-lives."""

    def __init__(self, buckets: Buckets, block_width: int = BLOCK_WIDTH) -> None:
        self.buckets = buckets
        self._block_width = block_width
        self._banks: list[Bank] = []
        self._by_half_life: dict[timedelta, int] = {}
        self._bank: Ints = np.zeros(0, dtype=np.int64)
        self._column: Ints = np.zeros(0, dtype=np.int64)

    def bank_of(self, half_life: timedelta) -> int:
        """Return the number of the bank with this half-life."""
        if half_life not in self._by_half_life:
            self._by_half_life[half_life] = len(self._banks)
            self._banks.append(Bank(self.buckets, half_life, block_width=self._block_width))
        return self._by_half_life[half_life]

    def half_life(self, slot: int) -> timedelta:
        """Return the half-life of a slot."""
        half_life: timedelta | None = self._banks[int(self._bank[slot])].half_life
        assert half_life is not None
        return half_life

    def resize(self, size: int) -> None:
        """Make room for `size` slots."""
        self._bank, self._column = _grown(self._bank, size), _grown(self._column, size)

    def allocate(self, slot: int, half_life: timedelta) -> None:
        """Give a slot an empty column."""
        bank = self.bank_of(half_life)
        self._bank[slot], self._column[slot] = bank, self._banks[bank].allocate()

    def free(self, slot: int) -> None:
        """Take a slot's column back."""
        self._banks[self._bank[slot]].free([self._column[slot]])

    def retune(self, slot: int, half_life: timedelta) -> None:
        """Continue a slot with another half-life: what it holds now fades differently from here on."""
        bank = self.bank_of(half_life)
        old = int(self._bank[slot])
        if bank == old:
            return
        block = self._banks[old].select([self._column[slot]])
        self.free(slot)
        self.allocate(slot, half_life)
        self._banks[bank].put([self._column[slot]], block)

    def add(self, slots: Ints, values: Floats, weight: float, times: Ints) -> None:
        """Add samples in order."""
        for bank, at in self._by_bank(slots):
            bank.add(self._column[slots[at]], values[at], weight, times[at])

    def replace(self, slots: Ints, old: Floats, new: Floats, weight: float, times: Ints, back: Mask) -> None:
        """Take old samples back where `back` says so and add new ones, one after the other."""
        for bank, at in self._by_bank(slots):
            bank.replace(self._column[slots[at]], old[at], new[at], weight, times[at], back[at])

    def _by_bank(self, slots: Ints) -> Iterator[tuple[Bank, slice | Mask]]:
        """Yield each bank that holds some of the slots, and where they are among them."""
        for number, bank in enumerate(self._banks):
            here = self._bank[slots] == number
            if here.any():
                yield bank, slice(None) if here.all() else here

    def add_grid(self, slots: Ints, values: Floats, weight: float, times: Ints) -> None:
        """Add a sample per row of `values` to each slot given, oldest row first; NaN is no sample."""
        for bank, at in self._by_bank(slots):
            bank.add_grid(self._column[slots[at]], values[:, at], weight, times)

    def select(self, slots: Ints) -> Block:
        """Return copies of columns of one half-life."""
        return self._banks[int(self._bank[slots[0]])].select(self._column[slots])

    def tracked_buckets(self, slots: Ints, shares: tuple[float, ...]) -> Ints:
        """Return the buckets of percentiles, -1 where empty, of columns of one half-life."""
        return self._banks[int(self._bank[slots[0]])].tracked_buckets(self._column[slots], shares)

    def load(self, slot: int, saved: Saved) -> None:
        """Fill a column from its checkpoint form."""
        self._banks[self._bank[slot]].load(int(self._column[slot]), saved)

    def merged(self, slots: Ints, groups: Ints, half_lives: Sequence[timedelta]) -> list[tuple[Ints, Block]]:
        """Merge slots into one histogram per group; groups of equal half-life share a block: (groups, block)."""
        wanted = np.array([self.bank_of(half_life) for half_life in half_lives], dtype=np.int64)
        result = []
        for number, bank in enumerate(self._banks):
            members = np.flatnonzero(wanted == number)
            if not members.size:
                continue
            position = np.full(len(wanted), -1, dtype=np.int64)
            position[members] = np.arange(members.size)
            # A column that fades at another rate (a VPA just changed) joins at its present weights.
            mine = position[groups] >= 0
            native = mine & (self._bank[slots] == number)
            block = bank.merged(self._column[slots[native]], position[groups[native]], members.size)
            for other, source in enumerate(self._banks):
                foreign = mine & (self._bank[slots] == other) & (other != number)
                if foreign.any():
                    part = source.select(self._column[slots[foreign]])
                    part.half_life = block.half_life
                    block.merge(position[groups[foreign]], part)
            result.append((members, block))
        return result

    def absorb(self, into: Ints, slots: Ints) -> None:
        """Merge `slots[i]` into `into[i]`; many may go to one. The merged slots stay as they are."""
        targets, groups = np.unique(into, return_inverse=True)
        every = np.concatenate([targets, slots])
        numbers = np.concatenate([np.arange(targets.size), groups])
        half_lives = [self.half_life(int(slot)) for slot in targets]
        for members, block in self.merged(every, numbers, half_lives):
            bank = self._banks[int(self._bank[targets[members[0]]])]
            bank.put(self._column[targets[members]], block)


class Aggregates:
    """All aggregates of the model, by number."""

    def __init__(self, tuning: Tuning, *, block_width: int = BLOCK_WIDTH) -> None:
        self.default = tuning
        self.cpu = Columns(CPU_BUCKETS, block_width)
        self.memory = Columns(MEMORY_BUCKETS, block_width)
        self._free: list[int] = []
        self._size = 0
        self.first: Ints = np.zeros(0, dtype=np.int64)
        self.last: Ints = np.zeros(0, dtype=np.int64)
        self.count: Ints = np.zeros(0, dtype=np.int64)
        self.created: Ints = np.zeros(0, dtype=np.int64)
        self.interval: Ints = np.zeros(0, dtype=np.int64)
        self.expiry: Ints = np.zeros(0, dtype=np.int64)
        self.oom_ratio: Floats = np.zeros(0)
        self.oom_min: Floats = np.zeros(0)

    def __len__(self) -> int:
        return self._size - len(self._free)

    def allocate(self, now: int, tuning: Tuning | None = None) -> int:
        """Return the number of a new, empty aggregate."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        chosen = tuning or self.default
        self.first[slot] = self.last[slot] = ZERO_TIME
        self.count[slot] = 0
        self.created[slot] = now
        self.cpu.allocate(slot, chosen.cpu_half_life)
        self.memory.allocate(slot, chosen.memory_half_life)
        self._tune(slot, chosen)
        return slot

    def free(self, slot: int) -> None:
        """Forget an aggregate."""
        self.cpu.free(slot)
        self.memory.free(slot)
        self._free.append(slot)

    def retune(self, slot: int, tuning: Tuning) -> None:
        """Apply another tuning to an aggregate in use."""
        self.cpu.retune(slot, tuning.cpu_half_life)
        self.memory.retune(slot, tuning.memory_half_life)
        self._tune(slot, tuning)

    def _tune(self, slot: int, tuning: Tuning) -> None:
        self.interval[slot] = tuning.interval // _MICROSECOND
        self.expiry[slot] = (tuning.interval // _MICROSECOND) * tuning.interval_count
        self.oom_ratio[slot] = tuning.oom_ratio
        self.oom_min[slot] = tuning.oom_min_bytes

    def expired(self, slot: int, now: int) -> bool:
        """Return whether nothing was heard of an aggregate for the whole length of history."""
        since = self.last[slot] if self.count[slot] else self.created[slot]
        return bool(now - since >= self.expiry[slot])

    def absorb(self, into: Ints, slots: Ints) -> None:
        """Add all that `slots[i]` knows to `into[i]`; many may go to one."""
        self.cpu.absorb(into, slots)
        self.memory.absorb(into, slots)
        far = np.iinfo(np.int64).max
        first = np.where(self.first == ZERO_TIME, far, self.first)
        np.minimum.at(first, into, first[slots])
        self.first[into] = np.where(first[into] == far, ZERO_TIME, first[into])
        np.maximum.at(self.last, into, self.last[slots])
        np.minimum.at(self.created, into, self.created[slots])
        np.add.at(self.count, into, self.count[slots])

    def note_cpu(self, slots: Ints, times: Ints) -> None:
        """Remember the times of CPU samples; a slot may occur many times."""
        unset = slots[self.first[slots] == ZERO_TIME]
        self.first[unset] = np.iinfo(np.int64).max
        np.minimum.at(self.first, slots, times)
        np.maximum.at(self.last, slots, times)
        np.add.at(self.count, slots, 1)

    def note_cpu_spans(self, slots: Ints, first: Ints, last: Ints, count: Ints) -> None:
        """Remember first and last time and the number of CPU samples; a slot may occur many times."""
        unset = slots[self.first[slots] == ZERO_TIME]
        self.first[unset] = np.iinfo(np.int64).max
        np.minimum.at(self.first, slots, first)
        np.maximum.at(self.last, slots, last)
        np.add.at(self.count, slots, count)

    def _grow(self) -> None:
        start, self._size = self._size, max(256, self._size * 3 // 2)
        for name in ("first", "last", "count", "created", "interval", "expiry", "oom_ratio", "oom_min"):
            setattr(self, name, _grown(getattr(self, name), self._size))
        self.cpu.resize(self._size)
        self.memory.resize(self._size)
        self._free.extend(range(self._size - 1, start - 1, -1))


N = TypeVar("N", bound=np.generic)


def _grown(array: npt.NDArray[N], size: int) -> npt.NDArray[N]:
    grown = np.zeros(size, dtype=array.dtype)
    grown[: len(array)] = array
    return grown
