"""Mid resources: what prediction says prod pods leave, capped by a share of the node."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.values.codec import convert
from kubetide.slo.core.overcommit.mid import calculate_mid
from unit.slo.lending import NOW, STRATEGY


def lend(
    reclaimable: dict[str, Any] | None, age: timedelta = timedelta(0), **strategy: int
) -> tuple[tuple[int | None, bool], ...]:
    status: dict[str, Any] = {
        "updateTime": (NOW - age).isoformat(),
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": "9", "memory": "9"}}},
    }
    if reclaimable is not None:
        status["prodReclaimableMetric"] = reclaimable
    node = {"status": {"capacity": {"cpu": "99", "memory": "99"}, "allocatable": {"cpu": "10", "memory": "1001"}}}
    items = calculate_mid({**STRATEGY, **strategy}, convert(node, Node), convert({"status": status}, NodeMetric), NOW)
    return tuple((None if one.quantity is None else one.quantity.value, one.reset) for one in items)


def predicted(**resources: str) -> dict[str, Any]:
    return {"resource": {"resources": resources}}


@pytest.mark.parametrize(
    ("reclaimable", "strategy", "cpu", "memory"),
    [
        pytest.param({"cpu": "3", "memory": "700"}, {}, 3000, 700, id="as-predicted"),
        pytest.param({"cpu": "30", "memory": "7000"}, {}, 10000, 1001, id="no-threshold-is-all-of-allocatable"),
        pytest.param(
            {"cpu": "30", "memory": "7000"},
            {"midCPUThresholdPercent": 33, "midMemoryThresholdPercent": 50},
            3300,
            500,
            id="the-share-is-cut-off",
        ),
        pytest.param({"cpu": "3"}, {"midCPUThresholdPercent": 0}, 0, 0, id="zero-is-a-threshold-and-missing-is-zero"),
        pytest.param({"cpu": "-3", "memory": "-1"}, {}, 0, 0, id="never-negative"),
        pytest.param({"cpu": "1500u", "memory": "500m"}, {}, 2, 1, id="whole-units-are-rounded-up"),
    ],
)
def test_what_is_lent(reclaimable: dict[str, str], strategy: dict[str, int], cpu: int, memory: int) -> None:
    assert lend(predicted(**reclaimable), timedelta(0), **strategy) == ((cpu, False), (memory, False))


@pytest.mark.parametrize("reclaimable", [None, {}, {"resource": {}}])
def test_without_a_prediction_nothing_is_lent(reclaimable: dict[str, Any] | None) -> None:
    assert lend(reclaimable) == ((None, True), (None, True))


def test_an_old_report_lends_nothing_but_one_at_the_limit_does() -> None:
    assert lend(predicted(cpu="1"), timedelta(minutes=15))[0] == (1000, False)
    assert lend(predicted(cpu="1"), timedelta(minutes=15, seconds=1))[0] == (None, True)
