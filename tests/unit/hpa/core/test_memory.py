"""Care after a restart: never bolder than a controller that remembers."""

from datetime import datetime, timedelta

import pytest

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.observation import AfterStart, Memory, ScaleDecision, memory_for
from kubetide.hpa.core.samples import ErrorKind, MetricFailure
from unit.hpa.worlds import NOW, QUEUE, ago, hpa, observation, reading, stamp, turn, value

OLD = ago(86400)
AWAY = MetricFailure(ErrorKind.FETCH_FAILED, "away")


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def run(
    autoscaler: HorizontalPodAutoscaler, memory: Memory, current: int, proposal: int | None, now: datetime
) -> tuple[ScaleDecision, Memory]:
    """One turn of an External average metric that asks for `proposal` replicas; None: the metric fails."""
    answer = AWAY if proposal is None else value(proposal * 10_000)
    decision = turn(observation(autoscaler, current, [answer]), memory, now=now)
    return decision, conclude(decision).memory


def old_hpa(**arguments: object) -> HorizontalPodAutoscaler:
    return hpa(metrics=[QUEUE], maximum=30, created=OLD, **arguments)


@pytest.mark.parametrize(
    ("behavior", "at_the_edge"),
    [pytest.param(None, 10, id="without-behavior-the-edge-holds"), pytest.param({}, 3, id="with-behavior-it-does-not")],
)
def test_no_shrinking_before_a_whole_window_after_the_first_proposal(
    behavior: dict[str, object] | None, at_the_edge: int
) -> None:
    autoscaler = old_hpa(behavior=behavior)
    memory = memory_for(autoscaler, NOW)
    for seconds in (0, 100, 200, 299):
        decision, memory = run(autoscaler, memory, 10, 3, at(seconds))
        assert decision.desired == 10
    decision, memory = run(autoscaler, memory, 10, 3, at(300))
    assert decision.desired == at_the_edge
    decision, _ = run(autoscaler, memory, 10, 3, at(301))
    assert decision.desired == 3


def test_the_window_begins_with_the_first_answer_not_with_the_restart() -> None:
    autoscaler = old_hpa()
    memory = memory_for(autoscaler, NOW)
    for seconds in range(0, 600, 60):
        decision, memory = run(autoscaler, memory, 10, None, at(seconds))
        assert not decision.rescale
    for seconds in (600, 700, 899):
        decision, memory = run(autoscaler, memory, 10, 3, at(seconds))
        assert decision.desired == 10
    assert run(autoscaler, memory, 10, 3, at(901))[0].desired == 3


def test_without_care_the_reference_shrinks_at_the_first_answer() -> None:
    autoscaler = old_hpa()
    memory = Memory()
    _, memory = run(autoscaler, memory, 10, None, at(0))
    assert run(autoscaler, memory, 10, 3, at(600))[0].desired == 3


def test_a_first_proposal_above_the_size_is_held_too() -> None:
    autoscaler = old_hpa(behavior={})
    memory = memory_for(autoscaler, NOW)
    decision, memory = run(autoscaler, memory, 10, 12, at(0))
    assert decision.desired == 12
    for seconds in (20, 299):
        decision, memory = run(autoscaler, memory, 12, 3, at(seconds))
        assert decision.desired == 12


def test_what_is_held_never_brings_an_old_size_back() -> None:
    autoscaler = old_hpa(behavior={})
    decision, memory = run(autoscaler, Memory(recommendations=(), after_start=AfterStart()), 10, 3, at(0))
    decision, memory = run(autoscaler, memory, 5, 3, at(60))
    assert decision.desired == 5


def test_a_window_of_zero_has_no_effect() -> None:
    autoscaler = old_hpa(behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    assert run(autoscaler, memory_for(autoscaler, NOW), 10, 3, at(0))[0].desired == 3


def test_a_younger_autoscaler_is_new() -> None:
    assert memory_for(hpa(created=NOW), NOW).after_start is None
    assert memory_for(hpa(created=ago(1)), NOW).after_start is not None
    assert memory_for(hpa(created=ago(1)), None).after_start is None


DOWN_SLOWLY = {
    "scaleDown": {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 600}],
    }
}


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"currentReplicas": 5, "desiredReplicas": 4}, id="status-of-the-rescaling-turn"),
        pytest.param({"currentReplicas": 4, "desiredReplicas": 4}, id="status-of-a-later-turn"),
    ],
)
def test_lost_rescales_still_forbid_shrinking(status: dict[str, object]) -> None:
    autoscaler = old_hpa(behavior=DOWN_SLOWLY, status={**status, "lastScaleTime": stamp(NOW)})
    memory = memory_for(autoscaler, at(10))
    for seconds in (10, 300, 599):
        decision, memory = run(autoscaler, memory, 4, 1, at(seconds))
        assert decision.desired == 4
    assert run(autoscaler, memory, 4, 1, at(601))[0].desired == 3


def test_a_rescale_seen_in_the_status_limits_growth() -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}}
    status = {"currentReplicas": 4, "desiredReplicas": 8, "lastScaleTime": stamp(NOW)}
    autoscaler = old_hpa(behavior=behavior, status=status)
    memory = memory_for(autoscaler, at(10))
    for seconds in (10, 59):
        decision, memory = run(autoscaler, memory, 8, 20, at(seconds))
        assert decision.desired == 8
    assert run(autoscaler, memory, 8, 20, at(61))[0].desired == 12


def test_a_size_that_somebody_else_set_is_no_event() -> None:
    status = {"currentReplicas": 4, "desiredReplicas": 8, "lastScaleTime": stamp(NOW)}
    autoscaler = old_hpa(behavior={}, status=status)
    _, memory = run(autoscaler, memory_for(autoscaler, at(10)), 6, 6, at(10))
    assert memory.ups == ()


def test_cpu_readings_work_the_same() -> None:
    autoscaler = hpa(created=OLD)
    decision = turn(observation(autoscaler, 4, [reading(1, 1, 1, 1)]), memory_for(autoscaler, NOW))
    assert decision.desired == 4
    assert decision.held == 4
