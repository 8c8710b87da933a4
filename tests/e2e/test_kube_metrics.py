"""The metrics clients through the aggregation layer of a real kube-apiserver."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from e2e.controlplane import ControlPlane
from e2e.metrics_server import MetricsServer
from e2e.programs import PATIENCE
from kubetide.api.objects.meta import ObjectReference
from kubetide.clock import SystemClock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import from_files
from kubetide.kube.metrics import CustomMetrics, ExternalMetrics, ResourceMetrics

CLOCK = SystemClock()


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    access = from_files([control_plane.kubeconfig()], clock=CLOCK)
    connection = Client(HttpTransport(access), clock=CLOCK, rng=random.Random(1))
    yield connection
    await connection.close()
    await asyncio.sleep(0.01)


async def eventually(attempt: Any) -> Any:
    """Call until the aggregation layer has found the server behind it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await attempt()
            except KubetideError:
                await asyncio.sleep(0.2)


async def test_all_three_metrics_apis_answer_through_the_aggregation_layer(client: Client) -> None:
    server = MetricsServer()
    usage = {"name": "app", "usage": {"cpu": "250m", "memory": "64Mi"}}
    sample = {"metadata": {"name": "web-0", "namespace": "shop"}, "timestamp": "2026-01-05T10:00:00Z", "window": "15s"}
    server.answers["/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"] = [{**sample, "containers": [usage]}]
    custom = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop"
    server.answers[f"{custom}/pods/*/rps"] = [{"describedObject": {"name": "web-0"}, "value": "1500m"}]
    server.answers[f"{custom}/services/front/hits"] = [{"describedObject": {"name": "front"}, "value": "7"}]
    external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop"
    server.answers[f"{external}/queue|length"] = [{"metricName": "queue|length", "value": "42"}]
    async with server.serving(client):
        resource = ResourceMetrics(client)
        (pod,) = await eventually(lambda: resource.pods("shop", "app=web"))
        assert [container.usage for container in pod.containers or ()] == [usage["usage"]]

        metrics = CustomMetrics(client)

        async def of_pods() -> Any:
            client.discovery.invalidate()
            return await metrics.for_pods("shop", "rps", pod_selector="app=web", metric_selector="verb=GET")

        (value,) = await eventually(of_pods)
        assert (value.described_object.name, value.value) == ("web-0", "1500m")
        front = ObjectReference(api_version="v1", kind="Service", name="front")
        assert (await metrics.for_object("shop", front, "hits")).value == "7"

        (length,) = await eventually(lambda: ExternalMetrics(client).values("shop", "queue|length", selector="q=a"))
        assert length.value == "42"
    assert "labelSelector=app%3Dweb" in next(path for path in server.asked if "/metrics.k8s.io/" in path)
