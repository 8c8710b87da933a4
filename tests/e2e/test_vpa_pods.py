"""Webhook, eviction and resize against a real kube-apiserver."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from e2e.controlplane import ControlPlane
from e2e.programs import PATIENCE
from kubetide import crds
from kubetide.api.objects.core import Pod
from kubetide.api.objects.scheme import (
    CRDS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    REPLICA_SETS,
    VPAS,
)
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import AlreadyExists, ApiError, NotFound
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_node, make_pdb, make_pod, make_replica_set, make_vpa
from kubetide.vpa.admission.core.heartbeat import PATCHING
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.admission.webhook import AdmissionController
from kubetide.vpa.updater.loop import Updater
from kubetide.vpa.updater.settings import UpdaterSettings
from rotation import stage_ca

CLOCK = SystemClock()
LOCALHOST = "127.0.0.1"
WEBHOOK = AdmissionSettings(
    host=LOCALHOST,
    port=0,
    register_by_url=True,
    webhook_address=LOCALHOST,
    register_delay=timedelta(milliseconds=200),
    lease_period=timedelta(milliseconds=500),
    ca_notice=timedelta(seconds=3),
    tls_cert_file=Path("/nonexistent/serverCert.pem"),
    memory_headroom=-1,
)
UPDATER = UpdaterSettings(
    interval=timedelta(seconds=2),
    memory_headroom=-1,
    disruptions_per_minute=0,
    leader_elect_lease_duration=timedelta(seconds=4),
    leader_elect_renew_deadline=timedelta(seconds=3),
    leader_elect_retry_period=timedelta(seconds=1),
)


class World:
    """A namespace with a ReplicaSet, a VPA and its recommendation on a real API server."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.owner: dict[str, Any] = {}

    async def prepare(self, *, mode: str = "Recreate", replicas: int = 2) -> None:
        made = await self.client.create(
            REPLICA_SETS, make_replica_set("web", self.namespace, replicas=replicas), namespace=self.namespace
        )
        self.owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web",
            "uid": made.metadata.uid,
            "controller": True,
        }
        vpa = make_vpa("web", self.namespace, target="web", kind="ReplicaSet", mode=mode)
        await self.client.create(VPAS, vpa, namespace=self.namespace)
        entry = {
            "containerName": "main",
            "target": {"cpu": "300m", "memory": "256Mi"},
            "lowerBound": {"cpu": "200m", "memory": "200Mi"},
            "upperBound": {"cpu": "400m", "memory": "400Mi"},
        }
        status = {
            "recommendation": {"containerRecommendations": [entry]},
            "conditions": [
                {"type": "RecommendationProvided", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ],
        }
        await self.client.patch(
            VPAS, "web", MergePatch({"status": status}), namespace=self.namespace, subresource="status"
        )

    async def create_pod(self, name: str) -> Pod:
        body = make_pod(name, self.namespace, labels={"app": "web"}, cpu="100m", memory="128Mi")
        body["metadata"]["ownerReferences"] = [self.owner]
        body["spec"]["automountServiceAccountToken"] = False
        body.pop("status", None)
        return await self.client.create(PODS, body, namespace=self.namespace)

    async def run_pod(self, name: str, *, node: str) -> None:
        """Bind a pod and report it as running, as a kubelet would."""
        path = PODS.path(namespace=self.namespace, name=name, subresource="binding")
        binding = f'{{"apiVersion":"v1","kind":"Binding","metadata":{{"name":"{name}"}},"target":{{"name":"{node}"}}}}'
        await self.client.request("POST", path, body=binding.encode())
        now = CLOCK.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        container = {
            "name": "main",
            "image": "sim/app:1",
            "imageID": "sim/app:1",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        }
        status = {
            "phase": "Running",
            "startTime": now,
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [container],
        }
        await self.client.patch(
            PODS, name, MergePatch({"status": status}), namespace=self.namespace, subresource="status"
        )

    async def pod(self, name: str) -> Pod:
        return await self.client.get(PODS, name, namespace=self.namespace)


@pytest.fixture
async def world(control_plane: ControlPlane) -> AsyncIterator[World]:
    access = from_files([control_plane.kubeconfig("admin")], clock=CLOCK)
    client = Client(HttpTransport(access), clock=CLOCK, rng=random.Random(1))
    try:
        for name in ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"):
            try:
                await client.create(CRDS, crds.load(name))
            except AlreadyExists:
                continue
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await client.list(VPAS)
                    break
                except NotFound:
                    await asyncio.sleep(0.2)
        namespace = f"vpa-{uuid.uuid4().hex[:8]}"
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
        yield World(client, namespace)
        for resource, gone in ((MUTATING_WEBHOOKS, "vpa-webhook-config"),):
            try:
                await client.delete(resource, gone)
            except NotFound:
                continue
        for lease in ("vpa-admission-controller", "vpa-updater"):
            try:
                await client.delete(LEASES, lease, namespace="kube-system")
            except NotFound:
                continue
    finally:
        await client.close()
        await asyncio.sleep(0.01)


@asynccontextmanager
async def component(made: Any) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(made.run())
    try:
        async with asyncio.timeout(PATIENCE):
            while not made.ready():
                if task.done():
                    task.result()
                await asyncio.sleep(0.1)
        yield
    finally:
        task.cancel()
        results = await asyncio.gather(task, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result


def admission(client: Client) -> AdmissionController:
    return AdmissionController(client, CLOCK, WEBHOOK, Telemetry(), None, random.Random(2))


def requests(pod: Pod) -> dict[str, Any]:
    (container,) = pod.spec.containers or ()
    return dict((container.resources.requests if container.resources else None) or {})


async def until_patched(world: World, prefix: str) -> Pod:
    """Create pods until one comes back patched: the server needs a moment to notice a configuration."""
    async with asyncio.timeout(PATIENCE):
        number = 0
        while True:
            number += 1
            pod = await world.create_pod(f"{prefix}-{number}")
            await world.client.delete(PODS, pod.metadata.name, namespace=world.namespace, grace_period_seconds=0)
            if requests(pod)["cpu"] == "300m":
                return pod
            await asyncio.sleep(0.3)


async def terminating(world: World) -> list[str]:
    return [name for name in ("web-a", "web-b") if (await world.pod(name)).metadata.deletion_timestamp]


async def conditions(world: World) -> dict[str, tuple[str, str]]:
    """Return status and reason of the VPA's conditions."""
    vpa = await world.client.get_raw(VPAS, "web", namespace=world.namespace)
    return {each["type"]: (each["status"], each.get("reason", "")) for each in vpa["status"]["conditions"]}


async def patching(world: World) -> bool:
    """Return whether the webhook's Lease says that the server calls it; the Lease comes a moment after the server."""
    with suppress(NotFound):
        lease = await world.client.get(LEASES, "vpa-admission-controller", namespace="kube-system")
        return (lease.metadata.annotations or {}).get(PATCHING) == "true"
    return False


async def test_the_real_server_accepts_our_conditions_and_calls_the_webhook(world: World) -> None:
    await world.prepare()
    controller = admission(world.client)
    async with component(controller):
        pod = await until_patched(world, "web")
        assert requests(pod) == {"cpu": "300m", "memory": "256Mi"}
        assert (pod.metadata.annotations or {})["vpaObservedContainers"] == "main"
        config = await world.client.get_raw(MUTATING_WEBHOOKS, "vpa-webhook-config")
        conditions = {hook["name"]: hook.get("matchConditions") for hook in config["webhooks"]}
        assert [each["name"] for each in conditions["vpa.k8s.io"]] == ["has-a-controller", "selected-by-a-vpa"]
        async with asyncio.timeout(PATIENCE):
            while not await patching(world):  # noqa: ASYNC110 - a Lease has no event of ours
                await asyncio.sleep(0.3)
        wrong = make_vpa("wrong", world.namespace, target="web", mode="Recreate")
        wrong["spec"]["recommenders"] = [{"name": "a"}, {"name": "b"}]
        with pytest.raises(ApiError, match="more than one recommenders"):
            await world.client.create(VPAS, wrong, namespace=world.namespace)


async def test_a_new_ca_is_trusted_before_it_is_used(world: World) -> None:
    await world.prepare()
    controller = admission(world.client)
    async with component(controller):
        await until_patched(world, "web")
        certificates = controller.certificates
        assert certificates is not None
        assert certificates.bundle is not None
        old = certificates.bundle.ca
        await stage_ca(world.client, CLOCK, WEBHOOK, LOCALHOST)
        unpatched = 0
        async with asyncio.timeout(PATIENCE):
            number = 0
            while certificates.bundle.ca == old or number < 60:
                number += 1
                pod = await world.create_pod(f"load-{number}")
                unpatched += requests(pod)["cpu"] != "300m"
                await asyncio.sleep(0.05)
        assert unpatched == 0


async def test_the_updater_evicts_with_preconditions_and_honours_disruption_budgets(world: World) -> None:
    await world.prepare()
    node = f"node-{world.namespace}"
    await world.client.create(NODES, make_node(node, cpu="8", memory="16Gi"))
    for name in ("web-a", "web-b"):
        await world.create_pod(name)
        await world.run_pod(name, node=node)
    controller = admission(world.client)
    recorder = EventRecorder(world.client, clock=CLOCK, component="vpa-updater")
    updater = Updater(world.client, CLOCK, UPDATER, Telemetry(), recorder, random.Random(3))
    budget = make_pdb("web", world.namespace, labels={"app": "web"}, min_available=2)
    await world.client.create(PDBS, budget, namespace=world.namespace)
    async with component(controller):
        await until_patched(world, "probe")
        async with component(updater):
            await asyncio.sleep(8)
            for name in ("web-a", "web-b"):
                assert (await world.pod(name)).metadata.deletion_timestamp is None
            await world.client.delete(PDBS, "web", namespace=world.namespace)
            going: list[str] = []
            async with asyncio.timeout(PATIENCE):
                while not going:
                    await asyncio.sleep(0.3)
                    going = await terminating(world)
            await asyncio.sleep(5)
            going = await terminating(world)
            # The other one waits: the replacement never comes, because nobody makes it here.
            assert len(going) == 1
            async with asyncio.timeout(PATIENCE):
                while (told := await conditions(world)).get("UpdatesPaused") != ("False", "ReplacementAwaited"):  # noqa: ASYNC110
                    await asyncio.sleep(0.3)
            assert told["RecommendationProvided"][0] == "True"
        # A new process finds that in the status, and waits as well.
        successor = Updater(world.client, CLOCK, UPDATER, Telemetry(), recorder, random.Random(4))
        async with component(successor):
            await asyncio.sleep(8)
        assert await terminating(world) == going


async def test_a_pod_is_resized_in_place_on_a_real_server(world: World) -> None:
    await world.prepare(mode="InPlaceOrRecreate")
    node = f"node-{world.namespace}"
    await world.client.create(NODES, make_node(node, cpu="8", memory="16Gi"))
    for name in ("web-a", "web-b"):
        await world.create_pod(name)
        await world.run_pod(name, node=node)
    recorder = EventRecorder(world.client, clock=CLOCK, component="vpa-updater")
    updater = Updater(world.client, CLOCK, UPDATER, Telemetry(), recorder, random.Random(3))
    controller = admission(world.client)
    async with component(controller):
        await until_patched(world, "probe")
        resized: list[str] = []
        async with component(updater), asyncio.timeout(PATIENCE):
            while not resized:
                await asyncio.sleep(0.3)
                resized = [n for n in ("web-a", "web-b") if requests(await world.pod(n))["cpu"] == "300m"]
