"""Stopping containers after an accepted eviction: at which runtime, which of them, and what is survived."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from aiohttp import web

from kubetide.node.core.snapshot import PodState
from kubetide.node.runtime.protos import cri_pb2 as cri
from kubetide.node.runtime.stopper import ContainerStopper
from nodeworld import World


class Runtime(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # not subscriptable at run time
    """A runtime that remembers which containers it was told to stop, and refuses one."""

    def __init__(self, speaks: str) -> None:
        self.speaks = speaks
        self.stopped: list[tuple[str, str, int]] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        version = handler_call_details.method.split(".")[1]
        if version != self.speaks:
            return None
        if handler_call_details.method.endswith("/Version"):
            return grpc.unary_unary_rpc_method_handler(self._version)

        async def stop(payload: bytes, context: Any) -> bytes:
            request = cri.StopContainerRequest.FromString(payload)
            if request.container_id == "stubborn":
                await context.abort(grpc.StatusCode.INTERNAL, "no")
            self.stopped.append((version, request.container_id, request.timeout))
            return b""

        return grpc.unary_unary_rpc_method_handler(stop)

    async def _version(self, payload: bytes, context: Any) -> bytes:
        return cri.VersionResponse(runtime_name="test").SerializeToString()


@asynccontextmanager
async def cri_runtime(socket: Path, speaks: str = "v1") -> AsyncIterator[Runtime]:
    runtime = Runtime(speaks)
    socket.parent.mkdir(exist_ok=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((runtime,))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    try:
        yield runtime
    finally:
        await server.stop(None)


@asynccontextmanager
async def docker(socket: Path, codes: dict[str, int]) -> AsyncIterator[list[str]]:
    asked: list[str] = []

    async def stop(request: web.Request) -> web.Response:
        asked.append(request.path_qs)
        return web.Response(status=codes.get(request.match_info["id"], 204))

    app = web.Application()
    app.router.add_post("/containers/{id}/stop", stop)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(socket)).start()
    try:
        yield asked
    finally:
        await runner.cleanup()


def pod(**ids: str) -> PodState:
    """Return a pod with running containers; `waiting` is one that does not run."""
    statuses = [
        {"name": name, "containerID": identity, "state": {"waiting": {}} if name == "waiting" else {"running": {}}}
        for name, identity in ids.items()
    ]
    containers = [{"name": name} for name in ids]
    raw = {
        "metadata": {"name": "job", "namespace": "d", "uid": "u"},
        "spec": {"containers": containers},
        "status": {"phase": "Running", "containerStatuses": statuses},
    }
    return World().add_pod(raw)


@pytest.mark.parametrize(
    ("scheme", "socket", "version"),
    [
        ("containerd", "containerd/containerd.sock", "v1"),
        ("cri-o", "crio/crio.sock", "v1"),
        ("pouch", "pouchcri.sock", "v1"),
        ("pouch", "pouchcri.sock", "v1alpha2"),
    ],
)
async def test_containers_are_killed_at_the_runtime_that_their_ids_name(
    tmp_path: Path, scheme: str, socket: str, version: str
) -> None:
    async with cri_runtime(tmp_path / socket, version) as runtime:
        stopped = await ContainerStopper(tmp_path).stop(pod(a=f"{scheme}://a", b=f"{scheme}://b"))
    assert stopped == ["a", "b"]
    assert runtime.stopped == [(version, "a", 0), (version, "b", 0)]


async def test_one_that_waits_or_cannot_be_stopped_keeps_no_other_running(tmp_path: Path) -> None:
    ids = {"waiting": "containerd://w", "stubborn": "containerd://stubborn", "made": "", "last": "containerd://last"}
    async with cri_runtime(tmp_path / "containerd.sock") as runtime:
        assert await ContainerStopper(tmp_path).stop(pod(**ids)) == ["last"]
    assert runtime.stopped == [("v1", "last", 0)]


async def test_docker_is_asked_over_its_own_api(tmp_path: Path) -> None:
    async with docker(tmp_path / "docker.sock", {"gone": 404, "broken": 500}) as asked:
        ids = {"a": "docker://a", "b": "docker://gone", "c": "docker://broken", "d": "docker://d"}
        assert await ContainerStopper(tmp_path).stop(pod(**ids)) == ["a", "b", "d"]
    assert asked == [f"/containers/{one}/stop?t=0" for one in ("a", "gone", "broken", "d")]


async def test_a_runtime_that_is_not_here_is_survived(tmp_path: Path) -> None:
    assert await ContainerStopper(tmp_path).stop(pod(a="containerd://a", b="rkt://b", c="docker://c")) == []
