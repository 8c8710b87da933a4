"""Memory as one number and as two."""

import numpy as np
import pytest

from kubetide.stats.buckets import Floats
from kubetide.vpa.recommender.core.adaptive.hour import MemoryHour, memory_hour
from kubetide.vpa.recommender.core.adaptive.margin import MarginSizer
from kubetide.vpa.recommender.core.adaptive.sharing import SharingSizer, _evictions
from kubetide.vpa.recommender.core.adaptive.windows import Windows

GIB = 2.0**30


def flat(values: Floats) -> MemoryHour:
    return memory_hour(np.tile(values, (12, 1)))


def test_the_hours_of_the_first_day_become_one_window() -> None:
    windows = Windows(1)
    for number in range(24):
        windows.observe(flat(np.array([GIB * (1 + number % 3)])), day_ends=number == 23)
        assert bool(windows.grown[0]) == (number == 23)
    peaks = windows.columns["peaks"][:, 0]
    assert peaks[np.isfinite(peaks)].tolist() == [3 * GIB]
    assert windows.usual()[0][0] == pytest.approx(2 * GIB)


def test_a_container_that_came_late_stays_young_for_another_day() -> None:
    windows = Windows(1)
    for number in range(24):
        windows.observe(flat(np.array([GIB if number > 20 else np.nan])), day_ends=number == 23)
    assert not windows.grown[0]


def test_what_is_usual_follows_the_hours_of_the_first_day_and_days_slowly() -> None:
    windows = Windows(1)
    for number in range(24):
        windows.observe(flat(np.array([GIB if number < 6 else 2 * GIB])), day_ends=number == 23)
        if number == 11:
            assert windows.usual()[1][0] > 1.95 * GIB
    for day in range(10):
        for number in range(24):
            windows.observe(flat(np.array([2 * GIB if day < 9 else 4 * GIB])), day_ends=number == 23)
    assert 2 * GIB < windows.usual()[1][0] < 2.3 * GIB


def test_in_the_first_day_a_request_stays_within_the_wider_band() -> None:
    windows = Windows(20)
    sizer = SharingSizer(windows)

    def after(hours: int, level: float) -> float:
        for _ in range(hours):
            windows.observe(flat(np.full(20, level)), day_ends=False)
        return float(sizer.decide()[0][0])

    first = after(4, GIB)
    assert after(6, 0.85 * GIB) == first
    assert after(6, 0.75 * GIB) < 0.8 * first


@pytest.mark.parametrize("grown", [False, True], ids=["first-day", "later"])
@pytest.mark.parametrize(
    ("which", "before", "after", "moves"),
    [
        pytest.param(0, 0.5, 0.8, False, id="a-small-one-that-a-node-hardly-notices"),
        pytest.param(0, 0.5, 3.0, True, id="a-small-one-that-is-far-too-small"),
        pytest.param(1, 10.0, 14.0, True, id="a-large-one"),
        pytest.param(1, 10.0, 6.0, True, id="a-large-one-that-shrinks"),
    ],
)
def test_a_request_moves_where_the_change_is_worth_it(
    which: int, before: float, after: float, moves: bool, grown: bool
) -> None:
    windows = Windows(20)
    sizer = SharingSizer(windows)
    used = np.where(np.arange(20) == 0, 0.5, 10.0) * GIB

    def sized() -> float:
        for number in range(24 * 100 if grown else 12):
            windows.observe(flat(used), day_ends=grown and number % 24 == 23)
        return float(sizer.decide()[0][which])

    used[which] = before * GIB
    first = sized()
    used[which] = after * GIB
    assert (sized() != first) is moves


def grown_fleet(rng: np.random.Generator, base: Floats, days: int) -> tuple[Windows, MarginSizer, list[Floats]]:
    windows = Windows(base.size)
    sizer = MarginSizer(windows)
    requests = []
    for _ in range(days):
        level = base * (1.0 + 0.2 * rng.random(base.size))
        for number in range(24):
            sizer.observe(windows.observe(flat(level), day_ends=number == 23))
        requests.append(sizer.decide().copy())
    return windows, sizer, requests


def test_small_containers_are_insured_more_generously_than_large_ones() -> None:
    base = np.array([0.02, 0.02, 8.0, 8.0]) * GIB
    _, _, requests = grown_fleet(np.random.default_rng(3), base, 20)
    margin = requests[-1] / base
    assert margin[:2].min() > margin[2:].max()


def test_the_request_covers_the_recent_peaks_at_once() -> None:
    windows, sizer, _ = grown_fleet(np.random.default_rng(3), np.full(8, GIB), 10)
    jumped = np.full(8, GIB)
    jumped[0] = 6 * GIB
    sizer.observe(windows.observe(flat(jumped), day_ends=False))
    assert sizer.decide()[0] >= 6 * GIB


def test_calm_containers_are_left_alone() -> None:
    _, _, requests = grown_fleet(np.random.default_rng(5), np.full(20, GIB), 30)
    moved = np.abs(np.diff(np.array(requests[10:]), axis=0)) > 0.0
    assert moved.sum() / 20 <= 2


@pytest.mark.parametrize(
    ("used", "reserved", "expected"),
    [
        pytest.param([[1.0, 1.0]], [[1.0, 1.0]], 0, id="exactly-full"),
        pytest.param([[9.0, 1.0, 1.0]], [[4.0, 2.0, 2.0]], 1, id="the-one-furthest-above-makes-room"),
        pytest.param([[30.0, 30.0, 30.0]], [[10.0, 10.0, 10.0]], 2, id="until-the-rest-fits"),
        pytest.param([[9.0, 1.0], [1.0, 1.0]], [[4.0, 2.0], [4.0, 2.0]], 1, id="nodes-stand-alone"),
    ],
)
def test_evictions_as_a_full_node_makes_them(
    used: list[list[float]], reserved: list[list[float]], expected: int
) -> None:
    assert _evictions(np.array(used), np.array(reserved)) == expected


def shared_fleet(days: int, samples_of_day: list[Floats], size: int) -> tuple[Floats, Floats]:
    windows = Windows(size)
    sizer = SharingSizer(windows)
    for _ in range(days):
        for number, samples in enumerate(samples_of_day):
            usual = sizer.base()
            hour = memory_hour(samples)
            closed = windows.observe(hour, day_ends=number == 23)
            sizer.note(samples)
            sizer.observe(hour, closed, day_ends=number == 23, usual=usual)
            request, limit = sizer.decide()
    return request, limit


def test_peaks_that_never_meet_share_their_room() -> None:
    size = 40
    day = []
    for number in range(24):
        level = np.full(size, GIB)
        level[np.arange(size) % 24 == number] = 8 * GIB
        day.append(level[None])
    request, limit = shared_fleet(14, day, size)
    assert request.sum() < 0.6 * 8 * GIB * size
    assert (limit > 8 * GIB).all()


def test_peaks_that_meet_are_reserved() -> None:
    size = 40
    day = [np.full((1, size), 8 * GIB if number == 12 else GIB) for number in range(24)]
    request, _ = shared_fleet(14, day, size)
    assert request.sum() >= 8 * GIB * size
