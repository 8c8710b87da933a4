"""Many watches at once, in process and over HTTPS: nothing missed, nothing repeated, nobody waited for."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

from embedded_server import Running, running
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.storage.objects import EventLog, ResourceKey
from kubetide.kube.client.errors import ConnectionLost, Gone
from kubetide.kube.client.transport import Transport

PATH = "/api/v1/namespaces/default/configmaps"
WRITES = 10_000
WRITERS = 50
LAST = "the-last-one"


def log_of(server: Running) -> EventLog:
    return server.api.store.collection(ResourceKey("", "configmaps")).log


def body(name: str, value: str = "") -> bytes:
    return json.dumps({"metadata": {"name": name}, "data": {"value": value}}).encode()


async def write(server: Running) -> list[tuple[str, int]]:
    """Create, change and delete in turn, many at a time; return what a watch must have told."""
    transport = InProcessTransport(server.api)
    told: list[tuple[str, int]] = []

    async def write_one(name: str) -> None:
        alive = False
        for number in range(WRITES // WRITERS):
            if not alive:
                change = "ADDED"
                answer = await transport.request("POST", PATH, body=body(name))
            elif number % 7 == 0:
                change = "DELETED"
                answer = await transport.request("DELETE", f"{PATH}/{name}")
            else:
                change = "MODIFIED"
                patch = json.dumps({"data": {"value": str(number)}}).encode()
                answer = await transport.request(
                    "PATCH", f"{PATH}/{name}", body=patch, content_type="application/merge-patch+json"
                )
            assert answer.status in (200, 201), answer.body
            # Nothing else has run since the write, so this is its revision.
            told.append((change, server.api.store.revision))
            alive = change != "DELETED"

    async with asyncio.TaskGroup() as group:
        for number in range(WRITERS):
            group.create_task(write_one(f"c{number}"))
    await transport.request("POST", PATH, body=body(LAST))
    return told


async def read(transport: Transport, version: str, opened: asyncio.Barrier) -> tuple[int, int, list[bytes]]:
    """Follow a watch to its last object; return how much it said, a checksum, and the first few lines."""
    count, checksum, lines = 0, 0, []
    async with transport.watch(PATH, query={"watch": "true", "resourceVersion": version}) as stream:
        await opened.wait()
        async for line in stream:
            if LAST.encode() in line:
                break
            count += 1
            checksum = zlib.crc32(line, checksum)
            lines.append(line)
    return count, checksum, lines


async def test_two_hundred_and_twenty_watches_see_every_one_of_ten_thousand_writes_once() -> None:
    async with running(window=2000) as server:
        version = str(server.api.store.revision)
        local: list[Transport] = [InProcessTransport(server.api) for _ in range(200)]
        remote = [server.transport() for _ in range(20)]
        opened = asyncio.Barrier(len(local) + len(remote) + 1)
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(read(transport, version, opened)) for transport in (*local, *remote)]
            await opened.wait()
            told = await write(server)
        expected = [(event["type"], int(event["object"]["metadata"]["resourceVersion"])) for event in _events(readers)]
        assert expected == told
        results = {(count, checksum) for count, checksum, _ in (reader.result() for reader in readers)}
        assert results == {(len(told), readers[0].result()[1])}
        assert len(log_of(server)) <= 2 * 2000
        for transport in remote:
            await transport.close()


def _events(readers: list[asyncio.Task[tuple[int, int, list[bytes]]]]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in readers[0].result()[2]]


async def test_a_watch_that_falls_behind_in_process_is_told_that_its_place_is_gone() -> None:
    async with running(window=10) as server:
        transport = InProcessTransport(server.api)
        query = {"watch": "true", "resourceVersion": str(server.api.store.revision)}
        async with transport.watch(PATH, query=query) as stream:
            await transport.request("POST", PATH, body=body("first"))
            assert json.loads(await anext(stream))["type"] == "ADDED"
            for number in range(50):
                await transport.request("POST", PATH, body=body(f"c{number}"))
            event = json.loads(await anext(stream))
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            assert [line async for line in stream] == []


async def test_a_watch_that_does_not_read_its_socket_is_cut_off_and_nobody_waits_for_it() -> None:
    async with running(window=10) as server:
        lazy, busy = server.transport(), server.transport()
        query = {"watch": "true", "resourceVersion": str(server.api.store.revision)}
        async with lazy.watch(PATH, query=query) as stream:
            big = "x" * 500_000
            for number in range(60):
                answer = await busy.request("POST", PATH, body=body(f"c{number}", big))
                assert answer.status == 201
            assert await _ends(stream)
        await lazy.close()
        await busy.close()


async def _ends(stream: AsyncIterator[bytes]) -> bool:
    """Whether a stream ends before it told everything."""
    try:
        lines = [json.loads(line) async for line in stream]
    except ConnectionLost:
        return True
    return len(lines) < 60 or lines[-1]["type"] == "ERROR"


async def test_a_watch_from_outside_the_window_is_gone_at_once() -> None:
    async with running(window=5) as server:
        transport = server.transport()
        version = str(server.api.store.revision)
        for number in range(30):
            await transport.request("POST", PATH, body=body(f"c{number}"))
        try:
            async with transport.watch(PATH, query={"watch": "true", "resourceVersion": version}) as stream:
                events = [json.loads(line) async for line in stream]
            assert events[0]["object"]["code"] == 410
        except Gone:
            pass
        await transport.close()


async def test_stopping_the_server_ends_its_watches() -> None:
    async with running() as server:
        transport = server.transport()
        opened = asyncio.Event()

        async def follow() -> None:
            try:
                async with transport.watch(PATH, query={"watch": "true"}) as stream:
                    opened.set()
                    async for _ in stream:
                        pass
            except ConnectionLost:
                pass

        task = asyncio.get_running_loop().create_task(follow())
        await opened.wait()
    await asyncio.wait_for(task, 10)
    await transport.close()
