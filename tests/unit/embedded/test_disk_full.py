"""A full disk under the journal: what is not durable is not visible, and all is well again when there is room."""

import asyncio
import errno
import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.audit import AuditLog
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.journal import Journal, Statement
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock

PATH = "/api/v1/namespaces/default/configmaps"
CONFIGS = ResourceKey("", "configmaps")
PODS = ResourceKey("", "pods")
ACCOUNTS = ResourceKey("", "serviceaccounts")
ENOSPC = OSError(errno.ENOSPC, "No space left on device")
Raw = dict[str, Any]


class Disk(Journal):
    """A journal on a disk that fails when told to."""

    error: Exception | None = None

    def _transact(self, statements: Sequence[Statement]) -> None:
        if self.error is not None:
            raise self.error
        super()._transact(statements)


@dataclass
class Server:
    api: ApiServer

    async def ask(self, method: str, path: str, body: Raw | None = None) -> tuple[int, Any]:
        encoded = json.dumps(body).encode() if body is not None else None
        answer = await self.api.handle(Request(method, path, body=encoded))
        assert isinstance(answer, Answer)
        text = answer.body.decode()
        return answer.status, json.loads(text) if text.startswith("{") else text

    async def create(self, name: str) -> tuple[int, Any]:
        return await self.ask("POST", PATH, {"metadata": {"name": name}, "data": {"v": name}})

    async def names(self) -> list[str]:
        _, listed = await self.ask("GET", PATH)
        return [item["metadata"]["name"] for item in listed["items"]]


@asynccontextmanager
async def server(data: Path) -> AsyncIterator[tuple[Server, Disk]]:
    journal = Disk(data, clock=virtual_clock())
    api = ApiServer(clock=SystemClock(), seed=None, store=journal.load())
    journal.start()
    try:
        yield Server(api), journal
    finally:
        await journal.close()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(ENOSPC, 507, id="no-space"),
        pytest.param(sqlite3.OperationalError("disk I/O error"), 500, id="another-failure"),
    ],
)
def test_a_write_that_is_not_durable_is_not_visible(tmp_path: Path, error: Exception, code: int) -> None:
    async def main() -> None:
        async with server(tmp_path) as (one, disk):
            assert (await one.create("before"))[0] == 201
            revision, seen = one.api.store.revision, len(one.api.store.collection(CONFIGS).log)
            disk.error = error
            changed = {"metadata": {"name": "before"}, "data": {"v": "changed"}}
            for method, path, body in (
                ("POST", PATH, {"metadata": {"name": "lost"}}),
                ("PUT", f"{PATH}/before", changed),
                ("DELETE", f"{PATH}/before", None),
            ):
                status, told = await one.ask(method, path, body)
                assert (status, told["code"]) == (code, code)
                assert str(error) in told["message"]
            assert await one.names() == ["before"]
            assert (await one.ask("GET", f"{PATH}/before"))[1]["data"] == {"v": "before"}
            assert (one.api.store.revision, len(one.api.store.collection(CONFIGS).log)) == (revision, seen)
        async with server(tmp_path) as (again, _):
            assert await again.names() == ["before"]

    run_virtual(main())


def test_a_database_that_may_not_grow_is_such_a_disk(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as (one, disk):
            database = disk._database
            pages = database.execute("PRAGMA page_count").fetchone()[0]
            database.execute(f"PRAGMA max_page_count={pages}")
            body = {"metadata": {"name": "big"}, "data": {"v": "x" * 500_000}}
            status, told = await one.ask("POST", PATH, body)
            assert (status, told["reason"]) == (507, "InsufficientStorage")
            assert "database or disk is full" in told["message"]
            assert await one.names() == []
            database.execute("PRAGMA max_page_count=100000")
            disk._retry()
            assert (await one.ask("POST", PATH, body))[0] == 201

    run_virtual(main())


def test_the_server_is_not_ready_until_there_is_room_and_recovers_by_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as (one, disk):
            assert await one.ask("GET", "/readyz") == (200, "ok")
            disk.error = ENOSPC
            await one.create("lost")
            status, text = await one.ask("GET", "/readyz")
            assert status == 500
            assert "No space left on device" in text
            assert (await one.ask("GET", "/livez"))[0] == 200
            await asyncio.sleep(30)
            assert (await one.ask("GET", "/readyz"))[0] == 500
            disk.error = None
            await asyncio.sleep(2)
            assert await one.ask("GET", "/readyz") == (200, "ok")
            assert (await one.create("after"))[0] == 201
        async with server(tmp_path) as (again, _):
            assert await again.names() == ["after"]

    run_virtual(main())


def test_what_the_cluster_derives_goes_on_and_is_durable_once_there_is_room(tmp_path: Path) -> None:
    pod: Raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    key = StoreKey("default", "p")

    async def main() -> None:
        async with server(tmp_path) as (one, disk):
            store = one.api.store
            store.put(PODS, key, {**pod, "metadata": dict(pod["metadata"])})
            disk.error = ENOSPC
            for phase in ("Pending", "Running"):
                store.put(
                    PODS, key, {**pod, "metadata": dict(pod["metadata"]), "status": {"phase": phase}}, derived=True
                )
            assert (await one.create("lost"))[0] == 507
            disk.error = None
            await asyncio.sleep(2)
        async with server(tmp_path) as (again, _):
            entry = again.api.store.get(PODS, key)
            assert entry is not None
            assert entry.obj["status"] == {"phase": "Running"}
            assert await again.names() == []

    run_virtual(main())


def test_what_was_derived_and_lost_is_derived_again_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with server(tmp_path) as (one, _):
            assert (await one.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}}))[0] == 201
            one.api.store.delete(ACCOUNTS, StoreKey("shop", "default"))
        async with server(tmp_path) as (again, _):
            assert again.api.store.get(ACCOUNTS, StoreKey("shop", "default")) is not None

    run_virtual(main())


def test_one_line_a_minute_reports_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with server(tmp_path) as (one, disk):
            disk.error = ENOSPC
            for _ in range(170):
                await one.create("lost")
                await asyncio.sleep(1)
            disk.error = None
            await asyncio.sleep(2)

    with caplog.at_level(logging.INFO, logger="kubetide.apiserver"):
        run_virtual(main())
    lines = [record.message for record in caplog.records if "journal" in record.message]
    assert lines == ["the journal cannot be written, changes are refused"] * 3 + ["the journal can be written again"]


async def test_a_request_is_answered_though_its_audit_line_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    with AuditLog(Path("/dev/full"), SystemClock()) as audit:
        one = Server(ApiServer(clock=SystemClock(), audit=audit))
        assert (await one.create("a"))[0] == 201
        assert (await one.create("b"))[0] == 201
    assert [record.message for record in caplog.records] == ["the audit log cannot be written, lines are missing"]
