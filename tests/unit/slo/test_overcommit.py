"""What a node lends: the worked example of the specification, guards, continuity, explain."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.codec import convert
from kubetide.api.core import Node, Pod
from kubetide.api.quantity import Quantity, parse_quantity
from kubetide.api.slo import NodeMetric
from kubetide.slo.continuity import Departure, limit_growth, lingering
from kubetide.slo.decide import NodeObservation, decide_node
from kubetide.slo.explain import render
from kubetide.slo.observe import slim_pod
from kubetide.slo.overcommit.claims import PodClaim, claim_of
from kubetide.slo.overcommit.result import BATCH_CPU, BATCH_MEMORY, ResourceItem
from kubetide.slo.settings import SloSettings, is_listed

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STRATEGY = {
    "enable": True,
    "cpuReclaimThresholdPercent": 60,
    "memoryReclaimThresholdPercent": 65,
    "degradeTimeMinutes": 15,
    "updateTimeThresholdSeconds": 300,
    "resourceDiffThreshold": 0.1,
}


def node(**allocatable: str) -> Node:
    resources = {"cpu": "10", "memory": "10Gi"}
    extended = {f"kubernetes.io/{name.replace('_', '-')}": text for name, text in allocatable.items()}
    status = {"capacity": {**resources, **extended}, "allocatable": {**resources, **extended}}
    return convert({"metadata": {"name": "n"}, "status": status}, Node)


def pod(name: str = "web", **labels: str) -> PodClaim:
    requests = {"cpu": "2", "memory": "2Gi"}
    raw = {
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }
    return claim_of(convert(raw, Pod))


def metric(*pods: dict[str, Any], age: timedelta = timedelta(0)) -> NodeMetric:
    status = {
        "updateTime": (NOW - age).isoformat(),
        "nodeMetric": {"systemUsage": {"resources": {"cpu": "500m", "memory": "512Mi"}}},
        "podsMetric": list(pods),
    }
    return convert({"status": status}, NodeMetric)


def observe(**changes: Any) -> NodeObservation:
    parts: dict[str, Any] = {
        "node": node(),
        "pods": [pod()],
        "metric": metric(),
        "topology": None,
        "zones": (),
        "topology_annotations": {},
        "device": None,
        "colocation": STRATEGY,
        "normalization": {"enable": False},
    }
    return NodeObservation(**{**parts, **changes})


def lent(seen: NodeObservation, settings: SloSettings | None = None) -> dict[str, str | None]:
    decision = decide_node(seen, settings or SloSettings(), NOW)
    return {item.name: None if item.quantity is None else str(item.quantity.value) for item in decision.items}


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
def test_doubtful_metrics_lend_nothing(seen: NodeObservation) -> None:
    assert lent(seen)[BATCH_CPU] is None


def test_the_age_limit_itself_is_still_fresh() -> None:
    assert lent(observe(metric=metric(age=timedelta(minutes=15))))[BATCH_CPU] == "3500"


def test_disabled_takes_away_just_our_resources() -> None:
    seen = observe(node=node(batch_cpu="100", batch_memory="1", other="7"), colocation={"enable": False})
    patch = decide_node(seen, SloSettings(), NOW).status_patch
    assert patch is not None
    gone = {"kubernetes.io/batch-cpu": None, "kubernetes.io/batch-memory": None}
    assert patch["status"] == {"capacity": gone, "allocatable": gone}


def test_a_node_that_never_lent_is_not_written_when_colocation_is_off() -> None:
    decision = decide_node(observe(colocation={"enable": False}), SloSettings(), NOW)
    assert (decision.status_patch or None, decision.metadata_patch) == (None, None)


def test_small_drifts_wait_for_the_time_threshold() -> None:
    seen = observe(node=node(batch_cpu="3501", batch_memory=str(4 * 2**30)))
    recently = observe(node=seen.node, since_status_write=timedelta(seconds=300))
    later = observe(node=seen.node, since_status_write=timedelta(seconds=301))
    assert decide_node(recently, SloSettings(), NOW).status_patch is None
    assert decide_node(later, SloSettings(), NOW).status_patch is not None


def test_growth_is_limited_and_shrinking_is_not() -> None:
    settings = SloSettings(growth_limit_percent=10)
    assert lent(observe(node=node(batch_cpu="1000", batch_memory="1")), settings)[BATCH_CPU] == "2000"
    assert lent(observe(node=node(batch_cpu="9000", batch_memory="1")), settings)[BATCH_CPU] == "3500"


def test_what_a_pod_used_is_released_over_the_window() -> None:
    used = {"cpu": parse_quantity("2")}
    departure = Departure(NOW - timedelta(seconds=150), used)
    assert lingering([departure], timedelta(seconds=300), NOW)["cpu"] == parse_quantity("1")
    assert lingering([departure], timedelta(seconds=150), NOW) == {}
    settings = SloSettings(gradual_release=True)
    assert lent(observe(pods=[], departures=[departure]), settings)[BATCH_CPU] == "4500"


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 100))
def test_limited_growth_never_exceeds_what_was_wanted_nor_the_step(old: int, new: int, percent: int) -> None:
    capacity = {"cpu": parse_quantity("10")}
    item = ResourceItem(BATCH_CPU, Quantity.of(new))
    (limited,) = limit_growth([item], {BATCH_CPU: Quantity.of(old)}, capacity, percent)
    assert limited.quantity is not None
    assert limited.quantity.value == min(new, old + 10_000 * percent // 100)


def test_the_explanation_adds_up() -> None:
    text = render(decide_node(observe(), SloSettings(), NOW).trace)
    assert "10000m  capacity" in text
    assert "4000m  margin" in text
    assert "2000m  high-priority pods (used)" in text
    assert "3,500  calculated" in text
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
