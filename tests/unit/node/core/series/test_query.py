"""Aggregates: the index rule, and what an empty window says."""

import numpy as np
import pytest

from kubetide.node.core.series.query import AVG, COUNT, EMPTY, LAST, PERCENTILES, percentile_index, points_of


@pytest.mark.parametrize(
    ("count", "fraction", "index"),
    [(1, 0.99, 0), (2, 0.9, 0), (10, 0.9, 8), (100, 0.95, 94), (100, 0.99, 98), (20, 0.95, 18)],
)
def test_percentiles_pick_low_ranks_in_single_precision(count: int, fraction: float, index: int) -> None:
    assert percentile_index(count, fraction) == index


def test_an_empty_window_has_only_a_count() -> None:
    assert {name: EMPTY.aggregate(name) for name in (AVG, LAST, COUNT, *PERCENTILES)} == {
        **dict.fromkeys((AVG, LAST, *PERCENTILES)),
        "count": 0.0,
    }


def test_unknown_aggregates_are_averages() -> None:
    points = points_of(np.array([1, 2], dtype=np.int64), np.array([1.0, 3.0]))
    assert points.aggregate("median") == 2.0


def test_of_equal_times_the_first_is_last() -> None:
    points = points_of(np.array([5, 5], dtype=np.int64), np.array([1.0, 3.0]))
    assert points.aggregate("last") == 1.0
