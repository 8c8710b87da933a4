"""The NRI plugin against a server that speaks the runtime's bytes, written out by hand."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.errors import InvalidInput
from kubetide.kube.pacing import Backoff
from kubetide.node.core.hooks.context import PodRequest
from kubetide.node.core.hooks.rules import GPU, NORMALIZATION, RESCTRL, Plugins
from kubetide.node.core.hooks.stages import FailurePolicy
from kubetide.node.runtime.hook_service import HookService
from kubetide.node.runtime.nri import NriPlugin, configured_events, event_mask
from kubetide.node.runtime.protos import nri_pb2 as pb
from nodeworld import World

MAX_FRAME = 4096
POD = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu1.slice"
BATCH = (
    '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"500"},'
    '"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"1Gi"}}}}'
)


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data if data else b""


def fields(data: bytes) -> dict[int, Any]:
    found: dict[int, Any] = {}
    position = 0

    def read() -> int:
        nonlocal position
        result = shift = 0
        while True:
            byte = data[position]
            position += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return result

    while position < len(data):
        key = read()
        if key & 7 == 0:
            found[key >> 3] = read()
        else:
            length = read()
            found[key >> 3] = data[position : position + length]
            position += length
    return found


class Runtime:
    """The runtime's end of one connection: refuses frames above 4096 bytes, as containerd does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.stream = 1
        self.largest = 0
        self.buffers: dict[int, bytes] = {1: b"", 2: b""}

    async def receive(self) -> tuple[int, int, int, bytes]:
        """Return connection, stream, type and body of the next message."""
        while True:
            for connection, buffer in self.buffers.items():
                if len(buffer) >= 10:
                    size, stream, kind, _ = struct.unpack(">IIBB", buffer[:10])
                    if len(buffer) >= 10 + size:
                        self.buffers[connection] = buffer[10 + size :]
                        return connection, stream, kind, buffer[10 : 10 + size]
            connection, length = struct.unpack(">II", await self.reader.readexactly(8))
            self.largest = max(self.largest, length)
            if length > MAX_FRAME:
                self.writer.close()
                raise ConnectionResetError("frame too long")
            self.buffers[connection] += await self.reader.readexactly(length)

    def send(self, connection: int, stream: int, kind: int, body: bytes, *, cut: int = MAX_FRAME) -> None:
        message = struct.pack(">IIBB", len(body), stream, kind, 0) + body
        for start in range(0, len(message), cut):
            part = message[start : start + cut]
            self.writer.write(struct.pack(">II", connection, len(part)) + part)

    async def accept(self) -> str:
        """Answer the registration; return the plugin's index and name."""
        connection, stream, kind, body = await self.receive()
        assert (connection, kind) == (2, 1)
        request = fields(body)
        assert request[1] == b"nri.pkg.api.v1alpha1.Runtime"
        assert request[2] == b"RegisterPlugin"
        plugin = fields(request[3])
        self.send(2, stream, 2, b"")
        return f"{plugin[2].decode()}-{plugin[1].decode()}"

    async def call(self, method: str, request: Any, *, cut: int = MAX_FRAME) -> tuple[dict[int, Any], bytes]:
        """Call the plugin; return the status and the payload of its answer."""
        stream, self.stream = self.stream, self.stream + 2
        body = field(1, b"nri.pkg.api.v1alpha1.Plugin") + field(2, method.encode())
        self.send(1, stream, 1, body + field(3, request.SerializeToString()), cut=cut)
        connection, answered, kind, answer = await self.receive()
        assert (connection, answered, kind) == (1, stream, 2)
        parsed = fields(answer)
        return fields(parsed.get(1, b"")), parsed.get(2, b"")

    async def start(self, config: str = "") -> int:
        """Configure and synchronize; return the events that the plugin wants."""
        _, payload = await self.call("Configure", pb.ConfigureRequest(config=config, runtime_name="test"))
        await self.call("Synchronize", pb.SynchronizeRequest())
        return pb.ConfigureResponse.FromString(payload).events


@asynccontextmanager
async def runtime(
    tmp_path: Path, plugins: Plugins | None = None, world: World | None = None, groups: "Groups | None" = None
) -> AsyncIterator[tuple[Callable[[], Any], NriPlugin, World]]:
    """Serve NRI's socket and run a plugin on it; yields a function that waits for the next connection."""
    world = world or World()
    connections: asyncio.Queue[Runtime] = asyncio.Queue()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.put_nowait(Runtime(reader, writer))

    socket = tmp_path / "nri.sock"
    server = await asyncio.start_unix_server(connected, str(socket))
    service = HookService(plugins or Plugins(), world.executor, world.layout, resctrl=groups)
    plugin = NriPlugin(service, socket, backoff=Backoff(base=0.05, cap=0.2))
    opened: list[Runtime] = []

    async def next_connection() -> Runtime:
        async with asyncio.timeout(10):
            opened.append(await connections.get())
            return opened[-1]

    async with asyncio.TaskGroup() as group:
        running = group.create_task(plugin.run())
        try:
            yield next_connection, plugin, world
        finally:
            running.cancel()
            for one in opened:
                one.writer.close()
            server.close()


