"""The node agent on a simulated node: what it sees, predicts and reports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.values.quantity import cpu_millis, memory_bytes
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.client.errors import NotFound
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.settings import NodeSettings
from kubetide.node.state.objects import RAW_NODE_METRICS
from kubetide.node.state.topology import TOPOLOGIES
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_pod
from simulated.cluster import run

MINUTE = timedelta(minutes=1)
NODE_METRIC = {
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "kind": "NodeMetric",
    "metadata": {"name": "node-1"},
    "spec": {
        "metricCollectPolicy": {
            "aggregateDurationSeconds": 120,
            "reportIntervalSeconds": 60,
            "nodeAggregatePolicy": {"durations": ["1m0s", "5m0s"]},
        }
    },
}


def make_agent(cluster: SimCluster, node: str = "node-1", **settings: Any) -> NodeAgent:
    host = cluster.hosts[node]
    layout = Layout(version=host.version, paths=host.paths)
    return NodeAgent(
        cluster.client(),
        cluster.clock,
        NodeSettings(node_name=node, audit_log_dir="", **settings),
        host,
        Telemetry(),
        layout=layout,
        commands=host,
    )


@asynccontextmanager
async def running(agent: NodeAgent) -> AsyncIterator[NodeAgent]:
    task = asyncio.get_running_loop().create_task(agent.run())
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def value(usage: dict[str, Any], resource: str) -> float:
    text = usage["resources"][resource]
    return cpu_millis(text) / 1000 if resource == "cpu" else float(memory_bytes(text))


@pytest.mark.parametrize("cgroup", ["v1", "v2"])
@pytest.mark.parametrize("driver", ["systemd", "cgroupfs"])
def test_the_report_shows_what_pods_really_use(cgroup: str, driver: str) -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi", cgroup=cgroup, driver=driver)
        await cluster.apply([NODE_METRIC, make_pod("web", cpu="1", memory="1Gi"), make_pod("idle", cpu="100m")])
        cluster.set_usage("default", "web", cpu="750m", memory="600Mi")
        cluster.set_usage("default", "idle", cpu="10m", memory="50Mi")
        await cluster.run_for(MINUTE)
        async with running(make_agent(cluster)) as agent:
            await cluster.run_for(timedelta(minutes=3))
            assert agent.ready(), agent.explain("node", "node-1")
            status = (await cluster.client().get_raw(RAW_NODE_METRICS, "node-1"))["status"]
        pods = {pod["name"]: pod for pod in status["podsMetric"]}
        assert value(pods["web"]["podUsage"], "cpu") == pytest.approx(0.75, rel=0.1)
        assert value(pods["web"]["podUsage"], "memory") == pytest.approx(600 * 2**20, rel=0.1)
        assert (pods["web"]["priority"], pods["web"]["qos"]) == ("koord-prod", "LS")
        node = status["nodeMetric"]
        total = value(node["nodeUsage"], "cpu")
        system = value(node["systemUsage"], "cpu")
        used = sum(value(pod["podUsage"], "cpu") for pod in pods.values())
        assert total == pytest.approx(used + system, abs=0.05)
        minute, five = node["aggregatedNodeUsages"]
        assert set(minute["usage"]) == {"avg", "p50", "p90", "p95", "p99"}
        assert "cpu" in minute["usage"]["p99"]["resources"]
        assert five["duration"] == "5m0s"
        assert status["prodReclaimableMetric"]["resource"]["resources"]["cpu"] == "0"

    run(main, nodes=0)


def test_the_topology_is_created_and_kept() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi", sockets=2, threads=2)
        async with running(make_agent(cluster)):
            await cluster.run_for(timedelta(seconds=30))
            found = await cluster.client().get_raw(TOPOLOGIES, "node-1")
            version = found["metadata"]["resourceVersion"]
            assert [zone["name"] for zone in found["zones"]] == ["node-0", "node-1"]
            assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Koordinator"
            assert "node.koordinator.sh/cpu-topology" in found["metadata"]["annotations"]
            await cluster.run_for(MINUTE)
            again = await cluster.client().get_raw(TOPOLOGIES, "node-1")
            assert again["metadata"]["resourceVersion"] == version

    run(main, nodes=0)


def test_without_report_nothing_is_written() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="4", memory="8Gi")
        gates = "NodeTopologyReport=false"
        async with running(make_agent(cluster, feature_gates=gates, enable_node_metric_report=False)) as agent:
            await cluster.run_for(timedelta(minutes=2))
            assert agent.topology.annotations
            with pytest.raises(NotFound):
                await cluster.client().get_raw(TOPOLOGIES, "node-1")

    run(main, nodes=0)
