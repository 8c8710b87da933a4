"""From an owner to the topmost controller, with answers that are kept for a while."""

import asyncio
import random
from typing import Any

import pytest

from faulty_api import FaultyApi, FaultyTransport
from kubetide.api.objects.apps import ReplicaSet
from kubetide.api.objects.meta import ObjectKey, ObjectMeta, OwnerReference
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.lookups import Lookups
from kubetide.kube.cache.store import Store
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import InternalError, NotFound
from kubetide.kube.owners import ControllerKey, InvalidOwner, OwnerChain, OwnerNotFound
from kubetide.kube.scale import ScaleClient


def key(kind: str, name: str, api_version: str = "apps/v1") -> ControllerKey:
    return ControllerKey(namespace="shop", kind=kind, name=name, api_version=api_version)


def owned_by(kind: str, name: str, api_version: str = "apps/v1", *, controller: bool = True) -> dict[str, Any]:
    return {"kind": kind, "name": name, "apiVersion": api_version, "uid": "u", "controller": controller}


class Scales(ScaleClient):
    """Answers scale questions from a table."""

    def __init__(self, answers: dict[tuple[str, str], list[dict[str, Any]] | KubetideError]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []

    async def get_raw(self, namespace: str, reference: Any) -> Any:
        self.asked.append((reference.kind, reference.name))
        answer = self.answers.get((reference.kind, reference.name), NotFound(404))
        if isinstance(answer, KubetideError):
            raise answer
        return None, {"metadata": {"name": reference.name, "ownerReferences": answer}}


class World:
    """Deployments and the like in a server, other kinds in a table."""

    def __init__(self, answers: dict[tuple[str, str], list[dict[str, Any]] | KubetideError] | None = None) -> None:
        self.api = FaultyApi()
        self.clock = virtual_clock()
        self.scales = Scales(answers or {})
        self.client = Client(FaultyTransport(self.api), clock=self.clock, rng=random.Random(1))
        self.owners = OwnerChain(self.client, self.scales, clock=self.clock)

    def add(self, plural: str, name: str, *owners: dict[str, Any]) -> None:
        meta = {"namespace": "shop", "name": name, "ownerReferences": list(owners)}
        self.api.put(f"/apis/apps/v1/{plural}", {"metadata": meta})


def test_a_replica_set_leads_to_its_deployment() -> None:
    async def main() -> None:
        world = World()
        world.add("replicasets", "web-1", owned_by("Deployment", "web"))
        world.add("deployments", "web")
        assert await world.owners.topmost(key("ReplicaSet", "web-1")) == key("Deployment", "web")
        assert await world.owners.topmost(key("Deployment", "web")) == key("Deployment", "web")

    run_virtual(main())


def test_a_scalable_owner_of_a_deployment_is_the_topmost() -> None:
    async def main() -> None:
        world = World({("App", "shop"): []})
        world.add("deployments", "web", owned_by("App", "shop", "example.com/v1"))
        assert await world.owners.topmost(key("Deployment", "web")) == key("App", "shop", "example.com/v1")

    run_virtual(main())


def test_an_owner_that_is_not_scalable_ends_the_walk() -> None:
    async def main() -> None:
        world = World()
        world.add("deployments", "web", owned_by("App", "shop", "example.com/v1"))
        assert await world.owners.topmost(key("Deployment", "web")) == key("Deployment", "web")
        assert await world.owners.topmost(key("App", "shop", "example.com/v1")) is None

    run_virtual(main())


def test_an_owner_that_does_not_control_is_not_followed() -> None:
    async def main() -> None:
        world = World()
        world.add("deployments", "web", owned_by("Deployment", "other", controller=False))
        assert await world.owners.topmost(key("Deployment", "web")) == key("Deployment", "web")

    run_virtual(main())


def test_a_well_known_owner_that_is_missing_is_an_error() -> None:
    async def main() -> None:
        world = World()
        with pytest.raises(OwnerNotFound, match="shop/web"):
            await world.owners.topmost(key("Deployment", "web"))

    run_virtual(main())


def test_well_known_owners_are_read_from_stores_where_there_are_some() -> None:
    async def main() -> None:
        world = World()
        store: Store[ReplicaSet] = Store()
        owner = OwnerReference(kind="Deployment", name="web", api_version="apps/v1", controller=True)
        meta = ObjectMeta(namespace="shop", name="web-1", owner_references=(owner,))
        store.put(ObjectKey("shop", "web-1"), ReplicaSet(metadata=meta))
        world.add("deployments", "web")
        owners = OwnerChain(world.client, world.scales, clock=world.clock, stores={"ReplicaSet": store})
        assert await owners.topmost(key("ReplicaSet", "web-1")) == key("Deployment", "web")
        with pytest.raises(OwnerNotFound):
            await owners.topmost(key("ReplicaSet", "web-2"))

    run_virtual(main())


def test_a_node_and_a_circle_are_errors() -> None:
    async def main() -> None:
        world = World()
        world.add("deployments", "a", owned_by("Deployment", "b"))
        world.add("deployments", "b", owned_by("Deployment", "a"))
        world.add("daemonsets", "c", owned_by("Node", "n1", "v1"))
        with pytest.raises(InvalidOwner, match="circle"):
            await world.owners.topmost(key("Deployment", "a"))
        with pytest.raises(InvalidOwner, match="node"):
            await world.owners.topmost(key("DaemonSet", "c"))

    run_virtual(main())


def test_answers_and_failures_are_asked_for_once_while_they_are_fresh() -> None:
    async def main() -> None:
        world = World({("App", "good"): [], ("App", "bad"): InternalError(500)})
        for _ in range(5):
            await world.owners.topmost(key("App", "good", "example.com/v1"))
            with pytest.raises(InternalError):
                await world.owners.topmost(key("App", "bad", "example.com/v1"))
        assert world.scales.asked == [("App", "good"), ("App", "bad")]
        await asyncio.sleep(21 * 60)
        await world.owners.topmost(key("App", "good", "example.com/v1"))
        assert len(world.scales.asked) == 3

    run_virtual(main())


def test_a_refresher_keeps_answers_fresh_and_drops_what_nobody_asks_for() -> None:
    async def main() -> None:
        world = World({("App", "good"): []})
        await world.owners.topmost(key("App", "good", "example.com/v1"))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(world.owners.run())
            await asyncio.sleep(59 * 60)
            renewed = len(world.scales.asked)
            assert 3 <= renewed <= 6
            await asyncio.sleep(3 * 3600)
            assert len(world.scales.asked) == renewed
            task.cancel()

    run_virtual(main())


def test_freshness_is_spread_by_chance() -> None:
    lookups: Lookups[int, str] = Lookups(freshness=600, lifetime=3600, jitter=1.0, rng=random.Random(3))
    for number in range(100):
        lookups.put(number, "x", now=0)
    assert lookups.due(599) == []
    assert 20 < len(lookups.due(900)) < 80
    assert len(lookups.due(1200)) == 100


def test_asking_prolongs_life_and_renewing_does_not() -> None:
    lookups: Lookups[str, str] = Lookups(freshness=10_000, lifetime=100, jitter=0, rng=random.Random(0))
    lookups.put("asked", "x", now=0)
    lookups.put("renewed", "x", now=0)
    assert lookups.get("asked", now=90) == (True, "x")
    lookups.refreshed("renewed", "y", now=90)
    lookups.due(110)
    assert lookups.get("asked", now=110) == (True, "x")
    assert lookups.get("renewed", now=110) == (False, None)
