"""How fast pods may be disturbed."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from kubetide.vpa.updater.core.disruption import DisruptionBudget, TokenBucket

START = datetime(2026, 1, 5, tzinfo=UTC)


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
