"""Which pods, capacities and reservations the batch formula counts, and by which policy."""

from typing import Any

import pytest

from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.slo import NodeMetric, NodeResourceTopology
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import parse_quantity
from kubetide.slo.core.overcommit.batch import calculate_batch, reserve
from kubetide.slo.core.overcommit.claims import claim_of
from unit.slo.scenes import NOW, STRATEGY

GI = 2**30


def pod(name: str = "web", *, phase: str = "Running", status: str = "", **labels: str) -> Pod:
    annotations = {"scheduling.koordinator.sh/resource-status": status} if status else {}
    metadata = {"name": name, "namespace": "shop", "annotations": annotations}
    marks = {f"koordinator.sh/{key.replace('_', '-')}": value for key, value in labels.items()}
    requests = {"cpu": "2", "memory": "2Gi"}
    raw = {
        "metadata": {**metadata, "labels": marks},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": phase},
    }
    return convert(raw, Pod)


def usage(name: str = "web", cpu: str = "300m", memory: str = "3Gi", **more: str) -> dict[str, Any]:
    return {"name": name, "namespace": "shop", "podUsage": {"resources": {"cpu": cpu, "memory": memory}}, **more}


def lend(
    *pods: Pod,
    reported: tuple[dict[str, Any], ...] = (),
    applications: tuple[dict[str, Any], ...] = (),
    allocatable: dict[str, str] | None = None,
    reservation: str = "",
    zones: list[dict[str, Any]] | None = None,
    **strategy: Any,
) -> Any:
    """Calculate on a node of 10 cores and 10 GiB whose system uses half a core and half a GiB."""
    capacity = {"cpu": "10", "memory": "10Gi"}
    annotations = {"node.koordinator.sh/reservation": reservation} if reservation else {}
    node = {
        "metadata": {"name": "n", "annotations": annotations},
        "status": {"capacity": capacity, "allocatable": allocatable or capacity},
    }
    status = {
        "updateTime": NOW.isoformat(),
        "nodeMetric": {"systemUsage": {"resources": {"cpu": "500m", "memory": "512Mi"}}},
        "podsMetric": list(reported),
        "hostApplicationMetric": list(applications),
    }
    topology = None if zones is None else convert({"zones": zones}, NodeResourceTopology)
    metric = convert({"status": status}, NodeMetric)
    claims = [claim_of(one) for one in pods]
    return calculate_batch({**STRATEGY, **strategy}, convert(node, Node), claims, metric, topology, NOW)


def amounts(result: Any) -> tuple[int, float]:
    cpu, memory = result.items
    return cpu.quantity.value, memory.quantity.value / GI


def test_the_capacity_counts_and_allocatable_only_says_what_is_reserved() -> None:
    assert amounts(lend()) == (5500, 6.0)
    assert amounts(lend(allocatable={"cpu": "9", "memory": "9Gi"})) == (5000, 5.5)


def test_of_system_usage_and_reservation_the_larger_counts() -> None:
    less = '{"resources": {"cpu": "200m", "memory": "1Gi"}}'
    assert amounts(lend(reservation=less)) == (5500, 5.5)


def test_whom_the_reservation_is_meant_for_does_not_matter_here() -> None:
    text = '{"reservedCPUs": "0-1", "applyPolicy": "ReservedCPUsOnly"}'
    assert amounts(lend(reservation=text)) == (4000, 6.0)


def test_by_request_the_system_counts_with_its_reservation_alone() -> None:
    text = '{"resources": {"cpu": "1", "memory": "1Gi"}}'
    by_request: dict[str, Any] = {"cpuCalculatePolicy": "request", "memoryCalculatePolicy": "request"}
    assert amounts(lend(**by_request)) == (5500, 6.5)
    assert amounts(lend(pod(), reported=(usage(),), reservation=text, **by_request)) == (4700, 3.5)