def sandbox(**annotations: str) -> pb.PodSandbox:
    return pb.PodSandbox(
        id="sb",
        name="job",
        uid="u1",
        namespace="d",
        labels={qos.LABEL_QOS: "BE"},
        annotations=annotations,
        linux=pb.LinuxPodSandbox(cgroup_parent="/" + POD),
    )


async def test_the_plugin_registers_and_subscribes(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (connection, plugin, _):
        end = await connection()
        assert await end.accept() == "00-kubetide_nri"
        assert await end.start() == 0b10001101
        assert plugin.synchronized.is_set()


async def test_a_configuration_replaces_the_events_and_a_broken_one_fails(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (connection, _, _):
        end = await connection()
        await end.accept()
        assert await end.start("events: [CreateContainer]") == 0b1000
        status, _ = await end.call("Configure", pb.ConfigureRequest(config="events: [Nothing]"))
        assert status[1] == 13
        assert b"Nothing" in status[2]


async def test_a_container_is_adjusted_when_it_is_created(tmp_path: Path) -> None:
    notes = {
        qos.ANNOTATION_EXTENDED_RESOURCES: BATCH,
        qos.ANNOTATION_DEVICE_ALLOCATED: '{"gpu":[{"minor":1},{"minor":0}]}',
        qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"2-3"}',
    }
    async with runtime(tmp_path, Plugins(gates={GPU: True})) as (connection, _, _):
        end = await connection()
        await end.accept()
        await end.start()
        container = pb.Container(id="c1", name="main", env=["A=b", "=x", "EMPTY="])
        _, payload = await end.call(
            "CreateContainer", pb.CreateContainerRequest(pod=sandbox(**notes), container=container)
        )
        adjust = pb.CreateContainerResponse.FromString(payload).adjust
        assert [(one.key, one.value) for one in adjust.env] == [("NVIDIA_VISIBLE_DEVICES", "1,0")]
        resources = adjust.linux.resources
        assert (resources.cpu.shares.value, resources.cpu.quota.value, resources.cpu.cpus) == (512, 100000, "2-3")
        assert resources.memory.limit.value == 2**30


async def test_an_update_names_its_container_and_is_left_out_when_nothing_is_set(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (connection, _, _):
        end = await connection()
        await end.accept()
        await end.start()
        container = pb.Container(id="c1", name="main")
        request = pb.UpdateContainerRequest(
            pod=sandbox(**{qos.ANNOTATION_EXTENDED_RESOURCES: BATCH}), container=container
        )
        _, payload = await end.call("UpdateContainer", request)
        update = pb.UpdateContainerResponse.FromString(payload).update
        assert [(one.container_id, one.linux.resources.cpu.quota.value) for one in update] == [("c1", 100000)]
        plain = pb.UpdateContainerRequest(pod=pb.PodSandbox(name="x"), container=container)
        _, payload = await end.call("UpdateContainer", plain)
        assert not pb.UpdateContainerResponse.FromString(payload).update


async def test_a_started_pod_gets_its_own_values_from_the_agent(tmp_path: Path) -> None:
    world = World()
    world.cgroup("cpu", POD, {"cpu.shares": "2", "cpu.cfs_quota_us": "-1", "cpu.bvt_warp_ns": "0"})
    plugins = Plugins()
    spec = {"resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}}}}
    plugins.update_slo(convert(spec, NodeSLOSpec))
    async with runtime(tmp_path, plugins, world) as (connection, _, _):
        end = await connection()
        await end.accept()
        await end.start()
        event = pb.StateChangeEvent(event=1, pod=sandbox(**{qos.ANNOTATION_EXTENDED_RESOURCES: BATCH}))
        await end.call("StateChange", event)
    assert world.text("cpu", POD, "cpu.cfs_quota_us") == "100000"
    assert world.text("cpu", POD, "cpu.bvt_warp_ns") == "-1"


class Groups:
    """Resctrl groups of pods in memory."""

    def __init__(self) -> None:
        self.groups: frozenset[str] = frozenset()

    def add_pod(self, pod: PodRequest) -> None:
        self.groups |= {f"koordlet-{pod.uid}"}

    def remove_pod(self, uid: str) -> None:
        self.groups -= {f"koordlet-{uid}"}


async def test_a_container_is_born_into_the_resctrl_group_that_its_pod_has(tmp_path: Path) -> None:
    groups = Groups()
    async with runtime(tmp_path, Plugins(gates={RESCTRL: True}), groups=groups) as (connection, _, _):
        end = await connection()
        await end.accept()
        await end.start()

        async def rdt_class() -> str:
            request = pb.CreateContainerRequest(pod=sandbox(), container=pb.Container(id="c", name="main"))
            _, payload = await end.call("CreateContainer", request)
            return pb.CreateContainerResponse.FromString(payload).adjust.linux.resources.rdt_class.value

        assert await rdt_class() == ""
        await end.call("StateChange", pb.StateChangeEvent(event=1, pod=sandbox()))
        assert await rdt_class() == "koordlet-u1"
        await end.call("StateChange", pb.StateChangeEvent(event=3, pod=sandbox()))
        assert await rdt_class() == ""


async def test_a_container_is_created_with_its_scaled_quota(tmp_path: Path) -> None:
    plugins = Plugins(gates={NORMALIZATION: True})
    plugins.update_node({"node.koordinator.sh/cpu-normalization-ratio": "2"})
    async with runtime(tmp_path, plugins) as (connection, _, _):
        end = await connection()
        await end.accept()
        await end.start()
        container = pb.Container(id="c", name="main")
        container.linux.resources.cpu.quota.value = 100_000
        pod = sandbox()
        pod.labels[qos.LABEL_QOS] = "LS"
        _, payload = await end.call("CreateContainer", pb.CreateContainerRequest(pod=pod, container=container))
        assert pb.CreateContainerResponse.FromString(payload).adjust.linux.resources.cpu.quota.value == 50_000
        update = pb.UpdateContainerRequest(pod=pod, container=container)
        update.linux_resources.cpu.quota.value = 60_000
        _, payload = await end.call("UpdateContainer", update)
        assert pb.UpdateContainerResponse.FromString(payload).update[0].linux.resources.cpu.quota.value == 30_000


async def test_messages_of_any_length_are_cut_into_frames_that_fit(tmp_path: Path) -> None:
    minors = ",".join(f'{{"minor":{number}}}' for number in range(5000))
    notes = {qos.ANNOTATION_DEVICE_ALLOCATED: f'{{"gpu":[{minors}]}}'}
    async with runtime(tmp_path, Plugins(gates={GPU: True})) as (connection, _, _):
        end = await connection()
        await end.accept()
        await end.start()
        request = pb.CreateContainerRequest(pod=sandbox(**notes), container=pb.Container(id="c", name="main"))
        _, payload = await end.call("CreateContainer", request, cut=1000)
        adjust = pb.CreateContainerResponse.FromString(payload).adjust
        assert len(adjust.env[0].value) > 4 * MAX_FRAME
        assert end.largest == MAX_FRAME


@pytest.mark.parametrize("policy", list(FailurePolicy))
async def test_a_failing_hook_fails_the_call_only_by_policy(tmp_path: Path, policy: FailurePolicy) -> None:
    async with runtime(tmp_path, Plugins(policy=policy)) as (connection, _, _):
        end = await connection()
        await end.accept()
        await end.start()
        broken = sandbox(**{qos.ANNOTATION_RESOURCE_STATUS: "{"})
        request = pb.CreateContainerRequest(pod=broken, container=pb.Container(id="c", name="main"))
        status, _ = await end.call("CreateContainer", request)
        assert status.get(1, 0) == (13 if policy is FailurePolicy.FAIL else 0)


async def test_an_unknown_method_is_answered_not_ignored(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (connection, _, _):
        end = await connection()
        await end.accept()
        status, _ = await end.call("Dance", pb.Empty())
        assert status[1] == 12


class Garbled:
    """A message of no meaning."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - as protobuf calls it
        return b"\x0f\xff\xff"


async def test_a_request_that_cannot_be_read_fails_alone(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (connection, plugin, _):
        end = await connection()
        await end.accept()
        status, _ = await end.call("CreateContainer", Garbled())
        assert status[1] == 3
        await end.start()
        assert plugin.registrations == 1


@pytest.mark.parametrize("frame", [struct.pack(">II", 1, 2**32 - 1), struct.pack(">II", 77, 4) + b"abcd"])
async def test_a_frame_that_is_none_of_nri_s_costs_the_connection_and_nothing_else(
    tmp_path: Path, frame: bytes
) -> None:
    async with runtime(tmp_path) as (connection, plugin, _):
        first = await connection()
        await first.accept()
        first.writer.write(frame)
        second = await connection()
        assert await second.accept() == "00-kubetide_nri"
        await second.start()
        assert plugin.registrations == 2


async def test_the_plugin_registers_again_after_the_runtime_restarted(tmp_path: Path) -> None:
    async with runtime(tmp_path) as (connection, plugin, _):
        first = await connection()
        await first.accept()
        await first.start()
        first.writer.close()
        second = await connection()
        assert await second.accept() == "00-kubetide_nri"
        await second.start()
        assert plugin.registrations == 2


@pytest.mark.parametrize("config", ["events: 5", "- a", "events: [1]", "{"])
def test_configurations_of_another_shape_are_refused(config: str) -> None:
    with pytest.raises(InvalidInput):
        event_mask(configured_events(config))
