"""The client suite against a real kube-apiserver and etcd."""

import asyncio
import base64
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from e2e.controlplane import ControlPlane
from e2e.programs import PATIENCE
from kubetide.api.objects.admission import AdmissionReview, review_response
from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.events import normal
from kubetide.api.objects.meta import ObjectKey, ObjectReference
from kubetide.api.objects.scheme import (
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PDBS,
    PODS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from kubetide.api.values.patch import JsonPatch, MergePatch, StrategicMergePatch
from kubetide.clock import SystemClock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.certificates import issue
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static, bearer
from kubetide.kube.client.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    MethodNotAllowed,
    NotFound,
    TooManyRequests,
    Unauthorized,
)
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access, from_files
from kubetide.kube.client.tls import Certificate, Pem, ServerTrust
from kubetide.kube.control.leader_election import LeaderElector
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.metrics import CustomMetrics, MetricsNotRegistered, ResourceMetrics
from kubetide.kube.owners import ControllerKey, OwnerChain
from kubetide.kube.pacing import Backoff
from kubetide.kube.scale import NoMapping, ScaleClient
from kubetide.kube.webhook import WebhookServer

CLOCK = SystemClock()
WIDGETS: Resource[dict[str, Any]] = Resource("kubetide.test", "v1", "widgets", "Widget", dict[str, Any])
CONTAINER = {"name": "app", "image": "example.com/app:1", "resources": {"requests": {"cpu": "100m"}}}


@asynccontextmanager
async def connected(plane: ControlPlane, user: str = "admin") -> AsyncIterator[Client]:
    access = from_files([plane.kubeconfig(user)], clock=CLOCK)
    client = Client(HttpTransport(access), clock=CLOCK, rng=random.Random(1))
    try:
        yield client
    finally:
        await client.close()
        await asyncio.sleep(0.01)


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with connected(control_plane) as connection:
        yield connection


@pytest.fixture
async def namespace(client: Client) -> str:
    name = f"test-{uuid.uuid4().hex[:10]}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    return name


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app": "test"}}, "data": data}


def deployment(name: str, replicas: int = 3) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [CONTAINER]}},
        },
    }


def restart(plane: ControlPlane) -> None:
    plane.stop_one("kube-apiserver", at_once=True)
    plane.start_api_server()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the state of a store has no event
            await asyncio.sleep(0.02)


