"""Windows over past recommendations."""

from datetime import timedelta

import pytest

from kubetide.hpa.core.stabilization import Recommendation, stabilize, stabilize_both_ways
from unit.hpa.worlds import NOW, ago

MINUTES_5 = timedelta(minutes=5)


def past(*entries: tuple[int, float]) -> tuple[Recommendation, ...]:
    return tuple(Recommendation(replicas, ago(seconds)) for replicas, seconds in entries)


@pytest.mark.parametrize(
    ("before", "proposal", "expected", "reason"),
    [
        pytest.param((), 3, 3, "ReadyForNewScale", id="no-history-follows-the-proposal"),
        pytest.param(((9, 240),), 3, 9, "ScaleDownStabilized", id="recent-peak-holds"),
        pytest.param(((9, 300),), 3, 9, "ScaleDownStabilized", id="the-edge-still-counts"),
        pytest.param(((9, 301),), 3, 3, "ReadyForNewScale", id="older-is-forgotten"),
        pytest.param(((9, 10),), 12, 12, "ReadyForNewScale", id="growth-is-not-held"),
    ],
)
def test_a_drop_waits_for_the_whole_window(
    before: tuple[tuple[int, float], ...], proposal: int, expected: int, reason: str
) -> None:
    found = stabilize(proposal, past(*before), MINUTES_5, now=NOW)
    assert (found.replicas, found.reason) == (expected, reason)


@pytest.mark.parametrize(
    ("proposal", "current", "before", "expected", "reason"),
    [
        pytest.param(3, 8, ((6, 100),), 6, "ScaleDownStabilized", id="down-to-the-recent-peak"),
        pytest.param(3, 8, ((9, 100),), 8, "ScaleDownStabilized", id="never-above-current-when-shrinking"),
        pytest.param(12, 8, ((10, 30),), 10, "ScaleUpStabilized", id="up-to-the-recent-low"),
        pytest.param(12, 8, ((5, 30),), 8, "ScaleUpStabilized", id="never-below-current-when-growing"),
        pytest.param(3, 8, ((9, 300),), 3, "ReadyForNewScale", id="the-edge-does-not-count"),
        pytest.param(12, 8, ((5, 60),), 12, "ReadyForNewScale", id="nor-when-growing"),
    ],
)
def test_behavior_has_a_window_for_each_direction(
    proposal: int, current: int, before: tuple[tuple[int, float], ...], expected: int, reason: str
) -> None:
    found = stabilize_both_ways(
        proposal, current, past(*before), up_window=timedelta(minutes=1), down_window=MINUTES_5, now=NOW
    )
    assert (found.replicas, found.reason) == (expected, reason)


def test_the_last_outdated_entry_gives_its_place() -> None:
    found = stabilize(1, past((5, 900), (6, 800), (7, 100)), MINUTES_5, now=NOW)
    assert [one.replicas for one in found.recommendations] == [5, 1, 7]


def test_with_behavior_an_entry_is_outdated_only_for_both_windows() -> None:
    found = stabilize_both_ways(1, 7, past((5, 200), (7, 100)), up_window=timedelta(0), down_window=MINUTES_5, now=NOW)
    assert [one.replicas for one in found.recommendations] == [5, 7, 1]


def test_what_is_held_counts_for_shrinking_only() -> None:
    assert stabilize(3, (), MINUTES_5, now=NOW, held=8).replicas == 8
    both = stabilize_both_ways(12, 8, (), up_window=MINUTES_5, down_window=MINUTES_5, now=NOW, held=8)
    assert (both.low, both.high) == (12, 12)
