"""Laws of histograms, single or in banks."""

from datetime import timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kubetide.stats.bank import Bank
from kubetide.stats.buckets import exponential
from kubetide.stats.saved import save
from onehistogram import Histogram

SCHEME = exponential(maximum=1000.0, first=0.01, ratio=1.05, epsilon=0.0001)
DAY = timedelta(days=1)
START = 1_700_000_000_000_000
HOUR = 3_600_000_000

values = st.floats(0.0, 2000.0, allow_nan=False)
times = st.integers(0, 5000).map(lambda hours: START + hours * HOUR)
samples = st.lists(st.tuples(st.integers(0, 4), values, st.sampled_from([0.1, 1.0]), times), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(samples)
def test_a_batch_equals_its_samples_one_by_one(given_samples: list[tuple[int, float, float, int]]) -> None:
    bank = Bank(SCHEME, DAY, block_width=2)
    columns = [bank.allocate() for _ in range(5)]
    singles = [Histogram(SCHEME, DAY) for _ in columns]
    which, value, weight, at = (np.array(part) for part in zip(*given_samples, strict=True))
    bank.add(np.array(columns)[which], value, weight, at)
    for number, v, w, t in given_samples:
        singles[number].add(v, w, t)
    assert save(bank.select(columns)) == [single.save() for single in singles]


@settings(max_examples=60, deadline=None)
@given(samples, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_percentiles_grow_with_p_and_cover_what_was_added(
    given_samples: list[tuple[int, float, float, int]], one: float, other: float
) -> None:
    h = Histogram(SCHEME, DAY)
    for _, value, weight, _ in given_samples:
        h.add(value, weight, START)
    low, high = sorted((one, other))
    assert h.percentile(low) <= h.percentile(high)
    largest = max(value for _, value, _, _ in given_samples)
    assert h.percentile(1.0) >= min(largest, SCHEME.starts[-1]) * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(samples)
def test_what_was_added_can_be_taken_back(given_samples: list[tuple[int, float, float, int]]) -> None:
    h = Histogram(SCHEME, DAY)
    for _, value, weight, _ in given_samples:
        h.add(value, weight, START)
    for _, value, weight, _ in reversed(given_samples):
        h.subtract(value, weight, START)
    assert h.empty
    assert h.percentile(0.9) == 0.0


@settings(max_examples=60, deadline=None)
@given(samples)
def test_merging_groups_equals_adding_to_one(given_samples: list[tuple[int, float, float, int]]) -> None:
    bank = Bank(SCHEME, DAY, block_width=2)
    columns = np.array([bank.allocate() for _ in range(5)])
    together = Histogram(SCHEME, DAY)
    for number, value, weight, _ in given_samples:
        bank.add([columns[number]], value, weight, START)
        together.add(value, weight, START)
    before = save(bank.select(columns))
    merged = bank.merged(columns, np.zeros(5, dtype=np.int64), 1)
    assert save(bank.select(columns)) == before
    # The sums are the same up to the order of addition.
    assert np.allclose(merged.weights[:, 0], together.block.weights[:, 0], rtol=1e-12)
    assert np.allclose(merged.total, together.block.total, rtol=1e-12)
    assert (merged.low[0], merged.high[0]) == (together.block.low[0], together.block.high[0])


@settings(max_examples=60, deadline=None)
@given(samples)
def test_saving_and_loading_keeps_percentiles(given_samples: list[tuple[int, float, float, int]]) -> None:
    h = Histogram(SCHEME, DAY)
    for _, value, weight, _ in given_samples:
        h.add(value, weight, START)
    restored = Histogram(SCHEME, DAY)
    restored.load(h.save())
    assert restored.save().weights.keys() == h.save().weights.keys()
    for p in (0.0, 1.0):
        assert restored.percentile(p) == h.percentile(p)
    again = Histogram(SCHEME, DAY)
    again.load(restored.save())
    assert again.save().weights == restored.save().weights


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.sampled_from(["line", "line", "line", "grid", "replace", "late", "free"]), min_size=1, max_size=30),
    st.sampled_from([(0.9,), (0.5, 0.95), (1.0,), (0.0, 0.3)]),
)
def test_tracked_percentiles_are_those_of_a_search(seed: int, steps: list[str], shares: tuple[float, ...]) -> None:
    rng = np.random.default_rng(seed)
    bank = Bank(SCHEME, DAY, block_width=4)
    columns = np.array([bank.allocate() for _ in range(6)])
    at, held = START, np.zeros(6)
    for step in steps:
        at += int(rng.integers(1, 40)) * HOUR // 4
        # Few distinct values: weights pile up, and percentiles lie on the edges of buckets.
        fresh = rng.choice([0.0, 0.02, 0.3, 0.31, 5.0, 900.0], 6)
        if step == "line":
            line = np.where(rng.random(6) < 0.2, np.nan, fresh)
            bank.add_grid(columns, line[None], 0.1, np.array([at]))
        elif step == "grid":
            bank.add_grid(columns, rng.choice([0.3, 0.31, np.nan], (3, 6)), 0.1, at + np.arange(3) * HOUR)
        elif step == "replace":
            bank.replace(columns, held, fresh, 1.0, np.full(6, at), held > 0.0)
            held = fresh
        elif step == "late":
            at += 150 * 24 * HOUR
            bank.add_grid(columns, fresh[None], 0.1, np.array([at]))
        else:
            bank.free(columns[:1])
            held[0], columns[0] = 0.0, bank.allocate()
        part = bank.select(columns)
        expected = np.where(part.empty(), -1, part.percentile_buckets(shares))
        assert bank.tracked_buckets(columns, shares).tolist() == expected.tolist()
