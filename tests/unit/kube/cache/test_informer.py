"""The informer: a local copy that survives everything a stream can do."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from faulty_api import EndOfStream, FaultPlan, FaultyApi, FaultyTransport
from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import CONFIG_MAPS
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.cache.handlers import Handler
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response

COLLECTION = "/api/v1/configmaps"


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, "labels": {"app": name[0]}}, "data": data}


def key(name: str) -> ObjectKey:
    return ObjectKey("shop", name)


class World:
    """A server, a client and an informer that runs."""

    def __init__(
        self, faults: FaultPlan | None = None, first: Handler[ConfigMap] | None = None, **options: Any
    ) -> None:
        self.api = FaultyApi()
        self.clock = virtual_clock()
        self.transport = FaultyTransport(self.api, faults)
        self.client = Client(self.transport, clock=self.clock)
        self.informer: Informer[ConfigMap] = Informer(self.client, CONFIG_MAPS, clock=self.clock, **options)
        self.seen: list[tuple[str | None, str | None]] = []
        if first is not None:
            self.informer.add_handler(first)
        self.informer.add_handler(lambda old, new: self.seen.append((_colour(old), _colour(new))))

    def put(self, name: str, **data: str) -> None:
        self.api.put(COLLECTION, config_map(name, **data))

    def contents(self) -> dict[str, dict[str, str]]:
        return {each.metadata.name: each.data or {} for each in self.informer.store.values()}

    def truth(self) -> dict[str, dict[str, str]]:
        return {key.name: raw["data"] for key, raw in self.api.objects(COLLECTION).items()}

    async def __aenter__(self) -> "World":
        self._group = asyncio.TaskGroup()
        group = await self._group.__aenter__()
        self._task = group.create_task(self.informer.run())
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._task.cancel()
        await self._group.__aexit__(*error)

    def requests(self, method: str) -> list[Mapping[str, str]]:
        return [query for verb, _, query, _ in self.api.requests if verb == method]


def _colour(item: ConfigMap | None) -> str | None:
    return (item.data or {}).get("colour", "") if item is not None else None


def test_the_store_is_filled_by_a_list_and_kept_by_a_watch() -> None:
    async def main() -> None:
        world = World()
        world.put("a", colour="red")
        assert not world.informer.has_synced
        async with world:
            await world.informer.wait_synced()
            assert world.contents() == {"a": {"colour": "red"}}
            world.put("b", colour="green")
            world.put("a", colour="blue")
            world.api.remove(COLLECTION, key("b"))
            await asyncio.sleep(1)
            assert world.contents() == {"a": {"colour": "blue"}}
            assert world.seen == [(None, "red"), (None, "green"), ("red", "blue"), ("green", None)]
            assert len(world.requests("GET")) == 1

    run_virtual(main())


def test_a_handler_added_later_hears_of_what_is_there() -> None:
    async def main() -> None:
        world = World()
        world.put("a", colour="red")
        async with world:
            await world.informer.wait_synced()
            heard: list[tuple[str | None, str | None]] = []
            world.informer.add_handler(lambda old, new: heard.append((_colour(old), _colour(new))))
            assert heard == [(None, "red")]

    run_virtual(main())


def test_objects_are_found_by_index() -> None:
    async def main() -> None:
        world = World(indexes={"app": lambda each: [(each.metadata.labels or {}).get("app", "")]})
        world.put("a1")
        world.put("a2")
        world.put("b1")
        async with world:
            await world.informer.wait_synced()
            found = world.informer.store.by_index("app", "a")
            assert sorted(each.metadata.name for each in found) == ["a1", "a2"]

    run_virtual(main())


def test_a_server_that_is_down_at_start_is_waited_for() -> None:
    class DownFor(FaultPlan):
        def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
            if asyncio.get_running_loop().time() < 60:
                raise ConnectionLost("connection refused")
            return None

    async def main() -> None:
        world = World(DownFor())
        world.put("a", colour="red")
        async with world:
            await asyncio.sleep(59)
            assert not world.informer.has_synced
            assert world.informer.staleness() is None
            await world.informer.wait_synced()
            assert world.contents() == {"a": {"colour": "red"}}
            # Delays grow: a server that is away is not hammered.
            assert len(world.requests("GET")) < 12

    run_virtual(main())


def test_a_stream_that_breaks_is_resumed_without_a_new_list() -> None:
    class BreaksEvery(FaultPlan):
        count = 0

        def lines(self, line: bytes) -> Iterable[bytes | Exception]:
            self.count += 1
            return (line,) if self.count % 30 else (ConnectionLost("reset by peer"),)

    async def main() -> None:
        world = World(BreaksEvery())
        async with world:
            await world.informer.wait_synced()
            for index in range(200):
                world.put(f"c{index}", colour=str(index))
                await asyncio.sleep(1)
            await asyncio.sleep(120)
            assert world.contents() == world.truth()
            assert world.informer.relists == 1
            assert len(world.requests("WATCH")) > 5

    run_virtual(main())


def test_streams_that_break_before_they_get_anywhere_lead_to_a_new_list() -> None:
    class BreaksEveryThird(FaultPlan):
        count = 0

        def lines(self, line: bytes) -> Iterable[bytes | Exception]:
            self.count += 1
            return (line,) if self.count % 3 else (ConnectionLost("reset by peer"),)

    async def main() -> None:
        world = World(BreaksEveryThird())
        async with world:
            await world.informer.wait_synced()
            for index in range(20):
                world.put(f"c{index}", colour=str(index))
                await asyncio.sleep(5)
            await asyncio.sleep(120)
            assert world.contents() == world.truth()
            assert 1 < world.informer.relists < 20

    run_virtual(main())


def test_a_version_that_is_too_old_leads_to_a_new_list() -> None:
    class BreaksOnce(FaultPlan):
        broken = False

        def lines(self, line: bytes) -> Iterable[bytes | Exception]:
            if not self.broken:
                self.broken = True
                world.api.remove(COLLECTION, key("a"))
                world.put("c", colour="new")
                world.api.forget_history()
                return (ConnectionLost("gone for a while"),)
            return (line,)

    world: World

    async def main() -> None:
        nonlocal world
        world = World(BreaksOnce())
        world.put("a", colour="red")
        async with world:
            await world.informer.wait_synced()
            world.put("b", colour="blue")
            await asyncio.sleep(60)
            assert world.contents() == {"b": {"colour": "blue"}, "c": {"colour": "new"}}
            assert world.informer.relists == 2
            assert ("red", None) in world.seen

    run_virtual(main())


def test_a_line_that_is_no_event_leads_to_a_new_list() -> None:
    class GarblesOnce(FaultPlan):
        done = False

        def lines(self, line: bytes) -> Iterable[bytes | Exception]:
            if self.done:
                return (line,)
            self.done = True
            return (line[: len(line) // 2],)

    async def main() -> None:
        world = World(GarblesOnce())
        async with world:
            await world.informer.wait_synced()
            world.put("a", colour="red")
            await asyncio.sleep(30)
            assert world.contents() == world.truth()
            assert world.informer.relists == 2

    run_virtual(main())


def test_what_comes_twice_or_late_changes_nothing() -> None:
    class RepeatsAll(FaultPlan):
        def __init__(self) -> None:
            self.past: list[bytes] = []

        def lines(self, line: bytes) -> Iterable[bytes | Exception]:
            if b"BOOKMARK" not in line:
                self.past.append(line)
            return (line, *self.past, *reversed(self.past))

    async def main() -> None:
        world = World(RepeatsAll())
        async with world:
            await world.informer.wait_synced()
            world.put("a", colour="red")
            world.put("a", colour="blue")
            world.put("b", colour="green")
            world.api.remove(COLLECTION, key("a"))
            world.put("b", colour="grey")
            await asyncio.sleep(200)
            assert world.contents() == {"b": {"colour": "grey"}}
            assert world.seen == [(None, "red"), ("red", "blue"), (None, "green"), ("blue", None), ("green", "grey")]

    run_virtual(main())


def test_an_unreadable_object_leaves_the_last_good_one_in_force() -> None:
    async def main() -> None:
        world = World()
        world.put("a", colour="red")
        async with world:
            await world.informer.wait_synced()
            bad = {"metadata": {"namespace": "shop", "name": "a"}, "data": ["not", "a", "map"]}
            world.api.put(COLLECTION, bad)
            world.put("b", colour="green")
            await asyncio.sleep(1)
            assert world.contents() == {"a": {"colour": "red"}, "b": {"colour": "green"}}
            assert list(world.informer.rejected) == [key("a")]
            assert world.informer.relists == 1
            world.put("a", colour="blue")
            await asyncio.sleep(1)
            assert world.contents()["a"] == {"colour": "blue"}
            assert world.informer.rejected == {}

    run_virtual(main())


def test_an_unreadable_object_that_is_deleted_goes() -> None:
    async def main() -> None:
        world = World()
        world.put("a", colour="red")
        async with world:
            await world.informer.wait_synced()
            world.api.put(COLLECTION, {"metadata": {"namespace": "shop", "name": "a"}, "data": 3})
            world.api.remove(COLLECTION, key("a"))
            await asyncio.sleep(1)
            assert world.contents() == {}
            assert world.informer.rejected == {}

    run_virtual(main())


def test_a_handler_that_fails_does_not_stop_the_others() -> None:
    def fails(old: ConfigMap | None, new: ConfigMap | None) -> None:
        raise RuntimeError("bug")

    async def main() -> None:
        world = World(first=fails)
        world.put("a", colour="red")
        async with world:
            await world.informer.wait_synced()
            assert world.seen == [(None, "red")]

    run_virtual(main())


def test_a_resync_repeats_what_is_known() -> None:
    async def main() -> None:
        world = World(resync=timedelta(seconds=30))
        world.put("a", colour="red")
        async with world:
            await asyncio.sleep(65)
            assert world.seen == [(None, "red"), ("red", "red"), ("red", "red")]

    run_virtual(main())


def test_staleness_shows_how_long_the_server_has_been_silent() -> None:
    class SilentAfter(FaultPlan):
        def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
            if asyncio.get_running_loop().time() > 100:
                raise ConnectionLost("partitioned")
            return None

        def lines(self, line: bytes) -> Iterable[bytes | Exception]:
            return (line,) if asyncio.get_running_loop().time() <= 100 else (ConnectionLost("partitioned"),)

    async def main() -> None:
        world = World(SilentAfter())
        async with world:
            await asyncio.sleep(90)
            assert (world.informer.staleness() or timedelta.max) <= timedelta(seconds=60)
            await asyncio.sleep(600)
            assert (world.informer.staleness() or timedelta(0)) > timedelta(minutes=5)

    run_virtual(main())


def test_a_storm_of_rejections_ends_in_the_servers_state_without_a_storm_of_lists() -> None:
    class Storm(FaultPlan):
        def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
            if 10 < asyncio.get_running_loop().time() < 200:
                body = json.dumps({"kind": "Status", "code": 500, "reason": "InternalError"})
                return Response(500, {}, body.encode())
            return None

        def lines(self, line: bytes) -> Iterable[bytes | Exception]:
            return (line,) if not 10 < asyncio.get_running_loop().time() < 200 else (ConnectionLost("reset"),)

    async def main() -> None:
        world = World(Storm())
        world.put("a", colour="red")
        async with world:
            for index in range(50):
                world.put(f"c{index}", colour=str(index))
                await asyncio.sleep(6)
            await asyncio.sleep(60)
            assert world.contents() == world.truth()
            assert world.informer.relists <= 3
            assert len(world.api.requests) < 40

    run_virtual(main())


def test_a_list_that_fails_takes_nothing_away() -> None:
    class Down(FaultPlan):
        def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
            if asyncio.get_running_loop().time() < 10:
                return None
            gone = query.get("watch") == "true"
            status = {"kind": "Status", "code": 410, "reason": "Expired"} if gone else {"kind": "Status", "code": 500}
            return Response(410 if gone else 500, {}, json.dumps(status).encode())

        def lines(self, line: bytes) -> Iterable[bytes | Exception]:
            return (line,) if asyncio.get_running_loop().time() < 10 else (ConnectionLost("reset"),)

    async def main() -> None:
        world = World(Down())
        world.put("a", colour="red")
        async with world:
            await world.informer.wait_synced()
            await asyncio.sleep(15)
            world.put("b", colour="blue")
            await asyncio.sleep(600)
            assert world.contents() == {"a": {"colour": "red"}}
            assert world.seen == [(None, "red")]
            assert len(world.requests("GET")) > 3

    run_virtual(main())


def test_streams_that_end_at_once_are_not_opened_in_a_tight_loop() -> None:
    class Ends(FaultPlan):
        def lines(self, line: bytes) -> Iterable[bytes | Exception]:
            return (EndOfStream(),)

    async def main() -> None:
        world = World(Ends())
        async with world:
            for number in range(6000):
                world.put("a", count=str(number))
                await asyncio.sleep(0.01)
            assert len(world.requests("WATCH")) <= 125

    run_virtual(main())


def test_streams_that_end_after_what_is_known_neither_spin_nor_hide_a_change() -> None:
    class EndsAfterOneLine(FaultPlan):
        def lines(self, line: bytes) -> Iterable[bytes | Exception]:
            return (line, EndOfStream())

    async def main() -> None:
        world = World(EndsAfterOneLine())
        async with world:
            await world.informer.wait_synced()
            for name in ("a", "b", "c"):
                world.put(name)
            await asyncio.sleep(60)
            assert world.contents() == world.truth()
            assert len(world.requests("WATCH")) <= 125

    run_virtual(main())


@pytest.mark.parametrize("namespace", [None, "shop"])
def test_selectors_and_namespace_go_to_list_and_watch(namespace: str | None) -> None:
    async def main() -> None:
        world = World(namespace=namespace, label_selector="app=web", field_selector="metadata.name=a")
        async with world:
            await world.informer.wait_synced()
            await asyncio.sleep(1)
            path = f"/api/v1/namespaces/{namespace}/configmaps" if namespace else COLLECTION
            assert {each[1] for each in world.api.requests} == {path}
            for verb in ("GET", "WATCH"):
                query = world.requests(verb)[0]
                assert query["labelSelector"] == "app=web"
                assert query["fieldSelector"] == "metadata.name=a"

    run_virtual(main())


def test_an_object_that_cannot_be_indexed_does_not_hide_the_others() -> None:
    async def main() -> None:
        world = World(indexes={"colour": lambda each: [(each.data or {})["colour"]]})
        world.put("a", colour="red")
        world.put("b", size="xl")
        async with world:
            await world.informer.wait_synced()
            assert list(world.contents()) == ["a"]
            assert list(world.informer.rejected) == [key("b")]

    run_virtual(main())


def test_objects_are_slimmed_before_they_are_kept() -> None:
    async def main() -> None:
        world = World(slim=lambda each: ConfigMap(metadata=each.metadata))
        world.put("a", colour="red")
        async with world:
            await world.informer.wait_synced()
            world.put("b", colour="blue")
            await asyncio.sleep(1)
            assert world.contents() == {"a": {}, "b": {}}
            assert world.informer.relists == 1

    run_virtual(main())
