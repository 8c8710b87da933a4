"""The recommender as a value."""

from datetime import UTC, datetime, timedelta

import pytest

from kubetide.api.objects.vpa import PodResourcePolicy
from kubetide.api.values.codec import convert
from kubetide.errors import InvalidInput
from kubetide.vpa import Recommender

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
MIB = 2**20


def learned(days: int = 8, policy: PodResourcePolicy | None = None) -> Recommender:
    recommender = Recommender(policy=policy)
    samples = [(MONDAY + timedelta(minutes=n), 100 + n % 60, 300 * MIB) for n in range(days * 1440)]
    assert recommender.add_all("web", samples) == len(samples)
    return recommender


def test_the_target_is_a_percentile_and_a_margin() -> None:
    size = learned().recommend()["web"]
    assert 154 * 1.15 * 0.95 < size.target.cpu_millis < 154 * 1.15 * 1.06
    assert 300 * MIB * 1.15 <= size.target.memory_bytes < 300 * MIB * 1.15 * 1.06
    assert size.target == size.uncapped


def test_bounds_narrow_as_history_grows() -> None:
    short, long = learned(1).recommend()["web"], learned(8).recommend()["web"]
    assert short.upper.cpu_millis > long.upper.cpu_millis
    assert short.lower.memory_bytes < long.lower.memory_bytes


def test_a_policy_caps_the_target_and_not_the_uncapped_one() -> None:
    raw = {"containerPolicies": [{"containerName": "*", "maxAllowed": {"cpu": "100m"}}]}
    size = learned(policy=convert(raw, PodResourcePolicy)).recommend()["web"]
    assert size.target.cpu_millis == 100
    assert size.uncapped.cpu_millis > 150


def test_an_oom_kill_raises_memory() -> None:
    recommender = learned()
    before = recommender.recommend()["web"].target.memory_bytes
    assert recommender.add_oom("web", at=MONDAY + timedelta(days=8), memory_bytes=400 * MIB)
    assert recommender.recommend()["web"].target.memory_bytes > before


def test_a_sample_out_of_order_is_refused_for_its_pod_alone() -> None:
    recommender = Recommender()
    later = MONDAY + timedelta(minutes=1)
    assert recommender.add("web", at=later, cpu_millis=1, memory_bytes=1)
    assert not recommender.add("web", at=MONDAY, cpu_millis=1, memory_bytes=1)
    assert recommender.add("web", at=MONDAY, cpu_millis=1, memory_bytes=1, pod="web-2")


def test_nothing_is_recommended_from_nothing() -> None:
    recommender = Recommender()
    assert recommender.add_all("web", []) == 0
    assert recommender.recommend() == {}


@pytest.mark.parametrize(
    ("at", "cpu", "memory", "message"),
    [
        pytest.param(MONDAY.replace(tzinfo=None), 1, 1, "web at: the time of a sample has no time zone", id="naive"),
        pytest.param(MONDAY, -1, 1, "web cpu: usage is negative", id="negative-cpu"),
        pytest.param(MONDAY, 1, -1, "web memory: usage is negative", id="negative-memory"),
    ],
)
def test_samples_that_cannot_be_used_are_named(at: datetime, cpu: int, memory: int, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Recommender().add("web", at=at, cpu_millis=cpu, memory_bytes=memory)
