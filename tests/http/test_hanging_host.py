"""A host that hangs: the container runtime, health probes and gRPC are answered as if nothing were wrong."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio

from kubetide import crds
from kubetide.api.objects.scheme import CRDS
from kubetide.api.qos import qos
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.kube.client.client import Client
from kubetide.node.agent import NodeAgent
from kubetide.node.core.hooks.rules import Plugins
from kubetide.node.core.layout import Layout
from kubetide.node.core.series import kinds
from kubetide.node.endpoints import NodeEndpoints
from kubetide.node.host.worker import WorkerThread
from kubetide.node.runtime.hook_server import SERVICE, HookServer
from kubetide.node.runtime.hook_service import HookService
from kubetide.node.runtime.nri import NriPlugin
from kubetide.node.runtime.protos import hooks_pb2
from kubetide.node.runtime.protos import nri_pb2 as nri
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry
from nodeworld import MemoryHost, World

POD = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu1.slice"
BATCH = (
    '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500"},'
    '"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"1Gi"}}}}'
)


class HangingHost(MemoryHost):
    """A machine whose files stop answering until a test says otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.answers, self.tools = threading.Event(), threading.Event()
        self.answers.set()
        self.tools.set()

    def read(self, path: str) -> str:
        assert self.answers.wait(60)
        return super().read(path)

    def write(self, path: str, value: str) -> None:
        assert self.answers.wait(60)
        super().write(path, value)

    def run(self, command: Any, *, timeout: float = 5.0) -> str:
        assert self.tools.wait(60)
        return "100\n"


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(0.01)


@asynccontextmanager
async def hanging_service() -> AsyncIterator[tuple[HookService, World]]:
    """Yield a hook service whose host has hung in the middle of a read; it answers again after the block."""
    host = HangingHost()
    world = World(host=host)
    world.cgroup("cpu", POD, {"cpu.shares": "2", "cpu.cfs_quota_us": "-1"})
    worker = WorkerThread("host", hangs_after=0.0)
    host.answers.clear()
    reading = asyncio.ensure_future(worker.call(lambda: host.read("/anything"), "reading a file"))
    try:
        await until(lambda: bool(worker.hanging()))
        yield HookService(Plugins(), world.executor, world.layout, kernel=worker), world
        assert worker.hanging()
        assert world.text("cpu", POD, "cpu.cfs_quota_us") == "-1"
    finally:
        host.answers.set()
        await asyncio.gather(reading, return_exceptions=True)
        assert await worker.close()


async def test_nri_is_answered_while_the_host_hangs_and_the_pods_values_follow(tmp_path: Path) -> None:
    async with hanging_service() as (service, world):
        plugin = NriPlugin(service, tmp_path / "nri.sock")
        pod = nri.PodSandbox(
            name="job",
            uid="u1",
            namespace="d",
            labels={qos.LABEL_QOS: "BE"},
            annotations={qos.ANNOTATION_EXTENDED_RESOURCES: BATCH},
            linux=nri.LinuxPodSandbox(cgroup_parent="/" + POD),
        )
        event = nri.StateChangeEvent(event=1, pod=pod)
        create = nri.CreateContainerRequest(pod=pod, container=nri.Container(id="c", name="main"))
        async with asyncio.timeout(10):
            await plugin._handle("Plugin", "StateChange", event.SerializeToString())
            payload = await plugin._handle("Plugin", "CreateContainer", create.SerializeToString())
        adjust = nri.CreateContainerResponse.FromString(payload).adjust
        assert adjust.linux.resources.cpu.quota.value == 100000
    assert world.text("cpu", POD, "cpu.cfs_quota_us") == "100000"


async def test_grpc_is_answered_while_the_host_hangs(tmp_path: Path) -> None:
    socket = tmp_path / "hooks.sock"
    async with hanging_service() as (service, world), asyncio.TaskGroup() as group:
        server = HookServer(service, socket=socket, host_endpoint=str(socket), config_directory=None)
        serving = group.create_task(server.run())
        await until(server.ready)
        request = hooks_pb2.PodSandboxHookRequest(
            labels={qos.LABEL_QOS: "BE"},
            annotations={qos.ANNOTATION_EXTENDED_RESOURCES: BATCH},
            cgroup_parent="/" + POD,
        )
        async with grpc.aio.insecure_channel(f"unix://{socket}") as channel:
            call = channel.unary_unary(
                f"/{SERVICE}/PreRunPodSandboxHook", request_serializer=bytes, response_deserializer=bytes
            )
            payload = await call(request.SerializeToString(), timeout=10)
        assert hooks_pb2.PodSandboxHookResponse.FromString(payload).resources.cpu_quota == 100000
        serving.cancel()
    assert world.text("cpu", POD, "cpu.cfs_quota_us") == "100000"


