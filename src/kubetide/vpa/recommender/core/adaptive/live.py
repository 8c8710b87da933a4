"""A fleet that lives: containers come and go, hours end by the clock, and a restart goes on where it stopped.

The columns of a fleet are sorted by key, so what follows from them does not depend on the order in which containers
were met. An hour ends with the first loop of the next one. Hours in which nobody looked were hours without samples.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import numpy as np

from kubetide.api.objects.meta import ObjectKey
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.recommender.core.adaptive.columns import FleetColumns, load_all, save_all
from kubetide.vpa.recommender.core.adaptive.cpu import HOURS
from kubetide.vpa.recommender.core.adaptive.hour import RunningHour
from kubetide.vpa.recommender.core.adaptive.saved import State
from kubetide.vpa.recommender.core.adaptive.sizes import Adaptive, Sizes

_DAY: Final = 24


class Key(NamedTuple):
    """A container of a VPA."""

    vpa: ObjectKey
    container: str


class Way(NamedTuple):
    """How containers are sized: memory as one number or two, CPU by the hour or, if it means restarts, by the day."""

    limit_apart: bool
    daily: bool

    @property
    def name(self) -> str:
        """Return what the way is called where its state is kept."""
        return f"{'apart' if self.limit_apart else 'one'}-{'daily' if self.daily else 'hourly'}"


class Seed(NamedTuple):
    """What the plain recommender knows of a container that is new here: cores, and peaks of memory from low to high."""

    cpu_peak: float
    memory: tuple[float, float, float]


class LiveFleet:
    """Containers that are sized in one way."""

    def __init__(self, way: Way, hour: int) -> None:
        self.way = way
        self.hour = hour
        self.keys: tuple[Key, ...] = ()
        self.places: dict[Key, int] = {}
        self.adaptive = Adaptive(0, limit_apart=way.limit_apart)
        self.running = RunningHour(0)
        self.layers: tuple[Ints, ...] = ()
        """For aggregates, the columns that they feed, -1 for none; a second layer where several VPAs share them."""

    def arrange(self, wanted: Collection[Key], found: Mapping[Key, State], seeds: Mapping[Key, Seed]) -> None:
        """Hold exactly the wanted containers; new ones begin with what was found, or known from elsewhere, of them."""
        if len(wanted) == len(self.keys) and all(key in self.places for key in wanted):
            return
        before = self.places
        self.keys = tuple(sorted(wanted))
        self.places = {key: place for place, key in enumerate(self.keys)}
        source = np.array([before.get(key, -1) for key in self.keys], dtype=np.int64)
        self.running.columns.rearrange(source)
        self.adaptive.rearrange(source)
        for place in np.flatnonzero(source < 0).tolist():
            key = self.keys[place]
            if key in found:
                self._load(place, self._caught_up(found[key]))
            elif key in seeds:
                self._seed(place, seeds[key])

    def link(self, slots: Mapping[Key, Collection[int]], capacity: int) -> None:
        """Note which aggregates feed which containers."""
        layers: list[Ints] = []
        for key, place in self.places.items():
            for slot in slots.get(key, ()):
                for layer in layers:
                    if layer[slot] < 0:
                        layer[slot] = place
                        break
                else:
                    layers.append(np.full(capacity, -1, dtype=np.int64))
                    layers[-1][slot] = place
        self.layers = tuple(layers)

    def add_cpu(self, slots: Ints, cores: Floats) -> None:
        """Add the samples of a loop."""
        request = self.adaptive.cpu.columns["request"][0]
        for layer in self.layers:
            columns = layer[slots]
            fed = columns >= 0
            self.running.add_cpu(columns[fed], cores[fed], request)

    def add_memory(self, slots: Ints, amounts: Floats) -> None:
        """Add the samples of a loop, in bytes."""
        moment = np.full(len(self.keys), np.nan)
        for layer in self.layers:
            columns = layer[slots]
            fed = columns >= 0
            moment = np.fmax(moment, self.running.add_memory(columns[fed], amounts[fed]))
        if self.layers:
            self.adaptive.note(moment[None])

    def add_oom(self, slot: int, needed: float) -> None:
        """Take in an OOM kill of a container, with the memory it is taken to need."""
        for place in {int(layer[slot]) for layer in self.layers if layer[slot] >= 0}:
            self.running.add_oom(place, needed)
            self.adaptive.distrust.add_oom(place, needed)

    def close(self, hour: int) -> bool:
        """End the hours before `hour`; return whether CPU is due to be decided."""
        due = False
        # What lies further back than the longest memory by the hour leaves nothing but its days.
        for ended in range(max(self.hour, hour - HOURS - _DAY), hour):
            day_ends = (ended + 1) % _DAY == 0
            cpu, memory = self.running.close()
            self.adaptive.close(cpu, memory, day_ends=day_ends)
            due = due or day_ends or not self.way.daily
        self.hour = max(self.hour, hour)
        return due

    def decide(self, percentiles: Floats | None) -> Sizes:
        """Decide sizes; without percentiles of the plain histograms CPU stays as it is."""
        return self.adaptive.decide(percentiles)

    def state(self, key: Key) -> State:
        """Return what is remembered of a container."""
        return State(self.way.limit_apart, self.hour, save_all(self._tables(), self.places[key]))

    def _tables(self) -> list[FleetColumns]:
        return [self.running.columns, *self.adaptive.tables()]

    def _load(self, place: int, state: State) -> None:
        tables = self._tables()
        if state.limit_apart == self.way.limit_apart:
            load_all(tables, place, state.numbers)
            return
        height = sum(table.height for table in tables[:-1])
        load_all(tables[:-1], place, state.numbers[:height])

    def _caught_up(self, state: State) -> State:
        """Return a state as it is after the hours that have passed since."""
        if state.hour >= self.hour:
            return state
        alone = LiveFleet(Way(state.limit_apart, self.way.daily), state.hour)
        key = Key(ObjectKey("", ""), "")
        alone.arrange([key], {key: state}, {})
        alone.close(self.hour)
        return alone.state(key)

    def _seed(self, place: int, seed: Seed) -> None:
        """Begin with what the plain recommender has learned: a warm start."""
        self.adaptive.cpu.columns["days"][-1, place] = seed.cpu_peak
        windows = self.adaptive.windows.columns
        low, usual, high = seed.memory
        if high <= 0.0:
            return
        windows["peaks"][-3:, place] = (low, usual, high)
        windows["mean"][0, place] = windows["peak"][0, place] = usual
        windows["weight"][0, place] = 3.0
        windows["grown"][0, place] = 1.0
        windows["hours"][0, place] = float(_DAY)
