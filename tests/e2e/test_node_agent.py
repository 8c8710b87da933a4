"""What the agent of a node writes, against a real kube-apiserver: the objects fit their schemas."""

import asyncio
import random
from contextlib import suppress
from typing import Any

from e2e.controlplane import ControlPlane
from e2e.programs import PATIENCE
from kubetide import crds
from kubetide.api.objects.scheme import CRDS, NODES
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, ApiError, NotFound
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.settings import NodeSettings, PodSource
from kubetide.node.state.metric import OVER_THE_LIMIT
from kubetide.node.state.objects import RAW_NODE_METRICS
from kubetide.node.state.topology import TOPOLOGIES
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_node

CLOCK = SystemClock()
NODE = "watched-node"
POLICY = {"reportIntervalSeconds": 60, "aggregateDurationSeconds": 60}
NODE_METRIC: dict[str, Any] = {
    "apiVersion": RAW_NODE_METRICS.api_version,
    "kind": RAW_NODE_METRICS.kind,
    "metadata": {"name": NODE, "labels": {"kept": "yes"}},
    "spec": {"metricCollectPolicy": POLICY},
}


async def prepare(client: Client) -> None:
    """Make the resources, the node and its NodeMetric."""
    for name in ("nodeslos", "nodemetrics", "noderesourcetopologies"):
        with suppress(AlreadyExists):
            await client.create(CRDS, crds.load(name))
    await client.create(NODES, make_node(NODE))
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.create(RAW_NODE_METRICS, NODE_METRIC)
                await client.list(TOPOLOGIES)
                return
            except AlreadyExists:
                continue
            except ApiError:
                await asyncio.sleep(0.1)


async def written_topology(client: Client) -> dict[str, Any]:
    """Wait until the topology is there and has zones."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(NotFound):
                found = await client.get_raw(TOPOLOGIES, NODE)
                if found.get("zones"):
                    return found
            await asyncio.sleep(0.1)


async def report(agent: NodeAgent, spec: dict[str, Any]) -> None:
    """Have a report written: at once, or in the next slot if the agent's own reports have used up the limit."""
    await agent.reporter.report(spec)
    async with asyncio.timeout(PATIENCE):
        while agent.reporter.problem == OVER_THE_LIMIT:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    assert agent.reporter.problem == ""


async def test_reports_and_topology_are_accepted_and_change_nothing_else(control_plane: ControlPlane) -> None:
    access = from_files([control_plane.kubeconfig("admin")], clock=CLOCK)
    client = Client(HttpTransport(access), clock=CLOCK, rng=random.Random(1))
    try:
        await prepare(client)
        async with SimCluster(clock=CLOCK) as simulated:
            host = simulated.add_node(NODE, cpu="4", memory="8Gi")
            agent = NodeAgent(
                client,
                CLOCK,
                NodeSettings(node_name=NODE, audit_log_dir="", pod_source=PodSource.API_SERVER),
                host,
                Telemetry(),
                layout=Layout(version=host.version, paths=host.paths),
                commands=host,
            )
            task = asyncio.get_running_loop().create_task(agent.run())
            try:
                async with asyncio.timeout(PATIENCE):
                    while not (agent.ready() and agent.topology.annotations):  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.05)
                spec = agent.objects.metric_spec
                assert spec is not None
                await report(agent, spec)
                written = await client.get_raw(RAW_NODE_METRICS, NODE)
                assert written["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"]
                assert written["metadata"]["labels"] == {"kept": "yes"}
                assert written["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 60

                # Somebody else was faster: the version that the watch showed is old, or soon will be.
                await client.patch(RAW_NODE_METRICS, NODE, MergePatch({"metadata": {"labels": {"more": "yes"}}}))
                await report(agent, spec)
                again = await client.get_raw(RAW_NODE_METRICS, NODE)
                assert again["status"]["updateTime"] >= written["status"]["updateTime"]
                assert again["metadata"]["labels"] == {"kept": "yes", "more": "yes"}

                topology = await written_topology(client)
                assert topology["zones"][0]["name"] == "node-0"
                assert topology["metadata"]["ownerReferences"][0]["kind"] == "Node"
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
    finally:
        await client.close()
        await asyncio.sleep(0.01)
