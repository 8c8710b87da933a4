"""Ranges that Prometheus is asked for, in slices that it answers."""

import pytest

from kubetide.stats.prometheus_ranges import MAX_POINTS, Slice, slice_points, slices


def test_slices_cover_every_step_once() -> None:
    found = list(slices(0, 100, 10, 4))
    assert found == [Slice(0, 30, 4), Slice(40, 70, 4), Slice(80, 100, 3)]
    assert list(slices(0, 5, 10, 4)) == [Slice(0, 0, 1)]


@pytest.mark.parametrize(("count", "points"), [(0, MAX_POINTS), (1, MAX_POINTS), (20_000, 100), (10**9, 1)])
def test_more_series_make_shorter_slices(count: int, points: int) -> None:
    assert slice_points(count) == points
