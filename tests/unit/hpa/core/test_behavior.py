"""Policies, rate limits and what is remembered for them."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.hpa import Behavior, ScalingRules
from kubetide.api.values.codec import convert
from kubetide.hpa.core.behavior import (
    DEFAULT_UP,
    ScaleEvent,
    complete_rules,
    down_limit,
    limit_by_rules,
    limit_plain,
    longest_period,
    remember_event,
    up_limit,
)
from unit.hpa.worlds import NOW, ago

WINDOW = timedelta(minutes=5)


def rules(select: str = "Max", *policies: tuple[str, int, int]) -> ScalingRules:
    made = [{"type": kind, "value": value, "periodSeconds": period} for kind, value, period in policies]
    return convert({"selectPolicy": select, "policies": made}, ScalingRules)


@pytest.mark.parametrize(
    ("stable", "current", "expected", "reason"),
    [
        pytest.param(20, 3, 6, "ScaleUpLimit", id="at-most-double"),
        pytest.param(20, 1, 4, "ScaleUpLimit", id="or-four"),
        pytest.param(20, 8, 10, "TooManyReplicas", id="maximum"),
        pytest.param(1, 8, 2, "TooFewReplicas", id="minimum"),
        pytest.param(5, 8, 5, "DesiredWithinRange", id="shrinking-has-no-rate"),
    ],
)
def test_without_behavior_growth_is_limited(stable: int, current: int, expected: int, reason: str) -> None:
    found = limit_plain(stable, current, minimum=2, maximum=10)
    assert (found.replicas, found.reason) == (expected, reason)


@pytest.mark.parametrize(
    ("select", "up", "down"),
    [
        pytest.param("Max", 15, 5, id="the-most-change"),
        pytest.param("Min", 12, 8, id="the-least-change"),
        pytest.param("Disabled", 10, 10, id="no-change"),
        pytest.param("Whatever", 15, 5, id="unknown-is-max"),
    ],
)
def test_select_policy_picks_the_limit(select: str, up: int, down: int) -> None:
    made = rules(select, ("Pods", 2, 60), ("Percent", 50, 60))
    assert up_limit(10, (), (), made, now=NOW) == up
    assert down_limit(10, (), (), made, now=NOW) == down


def test_products_are_those_of_doubles() -> None:
    assert up_limit(100, (), (), rules("Max", ("Percent", 10, 60)), now=NOW) == 111
    assert down_limit(10, (), (), rules("Max", ("Percent", 90, 60)), now=NOW) == 0


def test_percent_of_nothing_never_leaves_zero() -> None:
    assert up_limit(0, (), (), rules("Max", ("Percent", 100, 15)), now=NOW) == 0
    assert up_limit(0, (), (), DEFAULT_UP, now=NOW) == 4


def test_what_was_done_within_the_period_counts() -> None:
    made = rules("Max", ("Pods", 4, 60))
    assert up_limit(8, (ScaleEvent(4, ago(59)),), (), made, now=NOW) == 8
    assert up_limit(8, (ScaleEvent(4, ago(60)),), (), made, now=NOW) == 12
    assert up_limit(8, (), (ScaleEvent(2, ago(10)),), made, now=NOW) == 14
    assert down_limit(8, (), (ScaleEvent(4, ago(10)),), made, now=NOW) == 8


def test_limits_say_which_bound_cut() -> None:
    made = complete_rules(
        convert({"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}, Behavior), WINDOW
    )

    def reason(stable: int, **bounds: Any) -> tuple[int, str]:
        found = limit_by_rules(stable, 10, made, (), (), now=NOW, **bounds)
        return found.replicas, found.reason

    assert reason(1, minimum=1, maximum=30) == (9, "ScaleDownLimit")
    assert reason(1, minimum=9, maximum=30) == (9, "TooFewReplicas")
    assert reason(30, minimum=1, maximum=30) == (20, "ScaleUpLimit")
    assert reason(30, minimum=1, maximum=15) == (15, "TooManyReplicas")
    assert reason(10, minimum=1, maximum=5) == (10, "DesiredWithinRange")
    assert reason(9, minimum=1, maximum=30) == (9, "DesiredWithinRange")
    assert reason(1, minimum=1, maximum=30, hold_down=True) == (10, "ScaleDownLimit")


def test_behavior_is_completed_field_by_field() -> None:
    made = complete_rules(convert({"scaleUp": {"selectPolicy": "Min"}}, Behavior), WINDOW)
    assert made.up.select_policy == "Min"
    assert made.up.policies == DEFAULT_UP.policies
    assert made.down_window == WINDOW
    assert made.up_window == timedelta(0)
    assert longest_period(made.down) == timedelta(seconds=15)


def test_an_outdated_event_gives_its_place_to_the_new_one() -> None:
    events = (ScaleEvent(1, ago(500)), ScaleEvent(2, ago(400)), ScaleEvent(3, ago(10)))
    after = remember_event(events, 9, timedelta(seconds=60), now=NOW)
    assert [(event.change, event.outdated) for event in after] == [(1, True), (9, False), (3, False)]
