"""A grid of samples is what its samples are one by one, to the bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.recommender.core.aggregate import Aggregates, Tuning
from kubetide.vpa.recommender.core.samples import Containers

START = 1_700_006_400_000_000
STATE = ("last_cpu", "last_memory", "window_end", "peak", "oom_peak", "home")


class Fed:
    """Containers, some of which share an aggregate."""

    def __init__(self, groups: list[int]) -> None:
        self.aggregates = Aggregates(Tuning())
        self.containers = Containers(self.aggregates)
        self.slots = np.array([self.aggregates.allocate(0) for _ in range(max(groups) + 1)])
        self.rows = np.array([self.containers.allocate(int(self.slots[group])) for group in groups])

    def same_as(self, other: "Fed") -> None:
        for name in STATE:
            assert getattr(self.containers, name).tolist() == getattr(other.containers, name).tolist(), name
        for name in ("first", "last", "count"):
            assert getattr(self.aggregates, name).tolist() == getattr(other.aggregates, name).tolist(), name
        for resource in ("cpu", "memory"):
            mine, theirs = (getattr(fed.aggregates, resource).select(self.slots) for fed in (self, other))
            for name in ("weights", "total", "low", "high", "reference"):
                assert getattr(mine, name).tobytes() == getattr(theirs, name).tobytes(), (resource, name)


def amounts(rng: np.random.Generator, lines: int, width: int, most: float) -> Floats:
    values: Floats = np.rint(rng.random((lines, width)) * most)
    values[rng.random(values.shape) < 0.15] = np.nan
    return values


def one_by_one(fed: Fed, times: Ints, cpu: Floats, memory: Floats) -> None:
    for line, at in enumerate(times):
        for values, add in ((cpu[line], fed.containers.add_cpu), (memory[line], fed.containers.add_memory)):
            there = ~np.isnan(values)
            rows = fed.rows[there]
            add(rows, np.full(rows.size, at), values[there].astype(np.int64))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 30), st.sampled_from([60, 300, 7200, 90 * 86400])), min_size=1, max_size=6),
)
def test_a_grid_is_its_samples_in_order(seed: int, groups: list[int], parts: list[tuple[int, int]]) -> None:
    rng = np.random.default_rng(seed)
    whole, single = Fed(groups), Fed(groups)
    at = START
    for lines, step in parts:
        times = at + np.arange(lines) * step * 1_000_000
        # Sometimes the next part begins before the last one ended: such samples are refused one by one.
        at = int(times[-1]) + step * 1_000_000 * int(rng.integers(-1, 2))
        cpu, memory = amounts(rng, lines, len(groups), 4000.0), amounts(rng, lines, len(groups), 4e9)
        whole.containers.add_cpu_grid(whole.rows, times, cpu)
        whole.containers.add_memory_grid(whole.rows, times, memory)
        one_by_one(single, times, cpu, memory)
        whole.same_as(single)
