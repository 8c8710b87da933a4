"""The other parts of a node: NUMA zones, CPU normalization and amplification, GPUs, a broken text at the start."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from kubetide.api.objects.scheme import DEVICES, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODES
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.control.recorder import EventRecorder
from kubetide.slo.controller import SloController
from kubetide.slo.settings import SloSettings
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_config_map
from simulated.cluster import run

NAMESPACE, NAME = "koordinator-system", "slo-controller-config"
SOON = timedelta(seconds=10)
BATCH_CPU = "kubernetes.io/batch-cpu"
Raw = dict[str, Any]


@asynccontextmanager
async def controller(cluster: SimCluster, **config: Any) -> AsyncIterator[Telemetry]:
    await cluster.ensure_namespace(NAMESPACE)
    data = {
        name.replace("_", "-"): value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in config.items()
    }
    await cluster.apply(make_config_map(NAME, NAMESPACE, data))
    client, telemetry = cluster.client(), Telemetry()
    recorder = EventRecorder(client, clock=cluster.clock, component="slo")
    settings = SloSettings(leader_elect=False)
    made = SloController(client, cluster.clock, settings, telemetry, recorder, random.Random(1))
    task = asyncio.get_running_loop().create_task(made.run())
    try:
        await cluster.run_for(SOON)
        yield telemetry
    finally:
        task.cancel()
        await asyncio.wait({task})


async def report(cluster: SimCluster, cpu: str = "1") -> None:
    usage = {"resources": {"cpu": cpu, "memory": "1Gi"}}
    status = {
        "updateTime": cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        "nodeMetric": {"nodeUsage": usage, "systemUsage": usage},
    }
    await cluster.client().patch(NODE_METRICS, "node-1", MergePatch({"status": status}), subresource="status")
    await cluster.run_for(SOON)


def amounts(cpu: str) -> list[Raw]:
    found = {"cpu": cpu, "memory": "8Gi", "example.com/theirs": "3"}
    return [{"name": n, "capacity": a, "allocatable": a, "available": a} for n, a in found.items()]


def topology() -> Raw:
    info = {"cpuModel": "fast", "hyperThreadEnabled": True, "turboEnabled": False}
    return {
        "apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version,
        "kind": NODE_RESOURCE_TOPOLOGIES.kind,
        "metadata": {
            "name": "node-1",
            "annotations": {"node.koordinator.sh/cpu-basic-info": msgspec.json.encode(info).decode()},
        },
        "topologyPolicies": ["None"],
        "zones": [
            {"name": f"node-{n}", "type": "Node", "costs": [{"name": "node-0", "value": 10}], "resources": amounts("4")}
            for n in (0, 1)
        ],
    }


def test_zones_get_their_share_and_keep_what_others_wrote_there() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        await cluster.apply(topology())
        async with controller(cluster, colocation_config={"enable": True, "cpuReclaimThresholdPercent": 50}):
            await report(cluster)
            raw = await cluster.client().get_raw(NODE_RESOURCE_TOPOLOGIES, "node-1")
            for zone in raw["zones"]:
                assert zone["costs"] == [{"name": "node-0", "value": 10}]
                found = {resource["name"]: resource for resource in zone["resources"]}
                # Half of four cores, less half of what the system uses.
                assert found[BATCH_CPU] == {
                    "name": BATCH_CPU,
                    "capacity": "1500",
                    "allocatable": "1500",
                    "available": "1500",
                }
                assert found["example.com/theirs"]["capacity"] == "3"
            version = raw["metadata"]["resourceVersion"]
            await report(cluster)
            again = await cluster.client().get_raw(NODE_RESOURCE_TOPOLOGIES, "node-1")
            assert again["metadata"]["resourceVersion"] == version, "nothing changed, nothing is written"

    run(main)


def test_a_ratio_of_the_cpu_model_reaches_the_node_and_scales_batch_cpu() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        await cluster.apply(topology())
        models = {"fast": {"baseRatio": 1.1, "hyperThreadEnabledRatio": 1.5}}
        normalization = {"enable": True, "ratioModel": models}
        config = {"colocation_config": {"enable": True}, "cpu_normalization_config": normalization}
        async with controller(cluster, **config):
            await report(cluster)
            node = await cluster.client().get(NODES, "node-1")
            annotations = node.metadata.annotations or {}
            assert annotations["node.koordinator.sh/cpu-normalization-ratio"] == "1.50"
            assert annotations["node.koordinator.sh/resource-amplification-ratio"] == '{"cpu":1.50}'
            lent = int((node.status.allocatable or {})[BATCH_CPU])
            assert lent == (8000 * 0.6 - 1000) * 1.5
            await cluster.apply(make_config_map(NAME, NAMESPACE, {"colocation-config": '{"enable": false}'}))
            await cluster.run_for(SOON)
            annotations = (await cluster.client().get(NODES, "node-1")).metadata.annotations or {}
            assert "node.koordinator.sh/resource-amplification-ratio" not in annotations
            assert "node.koordinator.sh/cpu-normalization-ratio" in annotations

    run(main)


def test_healthy_gpus_are_summed_and_go_with_their_device() -> None:
    def gpu(minor: int, *, health: bool) -> Raw:
        resources = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "16Gi"}
        resources["koordinator.sh/gpu-memory-ratio"] = "100"
        return {"type": "gpu", "id": f"GPU-{minor}", "minor": minor, "health": health, "resources": resources}

    device = {
        "apiVersion": DEVICES.api_version,
        "kind": DEVICES.kind,
        "metadata": {"name": "node-1", "labels": {"node.koordinator.sh/gpu-model": "T9"}},
        "spec": {"devices": [gpu(0, health=True), gpu(1, health=True), gpu(2, health=False)]},
    }

    async def main(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        await cluster.apply(device)
        async with controller(cluster, colocation_config={"enable": True}):
            node = await cluster.client().get(NODES, "node-1")
            found = node.status.allocatable or {}
            assert (found["koordinator.sh/gpu"], found["koordinator.sh/gpu-core"]) == ("200", "200")
            assert (node.metadata.labels or {})["node.koordinator.sh/gpu-model"] == "T9"
            await cluster.client().delete(DEVICES, "node-1")
            await cluster.run_for(SOON)
            found = (await cluster.client().get(NODES, "node-1")).status.allocatable or {}
            assert not [name for name in found if name.startswith("koordinator.sh/gpu")]
            assert found["cpu"] is not None

    run(main)


def test_a_broken_text_at_the_start_overcommits_nothing_and_counts_once() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node("node-1", cpu="8", memory="16Gi")
        async with controller(cluster, colocation_config="{") as telemetry:
            listed = await cluster.client().list(NODE_METRICS)
            assert listed.items == (), "without a configuration that was ever good nothing is decided"
            text = telemetry.render().decode()
            assert 'config_problems_total{key="colocation-config",reason="ColocationCfgUnmarshalFailed"} 1.0' in text

    run(main)
