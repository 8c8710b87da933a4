"""The dashboard follows what it has listed once, lists what it may not follow, and names what it cannot read."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from faulty_api import FaultPlan, FaultyApi, FaultyTransport
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import DEPLOYMENTS, PODS
from kubetide.dashboard.web.cluster_cache import ClusterCache
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import Forbidden
from kubetide.kube.client.transport import Response

PODS_PATH, DEPLOYMENTS_PATH = "/api/v1/pods", "/apis/apps/v1/deployments"
REFUSAL = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}'


class Counted(FaultPlan):
    """Counts what is asked for, and refuses some of it."""

    def __init__(self, *refused: tuple[str, str]) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()
        self.refused = set(refused)

    def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
        self.asked[method, path] += 1
        return Response(403, {}, REFUSAL) if (method, path) in self.refused else None


def pod(name: str) -> dict[str, object]:
    container = {"name": "main", "image": "i"}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}


@asynccontextmanager
async def following(api: FaultyApi, plan: Counted) -> AsyncIterator[ClusterCache]:
    clock = virtual_clock()
    async with asyncio.TaskGroup() as group:
        cache = ClusterCache(Client(FaultyTransport(api, plan), clock=clock), clock, group)
        try:
            yield cache
        finally:
            cache.close()


async def names(cache: ClusterCache) -> list[str]:
    return [item.metadata.name for item in (await cache.list(PODS)).items]


def test_what_was_listed_is_followed_and_what_did_not_change_stays_the_same_object() -> None:
    async def scenario() -> None:
        api, plan = FaultyApi(virtual_clock()), Counted()
        api.put(PODS_PATH, pod("a"))
        async with following(api, plan) as cache:
            assert await names(cache) == ["a"]
            (first,) = (await cache.list(PODS)).items
            lists = plan.asked["GET", PODS_PATH]
            api.put(PODS_PATH, pod("b"))
            await asyncio.sleep(5)
            found = (await cache.list(PODS)).items
            assert [item.metadata.name for item in found] == ["a", "b"]
            assert found[0] is first
            api.remove(PODS_PATH, ObjectKey("default", "a"))
            await asyncio.sleep(5)
            assert await names(cache) == ["b"]
            assert plan.asked["GET", PODS_PATH] == lists
            cache.close()
            await asyncio.sleep(5)
            api.put(PODS_PATH, pod("c"))
            assert await names(cache) == ["b", "c"]

    run_virtual(scenario())


def test_what_may_be_listed_but_not_watched_is_listed_each_time() -> None:
    async def scenario() -> None:
        api, plan = FaultyApi(virtual_clock()), Counted(("WATCH", PODS_PATH))
        api.put(PODS_PATH, pod("a"))
        async with following(api, plan) as cache:
            for added in ("b", "c", "d"):
                await names(cache)
                await asyncio.sleep(5)
                api.put(PODS_PATH, pod(added))
                assert added in await names(cache)
            watches = plan.asked["WATCH", PODS_PATH]
            await asyncio.sleep(600)
            await names(cache)
            assert plan.asked["WATCH", PODS_PATH] == watches  # it is not asked for again

    run_virtual(scenario())


def test_what_may_no_longer_be_read_is_an_error_and_not_what_was_known() -> None:
    async def scenario() -> None:
        api, plan = FaultyApi(virtual_clock()), Counted()
        async with following(api, plan) as cache:
            for _ in range(2):
                assert (await cache.list(DEPLOYMENTS)).items == ()
            plan.refused |= {("GET", DEPLOYMENTS_PATH), ("WATCH", DEPLOYMENTS_PATH)}
            api.forget_history()
            await asyncio.sleep(1200)  # the stream has ended, and nobody is let in again
            refused = False
            try:
                await cache.list(DEPLOYMENTS)
            except Forbidden:
                refused = True
            assert refused

    run_virtual(scenario())
