"""A small client of the container runtime interface: stop containers, list what runs, read the state of a sandbox.

Methods are called by name with encoded messages, so the same client speaks v1 and v1alpha2: their messages have the
same bytes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from kubetide.errors import KubetideError, Unavailable
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
        except DecodeError as error:
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


def resources_of(raw: Any) -> pb.LinuxContainerResources | None:
    """Return the resources in a container's verbose info, None where it has none."""
    if not isinstance(raw, dict):
        return None
    cpu, memory = raw.get("cpu") or {}, raw.get("memory") or {}
    return pb.LinuxContainerResources(
        cpu_period=cpu.get("period") or 0,
        cpu_quota=cpu.get("quota") or 0,
        cpu_shares=cpu.get("shares") or 0,
        cpuset_cpus=cpu.get("cpus") or "",
        cpuset_mems=cpu.get("mems") or "",
        memory_limit_in_bytes=memory.get("limit") or 0,
        memory_swap_limit_in_bytes=memory.get("swap") or 0,
    )
