"""When a status is worth a write, and what a write carries."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec.structs import replace

from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaStatus
from kubetide.api.values.codec import convert
from kubetide.hpa.core.status import object_body, only_drifted, same_status, status_body, with_condition
from unit.hpa.worlds import NOW, ago, hpa


def status(**members: object) -> HpaStatus:
    return convert({"currentReplicas": 2, "desiredReplicas": 2, **members}, HpaStatus)


def test_quantities_compare_by_amount() -> None:
    one = status(currentMetrics=[{"type": "Pods", "pods": {"current": {"averageValue": "1500m"}}}])
    other = status(currentMetrics=[{"type": "Pods", "pods": {"current": {"averageValue": "1.5"}}}])
    third = status(currentMetrics=[{"type": "Pods", "pods": {"current": {"averageValue": "1501m"}}}])
    assert same_status(one, other)
    assert not same_status(one, third)


def test_no_list_equals_an_empty_one() -> None:
    assert same_status(status(currentMetrics=None), status(currentMetrics=[]))
    assert same_status(status(conditions=[]), status())


def test_a_leftover_generation_makes_a_difference() -> None:
    assert not same_status(status(observedGeneration=3), status())


def test_the_time_of_a_condition_moves_only_when_it_flips() -> None:
    conditions = with_condition((), "AbleToScale", holds=True, reason="A", message="", now=ago(60))
    same = with_condition(conditions, "AbleToScale", holds=True, reason="B", message="", now=NOW)
    flipped = with_condition(conditions, "AbleToScale", holds=False, reason="C", message="", now=NOW)
    assert (same[0].reason, same[0].last_transition_time) == ("B", ago(60))
    assert flipped[0].last_transition_time == NOW


def test_times_are_written_to_the_second() -> None:
    moment = datetime(1, 1, 1, 0, 0, 5, 999, tzinfo=UTC)
    conditions = with_condition((), "AbleToScale", holds=True, reason="A", message="", now=moment)
    body = status_body(HpaStatus(conditions=conditions, last_scale_time=moment))
    assert body["conditions"][0]["lastTransitionTime"] == "0001-01-01T00:00:05Z"
    assert body["lastScaleTime"] == "0001-01-01T00:00:05Z"
    assert body["currentMetrics"] is None


def test_times_are_written_in_utc() -> None:
    moment = datetime(2026, 3, 1, 14, 30, 1, tzinfo=timezone(timedelta(hours=2)))
    assert status_body(HpaStatus(last_scale_time=moment))["lastScaleTime"] == "2026-03-01T12:30:01Z"


def test_a_write_of_the_status_carries_the_whole_metadata() -> None:
    raw = {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "u-1",
            "resourceVersion": "7",
            "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"team": "a"},
            "annotations": {"note": "b"},
            "finalizers": ["x/y"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}],
            "managedFields": [{"manager": "kubectl"}],
        }
    }
    body = object_body(convert(raw, HorizontalPodAutoscaler), status())
    expected = {name: value for name, value in raw["metadata"].items() if name != "managedFields"}
    assert json.loads(json.dumps(body["metadata"])) == expected
    assert set(body) == {"apiVersion", "kind", "metadata", "status"}


def test_the_body_has_the_resource_version() -> None:
    assert object_body(hpa(), status())["metadata"]["resourceVersion"] == "7"


def _cpu(average: str, utilization: int, name: str = "cpu") -> HpaStatus:
    current = {"averageValue": average, "averageUtilization": utilization}
    metric = {"type": "Resource", "resource": {"name": name, "current": current}}
    return HpaStatus(current_replicas=3, desired_replicas=3, current_metrics=(metric,))


@pytest.mark.parametrize(
    ("before", "after", "drifted"),
    [
        pytest.param(_cpu("100m", 50), _cpu("100m", 50), True, id="the-same"),
        pytest.param(_cpu("100m", 50), _cpu("110m", 55), True, id="a-tenth"),
        pytest.param(_cpu("100m", 50), _cpu("111m", 55), False, id="more-than-a-tenth"),
        pytest.param(_cpu("100m", 50), _cpu("100m", 56), False, id="utilization-by-more-than-a-tenth"),
        pytest.param(_cpu("100m", 2), _cpu("100m", 3), True, id="one-point-of-utilization"),
        pytest.param(_cpu("0", 0), _cpu("1m", 0), False, id="from-nothing"),
        pytest.param(_cpu("100m", 50), _cpu("100m", 50, "memory"), False, id="another-metric"),
        pytest.param(_cpu("100m", 50), HpaStatus(current_replicas=3, desired_replicas=3), False, id="no-metric"),
        pytest.param(_cpu("100m", 50), replace(_cpu("100m", 50), current_replicas=4), False, id="another-count"),
        pytest.param(_cpu("100m", 50), replace(_cpu("100m", 50), observed_generation=2), False, id="a-generation"),
        pytest.param(_cpu("100m", 50), _cpu("many", 50), False, id="no-quantity"),
    ],
)
def test_values_that_moved_a_little_are_told_from_everything_else(
    before: HpaStatus, after: HpaStatus, drifted: bool
) -> None:
    assert only_drifted(before, after) == drifted
