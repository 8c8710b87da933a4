import math
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal

import numpy as np
import pytest

from kubetide.stats.block import Block
from kubetide.stats.buckets import exponential
from kubetide.stats.instants import ZERO_TIME, microseconds, moment
from kubetide.stats.saved import Saved
from kubetide.stats.turns import ranks
from onehistogram import Histogram

CPU = exponential(maximum=1000.0, first=0.01, ratio=1.05, epsilon=0.0001)
DOUBLING = exponential(maximum=100.0, first=10.0, ratio=2.0, epsilon=0.001)
"""Five buckets that begin at 0, 10, 30, 70 and 150."""
DAY = timedelta(days=1)
NOON = microseconds(datetime(2026, 3, 4, 12, tzinfo=UTC))
HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        pytest.param(-1.0, 0, id="negative-goes-to-the-first"),
        pytest.param(0.0, 0, id="zero"),
        pytest.param(9.999, 0, id="below-the-edge"),
        pytest.param(10.0, 1, id="the-edge-belongs-to-the-upper-bucket"),
        pytest.param(1e9, 4, id="beyond-the-end-goes-to-the-last"),
        pytest.param(float("inf"), 4, id="infinite-goes-to-the-last"),
        pytest.param(float("nan"), 0, id="no-number-goes-to-the-first"),
    ],
)
def test_a_value_finds_its_bucket(value: float, bucket: int) -> None:
    assert DOUBLING.find([value]).tolist() == [bucket]


def test_the_default_schemes_have_176_buckets() -> None:
    assert CPU.count == 176
    assert CPU.starts[-1] == pytest.approx(1021.1094089048601, rel=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: exponential(maximum=1.0, first=0.1, ratio=1.0, epsilon=0.1), id="ratio-of-one"),
        pytest.param(lambda: exponential(maximum=-1.0, first=0.1, ratio=2.0, epsilon=0.1), id="negative-maximum"),
        pytest.param(lambda: exponential(maximum=1.0, first=0.0, ratio=2.0, epsilon=0.1), id="buckets-without-width"),
        pytest.param(lambda: Block(DOUBLING, timedelta(0)), id="half-life-of-zero"),
    ],
)
def test_options_that_make_no_sense_are_refused(make: object) -> None:
    with pytest.raises(ValueError):
        make()  # type: ignore[operator]  # a table of constructors


def test_percentiles_are_bucket_ends_and_the_last_bucket_has_only_a_start() -> None:
    h = Histogram(DOUBLING)
    for value in (5.0, 15.0, 40.0, 1000.0):
        h.add(value)
    assert [h.percentile(p) for p in (0.0, 0.25, 0.5, 0.75, 1.0)] == [10.0, 10.0, 30.0, 70.0, 150.0]


def test_an_empty_histogram_answers_zero() -> None:
    h = Histogram(DOUBLING)
    assert h.empty
    assert h.percentile(0.9) == 0.0
    assert h.save() == Saved(ZERO_TIME, {}, 0.0)


def test_weight_below_epsilon_counts_in_the_total_and_not_in_the_range() -> None:
    h = Histogram(DOUBLING)
    h.add(55.0, 0.0005)
    assert h.empty
    h.add(5.0, 1.0)
    assert h.percentile(1.0) == 10.0
    assert h.save().total == 1.0005


def test_the_first_sample_sets_the_reference_to_the_nearest_midnight_even_a_coming_one() -> None:
    h = Histogram(CPU, DAY)
    h.add(1.0, 1.0, NOON + HOUR)
    assert moment(h.save().reference) == datetime(2026, 3, 5, tzinfo=UTC)
    assert h.save().total == pytest.approx(2.0 ** (-11 / 24))


def test_a_sample_a_half_life_younger_counts_twice() -> None:
    h = Histogram(CPU, DAY)
    h.add(1.0, 1.0, NOON)
    h.add(50.0, 1.0, NOON + 24 * HOUR)
    one, other = h.save().weights.values()
    assert (one, other) == (5000, 10000)


def test_a_sample_from_the_past_counts_less_and_moves_nothing() -> None:
    h = Histogram(CPU, DAY)
    h.add(1.0, 1.0, NOON)
    reference = h.save().reference
    h.add(50.0, 1.0, NOON - 200 * 24 * HOUR)
    h.add(9.0, 1.0, NOON - 24 * HOUR)
    assert h.save().reference == reference
    assert list(h.save().weights.values()) == [10000, 5000]


def test_a_hundred_half_lives_later_the_past_is_scaled_away() -> None:
    h = Histogram(CPU, DAY)
    h.add(1.0, 1.0, NOON)
    h.add(2.0, 1.0, NOON + 101 * 24 * HOUR)
    assert h.percentile(0.0) > 2.0
    assert h.save().total == pytest.approx(1.0, rel=0.5)


def test_taking_back_all_leaves_nothing_behind() -> None:
    h = Histogram(CPU, DAY)
    for value in (1.0, 2.0, 3.0):
        h.add(value, 1.0, NOON)
    for value in (2.0, 3.0, 1.0):
        h.subtract(value, 1.0, NOON)
    assert h.empty
    assert h.save().weights == {}


