"""The NodeMetric status: heartbeats, cold start, pods without data."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.qos.cgroups import CgroupPaths
from kubetide.api.values.codec import convert
from kubetide.node.core import report, slo
from kubetide.node.core.prediction.reclaimable import EmptyPredictor, NoPrediction, Reclaimable
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Ring, series_key
from kubetide.node.core.snapshot import PodState, pod_state
from unit.node.memory_host import START

SPEC = slo.complete_collect_policy({"metricCollectPolicy": {"nodeAggregatePolicy": {"durations": ["1m0s", "10m0s"]}}})


def filled(seconds: int = 60, **kind_values: float) -> Ring:
    ring = Ring()
    now = int(START.timestamp() * 1000)
    for ago in range(seconds, 0, -1):
        samples = [(series_key(kind), value) for kind, value in kind_values.items()]
        ring.append("node", 1.0, now - ago * 1000, samples)
    return ring


def pod(uid: str) -> PodState:
    raw = {"metadata": {"name": uid, "namespace": "x", "uid": uid}, "status": {"qosClass": "Burstable"}}
    return pod_state(convert(raw, Pod), CgroupPaths())


def build(ring: Ring, **more: Any) -> dict[str, Any]:
    arguments = {"now": START, "pods": (), "predictor": EmptyPredictor(), **more}
    return report.status(ring, SPEC, **arguments).body


def test_usage_is_truncated_and_not_rounded() -> None:
    body = build(filled(node_cpu_usage=1.2349, node_memory_usage=999.9))
    assert body["nodeMetric"]["nodeUsage"]["resources"] == {"cpu": "1234m", "memory": "999"}


def test_a_window_that_is_hardly_filled_is_empty_but_there() -> None:
    minute, ten = build(filled(node_cpu_usage=1.0, node_memory_usage=1.0))["nodeMetric"]["aggregatedNodeUsages"]
    assert minute["usage"]["p50"]["resources"]["cpu"] == "1"
    assert ten["usage"] == {"avg": {}, "p50": {}, "p90": {}, "p95": {}, "p99": {}}


def test_half_a_measurement_is_none() -> None:
    assert build(filled(node_cpu_usage=1.0))["nodeMetric"]["nodeUsage"] == {}


def test_devices_are_reported_beside_cpu_and_memory_and_never_alone() -> None:
    gpu = report.Gpu(uuid="GPU-a", minor=0, memory_total=1000)
    whole = filled(node_cpu_usage=1.0, node_memory_usage=1.0)
    half = filled(node_cpu_usage=1.0)
    properties = {kinds.GPU_UUID: "GPU-a", kinds.GPU_MINOR: "0"}
    now = int(START.timestamp() * 1000)
    for ring in (whole, half):
        keys = [series_key(kinds.NODE_GPU_CORE, properties), series_key(kinds.NODE_GPU_MEMORY, properties)]
        ring.append("gpu", 1.0, now - 1000, [(keys[0], 39.9), (keys[1], 379.0)])
    (device,) = build(whole, gpus=[gpu])["nodeMetric"]["nodeUsage"]["devices"]
    assert list(device["resources"].values()) == ["39", "379", "37"]
    assert build(half, gpus=[gpu])["nodeMetric"]["nodeUsage"] == {}


def test_pods_without_data_are_left_out_and_not_predicted() -> None:
    ring = filled()
    now = int(START.timestamp() * 1000)
    uid = {kinds.POD_UID: "a"}
    batch = [(series_key(kinds.POD_CPU, uid), 0.5), (series_key(kinds.POD_MEMORY, uid), 100.0)]
    ring.append("pods", 1.0, now - 1000, batch)
    asked: list[str] = []

    class Predictor:
        def add_pod(self, pod: Pod) -> None:
            asked.append(pod.metadata.uid)
            raise NoPrediction("not known")

        def result(self) -> Reclaimable:
            return Reclaimable(1500, 10)

        def peak(self) -> Reclaimable:
            return Reclaimable(2500, 20)

    body = build(ring, pods=(pod("a"), pod("b")), predictor=Predictor())
    assert [one["name"] for one in body["podsMetric"]] == ["a"]
    assert asked == ["a"]
    assert body["prodReclaimableMetric"] == {"resource": {"resources": {"cpu": "1500m", "memory": "10"}}}
    assert body["prodPeakMetric"] == {"resource": {"resources": {"cpu": "2500m", "memory": "20"}}}


def test_without_a_prediction_the_map_is_empty() -> None:
    assert build(filled())["prodReclaimableMetric"] == {"resource": {}}


def test_the_time_of_the_report_is_the_heartbeat() -> None:
    assert build(Ring())["updateTime"] == "2026-03-01T12:00:00Z"
    assert report.report_interval(
        slo.complete_collect_policy({"metricCollectPolicy": {"reportIntervalSeconds": 5}})
    ) == (timedelta(seconds=30))


@pytest.mark.parametrize(("given", "seconds"), [(0, 30), (29, 30), (30, 30), (31, 31), (-5, 30), (None, 60)])
def test_reports_are_at_least_thirty_seconds_apart(given: int | None, seconds: int) -> None:
    policy = {} if given is None else {"reportIntervalSeconds": given}
    spec = slo.complete_collect_policy({"metricCollectPolicy": policy})
    assert report.report_interval(spec) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("policy", "cold", "memory"),
    [
        ("usageWithoutPageCache", True, "1"),
        ("usageWithPageCache", False, "2"),
        ("usageWithHotPageCache", True, "3"),
        ("usageWithHotPageCache", False, "1"),
        ("strange", True, "1"),
    ],
)
def test_the_policy_chooses_the_kind_of_memory(policy: str, cold: bool, memory: str) -> None:
    ring = filled(
        node_cpu_usage=1.0,
        node_memory_usage=1.0,
        node_memory_usage_with_page_cache=2.0,
        node_memory_with_hot_page_usage=3.0,
    )
    spec = slo.complete_collect_policy({"metricCollectPolicy": {"nodeMemoryCollectPolicy": policy}})
    body = report.status(ring, spec, now=START, pods=(), predictor=EmptyPredictor(), cold_started=cold).body
    assert body["nodeMetric"]["nodeUsage"]["resources"]["memory"] == memory
