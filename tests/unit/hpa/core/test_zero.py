"""Whose zero it is: a target that a person switched off stays off, one that we put to zero is woken."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.hpa_compat import hpa_compat
from kubetide.api.values.conditions import Condition, find_condition
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.observation import Conclusion, Memory, Options
from kubetide.hpa.core.zero import CONDITION
from unit.hpa.worlds import NOW, QUEUE, hpa, observation, turn, value

GATE_OFF = hpa_compat("1.37", [("HPAScaleToZero", False)])


def marked(found: HorizontalPodAutoscaler, status: str = "True") -> HorizontalPodAutoscaler:
    condition = Condition(type=CONDITION, status=status, last_transition_time=NOW)
    return replace(found, status=replace(found.status, conditions=(condition,)))


@pytest.mark.parametrize(
    ("autoscaler", "version", "desired"),
    [
        pytest.param(hpa(minimum=0, metrics=[QUEUE]), "1.35", 3, id="a-minimum-of-zero-was-enough"),
        pytest.param(hpa(minimum=0, metrics=[QUEUE]), "1.37", 0, id="now-a-person-may-have-done-it"),
        pytest.param(marked(hpa(minimum=0, metrics=[QUEUE])), "1.37", 3, id="ours-is-woken"),
        pytest.param(marked(hpa(minimum=0, metrics=[QUEUE]), "False"), "1.37", 0, id="false-is-not-ours"),
        pytest.param(marked(hpa(minimum=2, metrics=[QUEUE])), "1.37", 3, id="ours-with-a-raised-minimum"),
        pytest.param(marked(hpa(minimum=2, metrics=[QUEUE])), "1.35", 0, id="which-used-to-stay-off"),
        pytest.param(marked(hpa(minimum=0)), "1.37", 0, id="no-metric-has-a-value-without-pods"),
    ],
)
def test_who_put_it_to_zero_decides(autoscaler: HorizontalPodAutoscaler, version: str, desired: int) -> None:
    seen = observation(autoscaler, 0, [value(25_000)], observed=0, running=[])
    decision = turn(seen, options=Options(compat=hpa_compat(version)))
    assert decision.desired == desired
    assert (decision.rule == "ScalingDisabled") is (desired == 0)


def test_a_raised_minimum_is_reached_even_when_nothing_asks_for_pods() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}}
    autoscaler = marked(hpa(minimum=2, metrics=[QUEUE], behavior=behavior))
    decision = turn(observation(autoscaler, 0, [value(0)], observed=0, running=[]))
    assert (decision.desired, decision.why) == (2, "Current number of replicas below minReplicas")


def shrink(found: HorizontalPodAutoscaler, *, options: Options | None = None) -> Conclusion:
    memory = Memory(recommendations=())
    seen = observation(found, 1, [value(0)])
    return conclude(turn(seen, memory, now=NOW + timedelta(hours=1), options=options))


@pytest.mark.parametrize(
    ("minimum", "status", "reason"), [(0, "True", "ScaledToZero"), (1, None, None)], ids=["to-zero", "kept-at-one"]
)
def test_the_condition_remembers_our_own_zero(minimum: int, status: str | None, reason: str | None) -> None:
    found = find_condition(shrink(hpa(minimum=minimum, metrics=[QUEUE])).status.conditions, CONDITION)
    assert (found.status, found.reason) == (status, reason) if found else status is None


def test_a_scale_write_that_failed_leaves_the_condition_alone() -> None:
    decision = turn(observation(hpa(minimum=0, metrics=[QUEUE]), 1, [value(0)]))
    assert find_condition(conclude(decision, scale_error="no").status.conditions, CONDITION) is None


def test_without_the_gate_the_condition_goes() -> None:
    off = Options(compat=GATE_OFF)
    autoscaler = marked(hpa(minimum=0, metrics=[QUEUE]))
    assert find_condition(shrink(autoscaler, options=off).status.conditions, CONDITION) is None
    seen = observation(autoscaler, 0, [value(25_000)], observed=0, running=[])
    assert find_condition(conclude(turn(seen, options=off)).status.conditions, CONDITION) is None


@pytest.mark.parametrize(("version", "expected"), [("1.37", 7), ("1.36", None)])
def test_a_full_status_shows_the_generation_it_is_about(version: str, expected: int | None) -> None:
    found = hpa(metrics=[QUEUE])
    found = replace(
        found, metadata=replace(found.metadata, generation=7), status=replace(found.status, observed_generation=3)
    )
    outcome = shrink(found, options=Options(compat=hpa_compat(version)))
    assert outcome.status.observed_generation == expected
