"""Whole turns: which rule has the last word, and what is said about it."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from kubetide.api.objects.capacity import Capacity
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaSpec
from kubetide.api.objects.hpa_compat import HpaCompat, hpa_compat
from kubetide.api.values.codec import convert
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.decide import metrics_of, needs_metrics, tolerance_of
from kubetide.hpa.core.observation import (
    HpaProblem,
    Memory,
    Observation,
    Options,
    ProblemKind,
    ScaleDecision,
    ScaleView,
)
from kubetide.hpa.core.samples import (
    ZERO_TIME,
    ErrorKind,
    MetricFailure,
    PodReading,
    Sample,
    ValueReading,
    without_impossible,
)
from kubetide.hpa.core.stabilization import Recommendation
from kubetide.hpa.core.trace import trace_of
from unit.hpa.worlds import CPU_50, NOW, QUEUE, QUEUE_VALUE, ago, hpa, observation, pod, pods, reading, turn, value

FAILED = MetricFailure(ErrorKind.FETCH_FAILED, "the metrics API is away")


def condition(decision: ScaleDecision, kind: str) -> tuple[str, str]:
    found = next((one for one in decision.conditions if one.type == kind), None)
    return (found.status, found.reason) if found else ("", "")


def reasons(decision: ScaleDecision) -> list[str]:
    outcome = conclude(decision)
    return [event.reason for event in (*outcome.events, *outcome.events_after_save)]


def test_growth_names_the_metric() -> None:
    decision = turn(observation(hpa(), 2, [reading(100, 100)]))
    assert (decision.desired, decision.rescale) == (4, True)
    assert decision.why == "cpu resource utilization (percentage of request) above target"
    assert condition(decision, "ScalingActive") == ("True", "ValidMetricFound")
    assert reasons(decision) == ["SuccessfulRescale"]


def test_a_target_at_zero_is_switched_off() -> None:
    decision = turn(observation(hpa(), 0))
    assert (decision.desired, decision.rescale) == (0, False)
    assert condition(decision, "ScalingActive") == ("False", "ScalingDisabled")


def test_a_reconcile_with_nothing_new_to_say_leaves_the_very_conditions_it_found() -> None:
    first = conclude(turn(observation(hpa(), 2, [reading(50, 50)])))
    assert [one.type for one in first.status.conditions or ()] == ["AbleToScale", "ScalingActive", "ScalingLimited"]
    known = replace(hpa(), status=first.status)
    assert turn(observation(known, 2, [reading(50, 50)]), first.memory).conditions is first.status.conditions
    failing = turn(observation(known, 2, [FAILED]), first.memory)
    assert condition(failing, "ScalingActive") == ("False", "FailedGetResourceMetric")


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(observation(hpa(), 0), id="switched-off"),
        pytest.param(observation(hpa(minimum=2), 1), id="out-of-bounds"),
        pytest.param(observation(hpa(), 2, [reading(1, 1)], selector=""), id="no-selector"),
        pytest.param(observation(hpa(), 2, [FAILED]), id="no-metric"),
    ],
)
def test_where_no_window_is_asked_the_scale_was_read_and_no_more(seen: Observation) -> None:
    decision = turn(seen)
    assert condition(decision, "AbleToScale") == ("True", "SucceededGetScale")
    assert decision.conditions[0].type == "AbleToScale"


@pytest.mark.parametrize(("replicas", "desired", "rule"), [(12, 10, "AboveMaximum"), (1, 2, "BelowMinimum")])
def test_bounds_are_corrected_at_once(replicas: int, desired: int, rule: str) -> None:
    held = Memory(recommendations=(Recommendation(20, NOW),))
    decision = turn(observation(hpa(minimum=2), replicas), held)
    assert (decision.desired, decision.rescale, decision.rule) == (desired, True, rule)
    assert condition(decision, "ScalingActive") == ("", "")
    assert decision.memory.recommendations == held.recommendations


def test_an_unreadable_target_changes_conditions_only() -> None:
    status = {"currentReplicas": 3, "desiredReplicas": 4}
    seen = Observation(hpa=hpa(status=status), scale=None, scale_problem=HpaProblem(ProblemKind.GET_SCALE, "not found"))
    outcome = conclude(turn(seen))
    assert (outcome.status.current_replicas, outcome.status.desired_replicas) == (3, 4)
    assert [event.reason for event in outcome.events] == ["FailedGetScale"]
    assert not outcome.save_error_counts


@pytest.mark.parametrize(
    ("selector", "claimed", "event", "reason"),
    [
        pytest.param("", (), "SelectorRequired", "InvalidSelector", id="none"),
        pytest.param("app in web", (), "InvalidSelector", "InvalidSelector", id="malformed"),
        pytest.param("app=web", ("shop/b", "shop/a"), "AmbiguousSelector", "AmbiguousSelector", id="ambiguous"),
    ],
)
def test_pods_must_be_known_to_be_counted(selector: str, claimed: tuple[str, ...], event: str, reason: str) -> None:
    decision = turn(observation(hpa(), 2, [reading(1, 1)], selector=selector, claimed_by=claimed))
    assert not decision.rescale
    assert decision.metrics is None
    assert condition(decision, "ScalingActive") == ("False", reason)
    assert reasons(decision) == [event, "FailedComputeMetricsReplicas"]


def test_the_claimants_are_named_in_order() -> None:
    decision = turn(observation(hpa(), 2, [reading(1, 1)], claimed_by=("shop/b", "shop/a")))
    assert decision.problem is not None
    assert "shop/a, shop/b" in decision.problem.message


def test_a_failed_metric_blocks_shrinking() -> None:
    decision = turn(observation(hpa(metrics=[CPU_50, QUEUE]), 4, [reading(1, 1, 1, 1), FAILED]))
    assert not decision.rescale
    assert condition(decision, "ScalingActive") == ("False", "FailedGetExternalMetric")
    assert reasons(decision) == ["FailedGetExternalMetric", "FailedComputeMetricsReplicas"]
    assert decision.metrics is not None
    assert [one["type"] for one in decision.metrics] == ["Resource", "External"]


def test_a_failed_metric_does_not_block_growth() -> None:
    decision = turn(observation(hpa(metrics=[QUEUE, CPU_50]), 2, [FAILED, reading(100, 100)]))
    assert decision.desired == 4
    assert decision.problem is not None
    assert decision.problem.kind is ProblemKind.PARTIAL_METRICS


def test_windows_hold_a_drop() -> None:
    before = Memory(recommendations=(Recommendation(4, NOW - timedelta(minutes=4)),))
    decision = turn(observation(hpa(), 4, [reading(1, 1, 1, 1)]), before)
    assert (decision.desired, decision.rule) == (4, "ScaleDownStabilized")
    assert decision.memory.recommendations == (*(before.recommendations or ()), Recommendation(1, NOW))


def test_a_size_that_comes_from_the_past_says_so() -> None:
    before = Memory(recommendations=(Recommendation(9, NOW - timedelta(minutes=1)),))
    decision = turn(observation(hpa(maximum=20), 4, [reading(50, 50, 50, 50)]), before)
    assert (decision.current, decision.proposal, decision.rescale) == (4, 4, True)
    assert decision.why, "a rescale without a reason cannot be understood"
    (told,) = conclude(decision).events
    assert told.message == (
        f"New size: {decision.desired}; reason: A recommendation of 9 replicas is still inside its stabilization window"
    )


def test_a_new_key_starts_with_its_present_size() -> None:
    decision = turn(observation(hpa(), 4, [reading(1, 1, 1, 1)]), Memory(recommendations=None))
    assert [one.replicas for one in decision.memory.recommendations or ()] == [4, 1]


def test_a_refused_write_is_told_and_not_remembered() -> None:
    decision = turn(observation(hpa(behavior={}), 2, [reading(100, 100)]))
    outcome = conclude(decision, scale_error="conflict")
    assert [event.reason for event in outcome.events] == ["FailedRescale"]
    assert outcome.problem is not None
    assert outcome.problem.kind is ProblemKind.UPDATE_SCALE
    assert outcome.memory.ups == ()
    assert outcome.status.last_scale_time is None
    worked = conclude(decision)
    assert [event.change for event in worked.memory.ups] == [2]
    assert worked.status.last_scale_time == NOW


def test_the_status_shows_the_size_before_the_rescale() -> None:
    outcome = conclude(turn(observation(hpa(), 2, [reading(100, 100)])))
    assert (outcome.status.current_replicas, outcome.status.desired_replicas) == (2, 4)
    assert outcome.action == "scale_up"


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        pytest.param(
            observation(hpa(metrics=[QUEUE_VALUE]), 3, [value(100_000)], running=[pod("web-0", ready=False)]),
            "InvalidMetricNoReadyPods",
            id="no-pod-ready",
        ),
        pytest.param(observation(hpa(metrics=[QUEUE]), 3, [value(-50_000)]), "InvalidMetricValue", id="negative"),
        pytest.param(
            observation(hpa(metrics=[QUEUE]), 3, [value(20_000, -9_000)]), "InvalidMetricValue", id="negative-in-a-sum"
        ),
        pytest.param(observation(hpa(), 3, [reading(90, -500, 10)]), "InvalidMetricValue", id="negative-usage"),
        pytest.param(
            observation(hpa(), 3, [reading(1, 1, 1, at=NOW + timedelta(hours=1))]), "InvalidMetricValue", id="future"
        ),
        pytest.param(
            observation(hpa(), 3, [replace(reading(1, 1, 1), defects={"web-1": "twice"})]),
            "InvalidMetricValue",
            id="two-values-for-one-pod",
        ),
        pytest.param(
            observation(hpa(), 3, [PodReading({"ghost": Sample(1)})], running=pods(3, phase="Pending", ready=False)),
            "FailedGetResourceMetric",
            id="only-ghosts-fail-already",
        ),
    ],
)
def test_the_guard_does_not_shrink_on_what_cannot_be_true(seen: Observation, reason: str) -> None:
    before = Memory(recommendations=())
    decision = turn(seen, before)
    assert not decision.rescale
    assert condition(decision, "ScalingActive") == ("False", reason)
    assert decision.memory.recommendations == ()
    outcome = conclude(decision)
    assert outcome.status.desired_replicas == 0
    assert [event.reason for event in outcome.events] == [reason]
    assert decision.metrics is not None


def test_the_guard_looks_at_no_sample_that_was_not_used() -> None:
    running = [pod("web-0"), pod("web-1"), pod("web-2", deleting=True)]
    assert (
        turn(observation(hpa(), 3, [reading(10, 10, -500)], running=running), Memory(recommendations=())).desired == 1
    )


def test_the_guard_lets_growth_and_zero_through() -> None:
    assert turn(observation(hpa(metrics=[QUEUE]), 3, [value(90_000, -1_000)])).desired == 6
    at_zero = observation(hpa(minimum=0, metrics=[QUEUE]), 0, [value(-5)])
    assert turn(at_zero).desired == 0
    down = observation(hpa(minimum=0, metrics=[QUEUE]), 3, [value(0)])
    assert turn(down).desired == 0


def test_the_first_reconcile_that_the_guard_lets_through_is_active_again() -> None:
    stopped = conclude(turn(observation(hpa(metrics=[QUEUE]), 3, [value(-50_000)])))
    healed = replace(hpa(metrics=[QUEUE]), status=stopped.status)
    decision = turn(observation(healed, 3, [value(30_000)]), stopped.memory)
    assert condition(decision, "ScalingActive") == ("True", "ValidMetricFound")


def test_a_guarded_metric_does_not_stop_one_that_grows() -> None:
    seen = observation(hpa(metrics=[QUEUE, CPU_50]), 3, [value(-50_000), reading(100, 100, 100)])
    assert turn(seen).desired == 6


def test_the_guard_can_be_switched_off() -> None:
    seen = observation(hpa(metrics=[QUEUE]), 3, [value(-50_000)])
    assert turn(seen, options=Options(guard=False)).desired == 1


DAY_OLD = ago(86_400)


@pytest.mark.parametrize(
    ("seen", "named"),
    [
        pytest.param(
            observation(hpa(), 3, [reading(10, 10, 10, at=DAY_OLD)]),
            "the sample of pod web-0 is 86400 s old, with a window of 30 s",
            id="of-pods",
        ),
        pytest.param(
            observation(
                hpa(metrics=[QUEUE]), 3, [ValueReading((1_000,), DAY_OLD, ((DAY_OLD, timedelta(seconds=60)),))]
            ),
            "it is 86400 s old, with a window of 60 s",
            id="of-a-queue",
        ),
    ],
)
def test_a_target_does_not_shrink_on_old_usage(seen: Observation, named: str) -> None:
    decision = turn(seen)
    assert not decision.rescale
    assert condition(decision, "ScalingActive") == ("False", "InvalidMetricStale")
    assert [event.reason for event in conclude(decision).events] == ["InvalidMetricStale"]
    assert decision.choice is not None
    assert named in decision.choice.message
    assert turn(seen, options=Options(max_usage_age=timedelta(0))).desired == 1
    assert turn(seen, options=Options(guard=False)).desired == 1


@pytest.mark.parametrize(
    ("age", "window", "shrinks"),
    [
        pytest.param(300, 0, True, id="as-old-as-allowed"),
        pytest.param(301, 0, False, id="a-second-older"),
        pytest.param(600, 300, True, id="a-long-window-is-added"),
        pytest.param(601, 300, False, id="beyond-a-long-window"),
        pytest.param(400, -100, False, id="a-negative-window-takes-nothing-away"),
    ],
)
def test_the_age_of_usage_is_counted_from_the_end_of_its_window(age: float, window: float, shrinks: bool) -> None:
    decision = turn(observation(hpa(), 3, [reading(10, 10, 10, at=ago(age), window=window)]))
    assert (decision.desired < 3) is shrinks


def test_a_target_grows_on_old_usage_and_shrinks_on_usage_without_a_time() -> None:
    assert turn(observation(hpa(), 3, [reading(100, 100, 100, at=DAY_OLD)])).desired == 6
    assert turn(observation(hpa(), 3, [reading(10, 10, 10, at=ZERO_TIME)])).desired == 1


def test_one_old_sample_among_those_used_is_enough_and_an_unused_one_is_not() -> None:
    mixed = reading(10, 10, 10)
    old = PodReading({**mixed.samples, "web-2": Sample(10, DAY_OLD)}, NOW)
    assert not turn(observation(hpa(), 3, [old])).rescale
    running = [pod("web-0"), pod("web-1"), pod("web-2", deleting=True)]
    assert turn(observation(hpa(), 3, [old], running=running)).desired == 1


def test_samples_that_cannot_be_true_are_told_and_the_pod_counts_as_missing() -> None:
    capacity = Capacity({"node-1": {"cpu": 4_000}})
    given = without_impossible(reading(50, 50, 4_001), "cpu", pods(3), capacity)
    decision = turn(observation(hpa(), 3, [given]))
    assert decision.desired == 3
    assert decision.results[0].proposal is not None
    assert decision.results[0].proposal.groups is not None
    assert decision.results[0].proposal.groups.missing == ("web-2",)
    (event,) = conclude(decision).events
    assert event.reason == "InvalidMetricValue"
    assert "the cpu usage of pod web-2 is 4001m, the largest node has 4; it is not counted" in event.message
    shown = trace_of(decision, conclude(decision), None)["metrics"][0]["refused"]
    assert shown == ["the cpu usage of pod web-2 is 4001m, the largest node has 4"]


def test_without_any_sample_that_can_be_true_the_metric_fails_and_reports_why() -> None:
    given = without_impossible(reading(5_000), "cpu", pods(1), Capacity({"node-1": {"cpu": 4_000}}))
    decision = turn(observation(hpa(), 1, [given]))
    assert decision.desired == 1
    assert condition(decision, "ScalingActive") == ("False", "FailedGetResourceMetric")
    assert decision.problem is not None
    assert "no pod has a sample that can be true: the cpu usage of pod web-0 is 5" in decision.problem.message


def test_a_metric_that_is_no_number_fails_by_its_own_reason() -> None:
    broken = MetricFailure(ErrorKind.INVALID_VALUE, "value 0 is NaN")
    decision = turn(observation(hpa(metrics=[QUEUE]), 3, [broken]))
    assert condition(decision, "ScalingActive") == ("False", "InvalidMetricValue")


def test_scale_from_zero_goes_by_the_usage() -> None:
    seen = observation(hpa(minimum=0, metrics=[QUEUE_VALUE]), 0, [value(25_000)], running=[])
    assert turn(seen, options=Options(compat=hpa_compat("1.35"))).desired == 3


def test_no_metrics_means_cpu_at_80_percent() -> None:
    assert metrics_of(convert({}, HpaSpec))[0].resource is not None
    small = convert({"spec": {"maxReplicas": 3}}, HorizontalPodAutoscaler)
    assert needs_metrics(small, ScaleView(3, 3, ""), HpaCompat())
    assert not needs_metrics(small, ScaleView(4, 4, ""), HpaCompat())


def test_tolerances_of_behavior_need_the_gate() -> None:
    spec = hpa(behavior={"scaleUp": {"tolerance": "0.3"}}).spec
    assert tolerance_of(spec, Options(compat=hpa_compat("1.34"))).up == 0.1
    found = tolerance_of(spec, Options())
    assert (found.up, found.down) == (0.30000000000000004, 0.1)
