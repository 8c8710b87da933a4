"""The journal: what was durable is there after a restart, at a revision never given before."""

import asyncio
from pathlib import Path
from typing import Any

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.identity import make_identity
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.journal import Journal
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey

CONFIGS = ResourceKey("", "configmaps")
KEY = StoreKey("default", "one")


def config(value: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "one", "namespace": "default"},
        "data": {"v": value},
    }


async def session(data: Path, *values: str | None) -> tuple[dict[str, Any] | None, int, int]:
    """Open, say what is there, write or delete, close; return the state found and the first and last revision."""
    journal = Journal(data)
    api = ApiServer(clock=SystemClock(), seed=None, store=journal.load())
    journal.start()
    found = api.store.get(CONFIGS, KEY)
    first = api.store.revision
    for value in values:
        if value is None:
            api.store.delete(CONFIGS, KEY)
        else:
            api.store.put(CONFIGS, KEY, config(value))
    last = api.store.revision
    await journal.close()
    return (found.obj if found is not None else None), first, last


async def test_what_was_durable_is_there_after_a_restart(tmp_path: Path) -> None:
    found, _, last = await session(tmp_path, "1", "2")
    assert found is None
    found, first, _ = await session(tmp_path, None)
    assert found is not None
    assert (found["data"], found["metadata"]["resourceVersion"]) == ({"v": "2"}, str(last))
    assert first > last
    found, _, _ = await session(tmp_path)
    assert found is None


async def test_revisions_grow_over_restarts_even_without_writes(tmp_path: Path) -> None:
    firsts = [(await session(tmp_path))[1] for _ in range(3)]
    assert firsts == sorted(set(firsts))


async def test_bootstrap_objects_are_made_once(tmp_path: Path) -> None:
    uids = []
    for _ in range(2):
        journal = Journal(tmp_path)
        api = ApiServer(clock=SystemClock(), seed=None, store=journal.load())
        journal.start()
        entry = api.store.get(ResourceKey("", "namespaces"), StoreKey("", "default"))
        assert entry is not None
        uids.append(entry.obj["metadata"]["uid"])
        await journal.close()
    assert uids[0] == uids[1]


def test_an_identity_is_kept_with_the_data(tmp_path: Path) -> None:
    now = SystemClock().now()
    journal = Journal(tmp_path)
    first = make_identity(journal, now=now)
    assert make_identity(journal, now=now) == first
    assert make_identity(None, now=now) != first
    asyncio.run(journal.close())
