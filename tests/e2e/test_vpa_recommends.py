"""The recommender against a real kube-apiserver, with usage from behind the real aggregation layer."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from e2e.controlplane import ControlPlane, connected
from e2e.metrics_server import MetricsServer
from e2e.programs import PATIENCE
from kubetide import crds
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import (
    CRDS,
    DEPLOYMENTS,
    LEASES,
    NAMESPACES,
    PODS,
    VPA_CHECKPOINTS,
    VPAS,
    Resource,
    untyped,
)
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.errors import KubetideError
from kubetide.install.rbac import CLUSTER, LOCAL
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, ApiError, NotFound
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_pod, make_vpa
from kubetide.vpa.recommender.loop import Recommender, recompute
from kubetide.vpa.recommender.settings import DEFAULT_LEASE, RecommenderSettings

CLOCK = SystemClock()
USER = "kubetide-recommender"
USAGE = "/apis/metrics.k8s.io/v1beta1/pods"
ROLES = untyped("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = untyped("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
SETTINGS = RecommenderSettings(
    interval=timedelta(seconds=1),
    leader_elect_lease_duration=timedelta(seconds=4),
    leader_elect_renew_deadline=timedelta(seconds=3),
    leader_elect_retry_period=timedelta(seconds=1),
)


@dataclass
class World:
    """A deployment of two pods with a VPA, seen by an administrator and by the recommender's own user."""

    admin: Client
    client: Client
    namespace: str
    metrics: MetricsServer

    async def vpa(self) -> Any:
        return await self.admin.get_raw(VPAS, "web", namespace=self.namespace)

    async def checkpoint(self) -> Any:
        return await self.admin.get_raw(VPA_CHECKPOINTS, "web-main", namespace=self.namespace)

    async def samples(self) -> int:
        return int((await self.checkpoint())["status"]["totalSamplesCount"])

    async def target(self) -> Any:
        recommendation = (await self.vpa()).get("status", {}).get("recommendation", {})
        (entry,) = recommendation.get("containerRecommendations") or [{}]
        return entry.get("target")

    async def use(self) -> None:
        """Keep telling what the two pods use, with the present time, until cancelled."""
        while True:
            stamp = f"{CLOCK.now():%Y-%m-%dT%H:%M:%SZ}"
            usage = {"cpu": "400m", "memory": "700Mi"}
            self.metrics.answers[USAGE] = [
                {
                    "metadata": {"namespace": self.namespace, "name": name},
                    "timestamp": stamp,
                    "window": "15s",
                    "containers": [{"name": "main", "usage": usage}],
                }
                for name in ("web-0", "web-1")
            ]
            await asyncio.sleep(0.5)


async def install(admin: Client) -> None:
    """Create the kinds, and the permissions that the manifests would give."""
    for name in ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"):
        try:
            await admin.create(CRDS, crds.load(name))
        except AlreadyExists:
            continue
    rules = [right.rule() for right in CLUSTER["recommender"]]
    rules += [local.right.rule() for local in LOCAL["recommender"]]
    await admin.create(ROLES, {"metadata": {"name": USER}, "rules": rules})
    subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    await admin.create(BINDINGS, {"metadata": {"name": USER}, "roleRef": reference, "subjects": [subject]})


async def populate(admin: Client, namespace: str) -> None:
    """Create a deployment, its VPA and two pods that run, as far as a server without a kubelet can tell."""
    await admin.create(NAMESPACES, {"metadata": {"name": namespace}})
    await admin.create(DEPLOYMENTS, make_deployment("web", namespace, replicas=2, cpu="200m"), namespace=namespace)
    await admin.create(VPAS, make_vpa("web", namespace, mode="Off"), namespace=namespace)
    for name in ("web-0", "web-1"):
        made = make_pod(name, namespace, labels={"app": "web"}, cpu="200m", node="node-1")
        await admin.create(PODS, made, namespace=namespace)
        running = MergePatch({"status": {"phase": "Running"}})
        await admin.patch(PODS, name, running, namespace=namespace, subresource="status")


@pytest.fixture
async def world(control_plane: ControlPlane) -> AsyncIterator[World]:
    namespace, metrics = f"rec-{uuid.uuid4().hex[:8]}", MetricsServer()
    async with connected(control_plane, "admin") as admin, connected(control_plane, USER) as client:
        await install(admin)
        await until(lambda: answers(admin, VPAS))
        await until(lambda: answers(admin, VPA_CHECKPOINTS))
        await populate(admin, namespace)
        async with metrics.serving(admin):
            await until(lambda: served(admin))
            yield World(admin, client, namespace, metrics)
        for resource in (BINDINGS, ROLES):
            await admin.delete(resource, USER)
        with suppress(NotFound):
            await admin.delete(LEASES, DEFAULT_LEASE, namespace="kube-system")
        await admin.delete(NAMESPACES, namespace)


