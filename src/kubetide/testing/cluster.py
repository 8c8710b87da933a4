"""A whole Kubernetes cluster inside a test: API server, scheduler, controllers, kubelets, load and metrics APIs.

    @virtual_time
    async def test_the_shop_scales() -> None:
        async with Cluster(nodes=3) as cluster:
            await cluster.apply(make_deployment("web", cpu="500m"), make_hpa("web", maximum=10, cpu_percent=50))
            cluster.set_usage("web", cpu="450m")
            await cluster.start("hpa")
            await cluster.run_for(timedelta(minutes=5))
            assert cluster.get("Deployment", "web")["spec"]["replicas"] > 1

The same seed gives the same history, byte for byte. What a test reads are plain dictionaries, as `kubectl get -o json`
shows them; what it writes passes validation and admission as on any API server.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from random import Random
from types import TracebackType
from typing import Any, Self

import msgspec

from kubetide.api.values.patch import MergePatch
from kubetide.config import Settings
from kubetide.embedded.apiserver.faults import Faults
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.embedded.sim.load.scenario_file import parse_scenario
from kubetide.embedded.sim.world import EVENTS, PODS, is_ready
from kubetide.errors import InvalidInput, SettingsError
from kubetide.kube.client.client import Client
from kubetide.kube.control.manager import Manager
from kubetide.settings import COMPONENTS
from kubetide.telemetry import Telemetry
from kubetide.wiring import Dependencies, build

Raw = dict[str, Any]
Objects = list[Raw]
Amount = str | int | float


class Cluster:
    """The cluster. It lives while it is entered, inside `virtual_time` or any other running event loop."""

    def __init__(self, *, nodes: int = 1, scenario: str | None = None, seed: int = 0) -> None:
        """Describe a cluster of `nodes` machines (8 CPUs, 32 GiB), or one that a scenario in YAML describes."""
        self._scenario: Scenario | None = None if scenario is None else parse_scenario(scenario)
        self._nodes = nodes if scenario is None else 0
        self._seed = seed
        self._running: SimCluster | None = None
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        cluster = SimCluster(self._scenario, seed=self._seed)
        await cluster.__aenter__()
        await self._group.__aenter__()
        self._running = cluster
        for number in range(self._nodes):
            cluster.add_node(f"node-{number + 1}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cluster, self._running = self._cluster, None
        for task in self._tasks:
            task.cancel()
        # A failed assertion is to reach the test as it is. Only a cancellation may be the group's own doing: a
        # component has failed, and its error comes out of the group.
        seen = (kind, error, trace) if kind is asyncio.CancelledError else (None, None, None)
        try:
            await self._group.__aexit__(*seen)
        except BaseException as failure:
            await cluster.__aexit__(type(failure), failure, failure.__traceback__)
            raise
        await cluster.__aexit__(kind, error, trace)

    @property
    def _cluster(self) -> SimCluster:
        if self._running is None:
            raise RuntimeError("the cluster is not running: use it inside `async with Cluster(...) as cluster`")
        return self._running

    # -- objects

    async def apply(self, *objects: Raw | str) -> Objects:
        """Create objects, or replace those that exist; a text is YAML with any number of them."""
        applied: Objects = []
        for each in objects:
            applied += await self._cluster.apply(each)
        return applied

    def get(self, kind: str, name: str, namespace: str = "default") -> Raw:
        """Return an object by its kind, plural or short name; LookupError if it is not there."""
        resource = self._resource(kind)
        found = self._cluster.world.get(resource.storage, _key(resource, name, namespace))
        if found is None:
            where = f"{namespace}/{name}" if resource.namespaced else name
            raise LookupError(f"{resource.kind} {where} is not there")
        return found

    def list(self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | None = None) -> Objects:
        """Return the objects of a kind, of all namespaces unless one is given, that carry all these labels."""
        found = self._cluster.world.all(self._resource(kind).storage, namespace)
        wanted = (labels or {}).items()
        return [each for each in found if wanted <= (each["metadata"].get("labels") or {}).items()]

    async def patch(self, kind: str, name: str, change: Raw, namespace: str = "default") -> None:
        """Merge a change into an object, as `kubectl patch --type merge` does."""
        path = self._path(self._resource(kind), name, namespace)
        patch = MergePatch(change)
        await self.client().request("PATCH", path, body=patch.encode(), content_type=patch.content_type)

    async def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete an object; what it owns goes with it in the background."""
        await self.client().request("DELETE", self._path(self._resource(kind), name, namespace))

    def ready_pods(self, namespace: str = "default", labels: Mapping[str, str] | None = None) -> Objects:
        """Return the pods that are ready and not being deleted."""
        found = self.list(PODS.plural, namespace, labels)
        return [pod for pod in found if is_ready(pod) and not pod["metadata"].get("deletionTimestamp")]

    def events(self, *, reason: str | None = None, name: str | None = None) -> Objects:
        """Return the events, oldest first: of one reason, about objects of one name."""
        found = [
            event
            for event in self._cluster.world.all(EVENTS)
            if (reason is None or event.get("reason") == reason)
            and (name is None or (event.get("involvedObject") or event.get("regarding") or {}).get("name") == name)
        ]
        return sorted(found, key=lambda event: (event.get("firstTimestamp") or "", event["metadata"]["name"]))

    def client(self, user: str | None = None) -> Client:
        """Return a client of the API server, for the administrator or for a user with no more than RBAC gives."""
        return self._cluster.client(user)

    # -- machines, load, trouble

    def add_node(self, name: str, cpu: Amount = "8", memory: Amount = "32Gi", **more: Any) -> None:
        """Add a machine and its node."""
        self._cluster.add_node(name, cpu, memory, **more)

    def set_usage(
        self, workload: str, *, cpu: Amount, memory: Amount | None = None, namespace: str = "default"
    ) -> None:
        """Let every pod of a workload use this much; `workload` is the name of its topmost owner."""
        self._cluster.set_usage(namespace, workload, cpu=cpu, memory=memory)

    def set_load(self, workload: str, requests_per_second: float, *, namespace: str = "default") -> None:
        """Send a workload requests, which its ready pods share."""
        self._cluster.set_load(namespace, workload, requests_per_second)

    def outage(self, what: str) -> AbstractContextManager[None]:
        """Take something down while the context lasts: `metrics`, or `node/NAME`."""
        return self._cluster.outage(what)

    @property
    def faults(self) -> Faults:
        """What the API server does wrong on purpose: errors, conflicts, latency, lost watch events."""
        return self._cluster.api.faults

    def compact(self) -> None:
        """Forget the history of changes, as a compaction of etcd does: watches that lag behind get 410 Gone."""
        self._cluster.api.store.compact()

    # -- kubetide's own controllers

    async def start(self, *components: str, **settings: Mapping[str, Any]) -> None:
        """Run kubetide's components: `hpa`, `recommender`, `updater`, `admission`, `slo`.

        `settings` are by component: `start("hpa", hpa={"sync_period": timedelta(seconds=5)})`. There is one of each,
        so none elects a leader unless asked to.
        """
        unknown = [name for name in (*components, *settings) if name not in COMPONENTS]
        if unknown:
            raise SettingsError(f"unknown component {unknown[0]!r} (known: {', '.join(COMPONENTS)})")
        for name in components:
            manager = Manager(name=name)
            for component in build(name, self._world(name), _settings(name, settings.get(name, {}))):
                manager.add(component)
            self._tasks.append(self._group.create_task(manager.run(), name=name))

    def _world(self, name: str) -> Dependencies:
        cluster = self._cluster
        return Dependencies(
            client=cluster.client(),
            clock=cluster.clock,
            telemetry=Telemetry(),
            rng=Random(f"{self._seed}/{name}"),
            local_webhooks=cluster.api.admission,
        )

    # -- time

    @property
    def now(self) -> datetime:
        """The time in the cluster."""
        return self._cluster.clock.now()

    async def run_for(self, duration: timedelta) -> None:
        """Let the cluster live for a while."""
        await self._cluster.run_for(duration)

    async def wait_for(self, condition: Callable[[], bool], *, timeout: timedelta = timedelta(minutes=10)) -> None:
        """Let the cluster live until a condition holds; TimeoutError if it does not in time."""
        await self._cluster.wait_for(condition, timeout=timeout)

    # -- names

    def _resource(self, kind: str) -> ApiResource:
        wanted = kind.lower()
        named = [
            each
            for each in self._cluster.api.registry.all()
            if wanted in (each.kind.lower(), each.plural, each.singular, *each.short_names)
        ]
        if not named:
            raise InvalidInput(f"the API server knows no kind {kind!r}")
        # Several versions of one resource, or an old group's twin: the one that is stored, the oldest group first.
        return next((each for each in named if each.version == each.storage_version), named[0])

    def _path(self, resource: ApiResource, name: str, namespace: str) -> str:
        base = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
        scope = f"/namespaces/{namespace}" if resource.namespaced else ""
        return f"{base}{scope}/{resource.plural}/{name}"


def _key(resource: ApiResource, name: str, namespace: str) -> StoreKey:
    return StoreKey(namespace if resource.namespaced else "", name)


def _settings(name: str, given: Mapping[str, Any]) -> Settings:
    settings = COMPONENTS[name]()
    known = settings.__struct_fields__
    wrong = next((field for field in given if field not in known), None)
    if wrong is not None:
        raise SettingsError(f"no such setting: {wrong!r}", field=name)
    alone = {"leader_elect": False} if "leader_elect" in known else {}
    return msgspec.structs.replace(settings, **{**alone, **given})
