"""Evictions by what is allocatable, on a simulated node in virtual time: the right pods, in order, and only once."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.scheme import NODES
from kubetide.api.qos import qos
from kubetide.api.values.patch import MergePatch
from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.node.state.objects import RAW_NODE_METRICS
from kubetide.slo.settings import SloSettings
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_config_map, make_pod
from kubetide.wiring import Dependencies, build
from qosagent import batch_pod, ls_pod, make_agent, node_slo, running
from simulated.cluster import events, pods, run

Raw = dict[str, Any]
BY_ALLOCATABLE = node_slo(
    resourceUsedThresholdWithBE={
        "enable": True,
        "memoryAllocatableEvictThresholdPercent": 110,
        "memoryAllocatableEvictLowerPercent": 100,
        "allocatableEvictPriorityThreshold": 5999,
    }
)


def opted_in(name: str, priority: int, memory: str, *, grace: int = 60) -> Raw:
    """A batch pod that agrees to be evicted and takes its time to go."""
    pod = batch_pod(name, priority=priority, memory=memory)
    pod["metadata"]["labels"][qos.LABEL_EVICTION_ENABLED] = "true"
    pod["spec"]["terminationGracePeriodSeconds"] = grace
    return pod


async def allocatable(cluster: SimCluster, memory: str | None) -> None:
    """What the SLO controller makes of the node; None: it took the resource away, because its data is stale."""
    change = {"status": {"allocatable": {qos.BATCH_MEMORY: memory}, "capacity": {qos.BATCH_MEMORY: memory}}}
    await cluster.client().patch(NODES, "node-1", MergePatch(change), subresource="status")


def staying(cluster: SimCluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods(cluster, "default") if "deletionTimestamp" not in pod["metadata"]}


def evicted(cluster: SimCluster) -> list[str]:
    """The pods of accepted evictions, in order."""
    accepted = [event for event in events(cluster) if event["reason"] == "evictPodSuccess"]
    return [(event.get("regarding") or event["involvedObject"])["name"] for event in accepted]


def on_node(main: Callable[[SimCluster], Awaitable[None]], *, cgroup: str = "v2") -> None:
    async def body(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi", cgroup=cgroup)
        for name, size in (("web", "8Gi"), ("early", "1Gi"), ("large", "2Gi"), ("small", "1Gi"), ("late", "1Gi")):
            cluster.set_usage("default", name, cpu="100m", memory=size)
        await allocatable(cluster, "10Gi")
        batch = [
            opted_in("late", 5900, "2Gi"),
            opted_in("small", 5500, "2Gi"),
            opted_in("large", 5500, "3Gi"),
            opted_in("early", 5000, "2Gi"),
        ]
        await cluster.apply([BY_ALLOCATABLE, ls_pod("web", cpu="1", memory="8Gi"), *batch])
        await main(cluster)

    run(body)


EVERYBODY = {"web", "early", "large", "small", "late"}
ALPHA = "AllAlpha=true,BEMemoryEvict=false,BECPUEvict=false"


@pytest.mark.parametrize("cgroup", ["v1", "v2"])
def test_a_node_under_memory_pressure_evicts_by_allocatable_once_and_in_order(cgroup: str) -> None:
    async def main(cluster: SimCluster) -> None:
        async with running(make_agent(cluster, feature_gates="MemoryAllocatableEvict=true")):
            await cluster.run_for(timedelta(seconds=30))
            assert staying(cluster) == EVERYBODY  # 9 of 10 Gi are requested
            await allocatable(cluster, "5Gi")  # the load of prod pods rose
            await cluster.run_for(timedelta(seconds=10))
            # 4 Gi are due: the lowest priority first, of equal ones the larger
            assert evicted(cluster) == ["early", "large"]
            assert staying(cluster) == {"web", "small", "late"}
            # While they terminate (a minute) and afterwards nobody else goes for the same shortage.
            await cluster.run_for(timedelta(minutes=5))
            assert staying(cluster) == {"web", "small", "late"}
            assert evicted(cluster) == ["early", "large"]

    on_node(main, cgroup=cgroup)


def test_a_resource_that_the_controller_took_away_evicts_nobody() -> None:
    async def main(cluster: SimCluster) -> None:
        async with running(make_agent(cluster, feature_gates="MemoryAllocatableEvict=true")) as agent:
            await allocatable(cluster, None)
            await cluster.run_for(timedelta(minutes=2))
            assert staying(cluster) == EVERYBODY
            explained = agent.explain("node", "node-1") or {}
            found = explained["qos"]["strategies"]["memory-evict"]["features"]["MemoryAllocatableEvict"]
            assert found == {"skipped": "requests are within what is allocatable"}

    on_node(main)


def test_a_gate_of_another_version_is_not_reached_by_its_group() -> None:
    async def main(cluster: SimCluster) -> None:
        await allocatable(cluster, "1Gi")
        async with running(make_agent(cluster, feature_gates=ALPHA, compat="1.7")):
            await cluster.run_for(timedelta(minutes=1))
            assert staying(cluster) == EVERYBODY

    on_node(main)


def test_a_step_back_of_the_release_leaves_no_field_in_the_nodemetric() -> None:
    async def body(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        await cluster.apply([NODE_METRIC, ls_pod("web", cpu="1", memory="1Gi")])
        cluster.set_usage("default", "web", cpu="100m", memory="1Gi")
        found: dict[str, Raw] = {}
        for compat in ("1.8", "1.4"):
            options: Raw = {"enable_node_metric_report": True, "prediction_cold_start_duration": timedelta(0)}
            async with running(make_agent(cluster, compat=compat, **options)):
                await cluster.run_for(timedelta(minutes=4))
            found[compat] = (await cluster.client().get_raw(RAW_NODE_METRICS, "node-1"))["status"]
        newer, older = found["1.8"], found["1.4"]
        assert newer["nodeMetric"]["numaUsages"][0]["numaNodeID"] == 0
        assert "prodPeakMetric" in newer
        assert "avg" in newer["nodeMetric"]["aggregatedNodeUsages"][0]["usage"]
        assert older["updateTime"] > newer["updateTime"]
        assert {"numaUsages", "prodPeakMetric"}.isdisjoint({*older, *older["nodeMetric"]})
        for part in ("aggregatedNodeUsages", "aggregatedSystemUsages"):
            assert all("avg" not in one["usage"] for one in older["nodeMetric"][part])
        assert older.keys() <= OF_1_4

    run(body)


NODE_METRIC = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "node-1"}}
OF_1_4 = {"updateTime", "nodeMetric", "podsMetric", "hostApplicationMetric", "prodReclaimableMetric"}


@pytest.mark.parametrize(("compat", "warned"), [("1.8", True), ("1.6", False)])
def test_another_release_of_the_agent_at_work_is_a_warning(
    compat: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        koordlet = make_pod("koordlet-abc", namespace="koordinator-system", node="node-1")
        koordlet["spec"]["containers"][0]["image"] = "example.com/koordinator-sh/koordlet:v1.6.2"
        await cluster.apply([koordlet])
        await cluster.run_for(timedelta(seconds=30))
        async with running(make_agent(cluster, compat=compat)) as agent:
            await cluster.run_for(timedelta(seconds=10))
            explained = agent.explain("node", "node-1") or {}
        assert explained["compat"] == compat
        line = "pod koordinator-system/koordlet-abc is 1.6, kubetide follows 1.8"
        assert explained.get("handOver") == (line if warned else None)
        told = [one for one in caplog.records if "from another release" in one.getMessage()]
        assert bool(told) is warned

    run(body)


@asynccontextmanager
async def controlled(cluster: SimCluster) -> AsyncIterator[None]:
    """Run the SLO controller beside the agent."""
    world = Dependencies(
        client=cluster.client(), clock=cluster.clock, telemetry=Telemetry(), rng=random.Random(1), local_webhooks=None
    )
    async with asyncio.TaskGroup() as group:
        parts = build("slo", world, SloSettings(leader_elect=False))
        tasks = [group.create_task(part.run(), name=part.name) for part in parts]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


def test_prod_pods_that_need_their_memory_back_get_it_from_batch_pods_in_order() -> None:
    async def body(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        threshold = BY_ALLOCATABLE["spec"]["resourceUsedThresholdWithBE"]
        data = {
            "colocation-config": json.dumps(
                {"enable": True, "memoryReclaimThresholdPercent": 80, "metricReportIntervalSeconds": 30}
            ),
            "resource-threshold-config": json.dumps({"clusterStrategy": threshold}),
        }
        batch = [
            opted_in("late", 5900, "2Gi"),
            opted_in("small", 5500, "2Gi"),
            opted_in("large", 5500, "3Gi"),
            opted_in("early", 5000, "2Gi"),
        ]
        cluster.set_usage("default", "web", cpu="100m", memory="2Gi")
        config = make_config_map("slo-controller-config", "koordinator-system", data)
        await cluster.apply([config, ls_pod("web", cpu="1", memory="2Gi"), *batch])
        options: Raw = {"feature_gates": "MemoryAllocatableEvict=true", "enable_node_metric_report": True}
        async with controlled(cluster), running(make_agent(cluster, **options)):
            await cluster.run_for(timedelta(minutes=10))
            assert staying(cluster) == EVERYBODY
            before = await batch_memory(cluster)
            assert before > 9 << 30  # as much as is requested
            cluster.set_usage("default", "web", cpu="100m", memory="7Gi")
            await cluster.run_for(timedelta(minutes=10))
            after = await batch_memory(cluster)
            assert 4 << 30 < after < before - (3 << 30)
            assert evicted(cluster) == ["early", "large"]
            # What is left fits, and nobody follows.
            await cluster.run_for(timedelta(minutes=10))
            assert evicted(cluster) == ["early", "large"]
            assert staying(cluster) == {"web", "small", "late"}

    run(body)


async def batch_memory(cluster: SimCluster) -> int:
    node = await cluster.client().get_raw(NODES, "node-1")
    return parse_quantity(node["status"]["allocatable"][qos.BATCH_MEMORY]).value
