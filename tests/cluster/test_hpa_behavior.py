"""Every kind of policy and window, seen from outside: which sizes follow each other, and when."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.curves import Step
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import autoscaler
from simulated.cluster import run

Sizes = list[tuple[float, int]]
Raw = dict[str, Any]

QUEUE: Raw = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}


def policy(kind: str, value: int, period: int) -> Raw:
    return {"type": kind, "value": value, "periodSeconds": period}


def sizes_with(
    behavior: Raw | None, queue: list[tuple[int, int]], minutes: int, *, replicas: int, minimum: int = 1
) -> Sizes:
    """Run a deployment whose external metric asks for exactly `queue` replicas from the given seconds on."""

    async def main(cluster: SimCluster) -> Sizes:
        await cluster.apply(make_deployment("web", replicas=replicas, cpu="10m", memory="16Mi"))
        await cluster.apply(make_hpa("web", minimum=minimum, maximum=100, metrics=[QUEUE], behavior=behavior))
        steps = tuple((float(second), float(level)) for second, level in queue)
        cluster.metrics.set_external_metric("default", "queue", Step(steps))
        async with autoscaler(cluster) as running:
            return await running.follow(timedelta(minutes=minutes), "default", "web")

    return run(main, nodes=2)


def counts(sizes: Sizes) -> list[int]:
    return [size for _, size in sizes]


def gaps(sizes: Sizes) -> list[float]:
    return [after - before for (before, _), (after, _) in pairwise(sizes[1:])]


UP_NOW: Raw = {"stabilizationWindowSeconds": 0}
DOWN_NOW: Raw = {"stabilizationWindowSeconds": 0}


def test_pods_policy_limits_growth_per_period() -> None:
    behavior = {"scaleUp": {**UP_NOW, "policies": [policy("Pods", 3, 60)]}}
    sizes = sizes_with(behavior, [(0, 2), (60, 14)], 8, replicas=2)
    assert counts(sizes) == [2, 5, 8, 11, 14]
    assert all(gap >= 59 for gap in gaps(sizes))


def test_percent_policy_limits_growth_per_period() -> None:
    behavior = {"scaleUp": {**UP_NOW, "policies": [policy("Percent", 50, 60)]}}
    sizes = sizes_with(behavior, [(0, 4), (60, 20)], 8, replicas=4)
    assert counts(sizes) == [4, 6, 9, 14, 20]
    assert all(gap >= 59 for gap in gaps(sizes))


@pytest.mark.parametrize(("select", "expected"), [("Max", [2, 6, 12, 20]), ("Min", [2, 4, 8, 12, 16, 20])])
def test_select_policy_picks_the_faster_or_the_slower(select: str, expected: list[int]) -> None:
    behavior = {
        "scaleUp": {**UP_NOW, "selectPolicy": select, "policies": [policy("Pods", 4, 60), policy("Percent", 100, 60)]}
    }
    assert counts(sizes_with(behavior, [(0, 2), (60, 20)], 8, replicas=2)) == expected


def test_disabled_growth_stays_but_the_minimum_is_kept() -> None:
    behavior = {"scaleUp": {"selectPolicy": "Disabled"}}
    assert counts(sizes_with(behavior, [(0, 2), (60, 20)], 5, replicas=2)) == [2]
    assert counts(sizes_with(behavior, [(0, 2), (60, 20)], 5, replicas=2, minimum=3))[-1] == 3


def test_pods_policy_limits_shrinking_per_period() -> None:
    behavior = {"scaleDown": {**DOWN_NOW, "policies": [policy("Pods", 2, 120)]}}
    sizes = sizes_with(behavior, [(0, 10), (60, 3)], 12, replicas=10)
    assert counts(sizes) == [10, 8, 6, 4, 3]
    assert all(gap >= 119 for gap in gaps(sizes))


def test_percent_policy_limits_shrinking_per_period() -> None:
    behavior = {"scaleDown": {**DOWN_NOW, "policies": [policy("Percent", 50, 60)]}}
    assert counts(sizes_with(behavior, [(0, 16), (60, 2)], 8, replicas=16)) == [16, 8, 4, 2]


def test_the_smallest_change_wins_with_min_when_shrinking() -> None:
    behavior = {
        "scaleDown": {**DOWN_NOW, "selectPolicy": "Min", "policies": [policy("Pods", 1, 60), policy("Percent", 50, 60)]}
    }
    assert counts(sizes_with(behavior, [(0, 5), (60, 2)], 8, replicas=5)) == [5, 4, 3, 2]


def test_disabled_shrinking_stays() -> None:
    behavior = {"scaleDown": {**DOWN_NOW, "selectPolicy": "Disabled"}}
    assert counts(sizes_with(behavior, [(0, 10), (60, 2)], 10, replicas=10)) == [10]


def test_a_window_for_growing_waits_for_the_load_to_stay() -> None:
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 120, "policies": [policy("Pods", 100, 15)]}}
    sizes = sizes_with(behavior, [(0, 2), (300, 9), (360, 2), (600, 7)], 15, replicas=2)
    assert counts(sizes) == [2, 7]
    assert sizes[1][0] >= 600 + 105


def test_a_window_for_shrinking_goes_down_to_the_recent_peak() -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 300}}
    sizes = sizes_with(behavior, [(0, 10), (600, 3), (720, 6), (780, 3)], 25, replicas=10)
    assert counts(sizes) == [10, 6, 3]
    assert 600 + 270 <= sizes[1][0] <= 600 + 330
    assert 780 + 270 <= sizes[2][0] <= 780 + 330


def test_without_behavior_the_cluster_window_holds() -> None:
    sizes = sizes_with(None, [(0, 8), (600, 2)], 20, replicas=8)
    assert counts(sizes) == [8, 2]
    assert 600 + 285 <= sizes[1][0] <= 600 + 335


def test_a_new_autoscaler_does_not_shrink_before_its_window() -> None:
    sizes = sizes_with(None, [(0, 2)], 8, replicas=8)
    assert counts(sizes) == [8, 2]
    assert sizes[1][0] >= 300
