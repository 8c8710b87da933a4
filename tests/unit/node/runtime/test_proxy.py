"""The runtime proxy between a kubelet and a runtime, with the agent's hook server: real sockets, real gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from kubetide.api.qos import qos
from kubetide.errors import InvalidInput
from kubetide.node.core.hooks.rules import GPU, Plugins
from kubetide.node.core.hooks.stages import FailurePolicy, Stage
from kubetide.node.runtime.cri import CriClient, CriFailed
from kubetide.node.runtime.hook_server import HookServer, registration
from kubetide.node.runtime.hook_service import HookService
from kubetide.node.runtime.protos import cri_pb2 as cri
from kubetide.node.runtime.proxy import RuntimeProxy
from kubetide.node.runtime.proxy_config import HookDirectory, parse_target
from nodeworld import World

PARENT = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu1.slice"
BATCH = (
    '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500"},'
    '"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"1Gi"}}}}'
)


class FakeRuntime(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not subscriptable at run time
    """A runtime that remembers what it was asked, as bytes."""

    def __init__(self, versions: tuple[str, ...] = ("v1",)) -> None:
        self.versions = versions
        self.asked: list[tuple[str, bytes]] = []
        self.sandboxes: list[cri.PodSandbox] = []
        self.containers: list[cri.Container] = []
        self.info: dict[str, str] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        method: str = handler_call_details.method
        name = method.rpartition("/")[2]
        if name == "GetContainerEvents":
            return grpc.unary_stream_rpc_method_handler(self._events)
        if not any(f"runtime.{version}." in method for version in self.versions) and "Other" not in method:
            return None

        async def answer(payload: bytes, _: Any) -> bytes:
            self.asked.append((name, payload))
            return self._answer(name)

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _events(self, payload: bytes, _: Any) -> AsyncIterator[bytes]:
        for number in range(3):
            yield payload + bytes([number])

    def _answer(self, name: str) -> bytes:
        if name == "RunPodSandbox":
            return cri.RunPodSandboxResponse(pod_sandbox_id="sb").SerializeToString()
        if name == "CreateContainer":
            return cri.CreateContainerResponse(container_id="c1").SerializeToString()
        if name == "ListPodSandbox":
            return cri.ListPodSandboxResponse(items=self.sandboxes).SerializeToString()
        if name == "ListContainers":
            return cri.ListContainersResponse(containers=self.containers).SerializeToString()
        if name in ("PodSandboxStatus", "ContainerStatus"):
            return cri.PodSandboxStatusResponse(info={"info": self.info.get(name, "")}).SerializeToString()
        return b"\x0a\x05hello" if name == "Anything" else b""

    def last(self, name: str) -> bytes:
        return next(payload for asked, payload in reversed(self.asked) if asked == name)


@asynccontextmanager
async def served(tmp_path: Path, runtime: FakeRuntime) -> AsyncIterator[Path]:
    socket = tmp_path / "runtime.sock"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((runtime,))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    try:
        yield socket
    finally:
        await server.stop(None)


@asynccontextmanager
async def proxied(
    tmp_path: Path,
    runtime: FakeRuntime,
    *,
    plugins: Plugins | None = None,
    hooks: bool = True,
    policy: FailurePolicy = FailurePolicy.IGNORE,
    world: World | None = None,
) -> AsyncIterator[tuple[CriClient, RuntimeProxy]]:
    """Run a runtime, the agent's hook server (or only its registration) and the proxy; yield a kubelet's client."""
    world = world or World()
    config = tmp_path / "hookserver.d"
    config.mkdir(exist_ok=True)
    socket = tmp_path / "hooks.sock"
    service = HookService(plugins or Plugins(), world.executor, world.layout)
    server = HookServer(
        service, socket=socket, host_endpoint=str(socket), config_directory=config, failure_policy=policy
    )
    if not hooks:
        server.register()
    async with served(tmp_path, runtime) as backend, asyncio.TaskGroup() as group:
        tasks = [group.create_task(server.run())] if hooks else []
        await until(lambda: server.ready() or not hooks)
        endpoint = tmp_path / "proxy.sock"
        proxy = RuntimeProxy(endpoint=endpoint, backend=backend, directory=HookDirectory(config), hook_timeout=5.0)
        tasks.append(group.create_task(proxy.run()))
        await until(proxy.ready)
        client = CriClient(endpoint, version=runtime.versions[0])
        try:
            yield client, proxy
        finally:
            await client.close()
            for task in tasks:
                task.cancel()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - what it waits for is not ours to signal
            await asyncio.sleep(0.01)


def sandbox_request(**annotations: str) -> cri.RunPodSandboxRequest:
    return cri.RunPodSandboxRequest(
        config=cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name="job", uid="u1", namespace="d"),
            hostname="keep-me",
            labels={qos.LABEL_QOS: "BE"},
            annotations=annotations,
            linux=cri.LinuxPodSandboxConfig(cgroup_parent=PARENT),
        )
    )


def create_request(config: cri.PodSandboxConfig) -> cri.CreateContainerRequest:
    return cri.CreateContainerRequest(
        pod_sandbox_id="sb",
        config=cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name="main"),
            envs=[cri.KeyValue(key="Z", value="1"), cri.KeyValue(key="A", value="2")],
            linux=cri.LinuxContainerConfig(
                resources=cri.LinuxContainerResources(cpu_shares=2, oom_score_adj=1000, cpuset_cpus="0-7")
            ),
        ),
        sandbox_config=config,
    )


async def run_pod(client: CriClient, **annotations: str) -> cri.PodSandboxConfig:
    request = sandbox_request(**annotations)
    await client.call("RunPodSandbox", request, cri.RunPodSandboxResponse)
    return request.config


async def test_hooks_change_what_the_runtime_is_asked(tmp_path: Path) -> None:
    notes = {
        qos.ANNOTATION_EXTENDED_RESOURCES: BATCH,
        qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"1"}',
        qos.ANNOTATION_DEVICE_ALLOCATED: '{"gpu":[{"minor":3}]}',
    }
    world = World()
    world.cgroup("cpu", PARENT.strip("/"), {"cpu.shares": "2", "cpu.cfs_quota_us": "-1"})
    runtime = FakeRuntime()
    async with proxied(tmp_path, runtime, plugins=Plugins(gates={GPU: True}), world=world) as (client, proxy):
        config = await run_pod(client, **notes)
        await client.call("CreateContainer", create_request(config), cri.CreateContainerResponse)
        asked = cri.CreateContainerRequest.FromString(runtime.last("CreateContainer")).config
        resources = asked.linux.resources
        assert (resources.cpu_shares, resources.cpu_quota, resources.cpuset_cpus) == (512, 100000, "1")
        assert resources.memory_limit_in_bytes == 2**30
        assert [(one.key, one.value) for one in asked.envs] == [
            ("Z", "1"),
            ("A", "2"),
            ("NVIDIA_VISIBLE_DEVICES", "3"),
        ]
        assert world.text("cpu", PARENT.strip("/"), "cpu.cfs_quota_us") == "100000"
        update = cri.UpdateContainerResourcesRequest(
            container_id="c1", linux=cri.LinuxContainerResources(cpu_shares=9, cpu_period=100000)
        )
        await client.call("UpdateContainerResources", update, cri.Empty)
        linux = cri.UpdateContainerResourcesRequest.FromString(runtime.last("UpdateContainerResources")).linux
        assert (linux.cpu_shares, linux.cpu_period, linux.cpu_quota, linux.cpuset_cpus) == (512, 100000, 100000, "1")
        for name in ("StartContainer", "StopContainer"):
            await client.call(name, cri.ContainerRequest(container_id="c1"), cri.Empty)
        await client.call("StopPodSandbox", cri.PodSandboxRequest(pod_sandbox_id="sb"), cri.Empty)
        assert (proxy.store.pods, proxy.store.containers) == ({}, {})
        assert proxy.store.stopped["sb"].uid == "u1"
        await client.call("RemovePodSandbox", cri.PodSandboxRequest(pod_sandbox_id="sb"), cri.Empty)
        assert proxy.store.stopped == {}


async def test_everything_else_passes_byte_by_byte(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with proxied(tmp_path, runtime) as (client, _):
        call = client.channel.unary_unary("/some.Other/Anything", request_serializer=bytes, response_deserializer=bytes)
        assert await call(b"\x12\x34\xff\x00") == b"\x0a\x05hello"
        assert runtime.asked[-1] == ("Anything", b"\x12\x34\xff\x00")
        stream = client.channel.unary_stream(
            "/runtime.v1.RuntimeService/GetContainerEvents", request_serializer=bytes, response_deserializer=bytes
        )
        assert [one async for one in stream(b"x")] == [b"x\x00", b"x\x01", b"x\x02"]


async def test_unknown_fields_of_a_changed_request_survive(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with proxied(tmp_path, runtime) as (client, _):
        unknown = b"\xa2\x06\x03abc"  # field 100, which no message here declares
        request = sandbox_request(**{qos.ANNOTATION_EXTENDED_RESOURCES: BATCH}).SerializeToString() + unknown
        path = "/runtime.v1.RuntimeService/RunPodSandbox"
        call = client.channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        await call(request)
        assert runtime.last("RunPodSandbox").endswith(unknown)
        assert cri.RunPodSandboxRequest.FromString(runtime.last("RunPodSandbox")).config.hostname == "keep-me"


@pytest.mark.parametrize("policy", list(FailurePolicy))
async def test_an_absent_hook_server_stops_calls_only_by_policy(tmp_path: Path, policy: FailurePolicy) -> None:
    runtime = FakeRuntime()
    async with proxied(tmp_path, runtime, hooks=False, policy=policy) as (client, _):
        if policy is FailurePolicy.FAIL:
            with pytest.raises(CriFailed, match="hook server err"):
                await run_pod(client)
            assert "RunPodSandbox" not in [name for name, _ in runtime.asked]
        else:
            await run_pod(client)
            assert runtime.last("RunPodSandbox") == sandbox_request().SerializeToString()


async def test_a_pod_with_the_skip_label_is_left_alone(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with proxied(tmp_path, runtime, hooks=False, policy=FailurePolicy.FAIL) as (client, _):
        request = sandbox_request()
        request.config.labels["runtimeproxy.koordinator.sh/skip-hookserver"] = "true"
        await client.call("RunPodSandbox", request, cri.RunPodSandboxResponse)


async def test_what_ran_before_a_restart_is_known_again(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    runtime.sandboxes = [
        cri.PodSandbox(
            id="sb",
            metadata=cri.PodSandboxMetadata(name="job", uid="u1", namespace="d"),
            labels={qos.LABEL_QOS: "BE"},
            annotations={qos.ANNOTATION_EXTENDED_RESOURCES: BATCH},
        )
    ]
    runtime.containers = [
        cri.Container(id="c1", pod_sandbox_id="sb", metadata=cri.ContainerMetadata(name="main", attempt=1)),
        cri.Container(id="orphan", pod_sandbox_id="gone"),
    ]
    runtime.info = {
        "PodSandboxStatus": f'{{"config":{{"linux":{{"cgroup_parent":"{PARENT}"}}}}}}',
        "ContainerStatus": '{"config":{"envs":[{"key":"A","value":"1"}]},'
        '"runtimeSpec":{"linux":{"resources":{"cpu":{"shares":77,"period":100000}}}}}',
    }
    async with proxied(tmp_path, runtime) as (client, proxy):
        stored = proxy.store.containers["c1"]
        assert (stored.pod.cgroup_parent, stored.env, stored.attempt) == (PARENT, {"A": "1"}, 1)
        assert list(proxy.store.containers) == ["c1"]
        update = cri.UpdateContainerResourcesRequest(
            container_id="c1", linux=cri.LinuxContainerResources(cpu_quota=5000)
        )
        await client.call("UpdateContainerResources", update, cri.Empty)
        linux = cri.UpdateContainerResourcesRequest.FromString(runtime.last("UpdateContainerResources")).linux
        assert (linux.cpu_quota, linux.cpu_shares, linux.cpu_period) == (100000, 512, 100000)


async def test_an_old_runtime_is_spoken_to_in_its_own_version(tmp_path: Path) -> None:
    runtime = FakeRuntime(versions=("v1alpha2",))
    runtime.sandboxes = [cri.PodSandbox(id="sb", metadata=cri.PodSandboxMetadata(name="old"))]
    async with proxied(tmp_path, runtime) as (client, proxy):
        assert proxy.version == "v1alpha2"
        assert proxy.store.pods["sb"].name == "old"
        await run_pod(client)
        assert runtime.last("RunPodSandbox")


async def test_calls_about_unknown_things_pass_unchanged(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    async with proxied(tmp_path, runtime) as (client, _):
        update = cri.UpdateContainerResourcesRequest(
            container_id="who", linux=cri.LinuxContainerResources(cpu_shares=4)
        )
        await client.call("UpdateContainerResources", update, cri.Empty)
        assert runtime.last("UpdateContainerResources") == update.SerializeToString()
        create = create_request(sandbox_request().config)
        await client.call("CreateContainer", create, cri.CreateContainerResponse)
        assert runtime.last("CreateContainer") == create.SerializeToString()


def write(directory: Path, name: str, text: bytes) -> None:
    (directory / name).write_bytes(text)


def test_the_first_server_by_name_gets_the_stage_and_bad_files_are_not_offered(tmp_path: Path) -> None:
    stages = (Stage.PRE_CREATE_CONTAINER,)
    write(tmp_path, "b.json", registration("/b.sock", FailurePolicy.FAIL, stages))
    write(tmp_path, "a.json", b"{")
    write(tmp_path, "c.json", registration("/c.sock", FailurePolicy.IGNORE, (*stages, Stage.PRE_START_CONTAINER)))
    write(tmp_path, "readme.txt", b"x")
    directory = HookDirectory(tmp_path)
    directory.scan()

    def endpoint(stage: Stage) -> str | None:
        target = directory.target(stage)
        return target.endpoint if target else None

    assert endpoint(Stage.PRE_CREATE_CONTAINER) == "/b.sock"
    assert endpoint(Stage.PRE_START_CONTAINER) == "/c.sock"
    assert endpoint(Stage.POST_STOP_CONTAINER) is None
    (tmp_path / "b.json").unlink()
    directory.scan()
    assert endpoint(Stage.PRE_CREATE_CONTAINER) == "/c.sock"


def test_a_file_that_breaks_keeps_its_last_good_content(tmp_path: Path) -> None:
    import os

    write(tmp_path, "a.json", registration("/a.sock", FailurePolicy.IGNORE, (Stage.PRE_CREATE_CONTAINER,)))
    directory = HookDirectory(tmp_path)
    directory.scan()
    write(tmp_path, "a.json", b"broken")
    os.utime(tmp_path / "a.json", ns=(1, 1))
    directory.scan()
    target = directory.target(Stage.PRE_CREATE_CONTAINER)
    assert target is not None
    assert target.endpoint == "/a.sock"


def test_a_registration_without_an_endpoint_is_refused() -> None:
    with pytest.raises(InvalidInput):
        parse_target(b"{}")
