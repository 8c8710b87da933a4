"""A cache of a part of a cluster that becomes another part."""

import asyncio

import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import CONFIG_MAPS
from kubetide.api.values.shard_selector import NAMESPACE, ShardSelector, shard_of
from kubetide.embedded.apiserver.gates import DEFAULT_GATES, SHARDED_LIST_AND_WATCH
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import identify

COLLECTION = "/api/v1/configmaps"
NOTHING, HALF, WHOLE = ShardSelector(()), shard_of(0, 2, NAMESPACE), shard_of(0, 1, NAMESPACE)
MINE, OTHER = ObjectKey("shop", "a"), ObjectKey("b", "a")


@pytest.mark.parametrize("gates", [frozenset(), frozenset({SHARDED_LIST_AND_WATCH})], ids=["on-arrival", "by-server"])
def test_a_cache_follows_the_shard_that_is_selected(gates: frozenset[str]) -> None:
    async def main() -> None:
        api, clock = FaultyApi(), virtual_clock()
        api.server = ApiServer(clock=clock, gates=DEFAULT_GATES | gates)
        informer = Informer(Client(FaultyTransport(api), clock=clock), CONFIG_MAPS, clock=clock, shard=NOTHING)
        heard: list[tuple[bool, bool]] = []
        informer.add_handler(lambda old, new: heard.append((old is not None, new is not None)))

        def paint(colour: str) -> None:
            for namespace, name in (MINE, OTHER):
                api.put(COLLECTION, {"metadata": {"namespace": namespace, "name": name}, "data": {"colour": colour}})

        def held() -> dict[ObjectKey, str]:
            return {identify(each)[0]: (each.data or {})["colour"] for each in informer.store.values()}

        paint("red")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(informer.run())
            await informer.wait_synced()
            await asyncio.sleep(5)
            assert (held(), informer.relists) == ({}, 0)
            steps = [(HALF, {MINE}), (WHOLE, {MINE, OTHER}), (HALF, {MINE}), (NOTHING, set()), (HALF, {MINE})]
            for number, (selected, expected) in enumerate(steps):
                informer.select(selected)
                assert held().keys() <= expected
                await informer.wait_synced()
                assert held().keys() == expected
                paint(f"colour {number}")
                await asyncio.sleep(5)
                assert held() == dict.fromkeys(expected, f"colour {number}")
            assert informer.server_shards is bool(gates)
            # What is narrower than before needs no list, and nothing is heard of what is not selected.
            assert informer.relists == 3
            assert heard.count((False, True)) == 3
            assert heard.count((True, False)) == 2
            task.cancel()

    run_virtual(main())


def test_another_shard_that_is_selected_while_one_is_listed_is_listed_too() -> None:
    async def main() -> None:
        api, clock = FaultyApi(), virtual_clock()
        informer = Informer(Client(FaultyTransport(api), clock=clock), CONFIG_MAPS, clock=clock, shard=HALF)
        for namespace, name in (MINE, OTHER):
            api.put(COLLECTION, {"metadata": {"namespace": namespace, "name": name}})
        async with asyncio.TaskGroup() as group:
            task = group.create_task(informer.run())
            await asyncio.sleep(0)
            informer.select(WHOLE)
            await informer.wait_synced()
            assert {identify(each)[0] for each in informer.store.values()} == {MINE, OTHER}
            task.cancel()

    run_virtual(main())
