"""Clients that hold connections without asking: every server that we open cuts them off, and serves the others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web

from kubetide.api.objects.admission import AdmissionReview, review_response
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.http import ServerOptions, serve
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.kube.client.certificates import issue, make_ca
from kubetide.kube.client.tls import Certificate, Pem, ServerTrust, client_context
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.endpoints import Endpoints
from kubetide.kube.listener import listening
from kubetide.kube.webhook import WebhookServer
from kubetide.node.core.hooks.rules import Plugins
from kubetide.node.endpoints import NodeEndpoints
from kubetide.node.runtime.hook_server import HookServer
from kubetide.node.runtime.hook_service import HookService
from kubetide.telemetry import Telemetry
from nodeworld import World

SHORT = ConnectionLimits(header_seconds=0.2, body_seconds=0.2, idle_seconds=0.2, connections=4)
PATIENT = ConnectionLimits(header_seconds=30, body_seconds=30, idle_seconds=30, connections=4)
PATIENCE = 20
"""Long enough for any machine, and far below the limits that were there by default."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]
Serving = Callable[[ConnectionLimits, Path], AbstractAsyncContextManager[Connect]]


def plain(port: int) -> Connect:
    return lambda: asyncio.open_connection("127.0.0.1", port)


@asynccontextmanager
async def running(server: Endpoints | WebhookServer | HookServer) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.run())
        async with asyncio.timeout(PATIENCE):
            while not server.ready():  # noqa: ASYNC110 - readiness has no event
                await asyncio.sleep(0.01)
        yield
        task.cancel()


@asynccontextmanager
async def endpoints(limits: ConnectionLimits, _: Path) -> AsyncIterator[Connect]:
    server = Endpoints(Telemetry(), healthy=lambda: True, ready=lambda: True, host="127.0.0.1", port=0, limits=limits)
    async with running(server):
        yield plain(server.port)


@asynccontextmanager
async def agent(limits: ConnectionLimits, _: Path) -> AsyncIterator[Connect]:
    server = NodeEndpoints(
        Telemetry(), audit=None, healthy=lambda: True, ready=lambda: True, host="127.0.0.1", port=0, limits=limits
    )
    async with running(server):
        yield plain(server.port)


@asynccontextmanager
async def webhook(limits: ConnectionLimits, folder: Path) -> AsyncIterator[Connect]:
    async def review(asked: AdmissionReview) -> dict[str, object]:
        return review_response(asked.request.uid if asked.request else "")

    ca = make_ca("ca", now=SystemClock().now())
    pair = issue(ca, "localhost", now=SystemClock().now(), dns_names=["localhost"])
    (folder / "tls.crt").write_text(pair.certificate)
    (folder / "tls.key").write_text(pair.key)
    server = WebhookServer(
        {"/": review},
        certificate=Certificate(certificate=Pem(path=folder / "tls.crt"), key=Pem(path=folder / "tls.key")),
        host="127.0.0.1",
        port=0,
        limits=limits,
    )
    trust = client_context(ServerTrust(ca=Pem(data=ca.certificate)), None)
    async with running(server):
        yield lambda: asyncio.open_connection("127.0.0.1", server.port, ssl=trust, server_hostname="localhost")


@asynccontextmanager
async def api_server(limits: ConnectionLimits, _: Path) -> AsyncIterator[Connect]:
    options = ServerOptions(
        header_seconds=limits.header_seconds, body_seconds=limits.body_seconds, connections=limits.connections
    )
    async with serve(ApiServer(clock=SystemClock()), anonymous=True, options=options) as serving:
        yield plain(serving.port)


