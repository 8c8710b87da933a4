"""The proposed fallback of external metrics: a count that stands in once a metric has failed for long enough."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.values.conditions import find_condition
from kubetide.hpa.core.annotations import Fallback
from kubetide.hpa.core.fallback import CONDITION
from kubetide.hpa.core.observation import Memory, Options, ScaleDecision
from kubetide.hpa.core.samples import ErrorKind, MetricFailure, Reading
from unit.hpa.worlds import NOW, QUEUE, hpa, observation, turn, value

ON = Options(external_fallback=True)
BROKEN = MetricFailure(ErrorKind.FETCH_FAILED, "no answer")


def metric(**fallback: Any) -> dict[str, Any]:
    return {"type": "External", "external": {**QUEUE["external"], "fallback": fallback}}  # type: ignore[dict-item]


def reconcile(
    reading: Reading, memory: Memory | None = None, *, seconds: float = 0.0, options: Options = ON, **more: Any
) -> ScaleDecision:
    found = hpa(maximum=20, metrics=[metric(replicas=8)], **more)
    return turn(observation(found, 3, [reading]), memory, now=NOW + timedelta(seconds=seconds), options=options)


def shown(decision: ScaleDecision) -> Any:
    assert decision.metrics is not None
    return decision.metrics[0]["external"].get("fallbackStatus")


@pytest.mark.parametrize(
    ("seconds", "desired", "status"), [(179, 3, "Normal"), (180, 6, "Fallback")], ids=["not-yet", "long-enough"]
)
def test_the_count_stands_in_after_the_duration(seconds: int, desired: int, status: str) -> None:
    first = reconcile(BROKEN)
    assert (first.desired, shown(first)) == (3, "Normal")
    later = reconcile(BROKEN, first.memory, seconds=seconds)
    # 8 is proposed; without behavior a count may at most double.
    assert (later.desired, shown(later)) == (desired, status)
    assert later.metrics is not None
    assert later.metrics[0]["external"]["firstFailureTime"] == "2026-03-01T12:00:00Z"
    condition = find_condition(later.conditions, CONDITION)
    assert condition is not None
    assert condition.is_true is (status == "Fallback")


def test_a_success_starts_the_count_anew() -> None:
    good = reconcile(value(30_000), reconcile(BROKEN).memory, seconds=100)
    assert (good.desired, shown(good), good.memory.first_failures) == (3, "Normal", {})
    assert reconcile(BROKEN, good.memory, seconds=200).desired == 3


def test_without_the_setting_the_field_says_nothing() -> None:
    first = reconcile(BROKEN, options=Options())
    later = reconcile(BROKEN, first.memory, seconds=3600, options=Options())
    assert later.desired == 3
    assert find_condition(later.conditions, CONDITION) is None


def test_the_annotation_wins() -> None:
    found = hpa(maximum=20, metrics=[metric(replicas=8)])
    seen = observation(found, 3, [BROKEN], fallback=Fallback(count=5))
    assert turn(seen, options=ON).desired == 5
