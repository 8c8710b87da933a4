"""A running kubetide is found where it announces itself: in its Leases, and behind a port-forward to its pod."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import WSMsgType, web

from embedded_server import Running, running
from kubetide import crds
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import CRDS, LEASES
from kubetide.cli.main import Invocation
from kubetide.cli.places import ask_everywhere, ask_with
from kubetide.clock import SystemClock
from kubetide.errors import KubetideError, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.errors import Forbidden
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.port_forward import PROTOCOL, get
from kubetide.kube.client.tls import ServerTrust
from kubetide.kube.control.announcement import ADDRESS, HOST, POD
from kubetide.kube.control.shards import GROUP_LABEL, together
from kubetide.kube.endpoints import Endpoints
from kubetide.telemetry import Telemetry

PATIENCE = 120
ANSWER = {"told": "by the running process"}


def command(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "kubetide", *arguments)


async def kubetide(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command(*arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def controllers(kubeconfig: Path, *flags: str) -> AsyncIterator[None]:
    """Run three components in one process while the block lasts."""
    names = "hpa,recommender,updater"
    process = await asyncio.create_subprocess_exec(
        *command("run", names, *flags, "--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "NAMESPACE": "", "POD_NAME": ""},
    )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(PATIENCE):
            await process.wait()


async def announced(client: Client, name: str, *, not_at: str = "") -> str:
    """Wait until the holder of a Lease announces itself, somewhere else than before, and return where."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                lease = await client.get(LEASES, name, namespace="kube-system")
                found = (lease.metadata.annotations or {}).get(ADDRESS, "")
            except KubetideError:
                found = ""
            if found and found != not_at:
                return found
            await asyncio.sleep(0.1)


def kubeconfig_of(server: Running, folder: Path) -> Path:
    path = folder / "config"
    path.write_text(server.identity.kubeconfig(server.serving.url))
    path.chmod(0o600)
    return path


async def test_a_shared_process_on_any_port_is_found_by_its_leases(tmp_path: Path) -> None:
    """Each of the three Leases leads to the one port, wherever that is."""
    async with running() as server:
        client = Client(server.transport(), clock=SystemClock())
        for definition in crds.load_all():
            await client.create(CRDS, definition)
        body = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "maxReplicas": 3,
            },
        }
        path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
        await client.request("POST", path, body=msgspec.json.encode(body))
        kubeconfig = kubeconfig_of(server, tmp_path)
        async with controllers(kubeconfig, "--status-port", "0"):
            first = await announced(client, "kubetide-hpa")
            assert await announced(client, "vpa-updater") == first
            assert await announced(client, "vpa-recommender-lease") == first
            lease = await client.get(LEASES, "kubetide-hpa", namespace="kube-system")
            assert (lease.metadata.annotations or {})[HOST] == socket.gethostname()
            asked = ("explain", "hpa", "default/web", "-o", "json", "--kubeconfig", str(kubeconfig))
            async with asyncio.timeout(PATIENCE):
                while True:  # its first reconcile may still be under way
                    code, out, err = await kubetide(*asked)
                    if code == 0 and "RECOMPUTED" not in err:
                        break
            assert not msgspec.json.decode(out).get("recomputed")
        released = await client.get(LEASES, "kubetide-hpa", namespace="kube-system")
        assert ADDRESS not in (released.metadata.annotations or {}), "who is gone announces nothing"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        async with controllers(kubeconfig, f"--status-port={port}"):
            assert (await announced(client, "kubetide-hpa", not_at=first)).endswith(f":{port}")
        await client.close()


@asynccontextmanager
async def explaining(known: dict[tuple[str, str], dict[str, Any]]) -> AsyncIterator[int]:
    """Serve explanations on loopback, as the process in a pod does; give the port."""
    endpoints = Endpoints(
        Telemetry(),
        healthy=lambda: True,
        ready=lambda: True,
        explain=lambda kind, key: known.get((kind, key)),
        host="127.0.0.1",
        port=0,
    )
    task = asyncio.get_running_loop().create_task(endpoints.run())
    async with asyncio.timeout(PATIENCE):
        while not endpoints.ready():  # noqa: ASYNC110 - readiness has no event
            await asyncio.sleep(0.01)
    try:
        yield endpoints.port
    finally:
        task.cancel()
        await asyncio.wait({task})


class ClusterDouble:
    """An API server with one Lease and one pod, whose port-forward ends on a port of this machine."""

    def __init__(self, inside: int, *, forbidden: bool = False) -> None:
        self._inside = inside
        self._forbidden = forbidden
        self.forwarded: list[str] = []

    def application(self) -> web.Application:
        app = web.Application()
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}"
        app.router.add_get(lease, self._lease)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}/portforward", self._forward)
        app.router.add_get("/api/v1/pods", self._agents)
        return app

    async def _lease(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name != "vpa-updater":
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        notes = {ADDRESS: "10.0.0.7:8943", HOST: "elsewhere", POD: "kube-system/updater-1"}
        meta = {"name": name, "namespace": "kube-system", "annotations": notes}
        return web.json_response({"metadata": meta, "spec": {"holderIdentity": "updater-1"}})

    async def _agents(self, request: web.Request) -> web.Response:
        assert request.query["fieldSelector"] == "spec.nodeName=node-1"
        agent = {"metadata": {"name": "agent-1", "namespace": "kube-system"}}
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [agent]})

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        if self._forbidden:
            return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden"}, status=403)
        self.forwarded.append(f"{request.match_info['name']}:{request.query['ports']}")
        stream = web.WebSocketResponse(protocols=(PROTOCOL,))
        await stream.prepare(request)
        port = int(request.query["ports"]).to_bytes(2, "little")
        for channel in (0, 1):
            await stream.send_bytes(bytes([channel]) + port)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._inside)
        async for message in stream:
            if message.type is WSMsgType.BINARY and message.data[0] == 0:
                writer.write(message.data[1:])
                await writer.drain()
                # In pieces, as a network delivers them.
                while part := await reader.read(7):
                    await stream.send_bytes(b"\x00" + part)
                break
        writer.close()
        await stream.close()
        return stream


