"""Server reflection of the hook server: a client that knows nothing learns the service and calls it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2 as pb

from kubetide.api.qos import qos
from kubetide.node.core.hooks.rules import Plugins
from kubetide.node.core.hooks.stages import Stage
from kubetide.node.runtime.hook_server import SERVICE, HookServer
from kubetide.node.runtime.hook_service import HookService
from nodeworld import World

METHOD = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
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


async def ask(channel: grpc.aio.Channel, *questions: dict[str, Any]) -> list[pb.ServerReflectionResponse]:
    """Ask several questions in one call."""
    call = channel.stream_stream(
        METHOD,
        request_serializer=pb.ServerReflectionRequest.SerializeToString,
        response_deserializer=pb.ServerReflectionResponse.FromString,
    )
    requests = [pb.ServerReflectionRequest(host="node", **question) for question in questions]
    return [answer async for answer in call(iter(requests))]


async def test_a_client_learns_the_service_and_calls_it(tmp_path: Path) -> None:
    async with hook_server(tmp_path / "hooks.sock") as channel:
        services, described = await ask(channel, {"list_services": "*"}, {"file_containing_symbol": SERVICE})
        assert SERVICE in [one.name for one in services.list_services_response.service]
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
