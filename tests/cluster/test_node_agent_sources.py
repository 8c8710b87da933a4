"""What else the node agent follows: host applications, volume claims, GPUs, pressure and page cache."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.meta import TypedObject
from kubetide.api.objects.scheme import Resource
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.core.series import kinds
from kubetide.node.runtime.nvml import GpuDevice, GpuSource, ProcessUsage
from kubetide.node.settings import NodeSettings
from kubetide.node.state.devices import RAW_DEVICES
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_pod
from simulated.cluster import run

NODE = "node-1"


def make_agent(cluster: SimCluster, *, gpus: GpuSource | None = None, **settings: Any) -> NodeAgent:
    host = cluster.hosts[NODE]
    return NodeAgent(
        cluster.client(),
        cluster.clock,
        NodeSettings(node_name=NODE, audit_log_dir="", **settings),
        host,
        Telemetry(),
        layout=Layout(version=host.version, paths=host.paths),
        commands=host,
        gpus=gpus,
    )


@asynccontextmanager
async def running(agent: NodeAgent) -> AsyncIterator[NodeAgent]:
    task = asyncio.get_running_loop().create_task(agent.run())
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def newest(agent: NodeAgent, kind: str, **properties: str) -> float | None:
    return agent.store.query(kind, properties, 0, 2**62).aggregate("last")


def test_host_applications_of_the_nodeslo_are_measured_and_reported() -> None:
    async def main(cluster: SimCluster) -> None:
        host = cluster.add_node(NODE)
        host.mkdir("/sys/fs/cgroup/host-latency-sensitive")
        host.mkdir("/sys/fs/cgroup/host-latency-sensitive/nginx")
        application = {"name": "nginx", "priority": "koord-prod", "qos": "LS"}
        slo = {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeSLO",
            "metadata": {"name": NODE},
            "spec": {"hostApplications": [application]},
        }
        metric = {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": {"name": NODE},
            "spec": {},
        }
        await cluster.apply([slo, metric])
        async with running(make_agent(cluster)) as agent:
            await cluster.run_for(timedelta(minutes=1))
            assert newest(agent, kinds.HOST_APP_CPU, host_app_name="nginx") == 0.0
            assert agent.objects.metric_spec is not None
            body = agent.build_status(agent.objects.metric_spec).body
            assert [one["name"] for one in body["hostApplicationMetric"]] == ["nginx"]

    run(main)


def test_volume_claims_are_known_and_forgotten() -> None:
    claims: Resource[TypedObject] = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", TypedObject)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {
            "volumeName": "pv-1",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }

    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        await cluster.apply(claim)
        async with running(make_agent(cluster, feature_gates="BlkIOReconcile=true")) as agent:
            await cluster.run_for(timedelta(seconds=30))
            assert agent.ready()
            assert agent.snapshot().claims == {"default/data": "pv-1"}
            assert agent.snapshot().storage is not None
            await cluster.client().delete(claims, "data", namespace="default")
            await cluster.run_for(timedelta(seconds=5))
            assert agent.snapshot().claims == {}

    run(main)


def test_pressure_and_page_cache_are_sampled_when_asked_for() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        await cluster.apply(make_pod("web", cpu="1"))
        cluster.set_usage("default", "web", cpu="500m", memory="100Mi")
        await cluster.run_for(timedelta(minutes=1))
        settings: dict[str, Any] = {"feature_gates": "PSICollector=true", "enable_pagecache_collector": True}
        async with running(make_agent(cluster, **settings)) as agent:
            await cluster.run_for(timedelta(minutes=1))
            assert agent.ready()
            uid = agent.pods.states()[0].uid
            pressure = {"psi_resource": "cpu", "psi_precision": "10", "psi_degree": "some"}
            assert newest(agent, kinds.POD_PSI, pod_uid=uid, **pressure) is not None
            assert newest(agent, kinds.POD_MEMORY_WITH_PAGE_CACHE, pod_uid=uid) is not None
            assert b"koordlet_pod_psi" in agent.telemetry.render()

    run(main)


class Gpus:
    """One GPU whose health a test decides."""

    def __init__(self) -> None:
        self.broken: frozenset[str] = frozenset()

    def devices(self) -> tuple[GpuDevice, ...]:
        return (
            GpuDevice(uuid="GPU-a", minor=0, memory_total=16 << 30, bus_id="0000:3b:00.0", name="NVIDIA Test 9000"),
        )

    def processes(self, minor: int) -> tuple[ProcessUsage, ...]:
        return (ProcessUsage(1, 30, 1 << 30),)

    def driver_version(self) -> str:
        return "550.1"

    def unhealthy(self) -> frozenset[str]:
        return self.broken


@pytest.mark.parametrize(
    ("names", "model"),
    [
        pytest.param(["NVIDIA Test 9000", ""], "Test-9000", id="one-does-not-tell"),
        pytest.param(["", ""], None, id="none-tells"),
        pytest.param(["NVIDIA Test 9000", "NVIDIA Other"], None, id="two-models"),
    ],
)
def test_the_model_label_is_that_of_the_gpus_that_tell_theirs(names: list[str], model: str | None) -> None:
    class Mixed(Gpus):
        def devices(self) -> tuple[GpuDevice, ...]:
            return tuple(
                GpuDevice(uuid=f"GPU-{minor}", minor=minor, memory_total=16 << 30, bus_id="", name=name)
                for minor, name in enumerate(names)
            )

    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        async with running(make_agent(cluster, gpus=Mixed(), feature_gates="Accelerators=true")):
            await cluster.run_for(timedelta(seconds=20))
            device = await cluster.client().get_raw(RAW_DEVICES, NODE)
            assert device["metadata"]["labels"].get("node.koordinator.sh/gpu-model") == model

    run(main)


def test_gpus_are_reported_as_a_device_object_and_their_health_followed() -> None:
    async def main(cluster: SimCluster) -> None:
        cluster.add_node(NODE)
        gpus = Gpus()
        async with running(make_agent(cluster, gpus=gpus, feature_gates="Accelerators=true")) as agent:
            await cluster.run_for(timedelta(seconds=20))
            device = await cluster.client().get_raw(RAW_DEVICES, NODE)
            assert device["metadata"]["labels"] == {
                "node.koordinator.sh/gpu-model": "Test-9000",
                "node.koordinator.sh/gpu-driver-version": "550.1",
            }
            assert device["spec"]["devices"][0]["health"] is True
            assert newest(agent, kinds.NODE_GPU_CORE, gpu_minor="0", gpu_device_uuid="GPU-a") == 30.0
            gpus.broken = frozenset({"GPU-a"})
            await cluster.run_for(timedelta(seconds=5))
            device = await cluster.client().get_raw(RAW_DEVICES, NODE)
            assert device["spec"]["devices"][0]["health"] is False
            await cluster.client().delete(RAW_DEVICES, NODE)
            await cluster.run_for(timedelta(seconds=70))
            device = await cluster.client().get_raw(RAW_DEVICES, NODE)
            assert device["spec"]["devices"][0]["health"] is False, "what others remove comes back within a minute"

    run(main)
