"""Hooks on real containers: NRI and the runtime proxy against a real containerd."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from agentserver import agent_client, agent_server
from cri.realcontainerd import CGROUPS, IMAGE, PREFIX, Containerd, need_containerd
from kubetide.api.objects.scheme import NODE_RESOURCE_TOPOLOGIES, PODS
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.kube.client.client import Client
from kubetide.kube.control.manager import Component
from kubetide.node.agent import NodeAgent
from kubetide.node.core.hooks.rules import GPU, Plugins
from kubetide.node.core.layout import Layout
from kubetide.node.enforcement import make_modules
from kubetide.node.executor.kernel_writer import Executor
from kubetide.node.host.linux import LinuxHost
from kubetide.node.runtime.cri import CriClient
from kubetide.node.runtime.hook_server import HookServer
from kubetide.node.runtime.hook_service import HookService
from kubetide.node.runtime.nri import NriPlugin
from kubetide.node.runtime.protos import cri_pb2 as cri
from kubetide.node.runtime.proxy import RuntimeProxy
from kubetide.node.runtime.proxy_config import HookDirectory
from kubetide.node.settings import NodeSettings, PodSource
from kubetide.telemetry import Telemetry

BATCH = (
    '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"},'
    '"limits":{"kubernetes.io/batch-cpu":"300","kubernetes.io/batch-memory":"64Mi"}}}}'
)
HOST = cri.NamespaceOption(network=2, pid=1, ipc=0)


@pytest.fixture(scope="module")
def containerd() -> Iterator[Containerd]:
    need_containerd()
    runtime = Containerd()
    try:
        runtime.start()
        runtime.import_images()
        yield runtime
    finally:
        runtime.close()


LAYOUT = Layout(version=1, paths=CgroupPaths(CgroupDriver.CGROUPFS, PREFIX))


def service(plugins: Plugins) -> HookService:
    executor = Executor(LinuxHost(), LAYOUT, SystemClock())
    executor.start()
    return HookService(plugins, executor, LAYOUT)


@asynccontextmanager
async def plugin(runtime: Containerd, plugins: Plugins | None = None) -> AsyncIterator[NriPlugin]:
    """Run the NRI plugin until the block ends."""
    one = NriPlugin(service(plugins or Plugins(gates={GPU: True})), runtime.nri)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(one.run())
        try:
            async with asyncio.timeout(20):
                await one.synchronized.wait()
            yield one
        finally:
            running.cancel()


class Pod:
    """A pod on the real runtime, made as a kubelet makes it."""

    def __init__(self, client: CriClient, runtime: Containerd, uid: str, **annotations: str) -> None:
        self.client = client
        self.parent = f"/{PREFIX}/kubepods/besteffort/pod{uid}"
        self.config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=f"pod-{uid}", uid=uid, namespace="default"),
            log_directory=str(runtime.root),
            labels={qos.LABEL_QOS: "BE"},
            annotations=annotations,
            linux=cri.LinuxPodSandboxConfig(
                cgroup_parent=self.parent,
                security_context=cri.LinuxSandboxSecurityContext(namespace_options=HOST),
            ),
        )
        self.sandbox = ""
        self.container = ""

    async def start(self) -> None:
        request = cri.RunPodSandboxRequest(config=self.config)
        self.sandbox = (await self.client.call("RunPodSandbox", request, cri.RunPodSandboxResponse)).pod_sandbox_id
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name="main"),
            image=cri.ImageSpec(image=IMAGE),
            command=["/bin/sleep", "1000"],
            log_path="main.log",
            linux=cri.LinuxContainerConfig(
                resources=cri.LinuxContainerResources(cpu_shares=2, cpu_period=100000),
                security_context=cri.LinuxContainerSecurityContext(namespace_options=HOST),
            ),
        )
        create = cri.CreateContainerRequest(pod_sandbox_id=self.sandbox, config=config, sandbox_config=self.config)
        self.container = (await self.client.call("CreateContainer", create, cri.CreateContainerResponse)).container_id
        await self.client.call("StartContainer", cri.ContainerRequest(container_id=self.container), cri.Empty)

    async def remove(self) -> None:
        if self.sandbox:
            for method in ("StopPodSandbox", "RemovePodSandbox"):
                await self.client.call(method, cri.PodSandboxRequest(pod_sandbox_id=self.sandbox), cri.Empty)

    async def env(self) -> str:
        request = cri.ExecSyncRequest(container_id=self.container, cmd=["/bin/env"], timeout=10)
        return (await self.client.call("ExecSync", request, cri.ExecSyncResponse)).stdout.decode()

    def value(self, controller: str, file: str, *, of_pod: bool = False) -> str:
        place = self.parent if of_pod else f"{self.parent}/{self.container}"
        return (CGROUPS / controller / place.lstrip("/") / file).read_text(encoding="utf-8").strip()


@asynccontextmanager
async def pod(client: CriClient, runtime: Containerd, uid: str, **annotations: str) -> AsyncIterator[Pod]:
    one = Pod(client, runtime, uid, **annotations)
    try:
        await one.start()
        yield one
    finally:
        await one.remove()


NOTES = {
    qos.ANNOTATION_EXTENDED_RESOURCES: BATCH,
    qos.ANNOTATION_DEVICE_ALLOCATED: '{"gpu":[{"minor":0},{"minor":2}]}',
}


def is_adjusted(one: Pod) -> bool:
    wanted = {("cpu", "cpu.shares"): "512", ("cpu", "cpu.cfs_quota_us"): "30000"}
    wanted["memory", "memory.limit_in_bytes"] = str(64 * 2**20)
    return all(one.value(*place) == value for place, value in wanted.items())


async def test_a_real_container_is_made_with_the_values_of_the_hooks(containerd: Containerd) -> None:
    client = CriClient(containerd.socket)
    async with plugin(containerd), pod(client, containerd, "u1", **NOTES) as one:
        assert is_adjusted(one)
        assert "NVIDIA_VISIBLE_DEVICES=0,2" in await one.env()
        assert one.value("cpu", "cpu.cfs_quota_us", of_pod=True) == "30000"
        assert one.value("memory", "memory.limit_in_bytes", of_pod=True) == str(64 * 2**20)
        update = cri.UpdateContainerResourcesRequest(
            container_id=one.container,
            linux=cri.LinuxContainerResources(cpu_shares=9, cpu_period=100000, cpu_quota=1000),
        )
        await client.call("UpdateContainerResources", update, cri.Empty)
        assert is_adjusted(one)
    await client.close()


async def test_an_answer_longer_than_a_frame_arrives(containerd: Containerd) -> None:
    minors = ",".join(f'{{"minor":{number}}}' for number in range(2000))
    client = CriClient(containerd.socket)
    notes = NOTES | {qos.ANNOTATION_DEVICE_ALLOCATED: f'{{"gpu":[{minors}]}}'}
    async with plugin(containerd), pod(client, containerd, "u2", **notes) as one:
        assert is_adjusted(one)
        assert ",1999" in await one.env()
    await client.close()


async def test_hooks_survive_a_restart_of_the_agent(containerd: Containerd) -> None:
    client = CriClient(containerd.socket)
    async with plugin(containerd), pod(client, containerd, "u3", **NOTES) as first:
        assert is_adjusted(first)
    async with pod(client, containerd, "u4", **NOTES) as without:
        assert not is_adjusted(without)
    async with plugin(containerd), pod(client, containerd, "u5", **NOTES) as again:
        assert is_adjusted(again)
    await client.close()


async def test_the_runtime_proxy_changes_real_containers(containerd: Containerd, tmp_path: Path) -> None:
    config = tmp_path / "hooks"
    config.mkdir()
    socket = containerd.root / "hooks.sock"
    hooks = HookServer(
        service(Plugins(gates={GPU: True})), socket=socket, host_endpoint=str(socket), config_directory=config
    )
    endpoint = containerd.root / "proxy.sock"
    proxy = RuntimeProxy(endpoint=endpoint, backend=containerd.socket, directory=HookDirectory(config))
    async with asyncio.TaskGroup() as group:
        serving = [group.create_task(hooks.run())]
        await ready(hooks)
        serving.append(group.create_task(proxy.run()))
        await ready(proxy)
        client = CriClient(endpoint)
        try:
            async with pod(client, containerd, "u6", **NOTES) as one:
                assert is_adjusted(one)
                assert "NVIDIA_VISIBLE_DEVICES=0,2" in await one.env()
                restarted = RuntimeProxy(endpoint=endpoint, backend=containerd.socket, directory=HookDirectory(config))
                direct = CriClient(containerd.socket)
                await restarted.restore(direct)
                await direct.close()
                stored = restarted.store.containers[one.container]
                assert stored.pod.cgroup_parent == one.parent
                assert stored.resources is not None
                assert (stored.resources.cpu_shares, stored.env["NVIDIA_VISIBLE_DEVICES"]) == (512, "0,2")
        finally:
            await client.close()
            for task in serving:
                task.cancel()


async def test_hooks_survive_a_restart_of_containerd(containerd: Containerd) -> None:
    client = CriClient(containerd.socket)
    async with plugin(containerd) as nri:
        async with pod(client, containerd, "u7", **NOTES) as before:
            assert is_adjusted(before)
        containerd.stop()
        containerd.start()
        async with asyncio.timeout(60):
            while nri.registrations < 2 or not nri.synchronized.is_set():  # noqa: ASYNC110 - it reconnects in its time
                await asyncio.sleep(0.1)
        fresh = CriClient(containerd.socket)
        async with pod(fresh, containerd, "u8", **NOTES) as after:
            assert is_adjusted(after)
        await fresh.close()
    await client.close()


OBJECTS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}, "spec": {}},
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "job",
            "namespace": "default",
            "labels": {qos.LABEL_QOS: "BE"},
            "annotations": NOTES,
        },
        "spec": {"nodeName": "here", "containers": [{"name": "main", "image": IMAGE}]},
    },
]


def status_of(container: str) -> dict[str, Any]:
    """What a kubelet says of a pod whose container runs."""
    state = {"name": "main", "image": IMAGE, "imageID": IMAGE, "ready": True, "restartCount": 0}
    state |= {"containerID": f"containerd://{container}", "state": {"running": {}}}
    return {"phase": "Running", "qosClass": "BestEffort", "containerStatuses": [state]}


@asynccontextmanager
async def agent(runtime: Containerd, client: Client, folder: Path) -> AsyncIterator[NodeAgent]:
    """Run a whole agent on the real runtime until the block ends; no strategy and no hook may have failed by then."""
    settings = NodeSettings(
        node_name="here",
        cgroup_driver="cgroupfs",
        cgroup_prefix=PREFIX,
        audit_log_dir="",
        pod_source=PodSource.API_SERVER,
        reconcile_interval_seconds=1,
        runtime_hooks_nri_socket_path=str(runtime.nri),
        runtime_hooks_config_path=str(folder / "no-proxy"),
        runtime_hooks="GPUEnvInject=true",
    )
    host = LinuxHost()
    hooks: list[NriPlugin] = []

    def modules(made: NodeAgent) -> Sequence[Component]:
        found = make_modules(made)
        hooks.extend(each for each in found if isinstance(each, NriPlugin))
        return found

    one = NodeAgent(client, SystemClock(), settings, host, Telemetry(), layout=LAYOUT, commands=host, modules=modules)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(one.run())
        try:
            async with asyncio.timeout(60):
                await hooks[0].synchronized.wait()
            yield one
            explained = one.explain("node", "here") or {}
            assert explained["qos"]["failing"] == {}
            assert explained["runtime-hooks"]["failing"] == ""
        finally:
            running.cancel()


async def test_a_whole_agent_and_the_one_after_it_leave_a_real_container_its_values(
    containerd: Containerd, tmp_path: Path
) -> None:
    runtime, clock = CriClient(containerd.socket), SystemClock()
    for tier, top in product(("Guaranteed", "Burstable", "BestEffort"), CGROUPS.glob("[bcm]*")):
        (top / LAYOUT.paths.tier(tier)).mkdir(parents=True, exist_ok=True)  # as a kubelet does
    with agent_server(clock, OBJECTS) as api:
        kubelet, client = Client(InProcessTransport(api), clock=clock), agent_client(api, clock)
        uid = (await kubelet.get(PODS, "job", namespace="default")).metadata.uid
        async with AsyncExitStack() as stack:
            async with agent(containerd, client, tmp_path):
                one = await stack.enter_async_context(pod(runtime, containerd, uid, **NOTES))
                assert is_adjusted(one)
            status = MergePatch({"status": status_of(one.container)})
            await kubelet.patch(PODS, "job", status, namespace="default", subresource="status")
            async with agent(containerd, client, tmp_path) as second:
                async with asyncio.timeout(60):
                    while not (await kubelet.list(NODE_RESOURCE_TOPOLOGIES)).items or not knows(second, one):  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                await asyncio.sleep(2.5)  # it looks at all containers every second
                assert is_adjusted(one)
    await runtime.close()


def knows(one: NodeAgent, made: Pod) -> bool:
    """Whether an agent has seen a container."""
    return f"containerd://{made.container}" in {each.id for state in one.pods.states() for each in state.containers}


async def ready(component: HookServer | RuntimeProxy) -> None:
    async with asyncio.timeout(20):
        while not component.ready():  # noqa: ASYNC110 - starting takes the time it takes
            await asyncio.sleep(0.05)
