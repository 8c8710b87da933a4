"""Faults on purpose, bookmarks and silence: what a bad day looks like from inside the loop."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from kubetide.embedded.apiserver.faults import Faults
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.errors import RequestTimeout

Raw = dict[str, Any]
PATH = "/api/v1/namespaces/default/configmaps"


def run(test: Callable[[ApiServer, InProcessTransport], Awaitable[None]]) -> None:
    async def main() -> None:
        api = ApiServer(clock=virtual_clock())
        await test(api, InProcessTransport(api))

    run_virtual(main())


async def make(transport: InProcessTransport, name: str) -> int:
    body = json.dumps({"metadata": {"name": name}}).encode()
    return (await transport.request("POST", PATH, body=body)).status


async def change(transport: InProcessTransport, name: str, value: str) -> int:
    body = json.dumps({"data": {"v": value}}).encode()
    answer = await transport.request("PATCH", f"{PATH}/{name}", body=body, content_type="application/merge-patch+json")
    return answer.status


@pytest.mark.parametrize(
    ("faults", "meddle"),
    [
        pytest.param(Faults(), False, id="none"),
        pytest.param(Faults(dropped=1.0, frozen=True, skew=timedelta(1)), False, id="of-watches-and-clocks"),
        pytest.param(Faults(errors={"get": 0.5}), True, id="errors"),
        pytest.param(Faults(conflicts=0.5), True, id="conflicts"),
        pytest.param(Faults(latency=timedelta(seconds=1)), True, id="latency"),
    ],
)
def test_requests_are_looked_at_only_if_a_fault_may_hit_them(faults: Faults, meddle: bool) -> None:
    assert faults.meddle is meddle


def test_errors_hit_the_verbs_and_resources_they_are_meant_for() -> None:
    async def main(api: ApiServer, transport: InProcessTransport) -> None:
        api.faults.errors = {"create": 1.0}
        assert await make(transport, "a") == 500
        assert (await transport.request("GET", PATH)).status == 200
        api.faults.resources = frozenset(["pods"])
        assert await make(transport, "a") == 201

    run(main)


def test_a_conflict_storm_refuses_every_change() -> None:
    async def main(api: ApiServer, transport: InProcessTransport) -> None:
        assert await make(transport, "a") == 201
        api.faults.conflicts = 1.0
        assert await change(transport, "a", "1") == 409
        api.faults.conflicts = 0.0
        assert await change(transport, "a", "1") == 200

    run(main)


def test_latency_takes_virtual_time_and_runs_into_timeouts() -> None:
    async def main(api: ApiServer, transport: InProcessTransport) -> None:
        api.faults.latency = timedelta(seconds=10)
        begin = api.clock.monotonic()
        assert await make(transport, "a") == 201
        assert api.clock.monotonic() - begin == pytest.approx(10)
        with pytest.raises(RequestTimeout):
            await transport.request("GET", PATH, timeout=1)

    run(main)


def test_a_skewed_clock_shows_in_creation_times_only() -> None:
    async def main(api: ApiServer, transport: InProcessTransport) -> None:
        api.faults.skew = timedelta(hours=2)
        await make(transport, "a")
        body = json.loads((await transport.request("GET", f"{PATH}/a")).body)
        assert body["metadata"]["creationTimestamp"] == "2026-01-05T02:00:00Z"

    run(main)


@pytest.mark.parametrize(("fault", "expected"), [("dropped", 0), ("repeated", 20)])
def test_watch_events_are_lost_or_told_twice(fault: str, expected: int) -> None:
    async def main(api: ApiServer, transport: InProcessTransport) -> None:
        query = {"watch": "true", "timeoutSeconds": "5", "resourceVersion": str(api.store.revision)}
        setattr(api.faults, fault, 1.0)
        async with transport.watch(PATH, query=query) as lines:
            for number in range(10):
                await make(transport, f"c{number}")
            assert len([line async for line in lines]) == expected

    run(main)


def test_a_frozen_watch_is_silent_and_catches_up_when_it_thaws() -> None:
    async def main(api: ApiServer, transport: InProcessTransport) -> None:
        query = {"watch": "true", "resourceVersion": str(api.store.revision)}
        async with transport.watch(PATH, query=query) as lines:
            api.faults.frozen = True
            await make(transport, "a")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(300):
                    await anext(lines)
        async with transport.watch(PATH, query=query) as lines, asyncio.TaskGroup() as group:
            task = group.create_task(_first(lines))
            await asyncio.sleep(300)
            assert not task.done()
            api.thaw()
        assert json.loads(task.result())["type"] == "ADDED"

    run(main)


async def _first(lines: AsyncIterator[bytes]) -> bytes:
    return await anext(lines)


def test_bookmarks_come_every_minute_and_at_the_end() -> None:
    async def main(api: ApiServer, transport: InProcessTransport) -> None:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "150",
            "resourceVersion": str(api.store.revision),
        }
        begin = api.clock.monotonic()
        times: list[float] = []
        async with transport.watch(PATH, query=query) as lines:
            async for line in lines:
                event = json.loads(line)
                assert event["type"] == "BOOKMARK"
                assert event["object"]["metadata"]["resourceVersion"] == str(api.store.revision)
                times.append(round(api.clock.monotonic() - begin))
        assert times == [60, 120, 150]

    run(main)


def test_a_watch_gives_back_everything_when_it_is_closed() -> None:
    async def main(api: ApiServer, transport: InProcessTransport) -> None:
        from kubetide.embedded.apiserver.storage.objects import ResourceKey

        log = api.store.collection(ResourceKey("", "configmaps")).log
        for _ in range(5):
            async with transport.watch(PATH, query={"watch": "true"}) as lines:
                await make(transport, f"c{log.end}")
                await anext(lines)
        assert not log._listeners

    run(main)


def test_the_audit_hears_of_every_request() -> None:
    async def main() -> None:
        heard: list[tuple[str, int]] = []
        api = ApiServer(clock=virtual_clock(), audit=lambda request, status: heard.append((request.method, status)))
        transport = InProcessTransport(api)
        await make(transport, "a")
        await make(transport, "a")
        assert heard == [("POST", 201), ("POST", 409)]

    run_virtual(main())
