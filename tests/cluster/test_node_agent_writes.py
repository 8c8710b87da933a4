"""How often the agent asks and writes: conflicts of the NodeMetric have a limit, an unchanged topology is free."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response, Transport
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.settings import NodeSettings
from kubetide.node.state.objects import RAW_NODE_METRICS
from kubetide.node.state.topology import TOPOLOGIES
from kubetide.telemetry import Telemetry
from simulated.cluster import run

NODE = "node-1"
NODE_METRIC = {
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "kind": "NodeMetric",
    "metadata": {"name": NODE},
    "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 60, "reportIntervalSeconds": 30}},
}
CONFLICT = b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","message":"changed","code":409}'


class Contended:
    """A transport on which others always change the NodeMetric first, `conflicts` times."""

    def __init__(self, inner: Transport, now: Any, conflicts: int) -> None:
        self.inner = inner
        self.conflicts = conflicts
        self.attempts: list[float] = []
        self.topology: list[str] = []
        self._now = now

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        if method == "PUT" and path.endswith(f"/nodemetrics/{NODE}/status"):
            self.attempts.append(self._now())
            if len(self.attempts) <= self.conflicts:
                return Response(409, {}, CONFLICT)
        if path.endswith(f"/noderesourcetopologies/{NODE}"):
            self.topology.append(method)
        return await self.inner.request(method, path, **parts)

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self.inner.watch(path, query=query)

    async def close(self) -> None:
        await self.inner.close()


def make_agent(cluster: SimCluster, transport: Transport) -> NodeAgent:
    host = cluster.hosts[NODE]
    return NodeAgent(
        Client(transport, clock=cluster.clock),
        cluster.clock,
        NodeSettings(node_name=NODE, audit_log_dir="", collect_res_used_interval=timedelta(seconds=5)),
        host,
        Telemetry(),
        layout=Layout(version=host.version, paths=host.paths),
        commands=host,
    )


def attempts(conflicts: int, duration: timedelta) -> tuple[list[float], dict[str, Any], str]:
    """Run an agent; return when it tried to write, the status that is there, and its problem."""

    async def main(cluster: SimCluster) -> tuple[list[float], dict[str, Any], str]:
        cluster.add_node(NODE)
        await cluster.apply(NODE_METRIC)
        transport = Contended(cluster.client().transport, cluster.elapsed, conflicts)
        agent = make_agent(cluster, transport)
        task = asyncio.get_running_loop().create_task(agent.run())
        await cluster.run_for(duration)
        problem = agent.reporter.problem
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        found = await cluster.client().get_raw(RAW_NODE_METRICS, NODE)
        return transport.attempts, found.get("status") or {}, problem

    return run(main)


def test_without_conflicts_every_report_is_one_write() -> None:
    tried, status, problem = attempts(0, timedelta(seconds=105))
    assert len(tried) == 3
    assert status["updateTime"]
    assert problem == ""


def test_one_conflict_is_answered_at_once() -> None:
    tried, status, _ = attempts(1, timedelta(seconds=45))
    assert len(tried) == 2
    assert tried[1] - tried[0] < 0.1
    assert status["updateTime"]


def test_a_report_over_the_limit_waits_for_the_next_slot() -> None:
    tried, status, problem = attempts(2, timedelta(seconds=55))
    assert len(tried) == 3, "two attempts are the burst, the third comes when the limit has room again"
    assert 9 <= tried[2] - tried[1] <= 11.5
    assert status["updateTime"]
    assert problem == ""


def test_lasting_conflicts_cost_one_attempt_every_ten_seconds() -> None:
    tried, status, problem = attempts(1000, timedelta(minutes=10))
    assert status == {}
    assert problem
    lasting = tried[-1] - tried[0]
    assert len(tried) <= 2 + lasting / 10 + 1
    assert len(tried) >= lasting / 10 - 2, "it goes on trying"


def test_an_unchanged_topology_is_not_asked_for_again() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        transport = Contended(cluster.client().transport, cluster.elapsed, 0)
        task = asyncio.get_running_loop().create_task(make_agent(cluster, transport).run())
        await cluster.run_for(timedelta(minutes=1))
        assert transport.topology == ["GET", "GET", "PUT"], "not there, made, completed"
        transport.topology.clear()
        await cluster.run_for(timedelta(minutes=5))
        assert transport.topology == []
        client = cluster.client()
        raw = await client.get_raw(TOPOLOGIES, NODE)
        raw["topologyPolicies"] = ["Restricted"]
        await client.update(TOPOLOGIES, NODE, raw)
        await cluster.run_for(timedelta(seconds=10))
        assert transport.topology == ["GET", "PUT"], "what others change is put right"
        assert (await client.get_raw(TOPOLOGIES, NODE))["topologyPolicies"] == ["None"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main)