async def eventually(attempt: Callable[[], Any]) -> Any:
    """Call until it no longer raises: a CRD takes a moment to be served."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await attempt()
            except (ApiError, NoMapping, pytest.fail.Exception):
                await asyncio.sleep(0.1)


async def test_an_object_lives_through_all_verbs(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", colour="red"), namespace=namespace)
    assert made.metadata.uid
    assert (await client.get(CONFIG_MAPS, "a", namespace=namespace)).data == {"colour": "red"}
    merged = await client.patch(CONFIG_MAPS, "a", MergePatch({"data": {"size": "xl"}}), namespace=namespace)
    assert merged.data == {"colour": "red", "size": "xl"}
    replaced = JsonPatch([{"op": "replace", "path": "/data/size", "value": "s"}])
    assert (await client.patch(CONFIG_MAPS, "a", replaced, namespace=namespace)).data == {"colour": "red", "size": "s"}
    raw = await client.get_raw(CONFIG_MAPS, "a", namespace=namespace)
    raw["data"] = {"only": "this"}
    assert (await client.update(CONFIG_MAPS, "a", raw, namespace=namespace)).data == {"only": "this"}
    await client.delete(CONFIG_MAPS, "a", namespace=namespace, uid=made.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", namespace=namespace)


async def test_lists_merge_by_key_in_a_strategic_patch(client: Client, namespace: str) -> None:
    await client.create(DEPLOYMENTS, deployment("web"), namespace=namespace)
    sidecar = {"name": "sidecar", "image": "example.com/sidecar:1"}
    patch = StrategicMergePatch({"spec": {"template": {"spec": {"containers": [sidecar]}}}})
    await client.patch(DEPLOYMENTS, "web", patch, namespace=namespace, field_manager="kubetide-test")
    raw = await client.get_raw(DEPLOYMENTS, "web", namespace=namespace)
    assert {each["name"] for each in raw["spec"]["template"]["spec"]["containers"]} == {"app", "sidecar"}
    assert "kubetide-test" in {each["manager"] for each in raw["metadata"]["managedFields"]}


async def test_a_dry_run_changes_nothing(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a"), namespace=namespace, dry_run=True)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", namespace=namespace)


async def test_rejections_come_as_the_errors_of_their_reasons(
    client: Client, control_plane: ControlPlane, namespace: str
) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    stale = {**config_map("a", x="1"), "metadata": {"name": "a", "resourceVersion": made.metadata.resource_version}}
    await client.update(CONFIG_MAPS, "a", stale, namespace=namespace)
    with pytest.raises(Conflict):
        await client.update(CONFIG_MAPS, "a", stale, namespace=namespace)
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", namespace=namespace, uid="another")
    with pytest.raises(Invalid) as invalid:
        await client.create(DEPLOYMENTS, {**deployment("web"), "spec": {"replicas": -1}}, namespace=namespace)
    assert "spec.replicas" in {cause["field"] for cause in invalid.value.causes}
    with pytest.raises(BadRequest):
        await client.request("POST", CONFIG_MAPS.path(namespace=namespace), body=b"no json")
    with pytest.raises(MethodNotAllowed):
        await client.request("POST", CONFIG_MAPS.path(namespace=namespace, name="a"), body=b"{}")
    async with connected(control_plane, "nobody") as nobody:
        with pytest.raises(Forbidden, match="nobody"):
            await nobody.get(CONFIG_MAPS, "a", namespace=namespace)


async def test_a_bearer_token_is_known_and_a_wrong_one_is_not(control_plane: ControlPlane) -> None:
    for token, known in ((control_plane.token, True), ("wrong", False)):
        access = Access(
            server=control_plane.url,
            trust=ServerTrust(ca=Pem(data=control_plane.ca.certificate)),
            credentials=Static(bearer(token)),
        )
        client = Client(HttpTransport(access), clock=CLOCK)
        try:
            if known:
                assert (await client.list(NAMESPACES)).items
            else:
                with pytest.raises(Unauthorized):
                    await client.list(NAMESPACES)
        finally:
            await client.close()


async def test_a_list_in_pages_is_the_whole_list(client: Client, namespace: str) -> None:
    for number in range(23):
        await client.create(CONFIG_MAPS, config_map(f"c{number:02}"), namespace=namespace)
    paged = await client.list(CONFIG_MAPS, namespace=namespace, label_selector="app=test", limit=5)
    assert [each.metadata.name for each in paged.items] == [f"c{number:02}" for number in range(23)]
    one = await client.list(CONFIG_MAPS, namespace=namespace, field_selector="metadata.name=c07")
    assert [each.metadata.name for each in one.items] == ["c07"]


async def test_a_watch_shows_changes_in_order_and_ends_when_asked(client: Client, namespace: str) -> None:
    start = (await client.list(CONFIG_MAPS, namespace=namespace)).resource_version
    await client.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    await client.patch(CONFIG_MAPS, "a", MergePatch({"data": {"x": "1"}}), namespace=namespace)
    await client.delete(CONFIG_MAPS, "a", namespace=namespace)
    stream = client.watch_items(CONFIG_MAPS, namespace=namespace, resource_version=start, timeout_seconds=3)
    async with aclosing(stream):
        seen = [event.type async for event in stream]
    assert seen[:3] == ["ADDED", "MODIFIED", "DELETED"]
    # The server vouches for completeness before it ends the stream.
    assert set(seen[3:]) <= {"BOOKMARK"}


async def test_what_a_restarted_server_has_forgotten_is_listed_again(
    client: Client, control_plane: ControlPlane, namespace: str
) -> None:
    class ForgetsBetweenPages(HttpTransport):
        forgotten = 0

        async def request(self, method: str, path: str, **options: Any) -> Any:
            if (options.get("query") or {}).get("continue"):
                self.forgotten += 1
                # A change first, so that the token's version is no longer the newest.
                await client.create(CONFIG_MAPS, config_map("late"), namespace=namespace)
                control_plane.compact()
                restart(control_plane)
            return await super().request(method, path, **options)

    for number in range(6):
        await client.create(CONFIG_MAPS, config_map(f"c{number}"), namespace=namespace)
    old = (await client.list(CONFIG_MAPS, namespace=namespace)).resource_version
    transport = ForgetsBetweenPages(from_files([control_plane.kubeconfig()], clock=CLOCK))
    listing = await Client(transport, clock=CLOCK).list(CONFIG_MAPS, namespace=namespace, limit=2)
    await transport.close()
    assert transport.forgotten == 1
    names = {each.metadata.name for each in listing.items}
    assert names == {"late", *(f"c{number}" for number in range(6))}
    with pytest.raises(Gone):
        async for _ in client.watch(CONFIG_MAPS, namespace=namespace, resource_version=old, timeout_seconds=5):
            pass


async def test_an_informer_follows_through_a_restart_of_the_server(
    client: Client, control_plane: ControlPlane, namespace: str
) -> None:
    informer: Informer[ConfigMap] = Informer(
        client, CONFIG_MAPS, clock=CLOCK, namespace=namespace, backoff=Backoff(base=0.1, cap=0.5)
    )

    def names() -> set[str]:
        return {each.metadata.name for each in informer.store.values() if each.metadata.name != "kube-root-ca.crt"}

    await client.create(CONFIG_MAPS, config_map("before"), namespace=namespace)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await informer.wait_synced()
        await client.create(CONFIG_MAPS, config_map("watched"), namespace=namespace)
        await until(lambda: names() == {"before", "watched"})
        restart(control_plane)
        await client.delete(CONFIG_MAPS, "before", namespace=namespace)
        await client.create(CONFIG_MAPS, config_map("after"), namespace=namespace)
        await until(lambda: names() == {"watched", "after"})
        task.cancel()


async def test_an_eviction_is_made_and_refused_by_a_budget(client: Client, namespace: str) -> None:
    pod = {"metadata": {"name": "web-1", "labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
    await client.create(PODS, pod, namespace=namespace)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.patch(PODS, "web-1", MergePatch({"status": ready}), namespace=namespace, subresource="status")
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    await client.create(PDBS, budget, namespace=namespace)
    observed = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    status = MergePatch({"status": {**observed, "expectedPods": 1}})
    await client.patch(PDBS, "web", status, namespace=namespace, subresource="status")
    with pytest.raises(TooManyRequests):
        await client.evict("web-1", namespace=namespace)
    await client.delete(PDBS, "web", namespace=namespace)
    await client.evict("web-1", namespace=namespace, grace_period_seconds=0)
    with pytest.raises(NotFound):
        await client.get(PODS, "web-1", namespace=namespace)


async def test_a_pod_is_resized_through_its_subresource(client: Client, namespace: str) -> None:
    await client.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}}, namespace=namespace)
    bigger = {"name": "app", "resources": {"requests": {"cpu": "200m"}}}
    patch = StrategicMergePatch({"spec": {"containers": [bigger]}})
    pod = await client.patch(PODS, "p", patch, namespace=namespace, subresource="resize")
    assert ((pod.spec.containers or ())[0].resources.requests or {})["cpu"] == "200m"  # type: ignore[union-attr]


async def test_scale_is_read_and_written_as_a_compare_and_swap(client: Client, namespace: str) -> None:
    await client.create(DEPLOYMENTS, deployment("web", 3), namespace=namespace)
    scales = ScaleClient(client)
    reference = ObjectReference(api_version="apps/v1beta9", kind="Deployment", name="web")
    target = await scales.get(namespace, reference)
    assert (target.spec_replicas, target.selector) == (3, "app=web")
    written = await scales.set(target, 5)
    assert written.spec_replicas == 5
    with pytest.raises(Conflict):
        await scales.set(target, 7)
    with pytest.raises(NoMapping):
        await scales.get(namespace, ObjectReference(api_version="apps/v1", kind="Unknown", name="web"))


def widget_crd() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget"}
    return {
        "metadata": {"name": "widgets.kubetide.test"},
        "spec": {"group": "kubetide.test", "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def test_a_custom_resource_is_discovered_scaled_and_walked_to(client: Client, namespace: str) -> None:
    assert await client.discovery.resources_for("kubetide.test", "Widget") == ()
    await client.create(CRDS, widget_crd())
    scales = ScaleClient(client)
    reference = ObjectReference(api_version="kubetide.test/v1", kind="Widget", name="w")

    async def served() -> Any:
        client.discovery.invalidate()
        return (await scales.mappings(reference))[0]

    resource = await eventually(served)
    assert resource.scale_type == ("autoscaling/v1", "Scale")
    widget = {"apiVersion": "kubetide.test/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"replicas": 2}}
    made = await client.create(WIDGETS, widget, namespace=namespace)
    status = MergePatch({"status": {"replicas": 2, "selector": "app==w"}})
    await client.patch(WIDGETS, "w", status, namespace=namespace, subresource="status")
    target = await scales.get(namespace, reference)
    assert (target.spec_replicas, target.status_replicas, target.selector) == (2, 2, "app=w")
    assert (await scales.set(target, 4)).spec_replicas == 4

    owner = {"apiVersion": "kubetide.test/v1", "kind": "Widget", "name": "w", "controller": True}
    owned = deployment("owned")
    owned["metadata"]["ownerReferences"] = [{**owner, "uid": made["metadata"]["uid"]}]
    await client.create(DEPLOYMENTS, owned, namespace=namespace)
    owners = OwnerChain(client, scales, clock=CLOCK)
    start = ControllerKey(namespace=namespace, kind="Deployment", name="owned", api_version="apps/v1")
    topmost = await owners.topmost(start)
    assert topmost == ControllerKey(namespace=namespace, kind="Widget", name="w", api_version="kubetide.test/v1")


async def test_metrics_apis_that_nobody_serves_are_said_to_be_missing(client: Client, namespace: str) -> None:
    with pytest.raises(NotFound):
        await ResourceMetrics(client).pods(namespace)
    with pytest.raises(MetricsNotRegistered):
        await CustomMetrics(client).version()


async def test_the_lease_is_passed_on_when_released(
    client: Client, control_plane: ControlPlane, namespace: str
) -> None:
    def elector(connection: Client, name: str) -> LeaderElector:
        return LeaderElector(
            connection,
            clock=CLOCK,
            lease_name="kubetide",
            namespace=namespace,
            identity=name,
            lease_duration=timedelta(seconds=15),
            renew_deadline=timedelta(seconds=10),
            retry_period=timedelta(seconds=0.2),
        )

    async with connected(control_plane) as other, asyncio.TaskGroup() as group:
        first, second = elector(client, "first"), elector(other, "second")
        one = group.create_task(first.run(lambda: asyncio.sleep(3600)))
        await until(lambda: first.is_leader)
        two = group.create_task(second.run(lambda: asyncio.sleep(3600)))
        await until(lambda: second.holder == "first")
        one.cancel()
        await until(lambda: second.is_leader)
        lease = await client.get(LEASES, "kubetide", namespace=namespace)
        assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("second", 1)
        two.cancel()


async def test_events_are_written_and_counted(client: Client, namespace: str) -> None:
    recorder = EventRecorder(client, clock=CLOCK, component="kubetide-test")
    made = await client.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    about = ObjectReference(api_version="v1", kind="ConfigMap", namespace=namespace, name="a", uid=made.metadata.uid)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        for _ in range(3):
            recorder.publish(normal(about, "Tested", "it works"))
        await recorder.flush()
        task.cancel()
    (event,) = (await client.list(EVENTS, namespace=namespace, field_selector="reason=Tested")).items
    raw = await client.get_raw(EVENTS, event.metadata.name, namespace=namespace)
    assert (raw["count"], raw["message"], raw["source"]["component"]) == (3, "it works", "kubetide-test")


async def test_the_real_server_calls_our_webhook(
    client: Client, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async def mutate(review: AdmissionReview) -> dict[str, Any]:
        assert review.request is not None
        patch = [{"op": "add", "path": "/data", "value": {"by": "webhook"}}]
        return review_response(review.request.uid, patch=patch)

    async def validate(review: AdmissionReview) -> dict[str, Any]:
        assert review.request is not None
        refused = review.request.name == "forbidden"
        return review_response(review.request.uid, allowed=not refused, message="that name is taken by us")

    pair = issue(control_plane.ca, "webhook", now=CLOCK.now(), addresses=["127.0.0.1"])
    server = WebhookServer(
        {"/mutate": mutate, "/validate": validate},
        certificate=Certificate(certificate=Pem(data=pair.certificate), key=Pem(data=pair.key)),
        host="127.0.0.1",
        port=0,
    )

    def configuration(path: str) -> dict[str, Any]:
        core = {"apiGroups": [""], "apiVersions": ["v1"]}
        hook = {
            "name": f"{path}.kubetide.test",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{**core, "operations": ["CREATE"], "resources": ["configmaps"]}],
            "clientConfig": {
                "url": f"https://127.0.0.1:{server.port}/{path}",
                "caBundle": _encoded(control_plane.ca.certificate),
            },
        }
        return {"metadata": {"name": f"{path}-{namespace}"}, "webhooks": [hook]}

    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.run())
        await until(server.ready)
        await client.create(MUTATING_WEBHOOKS, configuration("mutate"))
        await client.create(VALIDATING_WEBHOOKS, configuration("validate"))
        try:
            names = (f"try-{number}" for number in range(10_000))

            async def mutated() -> None:
                made = await client.create(CONFIG_MAPS, config_map(next(names), x="1"), namespace=namespace)
                if (made.data or {}) != {"by": "webhook"}:
                    raise NotFound(404)

            async def refused() -> None:
                with pytest.raises(Forbidden, match="that name is taken by us"):
                    await client.create(CONFIG_MAPS, config_map("forbidden"), namespace=namespace, dry_run=True)

            await eventually(mutated)
            await eventually(refused)
        finally:
            await client.delete(MUTATING_WEBHOOKS, f"mutate-{namespace}")
            await client.delete(VALIDATING_WEBHOOKS, f"validate-{namespace}")
        task.cancel()


async def test_an_informer_of_all_namespaces_sees_them_all(client: Client, namespace: str) -> None:
    informer: Informer[ConfigMap] = Informer(client, CONFIG_MAPS, clock=CLOCK, label_selector="app=test")
    await client.create(CONFIG_MAPS, config_map("here"), namespace=namespace)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await until(lambda: ObjectKey(namespace, "here") in informer.store)
        task.cancel()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