async def answers(client: Client, resource: Resource[Any]) -> bool:
    await client.list(resource)
    return True


async def served(client: Client) -> bool:
    await client.request("GET", USAGE)
    return True


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                if await condition():
                    return
            except KubetideError:
                pass
            await asyncio.sleep(0.2)


@asynccontextmanager
async def recommending(world: World, *, used: bool = True) -> AsyncIterator[Recommender]:
    """Run the recommender under its own permissions; unless `used`, no pod reports anything."""
    world.metrics.answers.clear()
    recorder = EventRecorder(world.client, clock=CLOCK, component="vpa-recommender")
    made = Recommender(world.client, CLOCK, SETTINGS, Telemetry(), recorder, random.Random(2))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(made.run()), group.create_task(recorder.run())]
        if used:
            tasks.append(group.create_task(world.use()))
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()


async def test_a_real_server_stores_recommendations_and_checkpoints_and_a_restart_reads_them(world: World) -> None:
    async def learned() -> bool:
        return await world.samples() >= 6 and await world.target() is not None

    async with recommending(world):
        await until(learned)
    vpa, target, samples = await world.vpa(), await world.target(), await world.samples()
    # 400m and 700Mi fall into buckets whose ends, plus 15 %, are these.
    assert target == {"cpu": "476m", "memory": "865936536"}
    assert vpa["status"]["observedGeneration"] == vpa["metadata"]["generation"] == 1
    (condition,) = vpa["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("RecommendationProvided", "True")
    (entry,) = vpa["status"]["recommendation"]["containerRecommendations"]
    assert set(entry) == {"containerName", "target", "lowerBound", "upperBound", "uncappedTarget"}
    await accepted_as_written(world, await world.checkpoint())

    async with recommending(world, used=False) as second:
        await until(lambda: ready(second))
        state = second.model.vpas[ObjectKey(world.namespace, "web")]
        assert sum(int(second.model.aggregates.count[slot]) for _, slot in state.aggregates()) == samples
        explained = second.explain("vpa", f"{world.namespace}/web")
        assert explained is not None
        await asyncio.sleep(2.5)
    assert await world.target() == target
    assert await world.samples() == samples
    assert (await world.vpa())["status"]["conditions"] == vpa["status"]["conditions"]
    alone = await recompute(world.admin, CLOCK, SETTINGS, ObjectKey(world.namespace, "web"))
    assert [one["name"] for one in alone["containers"]] == ["main"]


async def ready(made: Recommender) -> bool:
    return made.ready()


async def accepted_as_written(world: World, found: Any) -> None:
    """Assert that the schema knows every field of a checkpoint, and that it is in force."""
    status = found["status"]
    assert status["version"] == "v3"
    assert set(status) == {
        "version",
        "lastUpdateTime",
        "firstSampleStart",
        "lastSampleStart",
        "totalSamplesCount",
        "cpuHistogram",
        "memoryHistogram",
    }
    for histogram in (status["cpuHistogram"], status["memoryHistogram"]):
        assert set(histogram) <= {"referenceTimestamp", "bucketWeights", "totalWeight"}
    assert status["cpuHistogram"]["bucketWeights"]
    copy = {**found, "metadata": {"name": "copy", "annotations": found["metadata"]["annotations"]}}
    path = VPA_CHECKPOINTS.path(namespace=world.namespace)
    strict = {"dryRun": "All", "fieldValidation": "Strict"}
    await world.client.request("POST", path, query=strict, body=msgspec.json.encode(copy))
    wrong = {**copy, "status": {**status, "totalSamplesCount": "many"}}
    with pytest.raises(ApiError, match="totalSamplesCount"):
        await world.client.request("POST", path, query=strict, body=msgspec.json.encode(wrong))


async def test_a_checkpoint_whose_vpa_is_gone_is_deleted(world: World) -> None:
    orphan = {
        "apiVersion": VPA_CHECKPOINTS.api_version,
        "kind": VPA_CHECKPOINTS.kind,
        "metadata": {"name": "gone-main"},
        "spec": {"vpaObjectName": "gone", "containerName": "main"},
        "status": {"version": "v3", "totalSamplesCount": 0},
    }
    await world.admin.create(VPA_CHECKPOINTS, orphan, namespace=world.namespace)
    quick = msgspec.structs.replace(SETTINGS, checkpoints_gc_interval=timedelta(seconds=1))
    recorder = EventRecorder(world.client, clock=CLOCK, component="vpa-recommender")
    made = Recommender(world.client, CLOCK, quick, Telemetry(), recorder, random.Random(2))

    async def collected() -> bool:
        try:
            await world.admin.get_raw(VPA_CHECKPOINTS, "gone-main", namespace=world.namespace)
        except NotFound:
            return True
        return False

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(made.run()), group.create_task(recorder.run())]
        await until(collected)
        for task in tasks:
            task.cancel()
