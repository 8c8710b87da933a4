"""A small client of the container runtime interface: stop containers, list what runs, read the state of a sandbox.

Methods are called by name with encoded messages, so the same client speaks v1 and v1alpha2: their messages have the
same bytes.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import DecodeError as NoMessage
from google.protobuf.message import Message

from kubetide.api.values.codec import convert
from kubetide.errors import DecodeError, KubetideError, Unavailable
from kubetide.node.runtime.protos import cri_pb2 as pb

VERSIONS = ("v1", "v1alpha2")
CONNECT_SECONDS = 5.0

Answer = TypeVar("Answer", bound=Message)


class CriFailed(KubetideError):
    """The runtime refused a call."""


class CriClient:
    """Calls one runtime over its Unix socket."""

    def __init__(self, socket: Path, *, version: str = "v1") -> None:
        self.version = version
        self.channel = grpc.aio.insecure_channel(f"unix://{socket}")

    async def call(self, method: str, request: Message, answer: type[Answer], *, timeout: float = 10.0) -> Answer:
        """Call a method of the runtime service."""
        path = f"/runtime.{self.version}.RuntimeService/{method}"
        call = self.channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        try:
            body: bytes = await call(request.SerializeToString(), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise Unavailable(f"{method}: {error.details()}") from error
            raise CriFailed(f"{method}: {error.details()}") from error
        try:
            return answer.FromString(body)
        except NoMessage as error:
            raise CriFailed(f"{method}: the answer cannot be read") from error

    async def negotiate(self) -> str:
        """Find out which version the runtime speaks and use it from now on."""
        for version in VERSIONS:
            self.version = version
            try:
                await self.call("Version", pb.VersionRequest(), pb.VersionResponse, timeout=CONNECT_SECONDS)
                return version
            except CriFailed:
                continue
        raise CriFailed("the runtime speaks neither CRI v1 nor v1alpha2")

    async def sandboxes(self) -> Sequence[pb.PodSandbox]:
        """Return all sandboxes."""
        return (await self.call("ListPodSandbox", pb.Empty(), pb.ListPodSandboxResponse)).items

    async def containers(self) -> Sequence[pb.Container]:
        """Return all containers."""
        return (await self.call("ListContainers", pb.Empty(), pb.ListContainersResponse)).containers

    async def stop_container(self, container_id: str, *, timeout: int = 0) -> None:
        """Stop a container; with 0 seconds it is killed at once."""
        request = pb.StopContainerRequest(container_id=container_id, timeout=timeout)
        await self.call("StopContainer", request, pb.Empty)

    async def close(self) -> None:
        """Close the connection."""
        await self.channel.close(None)


# What a runtime says of a container when asked for more than CRI has: JSON of its own, which may be anything.

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Cpu(msgspec.Struct, frozen=True):
    period: _Int64 = 0
    quota: _Int64 = 0
    shares: _Int64 = 0
    cpus: str = ""
    mems: str = ""


class _Memory(msgspec.Struct, frozen=True):
    limit: _Int64 = 0
    swap: _Int64 = 0


class _Resources(msgspec.Struct, frozen=True):
    cpu: _Cpu = _Cpu()
    memory: _Memory = _Memory()


class _Variable(msgspec.Struct, frozen=True):
    key: str
    value: str = ""


def resources_of(raw: Any) -> pb.LinuxContainerResources | None:
    """Return the resources in a container's verbose info, None where it has none that can be understood."""
    if not isinstance(raw, dict):
        return None
    try:
        found = convert(raw, _Resources)
    except DecodeError:
        return None
    return pb.LinuxContainerResources(
        cpu_period=found.cpu.period,
        cpu_quota=found.cpu.quota,
        cpu_shares=found.cpu.shares,
        cpuset_cpus=found.cpu.cpus,
        cpuset_mems=found.cpu.mems,
        memory_limit_in_bytes=found.memory.limit,
        memory_swap_limit_in_bytes=found.memory.swap,
    )


def variables_of(raw: Any) -> dict[str, str]:
    """Return the environment in a container's verbose info, without what cannot be understood."""
    found: dict[str, str] = {}
    for one in raw if isinstance(raw, list) else ():
        with suppress(DecodeError):
            variable = convert(one, _Variable)
            found[variable.key] = variable.value
    return found
