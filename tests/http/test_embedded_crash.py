"""A server that is killed in the middle of many writes loses none that it acknowledged, and repeats no revision.

The server runs in a process of its own, forked from one that has everything imported, so that twenty rounds of
starting and killing cost seconds.
"""

import asyncio
import json
import multiprocessing
import random
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import aiohttp
import pytest

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.journal import Journal
from kubetide.errors import InvalidInput

ROUNDS = 20
CONNECTIONS = 50
CROWDED_ROUNDS = (3, 13)
"""Rounds in which every write has a connection of its own: as hard on the server, and slow to set up."""
WRITES = 1000
PATH = "/api/v1/namespaces/default/configmaps"

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    ["kubetide.embedded.apiserver.http", "kubetide.embedded.apiserver.storage.journal", __name__]
)


def serve_until_killed(data: Path, ready: Connection) -> None:
    """The server process: plain HTTP on a free port, everything journaled."""

    async def main() -> None:
        journal = Journal(data)
        api = ApiServer(clock=SystemClock(), seed=None, store=journal.load())
        journal.start()
        async with serve(api, anonymous=True) as serving:
            ready.send(serving.url)
            await asyncio.Event().wait()

    asyncio.run(main())


@contextmanager
def server(data: Path) -> Iterator[tuple[str, multiprocessing.process.BaseProcess]]:
    ours, theirs = _processes.Pipe(duplex=False)
    process = _processes.Process(target=serve_until_killed, args=(data, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv(), process
    finally:
        process.kill()
        process.join()
        ours.close()


class Ledger:
    """What was acknowledged: name to value and revision, and every revision ever seen."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[str, int]] = {}
        self.unsure: set[str] = set()
        """Names with a write that was never answered: either state is right."""
        self.revisions: set[int] = set()

    def acknowledge(self, name: str, value: str, revision: int) -> None:
        assert revision not in self.revisions, f"revision {revision} was given twice"
        self.revisions.add(revision)
        self.objects[name] = (value, revision)


async def write_until_killed(
    url: str, process: multiprocessing.process.BaseProcess, ledger: Ledger, kill_after: int, turn: int
) -> None:
    """Write from many connections at once; kill the server after so many acknowledgements."""
    acknowledged = 0
    work = iter(range(WRITES))

    async def write_some(session: aiohttp.ClientSession) -> None:
        nonlocal acknowledged
        for number in work:
            name, value = f"c{number}", f"{turn}-{number}"
            known = name in ledger.objects and name not in ledger.unsure
            document = {"metadata": {"name": name}, "data": {"value": value}}
            ledger.unsure.add(name)
            try:
                if known:
                    request = session.put(f"{url}{PATH}/{name}", json=document)
                else:
                    request = session.post(url + PATH, json=document)
                async with request as answer:
                    body = await answer.json()
            except aiohttp.ClientError:
                return
            if answer.status in (200, 201):
                ledger.unsure.discard(name)
                ledger.acknowledge(name, value, int(body["metadata"]["resourceVersion"]))
                acknowledged += 1
                if acknowledged == kill_after:
                    process.kill()
            elif answer.status == 409 and not known:
                ledger.unsure.discard(name)

    unlimited = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=unlimited) as session, asyncio.TaskGroup() as group:
        for _ in range(WRITES if turn in CROWDED_ROUNDS else CONNECTIONS):
            group.create_task(write_some(session))
    assert acknowledged >= kill_after


async def check(url: str, ledger: Ledger) -> None:
    """Everything acknowledged is there, as it was acknowledged."""
    async with aiohttp.ClientSession() as session, session.get(url + PATH) as answer:
        listed = json.loads(await answer.read())
    stored = {
        item["metadata"]["name"]: (item["data"]["value"], int(item["metadata"]["resourceVersion"]))
        for item in listed["items"]
    }
    assert int(listed["metadata"]["resourceVersion"]) > max(ledger.revisions, default=0)
    for name, acknowledged in ledger.objects.items():
        assert name in stored, f"{name} was acknowledged and is gone"
        if name not in ledger.unsure:
            assert stored[name] == acknowledged
        else:
            assert stored[name][1] >= acknowledged[1]
    for name, state in stored.items():
        ledger.objects[name] = state
        ledger.revisions.add(state[1])
    ledger.unsure.clear()


async def test_no_acknowledged_write_is_lost_in_twenty_kills(tmp_path: Path) -> None:
    ledger = Ledger()
    rng = random.Random(7)
    for turn in range(ROUNDS):
        with server(tmp_path / "data") as (url, process):
            await check(url, ledger)
            await write_until_killed(url, process, ledger, rng.randrange(50, 600), turn)
    with server(tmp_path / "data") as (url, _):
        await check(url, ledger)
    assert len(ledger.revisions) > ROUNDS * 50


def test_a_directory_serves_one_server_at_a_time(tmp_path: Path) -> None:
    first = Journal(tmp_path / "data")
    with pytest.raises(InvalidInput, match="another server uses this directory"):
        Journal(tmp_path / "data")
    asyncio.run(first.close())
    asyncio.run(Journal(tmp_path / "data").close())
