"""Out of file descriptors: servers and clients pause, report it in one line, and go on when there are some again."""

import asyncio
import io
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import msgspec
import pytest
from aiohttp import web

from kubetide import log
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.errors import ConnectionLost, RequestTimeout
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.listener import listening
from kubetide.kube.wire import Timers, rest

ATTEMPTS = 20
LIMITS = ConnectionLimits()


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure(json=True, stream=stream)
    yield stream
    log.configure()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    """Return the log; every line must be a JSON object."""
    return [msgspec.json.decode(line, type=dict[str, object]) for line in stream.getvalue().splitlines()]


def take_all(taken: list[int]) -> None:
    """Take every file descriptor that is left."""
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))


@contextmanager
def descriptors_left(number: int) -> Iterator[list[int]]:
    """Leave this process so many file descriptors; the others are in the list."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    highest = max(int(each) for each in os.listdir("/proc/self/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + number + 2, hard))
        take_all(taken)
        for _ in range(number):
            os.close(taken.pop())
        yield taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)


@asynccontextmanager
async def greeting() -> AsyncIterator[int]:
    async def greet(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", greet)
    async with listening(LIMITS.runner(app), "127.0.0.1", 0) as port:
        yield port


async def test_a_server_pauses_and_reports_it_once(logged: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = 0

    async def counted(timers: Timers, _: float) -> None:
        nonlocal failed
        failed += 1
        await rest(timers, 0.001)

    monkeypatch.setattr("kubetide.kube.listener.rest", counted)
    async with greeting() as port:
        async with asyncio.timeout(20):
            _, first = await asyncio.open_connection("127.0.0.1", port)
            with descriptors_left(1):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                while failed < ATTEMPTS:  # noqa: ASYNC110 - attempts have no event
                    await asyncio.sleep(0.001)
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"hello")
        first.transport.abort()
        writer.transport.abort()
    told = [line for line in lines(logged) if line["level"] != "info"]
    assert [line["msg"] for line in told] == ["cannot accept connections, will try again"]
    assert told[0]["error"] == "Too many open files"


async def test_a_client_pauses_and_reports_it_once(logged: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    async with greeting() as port:
        transport = HttpTransport(
            Access(server=f"http://127.0.0.1:{port}", trust=ServerTrust(), credentials=Static(()))
        )
        try:
            monkeypatch.setattr("kubetide.kube.client.http.PAUSE_SECONDS", 0.001)
            with descriptors_left(0):
                for _ in range(ATTEMPTS):
                    with pytest.raises(ConnectionLost, match="Too many open files"):
                        await transport.request("GET", "/", timeout=10)
                monkeypatch.setattr("kubetide.kube.client.http.PAUSE_SECONDS", 3600.0)
                with pytest.raises(ConnectionLost, match="Too many open files"):
                    await transport.request("GET", "/", timeout=10)
            with pytest.raises(RequestTimeout):
                await transport.request("GET", "/", timeout=0.05)
        finally:
            await transport.close()
    told = [line["msg"] for line in lines(logged)]
    assert told.count("cannot open connections, will try again") == 1


async def test_a_client_goes_on_when_there_are_descriptors_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubetide.kube.client.http.PAUSE_SECONDS", 0.001)
    async with greeting() as port:
        transport = HttpTransport(
            Access(server=f"http://127.0.0.1:{port}", trust=ServerTrust(), credentials=Static(()))
        )
        try:
            with descriptors_left(0), pytest.raises(ConnectionLost):
                await transport.request("GET", "/", timeout=10)
            assert (await transport.request("GET", "/", timeout=10)).body == b"hello"
        finally:
            await transport.close()
