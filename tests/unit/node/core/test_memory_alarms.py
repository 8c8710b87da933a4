"""When a container is about to run out of memory: growth, nearness and pressure, but neither heaps nor page cache."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.node.core.memory_alarms import Alarm, MemoryAlarms, MemoryLook, rule_of, worse

MIB = 2**20
KEY = ("uid", "main")


def looks(*needs: float, limit: int = 512 * MIB, every: float = 1.0, **more: Any) -> Alarm | None:
    """Return what the last of these looks, in MiB, raises."""
    alarms, found = MemoryAlarms(), None
    for number, need in enumerate(needs):
        look = MemoryLook(need=int(need * MIB), limit=limit, **more)
        found = alarms.take(KEY, look, at=number * every)
    return found


def leak(start: float, per_second: float, seconds: int) -> list[float]:
    return [start + per_second * second for second in range(seconds)]


@pytest.mark.parametrize(
    ("needs", "rule"),
    [
        pytest.param(leak(300, 1, 10), "", id="far-away"),
        pytest.param(leak(380, 0.5, 60), "", id="grows-but-has-minutes"),
        pytest.param(leak(380, 1, 20), "soon", id="two-minutes-left"),
        pytest.param([380, 440], "soon", id="a-burst-shows-in-a-second"),
        pytest.param(leak(480, 0.02, 60), "near", id="a-leak-near-the-limit"),
        pytest.param(leak(480, 0.02, 20), "", id="near-but-not-for-long"),
        pytest.param([500.0] * 60, "", id="a-heap-that-fills-its-limit-and-stays"),
        pytest.param(leak(500, -0.1, 60), "", id="shrinks"),
    ],
)
def test_growth_towards_the_limit_raises_an_alarm(needs: list[float], rule: str) -> None:
    found = looks(*needs)
    assert (found.rule if found is not None else "") == rule


@pytest.mark.parametrize(
    ("need", "more", "rule"),
    [
        pytest.param(450, {"pressure": 0.2}, "pressed", id="tasks-wait-for-memory"),
        pytest.param(450, {"pressure": 0.05}, "", id="a-little-pressure"),
        pytest.param(380, {"pressure": 0.9}, "", id="pressure-of-page-cache"),
        pytest.param(450, {"pressure": None, "events": None}, "", id="a-kernel-that-does-not-say"),
    ],
)
def test_pressure_counts_where_the_limit_is_near(need: int, more: dict[str, Any], rule: str) -> None:
    found = looks(need, need, **more)
    assert (found.rule if found is not None else "") == rule


def test_a_limit_that_was_reached_between_two_looks_raises_an_alarm_once() -> None:
    alarms, rules = MemoryAlarms(), []
    for second, events in enumerate((7, 7, 9, 9)):
        found = alarms.take(KEY, MemoryLook(need=450 * MIB, limit=512 * MIB, events=events), at=float(second))
        rules.append((found.rule, found.hits) if found is not None else None)
    assert rules == [None, None, ("pressed", 2), None]


def test_what_is_no_longer_near_is_forgotten() -> None:
    alarms = MemoryAlarms()
    alarms.take(KEY, MemoryLook(need=380 * MIB, limit=512 * MIB), at=0.0)
    alarms.keep(())
    assert alarms.take(KEY, MemoryLook(need=440 * MIB, limit=512 * MIB), at=1.0) is None


def test_alarms_are_told_again_when_one_is_new_or_over_or_has_got_worse() -> None:
    one = Alarm(need=400, limit=1000, growth=1.0, pressure=None, hits=None, rule="soon")
    other = Alarm(need=409, limit=1000, growth=1.0, pressure=None, hits=None, rule="soon")
    far = Alarm(need=410, limit=1000, growth=1.0, pressure=None, hits=None, rule="soon")
    assert worse({}, {KEY: one})
    assert worse({KEY: one}, {})
    assert not worse({KEY: one}, {KEY: other})
    assert worse({KEY: one}, {KEY: far})


@given(st.integers(1, 2**50), st.integers(1, 2**50), st.floats(0, 1e12), st.integers(0, 5))
def test_more_need_never_silences_an_alarm(limit: int, need: int, growth: float, hits: int) -> None:
    before = rule_of(MemoryLook(need=need, limit=limit), growth=growth, steady=growth, hits=hits)
    after = rule_of(MemoryLook(need=need + limit, limit=limit), growth=growth, steady=growth, hits=hits)
    assert after or not before
