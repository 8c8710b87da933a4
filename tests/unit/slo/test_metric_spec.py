"""The collect policy of a node: who writes it, and when it stays as it is."""

from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.objects.meta import ObjectMeta
from kubetide.api.qos.slo_merge import COLOCATION
from kubetide.slo.core.strategy import metric_spec

NODE = Node(metadata=ObjectMeta(name="n", labels={"pool": "a"}))
DEFAULT = {
    "aggregateDurationSeconds": 300,
    "reportIntervalSeconds": 60,
    "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
    "nodeMemoryCollectPolicy": "usageWithoutPageCache",
}
OLD = {"metricCollectPolicy": {"aggregateDurationSeconds": 7}}


def policy(config: dict[str, Any], *, error: bool = False, old: dict[str, Any] | None = None) -> dict[str, Any]:
    spec = metric_spec(config, error=error, node=NODE, old=old)
    found: dict[str, Any] = spec["metricCollectPolicy"]
    return found


def test_a_node_that_overcommits_nothing_reports_by_the_default_policy() -> None:
    assert policy({**COLOCATION, "metricReportIntervalSeconds": 20}) == DEFAULT
    assert policy({**COLOCATION, "enable": True, "metricReportIntervalSeconds": 20})["reportIntervalSeconds"] == 20


@pytest.mark.parametrize("field", ["metricReportIntervalSeconds", "degradeTimeMinutes"])
def test_a_strategy_that_is_not_acceptable_is_answered_with_the_default_policy(field: str) -> None:
    assert policy({**COLOCATION, "enable": True, "metricAggregateDurationSeconds": 9, field: 0}) == DEFAULT


def test_a_bad_text_freezes_an_existing_policy_but_a_new_object_gets_one() -> None:
    config = {**COLOCATION, "enable": True, "metricReportIntervalSeconds": 20}
    assert policy(config, error=True, old=OLD) == OLD["metricCollectPolicy"]
    assert policy(config, error=True)["reportIntervalSeconds"] == 20
    assert policy(config, old=OLD)["aggregateDurationSeconds"] == 300


def test_what_a_strategy_leaves_open_stays_open_for_the_agent() -> None:
    given = {"enable": True, "metricReportIntervalSeconds": 20, "metricAggregatePolicy": {"durations": []}}
    assert policy(given) == {"reportIntervalSeconds": 20, "nodeAggregatePolicy": {"durations": []}}
