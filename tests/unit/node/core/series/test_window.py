"""Windows of the ring are found by bisection, and are those that looking at every time would give."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import AVG, LAST
from kubetide.node.core.series.ring import Ring, SeriesGroup, series_key

KEY = series_key(kinds.POD_CPU, {kinds.POD_UID: "a"})


def by_looking(group: SeriesGroup, start: int, end: int) -> list[int]:
    count = min(group.tick, group.capacity)
    order = [tick % group.capacity for tick in range(group.tick - count, group.tick)]
    return [place for place in order if start <= group.millis[place] <= end]


@given(
    st.lists(st.integers(-3, 12), max_size=60),
    st.integers(1, 16),
    st.integers(-5, 300),
    st.integers(-5, 300),
)
def test_the_same_positions_in_the_same_order(steps: list[int], capacity: int, one: int, other: int) -> None:
    group = SeriesGroup(capacity)
    at = 0
    for number, step in enumerate(steps):
        at += step  # a clock may go back
        group.append(at, [(KEY, float(number))])
    start, end = min(one, other), max(one, other)
    assert group.window(start, end).tolist() == by_looking(group, start, end)


@given(st.lists(st.tuples(st.integers(-1, 3), st.booleans()), max_size=40), st.integers(0, 60), st.integers(0, 60))
def test_the_newest_value_of_each_is_the_last_of_its_samples(
    steps: list[tuple[int, bool]], one: int, other: int
) -> None:
    ring = Ring(retention_seconds=20)
    at = 0
    for number, (step, present) in enumerate(steps):
        at += step
        samples = [(KEY, float(number))] if present else []
        ring.append("p", 1.0, at, samples)
    start, end = min(one, other), max(one, other)
    expected = ring.query(kinds.POD_CPU, {kinds.POD_UID: "a"}, start, end).aggregate(LAST)
    found = ring.latest_each(kinds.POD_CPU, kinds.POD_UID, start, end)
    assert found == ({} if expected is None else {"a": expected})


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.booleans(), st.booleans()), max_size=40),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_the_average_of_each_is_that_of_a_query_to_the_last_bit(
    steps: list[tuple[float, bool, bool]], one: int, other: int
) -> None:
    ring = Ring(retention_seconds=20)
    second = series_key(kinds.POD_CPU, {kinds.POD_UID: "b"})
    for at, (value, first_there, second_there) in enumerate(steps):
        samples = [(KEY, value)] * first_there + [(second, value / 3)] * second_there
        ring.append("p", 1.0, at, samples)
    start, end = min(one, other), max(one, other)
    expected = {
        uid: average
        for uid in ("a", "b")
        if (average := ring.query(kinds.POD_CPU, {kinds.POD_UID: uid}, start, end).aggregate(AVG)) is not None
    }
    assert ring.averages_each(kinds.POD_CPU, kinds.POD_UID, start, end) == expected


def test_samples_of_containers_are_kept_for_minutes_and_those_of_pods_for_the_whole_window() -> None:
    ring = Ring(retention_seconds=2100)
    container = series_key(kinds.CONTAINER_CPU, {kinds.CONTAINER_ID: "c"})
    for second in range(1000):
        ring.append("pods", 1.0, second * 1000, [(KEY, 1.0)])
        ring.append("pods/containers", 1.0, second * 1000, [(container, 1.0)])
    kept = {kind: len(ring.query(kind, None, 0, 10**6)) for kind in (kinds.POD_CPU, kinds.CONTAINER_CPU)}
    assert kept == {kinds.POD_CPU: 1000, kinds.CONTAINER_CPU: 300}


def test_after_a_clock_went_back_for_a_whole_ring_bisection_is_used_again() -> None:
    group = SeriesGroup(4)
    for at in (10, 20, 5, 6, 7, 8, 9, 10):
        group.append(at, ())
    assert group.tick >= group._disorder
    assert np.array_equal(group.window(8, 10), by_looking(group, 8, 10))
