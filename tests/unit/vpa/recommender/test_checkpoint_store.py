"""Checkpoint objects on the embedded API server: what is remembered of them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

from kubetide import crds
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import VPA_CHECKPOINTS
from kubetide.api.values.selectors import NOTHING
from kubetide.clock import Clock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import ADMIN
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.stats.saved import Saved
from kubetide.vpa.recommender.checkpoint_store import REFRESH, CheckpointStore, each
from kubetide.vpa.recommender.core.checkpoint import Checkpoint
from kubetide.vpa.recommender.core.entities import Restored, VpaState
from kubetide.vpa.recommender.core.oom import Floor


def web(name: str = "web") -> VpaState:
    return VpaState(ObjectKey("default", name), NOTHING)


def content(count: int = 3) -> Checkpoint:
    saved = Saved(0, {5: 10_000}, 1.0)
    return Checkpoint(container="main", cpu=saved, memory=saved, first=10**15, last=10**15, count=count)


def on_a_server(test: Callable[[Client, Clock], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = virtual_clock()
        api = ApiServer(clock=clock)
        api.insert(crds.load("verticalpodautoscalercheckpoints"))
        client = Client(InProcessTransport(api, user=ADMIN), clock=clock)
        try:
            await test(client, clock)
        finally:
            await client.close()

    run_virtual(main())


def made(client: Client, clock: Clock) -> CheckpointStore:
    return CheckpointStore(client, clock=clock, keep_for=timedelta(days=8))


class Later:
    """A clock that is ahead of another."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return self._clock.now() + self.ahead

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.ahead.total_seconds()


def test_kills_are_held_against_the_checkpoint_that_was_read_not_against_later_ones() -> None:
    async def test(client: Client, clock: Clock) -> None:
        before = web()
        await made(client, clock).write(before, [content()], {})
        assert before.checkpoints["main"].restored is None, "it started from none"
        later, vpa = Later(clock), web()
        store = made(client, later)
        (loaded,) = (await store.read("default", {"web": vpa}))["web"].loaded
        first = vpa.checkpoints["main"].restored
        assert first == Restored(loaded.updated, with_windows=True)
        later.ahead = timedelta(minutes=5)
        await store.write(vpa, [content(4)], {})
        # An OOM kill in these five minutes that a gap in the watch hid is in no checkpoint.
        assert vpa.checkpoints["main"].restored == first
        found = await client.get(VPA_CHECKPOINTS, "web-main", namespace="default")
        assert found.status is not None
        assert loaded.updated is not None
        assert found.status.last_update_time == loaded.updated + later.ahead

    on_a_server(test)


def test_content_counts_as_stored_for_an_hour_and_only_with_its_floor() -> None:
    async def test(client: Client, clock: Clock) -> None:
        later, vpa = Later(clock), web()
        store = made(client, later)
        one, floor = content(), Floor(5e8, clock.now())
        assert not store.holds(vpa, "main", one.mark, None)
        await store.write(vpa, [one], {})
        assert store.holds(vpa, "main", one.mark, None)
        assert not store.holds(vpa, "main", content(4).mark, None)
        assert not store.holds(vpa, "main", one.mark, floor)
        await store.write(vpa, [one], {"main": floor})
        assert store.holds(vpa, "main", one.mark, floor)
        later.ahead = REFRESH
        assert not store.holds(vpa, "main", one.mark, floor)

    on_a_server(test)


def test_of_two_containers_whose_checkpoints_have_one_name_the_first_keeps_it() -> None:
    async def test(client: Client, clock: Clock) -> None:
        store = made(client, clock)
        first, second = web("a"), web("a-b")
        await store.write(first, [replace(content(3), container="b-c")], {})
        await store.write(second, [replace(content(9), container="c")], {})
        found = await client.get(VPA_CHECKPOINTS, "a-b-c", namespace="default")
        assert (found.spec.vpa_object_name, found.spec.container_name) == ("a", "b-c")
        assert found.status is not None
        assert found.status.total_samples_count == 3
        loaded = await made(client, clock).read("default", {"a": web("a"), "a-b": web("a-b")})
        assert [one.content.container for one in loaded["a"].loaded] == ["b-c"]
        assert loaded["a-b"].loaded == ()

    on_a_server(test)


def test_what_vanished_meanwhile_does_not_keep_the_others_from_being_written() -> None:
    async def test(client: Client, clock: Clock) -> None:
        done: list[str] = []

        async def write(name: str) -> None:
            if name.startswith("gone"):
                await client.get(VPA_CHECKPOINTS, name, namespace="default")
            done.append(name)

        items = ["gone-1", "a", "gone-2", "b", "c"]
        rest = await each(items, 2, write, deadline=clock.monotonic() + 60, clock=clock)
        assert sorted(done) == ["a", "b", "c"]
        assert rest == []

    on_a_server(test)