SERVERS = [
    pytest.param(endpoints, id="component-endpoints"),
    pytest.param(agent, id="node-agent"),
    pytest.param(webhook, id="webhook"),
    pytest.param(api_server, id="embedded-api-server"),
]
HALF_A_HEAD = b"GET /healthz HTTP/1.1\r\nHost: here\r\nX-Slow: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"
HALF_A_BODY = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Read until the server ends the connection, however it does."""
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass
    return True


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing-sent"),
        pytest.param(HALF_A_HEAD, id="half-sent-headers"),
        pytest.param(WHOLE, id="idle-after-a-request"),
        pytest.param(WHOLE + HALF_A_HEAD, id="half-sent-headers-after-a-request"),
        pytest.param(HALF_A_BODY, id="half-sent-body"),
    ],
)
async def test_a_slow_client_is_cut_off(server: Serving, sent: bytes, tmp_path: Path) -> None:
    async with server(SHORT, tmp_path) as connect:
        reader, writer = await connect()
        writer.write(sent)
        assert await is_ended(reader)
        writer.transport.abort()


@pytest.mark.parametrize("server", SERVERS)
async def test_a_client_that_trickles_gains_nothing(server: Serving, tmp_path: Path) -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(HALF_A_HEAD)
        while not writer.transport.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.02)

    async with server(SHORT, tmp_path) as connect, asyncio.TaskGroup() as group:
        reader, writer = await connect()
        sending = group.create_task(trickle(writer))
        assert await is_ended(reader)
        sending.cancel()
        writer.transport.abort()


async def test_a_handshake_that_never_begins_is_cut_off(tmp_path: Path) -> None:
    async with webhook(SHORT, tmp_path) as connect:
        _, writer = await connect()
        port = writer.get_extra_info("peername")[1]
        writer.transport.abort()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await is_ended(reader)
        writer.transport.abort()


@pytest.mark.parametrize("sent", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], ids=["nothing-sent", "half-a-preface"])
async def test_the_hook_service_cuts_off_who_does_not_speak(sent: bytes, tmp_path: Path) -> None:
    world = World()
    server = HookServer(
        HookService(Plugins(), world.executor, world.layout),
        socket=tmp_path / "hooks.sock",
        host_endpoint="hooks.sock",
        config_directory=None,
        limits=SHORT,
    )
    async with running(server):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "hooks.sock")
        writer.write(sent)
        assert await is_ended(reader)
        writer.transport.abort()


@pytest.mark.parametrize("server", SERVERS)
async def test_who_asks_is_served_although_others_hold_all_connections(server: Serving, tmp_path: Path) -> None:
    async with AsyncExitStack() as held, server(PATIENT, tmp_path) as connect:
        opened: list[Streams] = []
        for _ in range(3 * PATIENT.connections):
            reader, writer = await connect()
            held.callback(writer.transport.abort)
            writer.write(HALF_A_HEAD)
            opened.append((reader, writer))
        reader, writer = await connect()
        held.callback(writer.transport.abort)
        writer.write(WHOLE)
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readline()).startswith(b"HTTP/1.1 ")
        # The oldest gave way, so that no more than the limit are open.
        for reader, _ in opened[: -PATIENT.connections]:
            assert await is_ended(reader)


async def test_a_connection_that_is_being_answered_does_not_give_way() -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        entered.set()
        await go_on.wait()
        return web.Response(text="all of it")

    app = web.Application()
    app.router.add_get("/", answer)
    limits = ConnectionLimits(header_seconds=0.2, idle_seconds=0.2, connections=1)
    async with listening(limits.runner(app), "127.0.0.1", 0, limits=limits) as port:
        reader, writer = await plain(port)()
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        await entered.wait()
        for _ in range(2):
            refused, other = await plain(port)()
            assert await is_ended(refused), "there was no room for it"
            other.transport.abort()
        go_on.set()
        async with asyncio.timeout(PATIENCE):
            assert (await reader.read()).endswith(b"all of it")
        writer.transport.abort()


@pytest.mark.parametrize(
    "request_head",
    [
        pytest.param(b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: here\r\n\r\n", id="long-path"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: here\r\nX-Long: " + b"x" * 20_000 + b"\r\n\r\n", id="long-header"),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: here\r\n" + b"".join(b"X-%d: y\r\n" % each for each in range(500)) + b"\r\n",
            id="many-headers",
        ),
    ],
)
async def test_headers_beyond_measure_are_refused(request_head: bytes, tmp_path: Path) -> None:
    async with endpoints(PATIENT, tmp_path) as connect:
        reader, writer = await connect()
        writer.write(request_head)
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readline()).startswith(b"HTTP/1.0 400 ")
        writer.transport.abort()


@pytest.mark.parametrize("server", [SERVERS[0], SERVERS[2]])
async def test_a_body_beyond_measure_is_refused_unread(server: Serving, tmp_path: Path) -> None:
    async with server(PATIENT, tmp_path) as connect:
        reader, writer = await connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100000000\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        assert await is_ended(reader)
        writer.transport.abort()
