"""Simulated time stands still, and those behind a socket notice nothing of it: their time goes on."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from embedded_server import Running, running
from kubetide.embedded.apiserver.http import ServerOptions
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import Request
from kubetide.embedded.apiserver.rest.watching import WatchPlan
from kubetide.embedded.sim.time.loop import run_virtual, set_speed
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.wire import wire_timers

PATH = "/api/v1/namespaces/default/configmaps"
SPEED = 240.0


def body(number: int) -> bytes:
    return json.dumps({"metadata": {"name": f"c{number}"}}).encode()


@asynccontextmanager
async def paused(options: ServerOptions | None = None) -> AsyncIterator[tuple[Running, HttpTransport]]:
    """Serve in a loop whose time stands still, and goes on only to stop the server."""
    async with running(options) as server:
        transport = server.transport()
        set_speed(0)
        try:
            yield server, transport
        finally:
            set_speed(SPEED)
            await transport.close()


def test_a_watch_hears_of_every_write_at_once() -> None:
    async def main() -> tuple[list[str], float]:
        loop = asyncio.get_running_loop()
        async with paused() as (server, transport):
            began = loop.time()
            told = []
            query = {"watch": "true", "resourceVersion": str(server.api.store.revision)}
            async with transport.watch(PATH, query=query) as stream:
                for number in range(5):
                    answer = await transport.request("POST", PATH, body=body(number))
                    assert answer.status == 201
                    told.append(json.loads(await anext(stream))["object"]["metadata"]["name"])
            return told, loop.time() - began

    assert run_virtual(main(), speed=SPEED) == ([f"c{number}" for number in range(5)], 0.0)


def test_a_watch_ends_after_the_real_seconds_it_asked_for() -> None:
    async def main() -> tuple[list[str], float]:
        loop = asyncio.get_running_loop()
        async with paused() as (_, transport):
            began = loop.time()
            query = {"watch": "true", "timeoutSeconds": "1", "allowWatchBookmarks": "true", "resourceVersion": "0"}
            async with transport.watch(PATH, query=query) as stream:
                told = [json.loads(line)["type"] async for line in stream]
            return told, loop.time() - began

    assert run_virtual(main(), speed=SPEED) == (["BOOKMARK"], 0.0)


def test_bookmarks_come_in_the_time_of_the_reader() -> None:
    async def main() -> tuple[str, float, float]:
        loop = asyncio.get_running_loop()
        async with paused() as (server, _):
            query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": str(server.api.store.revision)}
            plan = await server.api.handle(Request("GET", PATH, query))
            assert isinstance(plan, WatchPlan)
            plan.timers = wire_timers()
            plan.bookmark_seconds = 0.01
            began = loop.time()
            batches = plan.batches()
            [line] = await anext(batches)
            await batches.aclose()
            stood = loop.time() - began
            set_speed(100_000)
            async with InProcessTransport(server.api).watch(PATH, query=query) as stream:
                await anext(stream)
            return json.loads(line)["type"], stood, round(loop.time() - began)

    assert run_virtual(main(), speed=SPEED) == ("BOOKMARK", 0.0, 60)


def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    async def main() -> bytes:
        async with paused(ServerOptions(body_seconds=0.05)) as (server, _):
            token = server.identity.token
            context = ssl.create_default_context(cadata=server.identity.ca.certificate)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.serving.port, ssl=context)
            head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n{{"
            writer.write(head.encode())
            status = await reader.readline()
            writer.transport.abort()
            return status

    assert b" 504 " in run_virtual(main(), speed=SPEED)
