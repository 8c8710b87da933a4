"""An API server whose etcd was restored from an older backup: no error says so, and yet no ghost may stay."""

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import CONFIG_MAPS
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import ObjectStore, ResourceKey, StoreKey
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost, NotFound
from kubetide.kube.client.transport import Response

MAPS = ResourceKey("", "configmaps")
OTHERS = ResourceKey("", "secrets")
CHECK = timedelta(minutes=5)


class Cluster:
    """A transport to an API server that can be taken back to an earlier state; streams break or fall silent by it."""

    def __init__(self, serve: Callable[..., ApiServer] = ApiServer) -> None:
        self._serve = serve
        self.api = serve(clock=virtual_clock())
        self.requests: list[tuple[str, str, Mapping[str, str]]] = []
        self.answer: Callable[[str], Response | None] = lambda path: None
        self._inner = InProcessTransport(self.api)
        self._streams: list[asyncio.Timeout] = []
        self._cuts = True

    def put(self, name: str, value: str = "", resource: ResourceKey = MAPS) -> None:
        obj = {"metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"}, "data": {"v": value}}
        kind = {"apiVersion": "v1", "kind": "ConfigMap" if resource is MAPS else "Secret"}
        self.api.store.put(resource, StoreKey("default", name), {**kind, **obj})

    def backup(self) -> ObjectStore:
        """Return a copy of everything as it is now."""
        store = ObjectStore(revision=self.api.store.revision)
        for resource in self.api.store.resources():
            for entry in self.api.store.collection(resource).entries():
                store.restore(resource, entry.key, copy.deepcopy(entry.obj), entry.revision)
        return store

    def restore(self, backup: ObjectStore, *, cuts: bool = True) -> None:
        """Serve a backup from now on; without `cuts` streams stay open and say nothing any more."""
        self.api = self._serve(clock=virtual_clock(), store=backup)
        self._inner, self._cuts = InProcessTransport(self.api), cuts
        for scope in self._streams:
            scope.reschedule(asyncio.get_running_loop().time())

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        self.requests.append((method, path, parts.get("query") or {}))
        return self.answer(path) or await self._inner.request(method, path, **parts)

    @asynccontextmanager
    async def watch(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._inner.watch(path, query=query) as lines:
            yield self._until_restored(lines)

    async def _until_restored(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async with asyncio.timeout(None) as scope:
                self._streams.append(scope)
                async for line in lines:
                    yield line
        except TimeoutError:
            if not self._cuts:
                await asyncio.Event().wait()
            raise ConnectionLost("the server restarts") from None
        finally:
            self._streams.remove(scope)

    async def close(self) -> None:
        await self._inner.close()

    def names(self) -> set[str]:
        return {entry.key.name for entry in self.api.store.collection(MAPS).entries()}

    def checks(self) -> int:
        return sum(query.get("limit") == "1" for _, _, query in self.requests)


class Copy:
    """An informer on a cluster, and what its handlers heard."""

    def __init__(self, cluster: Cluster, *, check: timedelta = CHECK, **options: Any) -> None:
        self.client = Client(cluster, clock=virtual_clock(), rng=random.Random(1), cache_check=check)
        self.informer: Informer[ConfigMap] = Informer(self.client, CONFIG_MAPS, clock=virtual_clock(), **options)
        self.gone: list[str] = []
        self.informer.add_handler(lambda old, new: self.gone.append(old.metadata.name) if old and not new else None)

    def names(self) -> set[str]:
        return {each.metadata.name for each in self.informer.store}


Test = Callable[[Cluster, Copy], Awaitable[None]]


def run(test: Test, *, check: timedelta = CHECK, **options: Any) -> None:
    async def main() -> None:
        cluster = Cluster()
        for number in range(20):
            cluster.put(f"c{number}", "first")
        copied = Copy(cluster, check=check, **options)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(copied.informer.run())
            await copied.informer.wait_synced()
            await test(cluster, copied)
            running.cancel()

    run_virtual(main())


async def grow_and_restore(cluster: Cluster, *, passes: bool, cuts: bool) -> None:
    """Make five more objects and restore the state before; with `passes` the version goes beyond what was seen."""
    backup = cluster.backup()
    for number in range(5):
        cluster.put(f"ghost{number}")
    await asyncio.sleep(1)
    cluster.restore(backup, cuts=cuts)
    for number in range(50 if passes else 0):
        cluster.put(f"s{number}", resource=OTHERS)


@pytest.mark.parametrize("cuts", [True, False], ids=["streams-break", "streams-fall-silent"])
@pytest.mark.parametrize("passes", [True, False], ids=["version-passes", "version-stays-behind"])
def test_ghosts_leave_within_the_interval_of_checks(passes: bool, cuts: bool) -> None:
    async def test(cluster: Cluster, copied: Copy) -> None:
        await grow_and_restore(cluster, passes=passes, cuts=cuts)
        await asyncio.sleep(1.2 * CHECK.total_seconds() + 30)
        assert copied.names() == cluster.names()
        assert len(copied.names()) == 20
        assert sorted(copied.gone) == [f"ghost{number}" for number in range(5)]
        cluster.put("new")
        await asyncio.sleep(30)
        assert "new" in copied.names()

    run(test)


@pytest.mark.parametrize("subresource", ["", "/status"])
def test_a_404_for_an_object_that_is_held_leads_to_a_new_list(subresource: str) -> None:
    async def test(cluster: Cluster, copied: Copy) -> None:
        await grow_and_restore(cluster, passes=True, cuts=True)
        await asyncio.sleep(30)
        assert "ghost1" in copied.names(), "no stream tells"
        with pytest.raises(NotFound):
            await copied.client.request("GET", f"/api/v1/namespaces/default/configmaps/ghost1{subresource}")
        await asyncio.sleep(25)
        assert copied.names() == cluster.names()
        assert copied.informer.relists == 2

    run(test, check=timedelta(0))


def test_a_404_about_a_part_of_an_object_that_is_there_changes_nothing() -> None:
    async def test(cluster: Cluster, copied: Copy) -> None:
        for _ in range(10):
            with pytest.raises(NotFound):
                await copied.client.request("PATCH", "/api/v1/namespaces/default/configmaps/c1/status", body=b"{}")
            await asyncio.sleep(30)
        assert copied.informer.relists == 1

    run(test, check=timedelta(0))


def test_a_404_in_a_race_with_a_deletion_costs_no_list() -> None:
    async def test(cluster: Cluster, copied: Copy) -> None:
        cluster.api.store.delete(MAPS, StoreKey("default", "c1"))
        with pytest.raises(NotFound):
            await copied.client.get(CONFIG_MAPS, "c1", namespace="default")
        await asyncio.sleep(60)
        assert "c1" not in copied.names()
        assert copied.informer.relists == 1

    run(test, check=timedelta(0))


def test_other_objects_under_the_same_count_are_found_by_the_version_that_went_back() -> None:
    async def test(cluster: Cluster, copied: Copy) -> None:
        backup = cluster.backup()
        for number in range(5):
            cluster.put(f"ghost{number}")
        await asyncio.sleep(1)
        cluster.restore(backup, cuts=False)
        for number in range(3):
            cluster.put(f"new{number}")
        await asyncio.sleep(1.2 * CHECK.total_seconds() + 30)
        assert copied.names() == cluster.names()

    run(test)


def test_a_version_that_is_given_out_twice_hides_no_change() -> None:
    async def test(cluster: Cluster, copied: Copy) -> None:
        backup = cluster.backup()
        cluster.put("c1", "lost")
        cluster.put("ghost")
        await asyncio.sleep(1)
        cluster.restore(backup, cuts=False)
        cluster.put("c1", "kept")
        held = copied.informer.store.get(ObjectKey("default", "c1"))
        stored = cluster.api.store.get(MAPS, StoreKey("default", "c1"))
        assert held is not None
        assert stored is not None
        assert held.metadata.resource_version == stored.obj["metadata"]["resourceVersion"]
        await asyncio.sleep(1.2 * CHECK.total_seconds() + 30)
        held = copied.informer.store.get(ObjectKey("default", "c1"))
        assert held is not None
        assert held.data == {"v": "kept"}

    run(test)


@pytest.mark.parametrize("selector", ["", "metadata.namespace=default"])
def test_a_healthy_and_busy_server_is_never_listed_again(selector: str) -> None:
    async def test(cluster: Cluster, copied: Copy) -> None:
        rng = random.Random(3)
        for number in range(3600):
            cluster.put(f"busy{number}", str(number))
            if number >= 10:
                cluster.api.store.delete(MAPS, StoreKey("default", f"busy{number - 10}"))
            await asyncio.sleep(rng.uniform(0.0, 2.0))
        assert copied.informer.relists == 1
        assert 5 <= cluster.checks() <= 15
        assert copied.names() == cluster.names()

    run(test, field_selector=selector)


def test_a_check_that_is_refused_changes_nothing() -> None:
    async def test(cluster: Cluster, copied: Copy) -> None:
        refused = Response(500, {}, b'{"kind":"Status","code":500,"reason":"InternalError"}')
        cluster.answer = lambda path: refused
        await asyncio.sleep(3 * CHECK.total_seconds())
        assert len(copied.names()) == 20
        assert copied.informer.relists == 1

    run(test)
