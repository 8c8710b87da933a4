"""Server reflection of the hook server: a client that knows nothing learns the service and calls it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kubetide.api.qos import qos
from kubetide.node.core.hooks.rules import Plugins
from kubetide.node.core.hooks.stages import Stage
from kubetide.node.runtime.hook_server import SERVICE, HookServer
from kubetide.node.runtime.hook_service import HookService
from kubetide.node.runtime.protos import hooks_pb2
from kubetide.node.runtime.protos import reflection_pb2 as pb
from kubetide.node.runtime.reflection import METHODS, NOT_FOUND, UNIMPLEMENTED, Reflection
from nodeworld import World

REQUEST = "runtime.v1alpha1.ContainerResourceHookRequest"
BATCH = '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"1000"}}}}'


@asynccontextmanager
async def hook_server(socket: Path) -> AsyncIterator[grpc.aio.Channel]:
    """Serve hooks on a socket; yield a connection to it."""
    world = World()
    service = HookService(Plugins(), world.executor, world.layout)
    server = HookServer(service, socket=socket, host_endpoint=str(socket), config_directory=None)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.run())
        async with asyncio.timeout(10):
            while not server.ready():  # noqa: ASYNC110 - starting takes the time it takes
                await asyncio.sleep(0.01)
        async with grpc.aio.insecure_channel(f"unix://{socket}") as channel:
            yield channel
        serving.cancel()


async def ask(channel: grpc.aio.Channel, method: str, *questions: dict[str, Any]) -> list[pb.ServerReflectionResponse]:
    """Ask several questions in one call."""
    call = channel.stream_stream(
        method,
        request_serializer=pb.ServerReflectionRequest.SerializeToString,
        response_deserializer=pb.ServerReflectionResponse.FromString,
    )
    requests = [pb.ServerReflectionRequest(host="node", **question) for question in questions]
    return [answer async for answer in call(iter(requests))]


@pytest.mark.parametrize("method", METHODS)
async def test_a_client_learns_the_service_and_calls_it(tmp_path: Path, method: str) -> None:
    async with hook_server(tmp_path / "hooks.sock") as channel:
        services, described = await ask(channel, method, {"list_services": "*"}, {"file_containing_symbol": SERVICE})
        assert [one.name for one in services.list_services_response.service] == [SERVICE]
        assert services.valid_host == "node"
        assert described.original_request.file_containing_symbol == SERVICE
        pool = descriptor_pool.DescriptorPool()
        for text in described.file_descriptor_response.file_descriptor_proto:
            pool.Add(descriptor_pb2.FileDescriptorProto.FromString(text))
        learned = pool.FindServiceByName(SERVICE)
        assert {one.name for one in learned.methods} == {f"{stage}Hook" for stage in Stage}
        hook = learned.methods_by_name["PreCreateContainerHook"]
        request: Any = message_factory.GetMessageClass(hook.input_type)(
            pod_labels={qos.LABEL_QOS: "BE"}, pod_annotations={qos.ANNOTATION_EXTENDED_RESOURCES: BATCH}
        )
        request.container_meta.name = "main"
        call = channel.unary_unary(f"/{SERVICE}/{hook.name}", request_serializer=bytes, response_deserializer=bytes)
        body: bytes = await call(request.SerializeToString())
        answer: Any = message_factory.GetMessageClass(hook.output_type).FromString(body)
        assert answer.container_resources.cpu_quota == 100000


@pytest.mark.parametrize(
    ("question", "code"),
    [
        pytest.param({"file_containing_symbol": "a.b.C"}, NOT_FOUND, id="symbol"),
        pytest.param({"file_by_filename": "nothing.proto"}, NOT_FOUND, id="file"),
        pytest.param({"all_extension_numbers_of_type": "a.b.C"}, NOT_FOUND, id="extensions-of-an-unknown-type"),
        pytest.param(
            {"file_containing_extension": pb.ExtensionRequest(containing_type=REQUEST, extension_number=100)},
            NOT_FOUND,
            id="extension",
        ),
        pytest.param({}, UNIMPLEMENTED, id="nothing"),
    ],
)
def test_what_is_not_known_is_an_error_inside_the_answer(question: dict[str, Any], code: int) -> None:
    answer = Reflection(hooks_pb2.DESCRIPTOR).answer(pb.ServerReflectionRequest(**question))
    assert answer.error_response.error_code == code


@pytest.mark.parametrize(
    "symbol", [SERVICE, f"{SERVICE}.PreRunPodSandboxHook", REQUEST, f".{REQUEST}", f"{REQUEST}.PodLabelsEntry"]
)
def test_services_methods_messages_and_nested_ones_are_found(symbol: str) -> None:
    answer = Reflection(hooks_pb2.DESCRIPTOR).answer(pb.ServerReflectionRequest(file_containing_symbol=symbol))
    (text,) = answer.file_descriptor_response.file_descriptor_proto
    assert descriptor_pb2.FileDescriptorProto.FromString(text).package == "runtime.v1alpha1"


def test_a_type_of_this_file_has_no_extensions_and_files_are_found_by_name() -> None:
    reflection = Reflection(hooks_pb2.DESCRIPTOR)
    answer = reflection.answer(pb.ServerReflectionRequest(all_extension_numbers_of_type=REQUEST))
    assert answer.all_extension_numbers_response.base_type_name == REQUEST
    assert not answer.all_extension_numbers_response.extension_number
    answer = reflection.answer(pb.ServerReflectionRequest(file_by_filename=hooks_pb2.DESCRIPTOR.name))
    assert len(answer.file_descriptor_response.file_descriptor_proto) == 1