def test_merging_moves_the_older_side_and_never_the_source() -> None:
    old, young = Histogram(CPU, DAY), Histogram(CPU, DAY)
    old.add(1.0, 1.0, NOON)
    young.add(9.0, 1.0, NOON + 150 * 24 * HOUR)
    before = old.save(), young.save()
    young.merge(old)
    assert old.save() == before[0]
    assert young.percentile(0.0) > 9.0
    other = Histogram(CPU, DAY)
    other.add(1.0, 1.0, NOON)
    fresh = Histogram(CPU, DAY)
    fresh.add(9.0, 1.0, NOON + 150 * 24 * HOUR)
    other.merge(fresh)
    assert other.save().reference == young.save().reference


def test_different_options_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match="different options"):
        Histogram(CPU, DAY).merge(Histogram(DOUBLING, DAY))
    with pytest.raises(ValueError, match="different options"):
        Histogram(CPU, DAY).merge(Histogram(CPU, 2 * DAY))


@pytest.mark.parametrize(
    "saved",
    [
        pytest.param(Saved(ZERO_TIME, {1: 5}, -1.0), id="negative-total"),
        pytest.param(Saved(ZERO_TIME, {1: 5}, float("nan")), id="total-that-is-no-number"),
        pytest.param(Saved(ZERO_TIME, {-1: 5}, 1.0), id="bucket-before-the-first"),
        pytest.param(Saved(ZERO_TIME, {5: 5}, 1.0), id="bucket-after-the-last"),
        pytest.param(Saved(ZERO_TIME, {1: -5}, 1.0), id="negative-weight"),
    ],
)
def test_a_bad_checkpoint_changes_nothing(saved: Saved) -> None:
    h = Histogram(DOUBLING)
    h.add(5.0)
    before = h.save()
    with pytest.raises(ValueError):
        h.load(saved)
    assert h.save() == before


def test_a_restored_histogram_whose_lowest_bucket_is_tiny_is_not_empty() -> None:
    h = Histogram(CPU, DAY)
    h.load(Saved(NOON, {0: 1, 50: 10000}, 0.5))
    assert not h.empty
    assert h.percentile(0.5) == CPU.ends([50])[0]


def test_a_negative_weight_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="negative"):
        Histogram(DOUBLING).add(1.0, -1.0)


def test_ranks_take_each_column_once_per_turn_in_order() -> None:
    turns = [turn.tolist() for turn in ranks(np.array([3, 1, 3, 3, 2, 1]))]
    assert [sorted(turn) for turn in turns] == [[0, 1, 4], [2, 5], [3]]
    assert ranks(np.array([], dtype=np.int64)) == []
    assert [turn.tolist() for turn in ranks(np.array([1, 4, 9]))] == [[0, 1, 2]]
    assert [turn.tolist() for turn in ranks(np.array([1, 4, 4]))] == [[0, 1], [2]]


def test_times_are_microseconds_and_none_is_year_one() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    assert moment(microseconds(at)) == at
    assert microseconds(None) == ZERO_TIME
    assert moment(ZERO_TIME) is None


@pytest.mark.parametrize(
    ("first", "ratio"), [(0.01, 1.05), (1e7, 1.05), (0.025, 1.05), (5.0 * 1024 * 1024, 1.05), (1.0, 2.0), (1.0, 1.013)]
)
def test_every_bucket_begins_where_the_rounded_formula_reaches_it(first: float, ratio: float) -> None:
    scheme = exponential(maximum=first * 1e5, first=first, ratio=ratio, epsilon=0.0001)
    precise = Context(prec=60)

    def rounded_log(value: float) -> float:
        return float(precise.ln(Decimal(value)))

    edges = scheme.firsts.values
    for steps in range(-4, 5):
        values = (edges.view(np.int64) + steps).view(np.float64)
        by_formula = [
            int(rounded_log(value * (ratio - 1.0) / first + 1.0) / rounded_log(ratio)) if value >= first else 0
            for value in values.tolist()
        ]
        assert scheme.find(values).tolist() == [min(bucket, scheme.count - 1) for bucket in by_formula]


def test_the_shortcut_to_a_bucket_ends_where_a_search_would() -> None:
    edges = CPU.firsts.values
    values = np.concatenate([np.nextafter(edges, 0.0), edges, edges * 1.01, [5e-324, 0.0, -0.0, -5.0, 1e300]])
    assert CPU.find(values).tolist() == np.searchsorted(edges, values, side="right").tolist()
    assert CPU.find([math.nan, -math.nan, math.inf, -math.inf]).tolist() == [0, 0, 175, 0]
    assert CPU.find(0.5).shape == ()


def test_buckets_that_are_too_narrow_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubetide.stats.buckets._MOST_CELLS", 100)
    with pytest.raises(ValueError, match="too narrow"):
        exponential(maximum=1000.0, first=0.01, ratio=1.05, epsilon=0.0001)
