"""The whole loop on simulated nodes: the ConfigMap, the agents' reports, what is lent, who runs on it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kubetide.api.objects.scheme import NODE_METRICS, NODES
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.control.recorder import EventRecorder
from kubetide.node.agent import NodeAgent
from kubetide.slo.controller import SloController
from kubetide.slo.explain import render
from kubetide.slo.settings import SloSettings
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_config_map, make_job
from qosagent import ls_pod, make_agent, running
from simulated.cluster import events, pods, ready_pods, run

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
NAMESPACE, NAME = "koordinator-system", "slo-controller-config"
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
COLOCATION = {
    "enable": True,
    "cpuReclaimThresholdPercent": 60,
    "degradeTimeMinutes": 5,
    "metricAggregateDurationSeconds": 60,
    "metricReportIntervalSeconds": 30,
}
Raw = dict[str, Any]


class Controller:
    """A running SLO controller, with what it shows of itself."""

    def __init__(self, cluster: SimCluster) -> None:
        self.telemetry = Telemetry()
        self.recorder = EventRecorder(cluster.client(), clock=cluster.clock, component="nodeslo-controller")
        self.slo = SloController(
            cluster.client(), cluster.clock, SloSettings(), self.telemetry, self.recorder, random.Random(1)
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.run())
            group.create_task(self.slo.run())


@asynccontextmanager
async def controller(cluster: SimCluster) -> AsyncIterator[Controller]:
    await cluster.ensure_namespace(NAMESPACE)
    made = Controller(cluster)
    task = asyncio.get_running_loop().create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait({task})


def agent_of(cluster: SimCluster, node: str) -> NodeAgent:
    """Return an agent that looks every ten seconds: every second would only cost time here."""
    return make_agent(
        cluster,
        node,
        enable_node_metric_report=True,
        collect_res_used_interval=10 * SECOND,
        runtime_hooks_reconcile_interval=MINUTE,
    )


async def configure(cluster: SimCluster, colocation: Raw | str) -> None:
    text = colocation if isinstance(colocation, str) else msgspec.json.encode(colocation).decode()
    await cluster.apply(make_config_map(NAME, NAMESPACE, {"colocation-config": text}))


async def lent(cluster: SimCluster, node: str = "node-1") -> int | None:
    found = (await cluster.client().get(NODES, node)).status.allocatable or {}
    assert (BATCH_CPU in found) == (BATCH_MEMORY in found)
    return int(found[BATCH_CPU]) if BATCH_CPU in found else None


def batch_job(name: str, *, cpu: int) -> Raw:
    """Return a Job whose pod is best-effort and asks for batch resources only."""
    amounts = {BATCH_CPU: str(cpu), BATCH_MEMORY: "1Gi"}
    job = make_job(name, requests=amounts, limits=amounts)
    template = job["spec"]["template"]
    template["metadata"]["labels"]["koordinator.sh/qosClass"] = "BE"
    template["spec"]["priority"] = 5500
    return job


def placed(cluster: SimCluster, job: str) -> str:
    (pod,) = pods(cluster, "default", **{"job-name": job})
    return str(pod["spec"].get("nodeName") or "")


def test_what_prod_leaves_is_overcommitted_used_taken_back_and_given_up() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        cluster.set_usage("default", "web", cpu="1", memory="1Gi")
        cluster.set_usage("default", "report", cpu="500m", memory="200Mi")
        await cluster.apply([ls_pod("web", cpu="5", memory="2Gi"), batch_job("report", cpu=2000)])
        async with controller(cluster) as made:
            await configure(cluster, COLOCATION | {"enable": False})
            async with running(agent_of(cluster, "node-1")):
                await cluster.run_for(2 * MINUTE)
                reported = await cluster.client().get(NODE_METRICS, "node-1")
                assert reported.status.update_time is not None, "reports come also while nothing is lent"
                assert await lent(cluster) is None
                assert placed(cluster, "report") == ""

                await configure(cluster, COLOCATION)
                await cluster.run_for(3 * MINUTE)
                first = await lent(cluster)
                # 60 % of 8 cores less what prod really uses: more than its request of 5 would leave.
                assert first is not None
                assert 2000 < first < 8000 * 0.6 - 1000
                assert placed(cluster, "report") == "node-1"
                assert ready_pods(cluster, "default", **{"job-name": "report"})
                explained = made.slo.explain("node", "node-1")
                assert explained is not None
                assert "high-priority pods (used)" in render(explained["overcommit"])
                assert set(explained["overcommit"]["ages"]) >= {"node", "pods", "report", "configuration"}

                cluster.set_usage("default", "web", cpu="2500m", memory="1Gi")
                await cluster.run_for(4 * MINUTE)
                second = await lent(cluster)
                assert second is not None
                assert second == pytest.approx(first - 1500, abs=300)

            await cluster.run_for(4 * MINUTE)
            # A short silence changes nothing; at most the drift since the last write is written.
            assert await lent(cluster) == pytest.approx(second, abs=300)
            await cluster.run_for(2 * MINUTE)
            assert await lent(cluster) is None, "after the configured minutes the numbers are not believed any more"
            shown = made.telemetry.render().decode()
            assert 'allocatable_internal{node="node-1",resource="kubernetes.io/batch-cpu"' not in shown

            async with running(agent_of(cluster, "node-1")):
                await cluster.run_for(3 * MINUTE)
                assert await lent(cluster) == pytest.approx(second, abs=300)
                await configure(cluster, COLOCATION | {"enable": False})
                await cluster.run_for(10 * SECOND)
                assert await lent(cluster) is None
                capacity = (await cluster.client().get(NODES, "node-1")).status.capacity or {}
                assert BATCH_CPU not in capacity
                assert capacity["cpu"] == "8"

    run(main, limit=timedelta(hours=2))


def test_a_broken_configuration_changes_nothing_and_the_event_reports_why() -> None:
    async def main(cluster: SimCluster) -> None:
        for name in ("node-1", "node-2"):
            cluster.add_node(name, cpu="8", memory="16Gi")
        async with controller(cluster) as made:
            await configure(cluster, COLOCATION)
            async with running(agent_of(cluster, "node-1")), running(agent_of(cluster, "node-2")):
                await cluster.run_for(4 * MINUTE)
                before = [await lent(cluster, node) for node in cluster.hosts]
                assert all(before)
                await configure(cluster, '{"enable": "yes"}')
                await cluster.run_for(3 * MINUTE)
                assert [await lent(cluster, node) for node in cluster.hosts] == before
                await configure(cluster, COLOCATION | {"degradeTimeMinutes": 0})
                await cluster.run_for(3 * MINUTE)
                assert [await lent(cluster, node) for node in cluster.hosts] == before
            shown = made.telemetry.render().decode()
        told = {event["reason"]: event["message"] for event in events(cluster, name=NAME)}
        assert set(told) == {"ColocationCfgUnmarshalFailed", "ColocationCfgNotAcceptable"}
        assert "degradeTimeMinutes is 0" in told["ColocationCfgNotAcceptable"]
        problem = 'kubetide_slo_config_problems_total{key="colocation-config",reason="ColocationCfgNotAcceptable"} 1.0'
        assert problem in shown

    run(main, limit=timedelta(hours=2))
