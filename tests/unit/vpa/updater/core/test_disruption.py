"""How fast pods may be disturbed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from kubetide.vpa.updater.core.disruption import DisruptionBudget, Limits, TokenBucket

START = datetime(2026, 1, 5, tzinfo=UTC)
LIMITS = Limits(per_minute=60, burst=10, rate=-1.0, rate_burst=1, at_once=10)


def spend(budget: DisruptionBudget, *, begin: datetime, until: datetime) -> list[datetime]:
    """Disturb as fast as the budget lets one."""
    times = []
    now = begin
    while (now := budget.next_at(now)) < until:
        budget.record(now)
        times.append(now)
    return times


def test_the_first_minute_belongs_to_the_predecessor() -> None:
    budget = DisruptionBudget(per_minute=60, burst=10, started=START)
    assert budget.next_at(START) == START + timedelta(minutes=1)


def test_a_burst_comes_at_once_and_then_one_a_second() -> None:
    budget = DisruptionBudget(per_minute=60, burst=10, started=START)
    opened = START + timedelta(minutes=1)
    times = spend(budget, begin=opened, until=opened + timedelta(seconds=30))
    assert times[:10] == [opened] * 10
    gaps = {round((b - a).total_seconds(), 3) for a, b in pairwise(times[9:])}
    assert gaps == {1.0}


def test_no_minute_sees_more_than_the_budget() -> None:
    budget = DisruptionBudget(per_minute=60, burst=10, started=START)
    opened = START + timedelta(minutes=1)
    times = spend(budget, begin=opened, until=opened + timedelta(minutes=6))
    for begin in times:
        assert sum(begin <= at < begin + timedelta(minutes=1) for at in times) <= 60
    assert len(times) >= 6 * 55


def test_no_budget_makes_nobody_wait() -> None:
    budget = DisruptionBudget(per_minute=0, burst=10, started=START)
    assert spend(budget, begin=START, until=START) == []
    for _ in range(1000):
        assert budget.next_at(START) == START
        budget.record(START)


@pytest.mark.parametrize("rate", [-1.0, 0.0])
def test_a_rate_limit_that_is_off_makes_nobody_wait(rate: float) -> None:
    bucket = TokenBucket(rate=rate, burst=1, now=START)
    for _ in range(100):
        assert bucket.ready_at(START) == START
        bucket.take(START)


def test_a_bucket_starts_full_and_refills() -> None:
    bucket = TokenBucket(rate=0.5, burst=2, now=START)
    bucket.take(START)
    bucket.take(START)
    wait = (bucket.ready_at(START) - START).total_seconds()
    assert wait == pytest.approx(2.0, abs=1e-3)
    assert bucket.ready_at(START + timedelta(seconds=2)) == START + timedelta(seconds=2)


def test_what_did_not_happen_does_not_count() -> None:
    budget = DisruptionBudget(per_minute=2, burst=1, started=START)
    now = START + timedelta(minutes=1)
    for _ in range(50):
        assert budget.next_at(now) == now
        budget.record(now)
        budget.give_back(now)
    assert budget.used(now) == 0
    budget.record(now)
    assert budget.next_at(now) > now


@pytest.mark.parametrize(
    ("limits", "slots"),
    [
        pytest.param(LIMITS, 10, id="as-many-as-the-burst"),
        pytest.param(replace(LIMITS, per_minute=4), 4, id="as-many-as-the-budget"),
        pytest.param(replace(LIMITS, rate=1.0), 1, id="one-where-a-rate-has-no-burst"),
        pytest.param(replace(LIMITS, per_minute=0, at_once=3), 3, id="as-many-as-requests-at-once"),
    ],
)
def test_limits_have_as_many_slots_as_the_scarcest_has_units(limits: Limits, slots: int) -> None:
    assert limits.slots == slots
    assert limits.part(slots, slots) == limits


def test_a_share_that_shrinks_counts_what_was_done_and_one_that_grows_has_saved_up() -> None:
    budget = DisruptionBudget(per_minute=60, burst=10, started=START, shared=True)
    assert len(spend(budget, begin=START, until=START + timedelta(seconds=20.5))) == 30
    now = START + timedelta(seconds=20)
    budget.resize(per_minute=30, burst=5, now=now, fresh=False)
    assert budget.next_at(now) > now + timedelta(seconds=30)  # the thirty of this half are used up
    later = now + timedelta(seconds=60)
    budget.resize(per_minute=60, burst=10, now=later, fresh=False)
    assert spend(budget, begin=later, until=later + timedelta(milliseconds=1)) == [later] * 10
