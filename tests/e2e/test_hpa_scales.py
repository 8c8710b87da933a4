"""The horizontal autoscaler against a real kube-apiserver, with a metrics API behind the real aggregation layer."""

import asyncio
import base64
import random
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from e2e.controlplane import BinariesMissing, ControlPlane, find_binaries, running
from e2e.programs import PATIENCE
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import (
    API_SERVICES,
    DEPLOYMENTS,
    EVENTS,
    HPAS,
    LEASES,
    NAMESPACES,
    PODS,
    SERVICES,
    untyped,
)
from kubetide.api.values.patch import MergePatch
from kubetide.clock import SystemClock
from kubetide.errors import KubetideError
from kubetide.hpa.controller import HpaController
from kubetide.hpa.explain import render
from kubetide.hpa.recompute import recompute
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.certificates import issue
from kubetide.kube.client.client import Client
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.listener import listening
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_hpa, make_pod

CLOCK = SystemClock()
NAMESPACE = "hpa-e2e"
USER = "kubetide-hpa"
GROUP_PATH = "/apis/metrics.k8s.io/v1beta1"
CLUSTER_ROLES = untyped("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
BINDINGS = untyped("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)

# What the controller needs, and nothing else.
RULES = [
    {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers/status"], "verbs": ["update"]},
    {"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["get", "update"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "update", "patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
]


class FakeMetrics:
    """metrics.k8s.io for two pods that use as much as the test says."""

    def __init__(self) -> None:
        self.cpu = "100m"
        self.requests = 0

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path
        if path == GROUP_PATH:
            pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["list"]}
            body: Any = {"kind": "APIResourceList", "groupVersion": "metrics.k8s.io/v1beta1", "resources": [pods]}
        elif path.endswith("/pods"):
            self.requests += 1
            body = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}}
            body["items"] = [self._item(name) for name in ("web-0", "web-1")]
        else:
            body = {"kind": "APIGroup", "name": "metrics.k8s.io", "versions": []}
        return web.json_response(body)

    def _item(self, name: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "web"}},
            "timestamp": f"{CLOCK.now():%Y-%m-%dT%H:%M:%SZ}",
            "window": "15s",
            "containers": [{"name": "main", "usage": {"cpu": self.cpu, "memory": "10Mi"}}],
        }


