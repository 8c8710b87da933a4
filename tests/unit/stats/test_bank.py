from datetime import timedelta

import numpy as np

from kubetide.stats.bank import Bank
from kubetide.stats.buckets import exponential
from kubetide.stats.saved import save
from onehistogram import Histogram

CPU = exponential(maximum=1000.0, first=0.01, ratio=1.05, epsilon=0.0001)
DAY = timedelta(days=1)
MONDAY = 1_709_510_400_000_000
HOUR = 3_600_000_000


def test_columns_behave_like_histograms_of_their_own() -> None:
    bank = Bank(CPU, DAY, block_width=4)
    singles = [Histogram(CPU, DAY) for _ in range(10)]
    columns = [bank.allocate() for _ in singles]
    rng = np.random.default_rng(7)
    # Gaps of years make references move in the middle of a batch.
    for batch in range(5):
        which = rng.integers(0, 10, 200)
        values, weights = rng.exponential(2.0, 200), rng.choice([0.1, 1.0], 200)
        times = MONDAY + batch * 5000 * HOUR + rng.integers(0, 20_000, 200) * HOUR
        bank.add(np.array(columns)[which], values, weights, times)
        for i, value, weight, at in zip(which, values, weights, times, strict=True):
            singles[i].add(value, weight, int(at))
    block = bank.select(columns)
    for i, single in enumerate(singles):
        assert save(block)[i] == single.save()
        assert block.percentiles([0.5, 0.9])[:, i].tolist() == [single.percentile(0.5), single.percentile(0.9)]


def test_mixed_changes_happen_in_the_order_given() -> None:
    bank = Bank(CPU, DAY, block_width=2)
    single = Histogram(CPU, DAY)
    other, column = bank.allocate(), bank.allocate()
    bank.replace(
        np.array([column, other, column]),
        np.array([0.0, 0.0, 1.0]),
        np.array([1.0, 7.0, 2.0]),
        1.0,
        np.full(3, MONDAY),
        np.array([False, False, True]),
    )
    single.add(1.0, 1.0, MONDAY)
    single.subtract(1.0, 1.0, MONDAY)
    single.add(2.0, 1.0, MONDAY)
    assert save(bank.select([column])) == [single.save()]
    assert bank.select([other]).percentiles([0.5])[0, 0] > 7.0


def test_a_freed_column_comes_back_empty() -> None:
    bank = Bank(CPU, DAY, block_width=2)
    column = bank.allocate()
    bank.add([column], [3.0], 1.0, MONDAY)
    assert len(bank) == 1
    bank.free([column])
    assert len(bank) == 0
    again = bank.allocate()
    assert again == column
    assert bank.select([again]).empty().tolist() == [True]
    assert save(bank.select([again]))[0].weights == {}


def test_many_columns_merge_into_few_and_stay_as_they_are() -> None:
    bank = Bank(CPU, DAY, block_width=3)
    columns = [bank.allocate() for _ in range(7)]
    for i, column in enumerate(columns):
        bank.add([column], [i + 1.0], 1.0, MONDAY + i * 3000 * HOUR)
    before = save(bank.select(columns))
    merged = bank.merged(columns, [0, 0, 1, 1, 1, 0, 2], 4)
    for group, members in enumerate(([0, 1, 5], [2, 3, 4], [6], [])):
        single = Histogram(CPU, DAY)
        for i in members:
            part = Histogram(CPU, DAY)
            part.add(i + 1.0, 1.0, MONDAY + i * 3000 * HOUR)
            single.merge(part)
        assert save(merged)[group] == single.save()
        assert merged.percentiles([0.9])[0, group] == single.percentile(0.9)
    assert save(bank.select(columns)) == before
