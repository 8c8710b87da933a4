"""Mid resources: what prediction says prod pods leave, a share of what they never asked for, and a ceiling."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.slo import NodeMetric
from kubetide.api.values.codec import convert
from kubetide.slo.core.compat import NEWEST, parse_compat
from kubetide.slo.core.overcommit.claims import claim_of
from kubetide.slo.core.overcommit.mid import calculate_mid
from unit.slo.scenes import NOW, STRATEGY

NODE = {"status": {"capacity": {"cpu": "20", "memory": "2001"}, "allocatable": {"cpu": "10", "memory": "1001"}}}
USED = {"cpu": "9", "memory": "9"}
Amount = tuple[int | None, bool]


def pod(name: str, cpu: str, phase: str = "Running", **labels: str) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "100"}}}
    meta = {
        "name": name,
        "namespace": "shop",
        "labels": {f"koordinator.sh/{key}": text for key, text in labels.items()},
    }
    return {"metadata": meta, "spec": {"containers": [container]}, "status": {"phase": phase}}


def mid(
    reclaimable: dict[str, str] | None = None,
    *,
    version: str = "1.8",
    age: timedelta = timedelta(0),
    usage: dict[str, Any] | None = None,
    pods: tuple[dict[str, Any], ...] = (),
    applications: tuple[dict[str, Any], ...] = (),
    **strategy: Any,
) -> tuple[Amount, ...]:
    status: dict[str, Any] = {
        "updateTime": (NOW - age).isoformat(),
        "nodeMetric": {"nodeUsage": {"resources": USED if usage is None else usage}},
        "hostApplicationMetric": list(applications),
    }
    if reclaimable is not None:
        status["prodReclaimableMetric"] = {"resource": {"resources": reclaimable}}
    items = calculate_mid(
        {**STRATEGY, **strategy},
        convert(NODE, Node),
        [claim_of(convert(each, Pod)) for each in pods],
        convert({"status": status}, NodeMetric),
        NOW,
        parse_compat(version),
    )
    return tuple((None if one.quantity is None else one.quantity.value, one.reset) for one in items)


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
def test_until_1_5_mid_is_the_prediction_below_a_share_of_allocatable(
    reclaimable: dict[str, str], strategy: dict[str, Any], cpu: int, memory: int
) -> None:
    assert mid(reclaimable, version="1.4", **strategy) == ((cpu, False), (memory, False))


@pytest.mark.parametrize(
    ("options", "cpu"),
    [
        pytest.param({"reclaimable": {"cpu": "3"}}, 3000, id="as-predicted"),
        pytest.param({"reclaimable": {"cpu": "30"}}, 11000, id="no-more-than-is-unused"),
        pytest.param({"reclaimable": {"cpu": "3"}, "usage": {"cpu": "9"}}, 0, id="unknown-usage-is-not-unused"),
        pytest.param({"midUnallocatedPercent": 50}, 5000, id="half-of-what-is-not-reserved"),
        pytest.param({"midUnallocatedPercent": 50, "pods": (pod("a", "4"),)}, 3000, id="prod-requests-are-allocated"),
        pytest.param(
            {"midUnallocatedPercent": 50, "pods": (pod("a", "4", **{"priority-class": "koord-mid"}),)},
            5000,
            id="mid-requests-are-not",
        ),
        pytest.param(
            {"midUnallocatedPercent": 50, "pods": (pod("a", "4", phase="Failed"),)}, 5000, id="nor-are-those-that-ended"
        ),
        pytest.param(
            {
                "midUnallocatedPercent": 100,
                "applications": (
                    {"name": "x", "priority": "koord-prod", "usage": {"resources": {"cpu": "12"}}},
                    {"name": "y", "priority": "koord-mid", "usage": {"resources": {"cpu": "5"}}},
                ),
            },
            8000,
            id="host-applications-above-mid-may-exceed-the-reservation",
        ),
        pytest.param(
            {"reclaimable": {"cpu": "8"}, "midUnallocatedPercent": 50, "midCPUThresholdPercent": 40},
            8000,
            id="the-ceiling-limits-the-sum",
        ),
        pytest.param(
            {"reclaimable": {"cpu": "9"}, "version": "1.7", "midUnallocatedPercent": 50, "midCPUThresholdPercent": 40},
            13000,
            id="which-it-did-not-before-1.8",
        ),
        pytest.param({"midReclaimMode": "static", "midStaticCPUReservedPercent": 30}, 6000, id="static"),
        pytest.param(
            {"midReclaimMode": "static", "midStaticCPUReservedPercent": 300, "midCPUThresholdPercent": 50},
            10000,
            id="static-below-the-ceiling",
        ),
        pytest.param(
            {"reclaimable": {"cpu": "1"}, "version": "1.7", "midReclaimMode": "static"}, 1000, id="static-needs-1.8"
        ),
    ],
)
def test_what_is_mid(options: dict[str, Any], cpu: int) -> None:
    assert mid(**options)[0] == (cpu, False)


@pytest.mark.parametrize(("version", "expected"), [("1.4", (None, True)), ("1.5", (None, True)), ("1.6", (0, False))])
def test_a_missing_prediction_degrades_until_1_5(version: str, expected: Amount) -> None:
    assert mid(version=version)[0] == expected


@pytest.mark.parametrize("mode", ["", "static"])
def test_an_old_report_takes_mid_away_but_one_at_the_limit_does_not(mode: str) -> None:
    options: dict[str, Any] = {"midReclaimMode": mode, "midStaticCPUReservedPercent": 5}
    assert mid({"cpu": "1"}, age=timedelta(minutes=15), **options)[0] == (1000, False)
    assert mid({"cpu": "1"}, age=timedelta(minutes=15, seconds=1), **options)[0] == (None, True)


def test_a_report_without_node_usage_takes_mid_away() -> None:
    metric = convert({"status": {"updateTime": NOW.isoformat()}}, NodeMetric)
    assert all(item.reset for item in calculate_mid(STRATEGY, convert(NODE, Node), [], metric, NOW, NEWEST))


@given(
    reclaimable=st.integers(-5, 50),
    share=st.integers(0, 100),
    ceiling=st.integers(0, 100),
    requests=st.lists(st.integers(0, 9), max_size=4),
)
def test_mid_is_never_more_than_its_ceiling(reclaimable: int, share: int, ceiling: int, requests: list[int]) -> None:
    found = mid(
        {"cpu": str(reclaimable)},
        pods=tuple(pod(f"p{index}", str(each)) for index, each in enumerate(requests)),
        midUnallocatedPercent=share,
        midCPUThresholdPercent=ceiling,
    )
    assert found[0][0] is not None
    assert 0 <= found[0][0] <= 20_000 * ceiling / 100