def ticks(agent: NodeAgent) -> int:
    """Return how often the node's CPU was sampled."""
    now = int(agent.clock.now().timestamp() * 1000)
    return len(agent.store.query(kinds.NODE_CPU, None, 0, now).values)


@asynccontextmanager
async def agent_on(host: HangingHost, **settings: Any) -> AsyncIterator[tuple[NodeAgent, str]]:
    """Run an agent with threads on a machine in memory; yield it and where it answers."""
    host.put("/proc", {"stat": "cpu  1 1 1 1 1 1 1 1 0 0\n", "meminfo": "MemTotal: 8 kB\nMemAvailable: 4 kB\n"})
    host.put("/sys/fs/cgroup/cpu/kubepods.slice", {"cgroup.procs": ""})
    clock = SystemClock()
    api = ApiServer(clock=clock)
    api.insert({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}})
    client = Client(InProcessTransport(api), clock=clock)
    for definition in crds.load_all():
        await client.create(CRDS, definition)
    kernel, disk = WorkerThread("host", hangs_after=0.1), WorkerThread("disk", hangs_after=0.1)
    telemetry = Telemetry()
    agent = NodeAgent(
        client,
        clock,
        NodeSettings(node_name="here", audit_log_dir="", **settings),
        host,
        telemetry,
        layout=Layout(),
        commands=host,
        kernel=kernel,
        disk=disk,
    )
    endpoints = NodeEndpoints(
        telemetry,
        audit=None,
        healthy=agent.healthy,
        ready=agent.ready,
        explain=agent.explain,
        host="127.0.0.1",
        port=0,
        notes=agent.notes,
    )
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(endpoints.run()), group.create_task(agent.run())]
            await until(endpoints.ready)
            yield agent, f"http://127.0.0.1:{endpoints.port}"
            for task in tasks:
                task.cancel()
    finally:
        host.answers.set()
        host.tools.set()
        assert await kernel.close()
        assert await disk.close()
        await client.close()


async def test_health_is_answered_while_the_host_hangs_and_reports_it_until_it_is_over() -> None:
    host = HangingHost()

    async with agent_on(host) as (agent, address), aiohttp.ClientSession() as session:

        async def ask(path: str) -> tuple[int, str]:
            async with session.get(f"{address}{path}", timeout=aiohttp.ClientTimeout(total=10)) as answer:
                return answer.status, await answer.text()

        await until(lambda: ticks(agent) > 0)
        host.answers.clear()
        await until(lambda: bool(agent.kernel.hanging()))
        before = ticks(agent)
        status, text = await ask("/healthz")
        assert status == 200
        assert "host: " in text
        assert "has not come back" in text
        status, _ = await ask("/explain/node/here")
        assert status == 200
        status, _ = await ask("/metrics")
        assert status == 200
        assert ticks(agent) == before
        host.answers.set()
        await until(lambda: ticks(agent) > before)
        _, text = await ask("/healthz")
        assert "has not come back" not in text


async def test_a_tool_that_hangs_stops_neither_answers_nor_sampling() -> None:
    host = HangingHost()
    gates = "BlkIOReconcile=true"
    async with agent_on(host, feature_gates=gates) as (agent, address), aiohttp.ClientSession() as session:
        await until(lambda: ticks(agent) > 0)
        host.tools.clear()
        await until(lambda: bool(agent.disk.hanging()))
        before = ticks(agent)
        async with session.get(f"{address}/healthz") as answer:
            assert "disk: NodeStorageInfoCollector has not come back" in await answer.text()
        await until(lambda: ticks(agent) > before)
        assert agent.disk.hanging()


async def test_an_agent_whose_history_has_no_place_runs_on_and_reports_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    async with (
        agent_on(HangingHost(), metric_history_path=str(tmp_path / "file")) as (agent, address),
        aiohttp.ClientSession() as session,
    ):
        await until(lambda: agent.store.ring.series_count > 0)
        async with session.get(f"{address}/healthz") as answer:
            assert answer.status == 200
            assert "history: " in await answer.text()
        async with session.get(f"{address}/metrics") as answer:
            assert 'kubetide_node_history_working{node="here"} 0.0' in await answer.text()
