"""A port-forward through a real kube-apiserver: it passes our WebSocket on to the kubelet, and asks RBAC first.

The kubelet is a double that speaks the same subprotocol and connects to a port of this machine, as a kubelet connects
to a port of the pod.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from aiohttp import WSMsgType, web

from e2e.controlplane import ControlPlane, connected
from e2e.programs import PATIENCE
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import NODES, PODS
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.kube.client.certificates import issue, make_ca
from kubetide.kube.client.errors import Forbidden
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.port_forward import PROTOCOL, get
from kubetide.kube.endpoints import Endpoints
from kubetide.telemetry import Telemetry

POD = ObjectKey("default", "updater-1")


def certificate(folder: Path) -> ssl.SSLContext:
    now = SystemClock().now()
    ca = make_ca("kubelet-ca", now=now, lifetime=timedelta(days=1))
    made = issue(ca, "kubelet", now=now, dns_names=("localhost",), lifetime=timedelta(days=1))
    (folder / "tls.crt").write_text(made.certificate)
    (folder / "tls.key").write_text(made.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


async def forward(request: web.Request) -> web.StreamResponse:
    """Serve one port of a pod as a kubelet does."""
    (port,) = (value for name, value in request.query.items() if name in ("port", "ports"))
    stream = web.WebSocketResponse(protocols=(PROTOCOL,))
    await stream.prepare(request)
    for channel in (0, 1):
        await stream.send_bytes(bytes([channel]) + int(port).to_bytes(2, "little"))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    async for message in stream:
        if message.type is WSMsgType.BINARY and message.data[0] == 0:
            writer.write(message.data[1:])
            while part := await reader.read(4096):
                await stream.send_bytes(b"\x00" + part)
            break
    writer.close()
    await stream.close()
    return stream


@asynccontextmanager
async def kubelet(folder: Path) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_get("/portForward/{namespace}/{pod}", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate(folder)).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def explaining() -> AsyncIterator[int]:
    endpoints = Endpoints(
        Telemetry(),
        healthy=lambda: True,
        ready=lambda: True,
        explain=lambda kind, key: {"asked": f"{kind} {key}"},
        host="127.0.0.1",
        port=0,
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(endpoints.run())
        async with asyncio.timeout(PATIENCE):
            while not endpoints.ready():  # noqa: ASYNC110 - readiness has no event
                await asyncio.sleep(0.01)
        yield endpoints.port
        task.cancel()


async def test_a_process_in_a_pod_is_asked_through_the_api_server(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with kubelet(tmp_path) as kubelet_port, explaining() as port, connected(control_plane, "admin") as client:
        await client.create(NODES, {"metadata": {"name": "forwarding"}})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        }
        await client.patch(NODES, "forwarding", MergePatch({"status": status}), subresource="status")
        spec = {"nodeName": "forwarding", "containers": [{"name": "main", "image": "x"}]}
        await client.create(PODS, {"metadata": {"name": POD.name}, "spec": spec}, namespace=POD.namespace)
        running = MergePatch({"status": {"phase": "Running"}})
        await client.patch(PODS, POD.name, running, namespace=POD.namespace, subresource="status")
        try:
            assert isinstance(client.transport, HttpTransport)
            answer = await get(client.transport, POD, port, "/explain/vpa/shop/web", seconds=PATIENCE)
            assert answer.status == 200
            assert msgspec.json.decode(answer.body) == {"asked": "vpa shop/web"}
            async with connected(control_plane, "nobody-special") as other:
                assert isinstance(other.transport, HttpTransport)
                with pytest.raises(Forbidden):
                    await get(other.transport, POD, port, "/explain/vpa/shop/web", seconds=PATIENCE)
        finally:
            await client.delete(PODS, POD.name, namespace=POD.namespace, grace_period_seconds=0)
            await client.delete(NODES, "forwarding")