@asynccontextmanager
async def connected(plane: ControlPlane, user: str) -> AsyncIterator[Client]:
    client = Client(HttpTransport(from_files([plane.kubeconfig(user)], clock=CLOCK)), clock=CLOCK)
    try:
        yield client
    finally:
        await client.close()
        await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(plane: ControlPlane, folder: Path, admin: Client) -> AsyncIterator[FakeMetrics]:
    """Serve the metrics API and register it."""
    metrics = FakeMetrics()
    name = "metrics-server"
    pair = issue(plane.ca, name, now=CLOCK.now(), dns_names=[f"{name}.kube-system.svc", "localhost"])
    chain = folder / "metrics.pem"
    chain.write_text(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    app = web.Application()
    app.router.add_get("/{path:.*}", metrics.answer)
    async with listening(web.AppRunner(app), "127.0.0.1", 0, tls=context) as port, registered(plane, admin, name, port):
        yield metrics


@asynccontextmanager
async def registered(plane: ControlPlane, admin: Client, name: str, port: int) -> AsyncIterator[None]:
    """Have the API server forward metrics.k8s.io to a port of this machine."""
    service = {"metadata": {"name": name}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    await admin.create(SERVICES, service, namespace="kube-system")
    registration = {
        "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            "service": {"name": name, "namespace": "kube-system", "port": port},
            "caBundle": base64.b64encode(plane.ca.certificate.encode()).decode(),
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    await admin.create(API_SERVICES, registration)
    try:
        yield
    finally:
        await admin.delete(API_SERVICES, "v1beta1.metrics.k8s.io")
        await admin.delete(SERVICES, name, namespace="kube-system")


async def prepare(admin: Client) -> None:
    """Make a deployment of two pods that run, as far as an API server without a kubelet can tell."""
    await admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    role = {"metadata": {"name": USER}, "rules": RULES}
    await admin.create(CLUSTER_ROLES, role)
    subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    await admin.create(BINDINGS, {"metadata": {"name": USER}, "roleRef": reference, "subjects": [subject]})
    await admin.create(DEPLOYMENTS, make_deployment("web", NAMESPACE, replicas=2, cpu="200m"), namespace=NAMESPACE)
    started = f"{CLOCK.now() - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    for name in ("web-0", "web-1"):
        made = make_pod(name, NAMESPACE, labels={"app": "web"}, cpu="200m", node="node-1")
        await admin.create(PODS, made, namespace=NAMESPACE)
        status = {
            "phase": "Running",
            "startTime": started,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": started}],
        }
        await admin.patch(PODS, name, MergePatch({"status": status}), namespace=NAMESPACE, subresource="status")
    autoscaled = make_hpa("web", NAMESPACE, maximum=6, cpu_percent=50)
    autoscaled["metadata"]["annotations"] = {"note": "kept"}
    await admin.create(HPAS, autoscaled, namespace=NAMESPACE)


@asynccontextmanager
async def autoscaling(client: Client, settings: HpaSettings) -> AsyncIterator[HpaController]:
    recorder = EventRecorder(client, clock=CLOCK, component="horizontal-pod-autoscaler")
    controller = HpaController(client, CLOCK, settings, Telemetry(), recorder, random.Random(1))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(controller.run()), group.create_task(recorder.run())]
        try:
            yield controller
        finally:
            for task in tasks:
                task.cancel()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                if await condition():
                    return
            except KubetideError:
                pass
            await asyncio.sleep(0.2)


@pytest.fixture
async def clean(control_plane: ControlPlane) -> AsyncIterator[None]:
    """Leave the shared control plane as it was."""
    yield
    async with connected(control_plane, "admin") as admin:
        for resource in (BINDINGS, CLUSTER_ROLES):
            await admin.delete(resource, USER)
        await admin.delete(NAMESPACES, NAMESPACE)


@pytest.mark.usefixtures("clean")
async def test_a_deployment_is_scaled_up_and_down(control_plane: ControlPlane, tmp_path: Path) -> None:
    settings = HpaSettings(sync_period=timedelta(seconds=1), downscale_stabilization=timedelta(seconds=4))
    async with connected(control_plane, "admin") as admin:
        await prepare(admin)

        async with serving(control_plane, tmp_path, admin) as metrics, connected(control_plane, USER) as client:
            await until(lambda: _served(admin))
            async with autoscaling(client, settings) as controller:
                metrics.cpu = "500m"
                await until(lambda: _size_is(admin, 6))
                await until(lambda: _condition(admin, "ScalingLimited", "True"))
                hpa = await admin.get(HPAS, "web", namespace=NAMESPACE)
                assert hpa.status.desired_replicas == 6
                assert hpa.metadata.annotations == {"note": "kept"}
                writers = {(one.manager, one.subresource) for one in hpa.metadata.managed_fields or ()}
                assert (USER, "status") in writers
                trace = controller.explain("hpa", f"{NAMESPACE}/web")
                assert trace is not None
                assert "proposes" in render(trace)

                metrics.cpu = "20m"
                await until(lambda: _size_is(admin, 1))
                await until(lambda: _told(admin, "All metrics below target"))
                if (kubectl := shutil.which("kubectl")) is not None:
                    shown = await _run(kubectl, control_plane, "describe", "hpa", "web")
                    for text in ("resource cpu on pods", "AbleToScale", "ValidMetricFound", "New size: 6"):
                        assert text in shown, shown
                lease = await admin.get(LEASES, "kubetide-hpa", namespace="kube-system")
                assert lease.spec.holder_identity
                recomputed = await recompute(admin, CLOCK, settings, ObjectKey(NAMESPACE, "web"))
                assert recomputed["recomputed"]
                assert "History is missing" in render(recomputed)
            assert metrics.requests > 3


async def test_it_stands_back_for_the_built_in_controller_and_takes_over_when_told(tmp_path: Path) -> None:
    try:
        binaries = find_binaries()
    except BinariesMissing as error:
        pytest.skip(str(error))
    if binaries.kube_controller_manager is None:
        pytest.skip("no kube-controller-manager: put it beside kube-apiserver")
    quick = ("--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-downscale-stabilization=2s")
    settings = HpaSettings(sync_period=timedelta(seconds=1), downscale_stabilization=timedelta(seconds=2))
    with running(tmp_path / "plane") as plane:
        async with connected(plane, "admin") as admin:
            await prepare(admin)
            async with serving(plane, tmp_path, admin) as metrics, connected(plane, USER) as client:
                await until(lambda: _served(admin))
                await asyncio.to_thread(
                    plane.start_controller_manager,
                    extra=("--controllers=horizontal-pod-autoscaler-controller", *quick),
                )
                async with autoscaling(client, settings) as controller:
                    metrics.cpu = "500m"
                    # The built-in controller scales; kubetide sees its marks and does not act.
                    await until(lambda: _size_is(admin, 6))
                    await until(lambda: _stands_back(controller))
                    (note,) = controller.notes()
                    assert note.startswith("1 of 1 autoscalers: looks and does not act")
                    hpa = await admin.get(HPAS, "web", namespace=NAMESPACE)
                    writers = {one.manager for one in hpa.metadata.managed_fields or () if one.subresource == "status"}
                    assert "kube-controller-manager" in writers
                plane.stop_one("kube-controller-manager")
                told = msgspec.structs.replace(settings, take_over=True)
                async with autoscaling(client, told):
                    metrics.cpu = "20m"
                    await until(lambda: _size_is(admin, 1))
                    hpa = await admin.get(HPAS, "web", namespace=NAMESPACE)
                    assert hpa.metadata.annotations == {"note": "kept"}
                # And back: kubetide is gone, the built-in controller goes on with the same object.
                await asyncio.to_thread(
                    plane.start_controller_manager,
                    extra=("--controllers=horizontal-pod-autoscaler-controller", *quick),
                )
                metrics.cpu = "500m"
                await until(lambda: _size_is(admin, 6))


async def _stands_back(controller: HpaController) -> bool:
    trace = controller.explain("hpa", f"{NAMESPACE}/web")
    return trace is not None and not trace["acts"] and "kube-controller-manager" in trace["stance"]


async def _size_is(admin: Client, wanted: int) -> bool:
    found = await admin.get(DEPLOYMENTS, "web", namespace=NAMESPACE)
    return found.spec.replicas == wanted


async def _run(kubectl: str, plane: ControlPlane, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        kubectl,
        f"--kubeconfig={plane.kubeconfig('admin')}",
        f"--namespace={NAMESPACE}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output.decode()


async def _served(admin: Client) -> bool:
    await admin.request("GET", f"{GROUP_PATH}/namespaces/{NAMESPACE}/pods")
    return True


async def _condition(admin: Client, kind: str, status: str) -> bool:
    hpa = await admin.get(HPAS, "web", namespace=NAMESPACE)
    return any(one.type == kind and one.status == status for one in hpa.status.conditions or ())


async def _told(admin: Client, text: str) -> bool:
    """Events are written behind the decision they tell of: a reader waits for them."""
    events = await admin.list(EVENTS, namespace=NAMESPACE)
    return any(one.reason == "SuccessfulRescale" and text in one.message for one in events.items)