@asynccontextmanager
async def cluster(double: ClusterDouble, folder: Path) -> AsyncIterator[tuple[str, Path]]:
    runner = web.AppRunner(double.application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    kubeconfig = folder / "config"
    kubeconfig.write_text(
        f'clusters: [{{name: c, cluster: {{server: "{url}"}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n'
        "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    )
    kubeconfig.chmod(0o600)
    try:
        yield url, kubeconfig
    finally:
        await runner.cleanup()


async def test_all_replicas_that_share_the_work_are_asked() -> None:
    decision = {"decision": "from the owner"}
    async with running() as server, explaining({}) as first, explaining({("hpa", "default/web"): decision}) as second:
        client = Client(server.transport(), clock=SystemClock())
        for name, holder, port in (
            ("kubetide-hpa", together("kubetide-hpa"), first),
            ("kubetide-hpa-a", "a", first),
            ("kubetide-hpa-b", "b", second),
        ):
            metadata = {
                "name": name,
                "labels": {GROUP_LABEL: "kubetide-hpa"} if name != "kubetide-hpa" else {},
                "annotations": {ADDRESS: f"127.0.0.1:{port}", HOST: socket.gethostname()},
            }
            body = {"metadata": metadata, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}}
            kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
            await client.create(LEASES, {**kind, **body}, namespace="kube-system")
        answers = await ask_with(client, "/explain/hpa/default/web")
        await client.close()
    assert [answer for _, answer in answers] == [decision]


async def test_a_process_in_a_pod_is_asked_through_a_port_forward(tmp_path: Path) -> None:
    async with explaining({("vpa", "shop/web"): ANSWER}) as inside:
        double = ClusterDouble(inside)
        async with cluster(double, tmp_path) as (_, kubeconfig):
            code, out, err = await kubetide("explain", "vpa", "shop/web", "-o", "json", "--kubeconfig", str(kubeconfig))
    assert (code, err) == (0, "")
    assert ANSWER.items() <= msgspec.json.decode(out).items()
    assert double.forwarded == ["updater-1:8943"]


async def test_the_agent_of_a_node_in_the_cluster_is_asked_through_a_port_forward(tmp_path: Path) -> None:
    status: dict[str, Any] = {"nodes": []}
    async with explaining({("status", "node-1"): status}) as inside:
        double = ClusterDouble(inside)
        async with cluster(double, tmp_path) as (_, kubeconfig):
            given = ("--kubeconfig", str(kubeconfig), "node", "status", "--node", "node-1", "-o", "json")
            code, out, err = await kubetide(*given)
    assert (code, err) == (0, "")
    assert msgspec.json.decode(out) == status
    assert "agent-1:9316" in double.forwarded


async def test_a_process_that_may_not_be_asked_is_named_beside_what_was_recomputed(tmp_path: Path) -> None:
    problems: list[str] = []
    async with cluster(ClusterDouble(1, forbidden=True), tmp_path) as (_, kubeconfig):
        found = await ask_everywhere(Invocation(kubeconfig=kubeconfig), "/explain/vpa/shop/web", problems=problems)
    assert found == []
    assert len(problems) == 1
    assert problems[0].startswith("pod kube-system/updater-1 port 8943 runs but cannot be asked: ")


async def test_what_goes_wrong_on_the_way_to_a_pod_is_named(tmp_path: Path) -> None:
    pod = ObjectKey("kube-system", "updater-1")
    async with explaining({}) as inside:
        for forbidden, expected in ((True, Forbidden), (False, None)):
            async with cluster(ClusterDouble(inside, forbidden=forbidden), tmp_path) as (url, _):
                transport = HttpTransport(Access(server=url, trust=ServerTrust(), credentials=Static(())))
                try:
                    if expected is None:
                        assert (await get(transport, pod, 8943, "/explain/vpa/shop/web")).status == 404
                    else:
                        with pytest.raises(expected):
                            await get(transport, pod, 8943, "/explain/vpa/shop/web")
                finally:
                    await transport.close()
    async with cluster(ClusterDouble(inside), tmp_path) as (url, _):
        transport = HttpTransport(Access(server=url, trust=ServerTrust(), credentials=Static(())))
        try:
            with pytest.raises(Unavailable):
                await get(transport, pod, 8943, "/explain/vpa/shop/web", seconds=20)
        finally:
            await transport.close()


async def test_doctor_tells_what_a_running_comparison_found(tmp_path: Path) -> None:
    difference = {
        "component": "hpa",
        "object": "HorizontalPodAutoscaler shop/web",
        "upstream": "wants 2 replicas",
        "kubetide": "wants 4",
        "why": "cpu",
    }
    async with running() as server, explaining({("compare", "all"): {"differences": [difference]}}) as port:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(server.identity.kubeconfig(server.serving.url, explain=f"127.0.0.1:{port}"))
        kubeconfig.chmod(0o600)
        _, out, _ = await kubetide("doctor", "hpa", "-o", "json", "--kubeconfig", str(kubeconfig))
    row = next(row for row in msgspec.json.decode(out) if row["id"] == "upstream-differs")
    assert row["verdict"] == "DIFFERS: HorizontalPodAutoscaler shop/web: upstream wants 2 replicas, kubetide wants 4"
    assert row["remedy"] == "kubetide explain hpa shop/web"
