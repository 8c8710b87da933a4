"""When an event was last written, by what it says after a restart; and that it goes an hour after that."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import ObjectStore, StoreKey
from kubetide.embedded.sim.controllers.expiry import last_written
from kubetide.embedded.sim.housekeeping import housekeeping
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.embedded.sim.world import EVENTS

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PATH = "/api/v1/namespaces/default/events"


def event(*, created: str = "2026-03-01T11:00:00Z", managed: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "e", "creationTimestamp": created}
    if managed:
        metadata["managedFields"] = [{"manager": "m", "time": time} for time in managed]
    return {"metadata": metadata, **fields}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(event(), NOW - timedelta(hours=1), id="created-and-left-alone"),
        pytest.param(
            event(managed=("2026-03-01T11:40:00Z", "2026-03-01T11:10:00Z")),
            NOW - timedelta(minutes=20),
            id="the-last-manager-wrote-last",
        ),
        pytest.param(
            event(managed=("2026-03-01T11:00:00Z",), lastTimestamp="2026-03-01T11:59:00Z"),
            NOW - timedelta(hours=1),
            id="the-server-knows-better-than-the-client",
        ),
        pytest.param(
            event(lastTimestamp="2026-03-01T11:30:00Z"),
            NOW - timedelta(minutes=30),
            id="an-event-of-the-cluster-itself",
        ),
        pytest.param(
            event(eventTime="2026-03-01T11:01:00.000001Z", series={"lastObservedTime": "2026-03-01T11:45:00.000000Z"}),
            NOW - timedelta(minutes=15),
            id="a-series",
        ),
        pytest.param(event(lastTimestamp="2027-01-01T00:00:00Z"), NOW, id="the-future-is-now"),
        pytest.param(event(created="?", lastTimestamp=None, eventTime=7), NOW, id="nothing-that-can-be-read"),
    ],
)
def test_an_event_reports_when_it_was_last_written(found: dict[str, Any], expected: datetime) -> None:
    assert last_written(found, NOW) == expected


def restarted(api: ApiServer) -> ApiServer:
    """Return an API server that goes on with what another one has stored."""
    store = ObjectStore(revision=api.store.revision)
    for resource in api.store.resources():
        for entry in api.store.collection(resource).entries():
            store.restore(resource, entry.key, json.loads(entry.encoded), entry.revision)
    return ApiServer(clock=virtual_clock(), store=store)


async def send(api: ApiServer, method: str, path: str, body: dict[str, Any], kind: str = "application/json") -> None:
    answer = await api.handle(Request(method, path, body=json.dumps(body).encode(), content_type=kind))
    assert isinstance(answer, Answer)
    assert answer.status in (200, 201), answer.body


async def create(api: ApiServer, name: str) -> None:
    involved = {"kind": "Pod", "namespace": "default", "name": "p"}
    await send(api, "POST", PATH, {"metadata": {"name": name}, "involvedObject": involved, "reason": "Tested"})


def left(api: ApiServer) -> list[str]:
    return sorted(entry.key.name for entry in api.store.collection(EVENTS).entries())


def test_an_event_goes_an_hour_after_its_last_write_also_across_a_restart() -> None:
    async def main() -> list[list[str]]:
        first = ApiServer(clock=virtual_clock())
        seen = []
        async with housekeeping(first):
            await create(first, "written-once")
            await create(first, "written-again")
            await asyncio.sleep(1800)
            await send(first, "PATCH", f"{PATH}/written-again", {"count": 2}, "application/merge-patch+json")
        await asyncio.sleep(600)
        second = restarted(first)
        async with housekeeping(second):
            for minutes in (10, 15, 20, 20):
                await asyncio.sleep(minutes * 60)
                seen.append(left(second))
        return seen

    both = ["written-again", "written-once"]
    assert run_virtual(main()) == [both, ["written-again"], ["written-again"], []]


def test_what_is_overdue_at_a_restart_goes_at_once() -> None:
    async def main() -> list[str]:
        first = ApiServer(clock=virtual_clock())
        await create(first, "old")
        await asyncio.sleep(7200)
        second = restarted(first)
        assert second.store.get(EVENTS, StoreKey("default", "old")) is not None
        async with housekeeping(second):
            await asyncio.sleep(1)
            return left(second)

    assert run_virtual(main()) == []
