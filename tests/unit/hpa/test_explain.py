"""What a person is told."""

import json

from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.observation import ScaleDecision
from kubetide.hpa.core.samples import ErrorKind, MetricFailure
from kubetide.hpa.core.trace import line_of, shown_line, trace_of
from kubetide.hpa.explain import render
from unit.hpa.worlds import CPU_50, NOW, QUEUE, hpa, observation, pod, pods, reading, turn, value


def traced(decision: ScaleDecision) -> dict[str, object]:
    outcome = conclude(decision)
    trace = trace_of(decision, outcome, outcome.problem)
    trace["history"] = [shown_line(line_of(decision, outcome.problem, wrote=True))]
    return json.loads(json.dumps(trace))  # type: ignore[no-any-return]


def test_a_rescale_is_told_with_its_metric_and_its_arithmetic() -> None:
    running = [*pods(2), pod("web-2", ready=False)]
    behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    seen = observation(
        hpa(metrics=[CPU_50, QUEUE], behavior=behavior), 3, [reading(190, 190), value(31_000)], running=running
    )
    text = render(traced(turn(seen)))
    assert "* 1. cpu resource utilization (percentage of request), target 50%" in text
    assert "190% used (190m on average): proposes 8 replicas" in text
    assert "2 ready, 1 missing (web-2)" in text
    assert "Limits      4 (cut to the scale-up rate, limit 4)" in text
    assert "scale 3 -> 4" in text
    assert "1 Pods per 60s" in text
    assert "History (newest first)" in text


def test_a_failure_is_told() -> None:
    failed = MetricFailure(ErrorKind.FETCH_FAILED, "the metrics API is away")
    text = render(traced(turn(observation(hpa(), 2, [failed]))))
    assert "failed: the metrics API is away" in text
    assert "keep 2" in text


def test_a_guarded_decision_reports_what_is_wrong() -> None:
    text = render(traced(turn(observation(hpa(metrics=[QUEUE]), 3, [value(-1000)]))))
    assert "not to be trusted for shrinking: it has a negative value (-1)" in text
    assert "InvalidMetricValue" in text


def test_rows_of_the_history_that_say_the_same_are_one() -> None:
    decision = turn(observation(hpa(), 2, [reading(50, 50)]))
    rows = [
        {**shown_line(line_of(decision, None, wrote=False)), "at": f"2026-03-01T12:0{minute}:00.000Z"}
        for minute in range(3)
    ]
    text = render(
        {**traced(decision), "history": [*rows, {**rows[0], "at": "2026-03-01T12:03:00.000Z", "wrote": True}]}
    )
    _, _, told = text.partition("History (newest first)\n")
    newest, alike = told.splitlines()
    assert newest.index("asked for") == alike.index("asked for")
    assert newest.startswith("  2026-03-01 12:03:00Z ")
    assert alike.startswith("  2026-03-01 12:00:00Z to 12:02:00Z   3x")


def test_memory_is_told_in_units_and_rules_in_words() -> None:
    metric = {"type": "Resource", "description": "memory resource", "value": "476450463", "replicas": 2, "ratio": 1.0}
    text = render({"metrics": [metric], "rule": "compute_replicas"})
    assert "value 454Mi" in text
    assert "the metrics give no size" in text
    assert "compute_replicas" not in text


def test_missing_history_is_said() -> None:
    trace = traced(turn(observation(hpa(), 2, [reading(50, 50)])))
    text = render({**trace, "recomputed": True})
    assert "History is missing" in text


def test_an_infinite_ratio_is_still_json() -> None:
    decision = turn(observation(hpa(metrics=[QUEUE]), 1, [value(5_000)], observed=0, running=[]))
    assert traced(decision)["metrics"][0]["ratio"] == "inf"  # type: ignore[index]


def test_an_empty_trace_does_not_break_the_page() -> None:
    assert "HorizontalPodAutoscaler" in render({})
    assert NOW.year == 2026
