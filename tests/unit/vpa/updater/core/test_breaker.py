"""When to stop believing that evicting helps."""

from datetime import UTC, datetime, timedelta

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.api.values.conditions import Condition
from kubetide.testing.builders import make_container, make_pod
from kubetide.vpa.core.policy import amounts
from kubetide.vpa.updater.core.breaker import (
    CLOSED,
    BreakerState,
    after_pause,
    after_replacement,
    carries,
    condition_from,
    matches,
    state_from,
)

NOW = datetime(2026, 1, 5, tzinfo=UTC)
TARGETS = {"main": amounts({"cpu": "300m", "memory": "256Mi"})}


def pod(cpu: str = "100m", memory: str = "128Mi") -> Pod:
    return convert(make_pod("web-1", containers=[make_container(cpu=cpu, memory=memory)]), Pod)


def paused(since: datetime = NOW) -> BreakerState:
    return BreakerState(strikes=2, paused_since=since, detail="because")


def test_the_second_unchanged_replacement_in_a_row_pauses() -> None:
    once = after_replacement(CLOSED, pod(), carries=False, now=NOW)
    assert not once.paused
    twice = after_replacement(once, pod(), carries=False, now=NOW)
    assert twice.paused_since == NOW


def test_a_good_replacement_clears_the_account() -> None:
    once = after_replacement(CLOSED, pod(), carries=False, now=NOW)
    assert after_replacement(once, pod(), carries=True, now=NOW) == CLOSED


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(CLOSED, id="closed"),
        pytest.param(BreakerState(strikes=1, detail="once"), id="one-strike"),
        pytest.param(BreakerState(awaited=NOW), id="awaited"),
        pytest.param(BreakerState(strikes=1, awaited=NOW, detail="Once: a pod."), id="one-strike-and-awaited"),
        pytest.param(paused(), id="paused"),
    ],
)
def test_the_condition_brings_the_state_back(state: BreakerState) -> None:
    written = condition_from(state)
    conditions = []
    if written is not None:
        status, reason, message = written
        conditions.append(
            Condition(
                type="UpdatesPaused",
                status=status,
                reason=reason,
                message=message,
                last_transition_time=state.paused_since,
            )
        )
    assert state_from(conditions) == state


def test_an_announcement_that_somebody_edited_counts_from_when_it_was_made() -> None:
    edited = Condition(
        type="UpdatesPaused",
        status="False",
        reason="ReplacementAwaited",
        message="hands off",
        last_transition_time=NOW,
    )
    assert state_from([edited]) == BreakerState(awaited=NOW)


@pytest.mark.parametrize("good", [True, False])
def test_looking_at_one_replacement_does_not_forget_the_next(good: bool) -> None:
    assert after_replacement(BreakerState(awaited=NOW), pod(), carries=good, now=NOW).awaited == NOW


@pytest.mark.parametrize(
    ("minutes", "proved", "patching_since", "strikes", "still"),
    [
        pytest.param(59, False, None, 2, True, id="within-the-hour"),
        pytest.param(60, False, None, 1, False, id="after-an-hour-one-more-try"),
        pytest.param(5, True, None, 0, False, id="a-pod-carries-the-recommendation"),
        pytest.param(5, False, NOW + timedelta(minutes=3), 1, False, id="the-webhook-works-again"),
        pytest.param(5, False, NOW - timedelta(minutes=3), 2, True, id="it-worked-all-the-time"),
    ],
)
def test_a_pause_ends_when_there_is_reason_to_try_again(
    minutes: int, proved: bool, patching_since: datetime | None, strikes: int, still: bool
) -> None:
    now = NOW + timedelta(minutes=minutes)
    state = after_pause(paused(), proved=proved, patching_since=patching_since, now=now)
    assert (state.strikes, state.paused) == (strikes, still)


@pytest.mark.parametrize(
    ("replacement", "expected"),
    [
        pytest.param(pod("300m", "256Mi"), True, id="as-recommended"),
        pytest.param(pod("290m", "240Mi"), True, id="nearly"),
        pytest.param(pod("100m", "128Mi"), False, id="unchanged"),
        pytest.param(pod("300m", "128Mi"), False, id="half-changed"),
        pytest.param(pod("150m", "150Mi"), False, id="less-than-half-of-the-way"),
    ],
)
def test_a_replacement_carries_what_moved_towards_the_target(replacement: Pod, expected: bool) -> None:
    before = {"main": amounts({"cpu": "100m", "memory": "128Mi"})}
    assert carries(before, replacement, TARGETS, tolerance=0.1) is expected


def test_what_need_not_change_need_not_move() -> None:
    before = {"main": amounts({"cpu": "100m", "memory": "256Mi"})}
    assert carries(before, pod("300m", "250Mi"), TARGETS, tolerance=0.1)


def test_the_recommendation_of_now_is_as_good_as_that_of_the_eviction() -> None:
    before = {"main": amounts({"cpu": "100m", "memory": "128Mi"})}
    now = {"main": amounts({"cpu": "600m", "memory": "512Mi"})}
    assert carries(before, pod("600m", "512Mi"), TARGETS, now, tolerance=0.1)


def test_a_pod_matches_when_every_request_is_at_its_target() -> None:
    assert matches(pod("310m", "256Mi"), TARGETS, tolerance=0.1)
    assert not matches(pod("310m", "128Mi"), TARGETS, tolerance=0.1)


def test_expecting_nothing_proves_nothing() -> None:
    before = {"main": amounts({"cpu": "100m", "memory": "128Mi"})}
    assert not carries(before, pod("100m", "128Mi"), TARGETS, {}, tolerance=0.1)
    assert not carries(before, pod("100m", "128Mi"), {}, tolerance=0.1)


def test_cpu_that_was_boosted_to_start_is_no_reason_to_doubt() -> None:
    raw = make_pod("web-1", containers=[make_container(cpu="900m", memory="256Mi")])
    raw["metadata"]["annotations"] = {"vpaCpuStartupBoost/main": "{}"}
    boosted = convert(raw, Pod)
    before = {"main": amounts({"cpu": "100m", "memory": "128Mi"})}
    assert carries(before, boosted, TARGETS, tolerance=0.1)
    assert matches(boosted, TARGETS, tolerance=0.1)
    assert not carries(before, pod("900m", "256Mi"), TARGETS, tolerance=0.1)
