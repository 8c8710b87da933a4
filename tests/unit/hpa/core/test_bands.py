"""When a sample is worth a reconcile."""

from typing import Any

import pytest

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.hpa.core.bands import Position, position, targets_per_pod, wakes

CURRENT = {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "80m"}}


def hpa(target: dict[str, Any], *current: dict[str, Any]) -> HorizontalPodAutoscaler:
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    status = {"currentMetrics": [{"type": "Resource", "resource": one} for one in current]}
    return convert({"spec": {"metrics": [metric]}, "status": status}, HorizontalPodAutoscaler)


@pytest.mark.parametrize(
    ("target", "current", "expected"),
    [
        pytest.param({"averageUtilization": 50}, (CURRENT,), {"cpu": 0.1}, id="utilization-of-requests"),
        pytest.param({"averageUtilization": 50}, (), {}, id="utilization-without-a-status"),
        pytest.param({"averageValue": "200m"}, (), {"cpu": 0.2}, id="a-value-needs-no-status"),
        pytest.param({"averageValue": "x"}, (), {}, id="not-a-quantity"),
        pytest.param({"averageUtilization": 50}, ({"name": "cpu"},), {}, id="a-status-without-values"),
    ],
)
def test_the_target_of_a_pod(target: dict[str, Any], current: tuple[Any, ...], expected: dict[str, float]) -> None:
    assert targets_per_pod(hpa(target, *current)) == pytest.approx(expected)


def test_the_target_of_a_container() -> None:
    source = {"name": "cpu", "container": "web", "target": {"averageUtilization": 50}}
    seen = {"name": "cpu", "container": "web", "current": {"averageUtilization": 25, "averageValue": "100m"}}
    metric, status = {"type": "ContainerResource", "containerResource": source}, {"containerResource": seen}
    raw = {"spec": {"metrics": [metric]}, "status": {"currentMetrics": [{"type": "ContainerResource", **status}]}}
    targets = targets_per_pod(convert(raw, HorizontalPodAutoscaler))
    assert targets == pytest.approx({("web", "cpu"): 0.2})
    found = position(targets, [{"cpu": 9.0, ("web", "cpu"): 0.2, ("side", "cpu"): 8.8}], 0.1)
    assert found is not None
    assert found.side == 0


@pytest.mark.parametrize(
    ("usage", "side"),
    [([0.1, 0.1], 0), ([0.109, 0.109], 0), ([0.2, 0.1], 1), ([0.05, 0.05], -1)],
)
def test_where_pods_stand(usage: list[float], side: int) -> None:
    found = position({"cpu": 0.1}, [{"cpu": one} for one in usage], 0.1)
    assert found is not None
    assert found.side == side


def test_nothing_is_known_of_pods_without_samples() -> None:
    assert position({"cpu": 0.1}, [], 0.1) is None
    assert position({"cpu": 0.1}, [{"memory": 5.0}], 0.1) is None


def test_the_metric_that_asks_for_most_counts() -> None:
    found = position({"cpu": 1.0, "memory": 100.0}, [{"cpu": 0.2, "memory": 300.0}], 0.1)
    assert found is not None
    assert (found.side, found.ratio) == (1, 3.0)


@pytest.mark.parametrize(
    ("before", "ratio", "expected"),
    [
        pytest.param(None, 1.0, False, id="first-look-within"),
        pytest.param(None, 2.0, True, id="first-look-above"),
        pytest.param(1.0, 1.05, False, id="within"),
        pytest.param(1.0, 1.2, True, id="up-across-the-edge"),
        pytest.param(1.0, 0.5, True, id="down-across-the-edge"),
        pytest.param(2.0, 1.0, True, id="back-within"),
        pytest.param(2.0, 2.1, False, id="above-and-hardly-moved"),
        pytest.param(2.0, 4.0, True, id="above-and-further-away"),
    ],
)
def test_what_wakes(before: float | None, ratio: float, expected: bool) -> None:
    def at(value: float) -> Position:
        found = position({"cpu": 1.0}, [{"cpu": value}], 0.1)
        assert found is not None
        return found

    assert wakes(None if before is None else at(before), at(ratio), 0.1) is expected
