"""Client, informer, scale, owners, events and leases on the embedded cluster, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.events import warning
from kubetide.api.objects.meta import ObjectKey, ObjectReference
from kubetide.api.objects.scheme import CONFIG_MAPS, DEPLOYMENTS, EVENTS, LEASES, NAMESPACES, REPLICA_SETS
from kubetide.api.values.patch import MergePatch
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import Conflict, Gone
from kubetide.kube.control.leader_election import LeaderElector
from kubetide.kube.control.reconcile import Result, Workers
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.control.workqueue import WorkQueue
from kubetide.kube.owners import ControllerKey, OwnerChain
from kubetide.kube.scale import ScaleClient

NAMESPACE = "shop"


class World:
    """An embedded API server with one namespace, and clients of it."""

    def __init__(self, **options: Any) -> None:
        self.clock = virtual_clock()
        self.api = ApiServer(clock=self.clock, **options)
        self.client = self.connect()

    def connect(self) -> Client:
        return Client(InProcessTransport(self.api), clock=self.clock)

    async def make(self, name: str, **data: str) -> ConfigMap:
        return await self.client.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": data}, namespace=NAMESPACE)


def on_cluster(act: Callable[[World], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        world = World(**options)
        await world.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await act(world)

    run_virtual(main(), limit=timedelta(days=2))


@asynccontextmanager
async def running(*work: Awaitable[None]) -> AsyncIterator[None]:
    async def one(each: Awaitable[None]) -> None:
        await each

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(each)) for each in work]
        yield
        for task in tasks:
            task.cancel()


def deployment(name: str, replicas: int = 3, **meta: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"metadata": {"name": name, **meta}, "spec": spec}


def test_an_informer_follows_a_day_of_changes_on_one_list() -> None:
    async def act(world: World) -> None:
        informer = Informer(world.connect(), CONFIG_MAPS, clock=world.clock, namespace=NAMESPACE)
        async with running(informer.run()):
            for hour in range(24):
                await world.make(f"c{hour}", hour=str(hour))
                if hour >= 6:
                    await world.client.delete(CONFIG_MAPS, f"c{hour - 6}", namespace=NAMESPACE)
                await asyncio.sleep(3600)
            assert sorted(each.metadata.name for each in informer.store.values()) == [f"c{h}" for h in range(18, 24)]
            assert informer.relists == 1
            assert (informer.staleness() or timedelta.max) < timedelta(minutes=15)

    on_cluster(act)


def test_an_informer_that_falls_out_of_the_window_lists_again() -> None:
    async def act(world: World) -> None:
        for number in range(5):
            await world.make(f"a{number}")
        listing = await world.client.list(CONFIG_MAPS, namespace=NAMESPACE, limit=2)
        for number in range(100):
            change = MergePatch({"data": {"n": str(number)}})
            await world.client.patch(CONFIG_MAPS, "a0", change, namespace=NAMESPACE)
        with pytest.raises(Gone):
            async for _ in world.client.watch(
                CONFIG_MAPS, namespace=NAMESPACE, resource_version=listing.resource_version
            ):
                pass
        informer = Informer(world.client, CONFIG_MAPS, clock=world.clock, namespace=NAMESPACE)
        async with running(informer.run()):
            await informer.wait_synced()
            kept = informer.store.get(ObjectKey(NAMESPACE, "a0"))
            assert kept is not None
            assert kept.data == {"n": "99"}

    on_cluster(act, window=20)


def test_workers_bring_every_object_to_where_it_should_be() -> None:
    async def act(world: World) -> None:
        informer = Informer(world.connect(), CONFIG_MAPS, clock=world.clock, namespace=NAMESPACE)
        queue: WorkQueue[ObjectKey] = WorkQueue(clock=world.clock, name="doubler")

        class Doubler:
            async def reconcile(self, key: ObjectKey) -> Result:
                seen = informer.store.get(key)
                if seen is None or seen.data is None or "n" not in seen.data:
                    return Result()
                wanted = str(2 * int(seen.data["n"]))
                if seen.data.get("double") != wanted:
                    patch = MergePatch({"data": {"double": wanted}})
                    await world.client.patch(CONFIG_MAPS, key.name, patch, namespace=key.namespace)
                return Result()

        def changed(old: ConfigMap | None, new: ConfigMap | None) -> None:
            if new is not None:
                queue.add(ObjectKey(new.metadata.namespace, new.metadata.name))

        informer.add_handler(changed)
        async with running(informer.run(), Workers(queue, Doubler().reconcile, workers=3).run()):
            for number in range(20):
                await world.make(f"c{number}", n=str(number))
            await asyncio.sleep(5)
            await world.client.patch(CONFIG_MAPS, "c7", MergePatch({"data": {"n": "50"}}), namespace=NAMESPACE)
            await asyncio.sleep(5)
            listing = await world.client.list(CONFIG_MAPS, namespace=NAMESPACE)
            doubled = {each.metadata.name: (each.data or {})["double"] for each in listing.items if each.data}
            assert doubled["c7"] == "100"
            assert doubled["c19"] == "38"
            assert len(doubled) == 20

    on_cluster(act)


def test_scale_and_owners_work_on_the_embedded_cluster() -> None:
    async def act(world: World) -> None:
        made = await world.client.create(DEPLOYMENTS, deployment("web"), namespace=NAMESPACE)
        scales = ScaleClient(world.client)
        target = await scales.get(NAMESPACE, ObjectReference(api_version="apps/v1", kind="Deployment", name="web"))
        assert (target.spec_replicas, target.selector) == (3, "app=web")
        assert (await scales.set(target, 5)).spec_replicas == 5
        with pytest.raises(Conflict):
            await scales.set(target, 6)
        owner = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "web",
            "uid": made.metadata.uid,
            "controller": True,
        }
        await world.client.create(REPLICA_SETS, deployment("web-1", ownerReferences=[owner]), namespace=NAMESPACE)
        owners = OwnerChain(world.client, scales, clock=world.clock)
        start = ControllerKey(namespace=NAMESPACE, kind="ReplicaSet", name="web-1", api_version="apps/v1")
        topmost = await owners.topmost(start)
        assert topmost is not None
        assert (topmost.kind, topmost.name) == ("Deployment", "web")

    on_cluster(act)


def test_events_are_counted_on_the_embedded_cluster() -> None:
    async def act(world: World) -> None:
        recorder = EventRecorder(world.client, clock=world.clock, component="test")
        about = ObjectReference(api_version="v1", kind="ConfigMap", namespace=NAMESPACE, name="a", uid="u")
        async with running(recorder.run()):
            for _ in range(4):
                recorder.publish(warning(about, "Odd", "something is odd"))
                await asyncio.sleep(30)
            await recorder.flush()
        (event,) = (await world.client.list(EVENTS, namespace=NAMESPACE)).items
        raw = await world.client.get_raw(EVENTS, event.metadata.name, namespace=NAMESPACE)
        assert (raw["count"], raw["reason"], raw["type"]) == (4, "Odd", "Warning")

    on_cluster(act)


def test_the_lease_changes_hands_on_the_embedded_cluster() -> None:
    async def act(world: World) -> None:
        electors = [
            LeaderElector(
                world.connect(), clock=world.clock, lease_name="hpa", namespace=NAMESPACE, identity=f"c{number}"
            )
            for number in range(3)
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run(lambda: asyncio.sleep(1e6))) for each in electors]
            for _ in electors:
                await asyncio.sleep(30)
                (leader,) = [number for number, each in enumerate(electors) if each.is_leader]
                tasks[leader].cancel()
        lease = await world.client.get(LEASES, "hpa", namespace=NAMESPACE)
        assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("", 2)

    on_cluster(act)


def test_a_lease_in_a_missing_namespace_is_reported_once_and_tried_ever_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried: list[float] = []

    async def act(world: World) -> None:
        elector = LeaderElector(
            world.connect(), clock=world.clock, lease_name="lease", namespace="missing", identity="me"
        )
        attempt = elector._try

        async def counted(*, renewing: bool = False) -> bool:
            tried.append(world.clock.monotonic())
            return await attempt(renewing=renewing)

        elector._try = counted  # type: ignore[method-assign]
        led = asyncio.Event()

        async def lead() -> None:
            led.set()
            await asyncio.Event().wait()

        async with running(elector.run(lead)):
            await asyncio.sleep(3600)
            assert not led.is_set()
            await world.client.create(NAMESPACES, {"metadata": {"name": "missing"}})
            async with asyncio.timeout(90):
                await led.wait()

    with caplog.at_level("WARNING"):
        on_cluster(act)
    assert len(tried) < 80, "an hour of every two seconds would be 1800"
    (line,) = [record for record in caplog.records if "lease" in record.getMessage()]
    assert "kubectl create namespace missing" in str(vars(line))
