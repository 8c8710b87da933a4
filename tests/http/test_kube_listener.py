"""A server that has stopped serves nobody: not even who was shaking hands with it when it stopped."""

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from kubetide.clock import SystemClock
from kubetide.kube.client.certificates import issue, make_ca
from kubetide.kube.client.tls import Certificate, Pem, load_identity
from kubetide.kube.listener import listening

LOCALHOST = "127.0.0.1"
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return what the server and a client that trusts it use."""
    now = SystemClock().now()
    ca = make_ca("listener", now=now)
    pair = issue(ca, LOCALHOST, now=now, addresses=[LOCALHOST])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_identity(server, Certificate(certificate=Pem(data=pair.certificate), key=Pem(data=pair.key)))
    return server, ssl.create_default_context(cadata=ca.certificate)


def runner() -> web.AppRunner:
    async def greet(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", greet)
    return web.AppRunner(app, access_log=None, shutdown_timeout=0.1)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(LOCALHOST, port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def answering(infos: list[Any]) -> Callable[..., Awaitable[list[Any]]]:
    """Return what stands for the loop's way to find the addresses of a name."""

    async def getaddrinfo(*_: object, **__: object) -> list[Any]:
        return infos

    return getaddrinfo


async def test_it_serves_while_the_block_lasts() -> None:
    server, client = contexts()
    async with listening(runner(), LOCALHOST, 0, tls=server) as port, connected(port) as (reader, writer):
        await writer.start_tls(client, server_hostname=LOCALHOST)
        writer.write(REQUEST)
        assert (await reader.read()).endswith(b"hello")


async def test_a_handshake_that_ends_after_the_server_stopped_is_not_served() -> None:
    server, client = contexts()
    async with AsyncExitStack() as held:
        async with listening(runner(), LOCALHOST, 0, tls=server) as port:
            reader, writer = await held.enter_async_context(connected(port))
            # Who comes second is served, so the first has been accepted and waits for its handshake.
            async with connected(port) as (_, second):
                await second.start_tls(client, server_hostname=LOCALHOST)
        with suppress(ConnectionError, ssl.SSLError):
            await writer.start_tls(client, server_hostname=LOCALHOST)
            writer.write(REQUEST)
            assert await reader.read() == b"", "a stopped server answered"


async def test_a_peer_that_never_shakes_hands_is_let_go_of() -> None:
    server, client = contexts()
    async with AsyncExitStack() as held:
        async with listening(runner(), LOCALHOST, 0, tls=server) as port:
            reader, _ = await held.enter_async_context(connected(port))
            async with connected(port) as (_, second):
                await second.start_tls(client, server_hostname=LOCALHOST)
        # Long before the minute that a handshake may take.
        async with asyncio.timeout(30):
            with suppress(ConnectionError):
                assert await reader.read() == b""


async def test_a_name_is_served_on_all_of_its_addresses_that_this_machine_has() -> None:
    loop = asyncio.get_running_loop()
    both = ((socket.AF_INET, LOCALHOST), (socket.AF_INET6, "::1"))
    infos = [(family, socket.SOCK_STREAM, 6, "", (name, 0)) for family, name in both]
    elsewhere = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "getaddrinfo", answering([elsewhere, *infos]))
        async with listening(runner(), "both", 0) as port, connected(port) as (reader, writer):
            writer.write(REQUEST)
            assert (await reader.read()).endswith(b"hello")
        patch.setattr(loop, "getaddrinfo", answering([elsewhere]))
        with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:0: Cannot assign requested address"):
            async with listening(runner(), "elsewhere", 0):
                pass


async def test_a_taken_port_is_named() -> None:
    async with listening(runner(), LOCALHOST, 0) as port:
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use"):
            async with listening(runner(), LOCALHOST, port):
                pass


async def test_a_stopped_server_leaves_its_port() -> None:
    async with listening(runner(), LOCALHOST, 0) as port:
        pass
    async with listening(runner(), LOCALHOST, port) as again:
        assert again == port


async def test_a_peer_that_never_says_goodbye_is_cut_off() -> None:
    server, client = contexts()

    def shake_hands(port: int) -> socket.socket:
        """Connect, and let go of the TLS layer that would answer a goodbye."""
        plain = socket.create_connection((LOCALHOST, port), timeout=10)
        secured = client.wrap_socket(plain, server_hostname=LOCALHOST)
        return socket.socket(fileno=secured.detach())

    def read_to_the_end(raw: socket.socket) -> None:
        raw.settimeout(10)
        with suppress(ConnectionError):
            while raw.recv(4096):
                pass

    async with listening(runner(), LOCALHOST, 0, tls=server) as port:
        silent = await asyncio.to_thread(shake_hands, port)
    with silent:
        await asyncio.to_thread(read_to_the_end, silent)


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_a_connection_that_comes_while_the_server_stops_is_closed(turns: int) -> None:
    # The kernel completes the handshake of TCP by itself; `turns` of the event loop later the server stops.
    with socket.socket() as peer:
        async with listening(runner(), LOCALHOST, 0) as port:
            await asyncio.sleep(0)
            peer.connect((LOCALHOST, port))
            for _ in range(turns):
                await asyncio.sleep(0)
        peer.settimeout(5)
        with suppress(ConnectionResetError):
            assert peer.recv(1) == b""
    gc.collect()
