"""The metrics that 1.8 has, under their names, and which of them are about the agent itself."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.errors import KubetideError
from kubetide.node.endpoints import NodeEndpoints
from kubetide.node.state.kubelet import TimedKubelet
from kubetide.node.telemetry import is_internal
from kubetide.telemetry import Telemetry
from nodeworld import TestClock
from qosagent import batch_pod, ls_pod, make_agent, node_slo, running
from simulated.cluster import run

OF_1_8 = (
    "koordlet_be_suppress_be_used_cpu_cores",
    "koordlet_node_used_memory_bytes",
    "koordlet_host_application_resource_usage",
    "koordlet_node_resource_priority_reclaimable_status",
    "koordlet_cpuset_share_pool_cpu_cores",
    "koordlet_cpuset_be_share_pool_cpu_cores",
    "koordlet_resource_update_duration_milliseconds",
    "koordlet_runtime_hook_reconciler_invoked_duration_milliseconds",
    "koordlet_cpuset_share_pool_info",
    "koordlet_cpuset_be_share_pool_info",
    "koordlet_node_predicted_resource_peak",
)


def samples(telemetry: Telemetry, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for metric in telemetry.registry.collect()
        for sample in metric.samples
        if sample.name in (name, f"{name}_count")
    }


def test_an_agent_at_work_shows_them() -> None:
    async def body(cluster: SimCluster) -> None:
        host = cluster.add_node("node-1", cpu="8", memory="16Gi")
        for path in ("host-latency-sensitive", "host-latency-sensitive/nginx"):
            host.mkdir(f"/sys/fs/cgroup/{path}")
        metric = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "node-1"}}
        slo = node_slo(
            resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota"},
            hostApplications=[{"name": "nginx", "priority": "koord-prod", "qos": "LS"}],
        )
        cluster.set_usage("default", "job", cpu=2)
        await cluster.apply([metric, slo, ls_pod("web", cpu="1", memory="1Gi"), batch_pod("job")])
        async with running(make_agent(cluster, enable_node_metric_report=True)) as agent:
            await cluster.run_for(timedelta(minutes=4))
        found = {name: samples(agent.telemetry, name) for name in OF_1_8}
        assert [name for name, values in found.items() if not values] == []
        assert found["koordlet_be_suppress_be_used_cpu_cores"]["node-1",] == pytest.approx(2.0, rel=0.2)
        assert found["koordlet_cpuset_share_pool_cpu_cores"]["node-1",] == 8
        assert found["koordlet_node_used_memory_bytes"]["node-1",] > 2**28
        assert set(found["koordlet_node_resource_priority_reclaimable_status"].values()) <= {0.0, 1.0}

    run(body)


class FakeKubelet:
    def __init__(self, clock: TestClock) -> None:
        self.clock = clock

    async def pods(self) -> bytes:
        self.clock.advance(0.5)
        return b"{}"

    async def config(self) -> dict[str, Any]:
        raise KubetideError("forbidden")


async def test_answers_of_the_kubelet_are_timed_whatever_they_are() -> None:
    telemetry, clock = Telemetry(), TestClock()
    kubelet = TimedKubelet(FakeKubelet(clock), clock, telemetry, "n")
    assert await kubelet.pods() == b"{}"
    with pytest.raises(KubetideError):
        await kubelet.config()
    counted = samples(telemetry, "koordlet_kubelet_request_duration_seconds")
    assert counted == {("n", "GET", "/pods/", "succeeded"): 1, ("n", "GET", "/configz", "failed"): 1}


async def test_metrics_are_split_into_external_and_internal_ones() -> None:
    telemetry = Telemetry()
    telemetry.gauge("koordlet_node_used_cpu_cores", "x", ("node",)).labels("n").set(1)
    telemetry.gauge("kubetide_node_series", "x", ("node",)).labels("n").set(2)
    endpoints = NodeEndpoints(telemetry, audit=None, healthy=lambda: True, ready=lambda: True)
    async with asyncio.timeout(30), TestClient(TestServer(endpoints.application())) as client:
        texts = {path: await (await client.get(path)).text() for path in PATHS}
    assert ("koordlet_node_used" in texts["/external-metrics"], "kubetide_node" in texts["/external-metrics"]) == (
        True,
        False,
    )
    assert ("koordlet_node_used" in texts["/internal-metrics"], "kubetide_node" in texts["/internal-metrics"]) == (
        False,
        True,
    )
    assert "koordlet_node_used" in texts["/metrics"]
    assert "kubetide_node" in texts["/metrics"]


PATHS = ("/metrics", "/external-metrics", "/internal-metrics")


@pytest.mark.parametrize(
    ("name", "internal"),
    [
        ("koordlet_be_suppress_cpu_cores", False),
        ("koordlet_kubelet_request_duration_seconds", True),
        ("koordlet_resource_update_duration_milliseconds", True),
        ("koordlet_collect_node_cpu_info_status", True),
        ("kubetide_node_strategy_seconds", True),
    ],
)
def test_what_is_about_the_agent_itself(name: str, internal: bool) -> None:
    assert is_internal(name) is internal
