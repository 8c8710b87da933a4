"""Rolling updates move within their limits and always arrive; cron schedules find their minutes."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.values.schedule import ScheduleError, parse_schedule
from kubetide.embedded.sim.controllers.deployments import Revision, limits, scaled, step
from kubetide.errors import InvalidInput


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "expected"),
    [
        pytest.param(None, None, 4, (1, 1), id="defaults-are-a-quarter"),
        pytest.param(None, None, 1, (1, 0), id="one-pod-may-only-surge"),
        pytest.param("10%", "10%", 10, (1, 1), id="percentages"),
        pytest.param("1%", "1%", 10, (1, 0), id="surge-rounds-up-unavailable-down"),
        pytest.param(0, 0, 5, (0, 1), id="never-both-zero"),
        pytest.param(0, "100%", 5, (0, 5), id="all-at-once"),
    ],
)
def test_limits_of_a_rollout(surge: object, unavailable: object, replicas: int, expected: tuple[int, int]) -> None:
    assert limits(surge, unavailable, replicas) == expected


def test_a_count_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'many'"):
        scaled("many", 10, round_up=True)


@given(
    replicas=st.integers(1, 30), surge=st.integers(0, 5), unavailable=st.integers(0, 5), old=st.integers(0, 30)
)  # fmt: skip
def test_every_rollout_arrives_and_keeps_its_promises(replicas: int, surge: int, unavailable: int, old: int) -> None:
    up, down = limits(surge, unavailable, replicas)
    new_count, old_count = 0, min(old, replicas)
    available_new = 0
    for _ in range(500):
        changes = step(
            Revision(name="new", wanted=new_count, available=available_new),
            [Revision(name="old", wanted=old_count, available=old_count)],
            replicas=replicas,
            surge=up,
            unavailable=down,
        )
        before = available_new + old_count
        new_count, old_count = changes.get("new", new_count), changes.get("old", old_count)
        assert new_count + old_count <= replicas + up
        assert available_new + old_count >= min(before, replicas - down)
        available_new = new_count
        if not changes and new_count == replicas and old_count == 0:
            return
    raise AssertionError("the rollout never ended")


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        pytest.param("*/15 * * * *", "2026-01-05T10:07:30", "2026-01-05T10:15:00", id="every-quarter"),
        pytest.param("0 3 * * *", "2026-01-05T10:00:00", "2026-01-06T03:00:00", id="tomorrow-at-three"),
        pytest.param("30 8 * * mon-fri", "2026-01-09T09:00:00", "2026-01-12T08:30:00", id="after-the-weekend"),
        pytest.param("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00", id="leap-day"),
        pytest.param("0 0 13 * 5", "2026-01-01T00:00:00", "2026-01-02T00:00:00", id="either-day"),
        pytest.param("@hourly", "2026-01-05T10:59:59", "2026-01-05T11:00:00", id="macro"),
        pytest.param("5,10-12 1 * * *", "2026-01-05T01:05:00", "2026-01-05T01:10:00", id="list-and-range"),
        pytest.param("0 0 * jan 7", "2026-01-05T00:00:00", "2026-01-11T00:00:00", id="seven-is-sunday"),
    ],
)
def test_the_next_minute_of_a_schedule(text: str, after: str, expected: str) -> None:
    found = parse_schedule(text).next_after(datetime.fromisoformat(after).replace(tzinfo=UTC))
    assert found == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "* * * *", "60 * * * *", "a * * * *", "*/0 * * * *", "5-1 * * * *"])
def test_a_bad_schedule_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse_schedule(text)


def test_a_day_that_never_comes_is_never_due() -> None:
    assert parse_schedule("0 0 31 2 *").next_after(datetime(2026, 1, 1, tzinfo=UTC)) is None
