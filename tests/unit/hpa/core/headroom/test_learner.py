"""Learned headroom beside the plain rule: what it is told, and what it may change."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.hpa.core.annotations import HeadroomMode, overrides_of
from kubetide.hpa.core.choice import Choice
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.headroom.advice import Advice
from kubetide.hpa.core.headroom.learner import (
    HeadroomLearner,
    LearnedCount,
    demand_of,
    learner_for,
    start_time_of,
    with_headroom,
)
from kubetide.hpa.core.observation import Options, ScaleDecision
from kubetide.hpa.core.samples import ErrorKind, MetricFailure
from kubetide.hpa.core.trace import trace_of
from kubetide.hpa.explain import render
from kubetide.stats.forecast import Forecast
from unit.hpa.worlds import CPU_50, NOW, QUEUE, ago, hpa, observation, pod, pods, reading, turn, value

PERIOD, WINDOW = timedelta(seconds=15), timedelta(minutes=5)


def learned(replicas: int, *, proven: bool = True, mode: HeadroomMode = HeadroomMode.LEARNED) -> LearnedCount:
    advice = Advice(
        replicas=replicas,
        forecast=Forecast(value=4.2, weights={"last": 1.0}),
        typical_error=0.08,
        level=replicas,
        rule="errors, late work at 8",
        hold_steps=16,
        backlog_seconds=0.0,
        cost=5.5,
        plain_cost=6.5,
        proven=proven,
    )
    return LearnedCount(mode=mode, demand=4.0, advice=advice, step_seconds=15, origin="live")


def choice(replicas: int, **more: Any) -> Choice:
    return Choice(active=True, replicas=replicas, reason="ValidMetricFound", message="", description="cpu", **more)


BELOW = HeadroomMode.LEARNED_BELOW


@pytest.mark.parametrize(
    ("metrics", "headroom", "expected"),
    [
        pytest.param(choice(5), None, 5, id="not-asked-for"),
        pytest.param(choice(5), learned(9, proven=False), 5, id="silent-until-proven"),
        pytest.param(choice(5), learned(9), 9, id="raises"),
        pytest.param(choice(5), learned(3), 5, id="never-below-the-metrics"),
        pytest.param(choice(5), learned(3, mode=BELOW), 3, id="below-where-allowed"),
        pytest.param(choice(5), learned(3, mode=BELOW, proven=False), 5, id="allowed-but-not-proven"),
        pytest.param(choice(5, error="1 of 2 failed"), learned(3, mode=BELOW), 5, id="a-failed-metric-lowers-nothing"),
        pytest.param(choice(5, error="1 of 2 failed"), learned(9), 9, id="a-failed-metric-may-be-exceeded"),
        pytest.param(choice(0), learned(3), 0, id="to-zero-is-left-to-the-metrics"),
    ],
)
def test_the_choice_moves_only_as_allowed(metrics: Choice, headroom: LearnedCount | None, expected: int) -> None:
    assert with_headroom(metrics, headroom).replicas == expected


@given(st.integers(0, 300), st.integers(1, 300), st.booleans(), st.sampled_from(list(HeadroomMode)))
def test_without_leave_or_proof_nothing_is_ever_lowered(
    proposal: int, count: int, proven: bool, mode: HeadroomMode
) -> None:
    moved = with_headroom(choice(proposal), learned(count, proven=proven, mode=mode)).replicas
    if mode is HeadroomMode.LEARNED or not proven:
        assert moved >= proposal
    if not proven:
        assert moved == proposal
    assert moved in (proposal, count)


@given(st.integers(1, 40), st.integers(1, 400), st.integers(0, 300))
def test_bounds_and_rate_limits_hold_for_the_learned_count(current: int, count: int, usage: int) -> None:
    seen = observation(hpa(minimum=2, maximum=30), min(max(current, 2), 30), [reading(*[usage] * 30)])
    seen = msgspec.structs.replace(seen, learned=learned(count, mode=BELOW))
    decided = turn(seen)
    assert 2 <= decided.desired <= min(30, max(4, 2 * min(max(current, 2), 30)))


def test_the_window_holds_for_the_learned_count() -> None:
    seen = observation(hpa(maximum=20), 8, [reading(*[50] * 8)])
    first = turn(seen)
    lower = msgspec.structs.replace(seen, learned=learned(3, mode=BELOW))
    assert turn(lower, first.memory, now=NOW + timedelta(minutes=1)).desired == 8
    assert turn(lower, first.memory, now=NOW + timedelta(minutes=6)).desired == 3


def results(metrics: list[Any], readings: list[Any], replicas: int = 4) -> ScaleDecision:
    return turn(observation(hpa(metrics=metrics), replicas, readings))


@pytest.mark.parametrize(
    ("metrics", "readings", "expected"),
    [
        pytest.param([CPU_50], [reading(50, 50, 100, 100)], 3.0, id="cpu-counts-in-full-requests"),
        pytest.param([QUEUE], [value(25_000)], 2.5, id="a-queue-counts-in-targets"),
        pytest.param([CPU_50, QUEUE], [reading(50, 50, 50, 50), value(31_000)], 3.1, id="the-busiest-metric-counts"),
        pytest.param([CPU_50], [MetricFailure(ErrorKind.FETCH_FAILED, "away")], None, id="a-failure-is-no-demand"),
        pytest.param([QUEUE], [value(-5)], None, id="a-negative-value-is-no-demand"),
    ],
)
def test_demand_is_counted_in_full_replicas(metrics: list[Any], readings: list[Any], expected: float | None) -> None:
    assert demand_of(results(metrics, readings).results) == pytest.approx(expected)


def test_the_start_time_is_that_of_the_pods() -> None:
    started = [pod(f"web-{n}", started=ago(900), changed=ago(900 - seconds)) for n, seconds in enumerate((20, 45, 300))]
    assert start_time_of(started) == timedelta(seconds=45)
    assert start_time_of([pod("web-0", ready=False)]) is None
    assert start_time_of([pod("web-0", started=ago(7200), changed=ago(0))]) == timedelta(minutes=10)


def learner(mode: HeadroomMode = HeadroomMode.LEARNED) -> HeadroomLearner:
    return learner_for(mode, hpa().spec, PERIOD, WINDOW, start=timedelta(seconds=30), replicas=4, saved={})


@pytest.mark.parametrize(
    ("measured", "saved", "expected"),
    [
        pytest.param(30, {}, 45, id="nothing-saved"),
        pytest.param(30, {"start": 28}, 28, id="about-the-same"),
        pytest.param(30, {"start": 91}, 45, id="quite-another"),
        pytest.param(0, {}, 15, id="at-once"),
        pytest.param(30, {"start": "x"}, 45, id="not-a-number"),
    ],
)
def test_a_start_time_near_the_saved_one_is_the_saved_one(
    measured: int, saved: dict[str, object], expected: int
) -> None:
    start = timedelta(seconds=measured)
    made = learner_for(HeadroomMode.LEARNED, hpa().spec, PERIOD, WINDOW, start=start, replicas=1, saved=saved)
    assert made.terms.start_seconds == expected


def test_a_second_look_in_the_same_step_learns_nothing_twice() -> None:
    one, decided = learner(), results([CPU_50], [reading(60, 60, 60, 60)])
    first = one.learn(decided.choice, decided.results, pods(4), asked=4, now=NOW)
    again = one.learn(decided.choice, decided.results, pods(4), asked=4, now=NOW + timedelta(seconds=1))
    assert first is not None
    assert again is first


def test_a_failed_metric_teaches_nothing() -> None:
    decided = results([CPU_50], [MetricFailure(ErrorKind.FETCH_FAILED, "away")])
    assert learner().learn(decided.choice, decided.results, pods(4), asked=4, now=NOW) is None


def test_a_clock_that_was_set_back_does_not_freeze_the_advice() -> None:
    one, decided = learner(), results([CPU_50], [reading(60, 60, 60, 60)])
    first = one.learn(decided.choice, decided.results, pods(4), asked=4, now=NOW)
    assert one.learn(decided.choice, decided.results, pods(4), asked=4, now=NOW - timedelta(minutes=1)) is first
    assert one.learn(decided.choice, decided.results, pods(4), asked=4, now=NOW - timedelta(hours=2)) is not first


def test_a_long_gap_keeps_what_was_learned_and_forgets_the_queue() -> None:
    one, decided = learner(), results([CPU_50], [reading(100, 100, 100, 100)])
    for which in range(300):
        one.learn(decided.choice, decided.results, pods(2), asked=2, now=NOW + which * PERIOD)
    waiting = one.learn(decided.choice, decided.results, pods(2), asked=2, now=NOW + 300 * PERIOD)
    after = one.learn(decided.choice, decided.results, pods(8), asked=8, now=NOW + timedelta(hours=5))
    assert waiting is not None
    assert waiting.advice.backlog_seconds > 1
    assert after is not None
    assert after.advice.backlog_seconds == 0
    assert after.advice.cost == pytest.approx(waiting.advice.cost, rel=0.02)


@pytest.mark.parametrize(
    ("mode", "bounds", "period", "fits"),
    [
        pytest.param(HeadroomMode.LEARNED, {}, 15, True, id="same"),
        pytest.param(BELOW, {}, 15, False, id="mode"),
        pytest.param(HeadroomMode.LEARNED, {"maximum": 99}, 15, False, id="bounds"),
        pytest.param(HeadroomMode.LEARNED, {}, 30, False, id="period"),
    ],
)
def test_it_is_made_anew_for_other_terms(mode: HeadroomMode, bounds: dict[str, int], period: int, fits: bool) -> None:
    assert learner().fits(mode, hpa(**bounds).spec, timedelta(seconds=period)) is fits


def test_the_trace_and_explain_show_forecast_error_and_what_they_changed() -> None:
    seen = msgspec.structs.replace(observation(hpa(), 4, [reading(50, 50, 50, 50)]), learned=learned(7))
    decided = turn(seen)
    outcome = conclude(decided)
    trace = trace_of(decided, outcome, outcome.problem)
    assert trace["headroom"]["forecast"] == 4.2
    assert (trace["headroom"]["plainProposal"], trace["proposal"]) == (4, 7)
    assert decided.why == "learned headroom above target"
    text = render(trace)
    assert "forecast 4.2 (last 100%), usual error 8.0%" in text
    assert "learned count 7, metrics ask for 4 (errors, late work at 8; a peak is held 240s)" in text
    assert "in force: cost 5.5 against 6.5 of the plain rule" in text
    quiet = replace(learned(7), advice=replace(learned(7).advice, proven=False))
    silent = turn(msgspec.structs.replace(seen, learned=quiet), options=Options())
    assert silent.desired == 4
    assert "silent, not proven" in render(trace_of(silent, conclude(silent), None))


@pytest.mark.parametrize(
    ("text", "mode", "problems"),
    [
        pytest.param("learned", HeadroomMode.LEARNED, 0, id="learned"),
        pytest.param("learned-below", BELOW, 0, id="below"),
        pytest.param("off", None, 0, id="off"),
        pytest.param("Learned", None, 1, id="misspelt-has-no-effect-and-is-named"),
    ],
)
def test_the_annotation_is_read(text: str, mode: HeadroomMode | None, problems: int) -> None:
    wishes = overrides_of({"kubetide.io/hpa-headroom": text})
    assert wishes.headroom is mode
    assert len(wishes.problems) == problems