def test_the_larger_of_usage_and_request_counts_pod_by_pod_also_without_metrics() -> None:
    policy: dict[str, Any] = {"cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "maxUsageRequest"}
    assert amounts(lend(pod(), reported=(usage(),), **policy)) == (3500, 3.0)
    assert amounts(lend(pod(), **policy)) == (3500, 4.0)


def test_a_policy_that_nobody_knows_is_usage() -> None:
    policy: dict[str, Any] = {"cpuCalculatePolicy": "bogus", "memoryCalculatePolicy": ""}
    assert amounts(lend(pod(), reported=(usage(),), **policy)) == (5200, 3.0)


def test_an_exclusive_pod_gives_no_cpu_back() -> None:
    assert amounts(lend(pod(qosClass="LSE"), reported=(usage(),))) == (3500, 3.0)
    assert amounts(lend(pod(qosClass="LSR"), reported=(usage(),))) == (5200, 3.0)


@pytest.mark.parametrize(
    ("one", "lent"),
    [
        pytest.param(pod(priority_class="koord-batch"), (5500, 6.0), id="batch-is-not-counted"),
        pytest.param(pod(priority_class="koord-mid"), (5200, 3.0), id="mid-is"),
        pytest.param(pod(priority_class="strange"), (5200, 3.0), id="none-by-label-then-by-qos"),
        pytest.param(pod(qosClass="BE"), (5500, 6.0), id="best-effort-is-batch"),
        pytest.param(pod(phase="Succeeded"), (5200, 3.0), id="ended-but-still-reported"),
        pytest.param(pod(phase="Pending"), (5200, 3.0), id="pending"),
    ],
)
def test_who_has_priority(one: Pod, lent: tuple[int, float]) -> None:
    assert amounts(lend(one, reported=(usage(),))) == lent


def test_what_an_ended_batch_pod_still_reports_counts_by_its_reported_priority() -> None:
    ended = pod(phase="Failed", priority_class="koord-prod")
    assert amounts(lend(ended, reported=(usage(priority="koord-free"),))) == (5500, 6.0)


def test_host_applications_with_priority_are_part_of_the_system() -> None:
    app = {"name": "nginx", "usage": {"resources": {"cpu": "1", "memory": "1Gi"}}}
    assert amounts(lend(applications=(app,))) == (5500, 6.0)
    assert amounts(lend(applications=({**app, "priority": "koord-mid"},))) == (4500, 5.0)
    assert amounts(lend(applications=({**app, "priority": "koord-batch"},))) == (5500, 6.0)


def test_a_threshold_above_a_hundred_overcommits_more_than_there_is() -> None:
    strategy: dict[str, Any] = {"cpuReclaimThresholdPercent": 120, "memoryReclaimThresholdPercent": 100}
    capacity = {"cpu": parse_quantity("10"), "memory": parse_quantity("10Gi")}
    assert reserve(strategy, capacity)["cpu"] == parse_quantity("-2")
    assert amounts(lend(**strategy)) == (11500, 9.5)


def zone(name: str, cpu: str) -> dict[str, Any]:
    amount = {"capacity": "99", "allocatable": cpu, "available": "0"}
    return {"name": name, "type": "Node", "resources": [{"name": "cpu", **amount}]}


def test_zones_start_from_their_allocatable_and_share_what_belongs_to_none() -> None:
    placed = pod(status='{"numaNodeResources": [{"node": 1}]}')
    result = lend(placed, pod("free"), zones=[zone("node-0", "5"), zone("node-1", "5")])
    cpu = {name: quantity.value for name, quantity in result.items[0].zones.items()}
    # Each zone: 5 cores, 2 kept back, a quarter for the system, one core of the pod that may run anywhere.
    assert cpu == {"node-0": 1750, "node-1": 0}


def test_a_zone_listed_twice_counts_twice() -> None:
    placed = pod(status='{"numaNodeResources": [{"node": 0}, {"node": 0}, {"node": 1}, {"node": 7}]}')
    result = lend(placed, zones=[zone("node-0", "5"), zone("node-1", "5")])
    assert [quantity.value for quantity in result.items[0].zones.values()] == [3000 - 250 - 2 * 667, 3000 - 250 - 667]
