"""What a node lends: the worked example of the specification, guards, plugins, explain."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.slo import NodeMetric, NodeResourceTopology
from kubetide.api.values.codec import convert
from kubetide.errors import DecodeError
from kubetide.slo.cluster_view import slim_pod
from kubetide.slo.core.decide import decide_node
from kubetide.slo.core.observation import NodeObservation
from kubetide.slo.core.overcommit.claims import claim_of
from kubetide.slo.core.overcommit.result import BATCH_CPU, BATCH_MEMORY
from kubetide.slo.explain import render
from kubetide.slo.settings import SloSettings, is_listed
from unit.slo.scenes import NOW, STRATEGY, lent, metric, node, observe


def test_a_pod_without_metrics_counts_with_its_request() -> None:
    found = lent(observe())
    assert found[BATCH_CPU] == "3500"
    assert found[BATCH_MEMORY] == str(4 * 2**30)


def test_a_pod_with_metrics_counts_with_its_usage() -> None:
    usage = {"name": "web", "namespace": "shop", "podUsage": {"resources": {"cpu": "300m", "memory": "1Gi"}}}
    found = lent(observe(metric=metric(usage)))
    assert found[BATCH_CPU] == "5200"
    assert found[BATCH_MEMORY] == str(5 * 2**30)


def test_a_pod_that_vanished_from_the_list_still_counts() -> None:
    usage = {"name": "gone", "namespace": "shop", "podUsage": {"resources": {"cpu": "1", "memory": "0"}}}
    assert lent(observe(pods=[], metric=metric(usage)))[BATCH_CPU] == "4500"
    assert lent(observe(pods=[], metric=metric({**usage, "priority": "koord-batch"})))[BATCH_CPU] == "5500"


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(observe(metric=None), id="no-report"),
        pytest.param(observe(metric=metric(age=timedelta(minutes=15, seconds=1))), id="old-report"),
        pytest.param(observe(metric=convert({"status": {"updateTime": NOW}}, NodeMetric)), id="report-without-usage"),
    ],
)
def test_doubtful_metrics_overcommit_nothing(seen: NodeObservation) -> None:
    assert lent(seen)[BATCH_CPU] is None


def test_the_age_limit_itself_is_still_fresh() -> None:
    assert lent(observe(metric=metric(age=timedelta(minutes=15))))[BATCH_CPU] == "3500"


def test_disabled_takes_away_just_our_resources() -> None:
    seen = observe(node=node(batch_cpu="100", batch_memory="1", other="7"), colocation={"enable": False})
    patch = decide_node(seen, SloSettings(), NOW).status_patch
    assert patch is not None
    gone = {"kubernetes.io/batch-cpu": None, "kubernetes.io/batch-memory": None}
    assert patch["status"] == {"capacity": gone, "allocatable": gone}


def test_a_node_that_never_overcommitted_is_not_written_when_colocation_is_off() -> None:
    decision = decide_node(observe(colocation={"enable": False}), SloSettings(), NOW)
    assert (decision.status_patch or None, decision.metadata_patch) == (None, None)


def test_small_drifts_wait_for_the_time_threshold() -> None:
    seen = observe(node=node(batch_cpu="3501", batch_memory=str(4 * 2**30), mid_cpu="0", mid_memory="0"))
    recently = observe(node=seen.node, since_status_write=timedelta(seconds=300))
    later = observe(node=seen.node, since_status_write=timedelta(seconds=301))
    assert decide_node(recently, SloSettings(), NOW).status_patch is None
    assert decide_node(later, SloSettings(), NOW).status_patch is not None


def test_the_explanation_adds_up() -> None:
    text = render(decide_node(observe(), SloSettings(), NOW).trace)
    assert "10000m  capacity" in text
    assert "4000m  margin" in text
    assert "2000m  high-priority pods (used)" in text
    assert "3500m  calculated" in text
    assert "last report   0 s ago" in text


@pytest.mark.parametrize(
    ("entries", "listed"),
    [(("*",), True), (("*", "-nodeslo"), False), (("-nodeslo", "nodeslo"), False), (("other",), False)],
)
def test_lists_of_controllers_are_read_from_the_left(entries: tuple[str, ...], listed: bool) -> None:
    assert is_listed(entries, "nodeslo") is listed


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"labels": {"koordinator.sh/qosClass": "LSE", "app": "web"}}, id="qos"),
        pytest.param({"labels": {"koordinator.sh/priority-class": "koord-batch"}}, id="priority"),
        pytest.param(
            {"annotations": {"scheduling.koordinator.sh/resource-status": '{"numaNodeResources":[{"node":1}]}'}},
            id="numa",
        ),
        pytest.param({}, id="plain"),
    ],
)
def test_a_slim_pod_claims_the_same(changes: dict[str, Any]) -> None:
    raw = {
        "metadata": {"name": "web", "namespace": "shop", **changes},
        "spec": {
            "nodeName": "n",
            "priority": 5500,
            "overhead": {"cpu": "10m"},
            "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}
            ],
            "initContainers": [{"name": "i", "resources": {"requests": {"memory": "1Gi"}}}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }
    pod = convert(raw, Pod)
    assert claim_of(slim_pod(pod)) == claim_of(pod)


BATCH_ON_NODE = {"batch_cpu": "100", "batch_memory": "1Mi", "mid_cpu": "7", "mid_memory": "8"}


@pytest.mark.parametrize("enable", [True, False])
@pytest.mark.parametrize(
    ("plugins", "touched"),
    [
        pytest.param(("MidResource", "BatchResource"), {"batch", "mid"}, id="both"),
        pytest.param(("MidResource",), {"mid"}, id="mid-alone"),
        pytest.param(("BatchResource",), {"batch"}, id="batch-alone"),
        pytest.param(("CPUNormalization",), set(), id="neither"),
    ],
)
def test_resources_of_a_plugin_that_is_switched_off_are_left_alone(
    plugins: tuple[str, ...], touched: set[str], enable: bool
) -> None:
    seen = observe(node=node(**BATCH_ON_NODE), colocation={**STRATEGY, "enable": enable})
    patch = decide_node(seen, SloSettings(plugins=plugins), NOW).status_patch or {}
    names = {name for part in patch.get("status", {}).values() for name in part}
    assert names == {f"kubernetes.io/{tier}-{resource}" for tier in touched for resource in ("cpu", "memory")}


def test_a_plugin_that_cannot_read_its_input_leaves_what_is_there_and_reports_it() -> None:
    broken = {"name": "web", "namespace": "shop", "podUsage": {"resources": {"cpu": "much"}}}
    decision = decide_node(observe(node=node(**BATCH_ON_NODE), metric=metric(broken)), SloSettings(), NOW)
    assert [(problem.plugin, problem.stage) for problem in decision.problems] == [
        ("BatchResource", "ResourceCalculate")
    ]
    changed = (decision.status_patch or {}).get("status", {}).get("allocatable", {})
    assert set(changed) == {"kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"}, "mid is written, batch stays"


def test_zones_without_names_or_with_unreadable_amounts_do_not_keep_the_node_from_being_written() -> None:
    zones = [
        {"resources": [{"name": "cpu", "allocatable": "5"}, {"allocatable": "1"}]},
        {"name": "node-1", "resources": [{"name": "kubernetes.io/batch-cpu", "allocatable": "none"}]},
    ]
    topology = convert({"zones": zones}, NodeResourceTopology)
    decision = decide_node(observe(topology=topology, zones=zones), SloSettings(), NOW)
    assert decision.status_patch is not None
    assert [(problem.plugin, problem.stage) for problem in decision.problems] == [("BatchResource", "NodePreUpdate")]


@pytest.mark.parametrize(
    ("status", "zones"),
    [
        pytest.param('{"numaNodeResources": [{"node": 1}]}', (1,), id="one"),
        pytest.param('{"numaNodeResources": [{"node": 1}, {"node": 1}, {"node": 7}]}', (1, 1), id="listed-twice"),
        pytest.param('{"numaNodeResources": [null]}', (0,), id="nothing-said-is-the-first"),
        pytest.param('{"numaNodeResources": [{"node": 1, "resources": {"cpu": "much"}}]}', (0, 1), id="unreadable"),
        pytest.param("{", (0, 1), id="broken"),
    ],
)
def test_a_pod_is_spread_over_the_zones_that_the_scheduler_chose(status: str, zones: tuple[int, ...]) -> None:
    metadata = {"name": "web", "annotations": {"scheduling.koordinator.sh/resource-status": status}}
    assert claim_of(convert({"metadata": metadata}, Pod)).zones(2) == zones


@pytest.mark.parametrize("field", ["degradeTimeMinutes", "updateTimeThresholdSeconds"])
def test_the_longest_time_that_can_be_written_means_never(field: str) -> None:
    seen = observe(
        colocation={**STRATEGY, field: 2**63 - 1},
        metric=metric(age=timedelta(days=30) if field == "degradeTimeMinutes" else timedelta(0)),
        since_status_write=timedelta(days=30),
    )
    assert lent(seen)[BATCH_CPU] == "3500"


def test_a_report_without_a_time_zone_is_not_taken_for_one() -> None:
    with pytest.raises(DecodeError, match="updateTime"):
        convert({"status": {"updateTime": "2026-01-01T12:00:00"}}, NodeMetric)
