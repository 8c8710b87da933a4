"""A metrics API that answers without measure, over real sockets: little is read, it is told, and nothing shrinks."""

import asyncio
import gzip
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from aiohttp import web

from embedded_server import Running, running
from kubetide.api.objects.scheme import DEPLOYMENTS, HPAS, PODS
from kubetide.clock import SystemClock
from kubetide.hpa.controller import HpaController
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.kube.client.transport import METRICS_LIMIT, Response, Transport
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.listener import listening
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_hpa, make_pod

CLOCK = SystemClock()
LONG = 110 << 20
CHUNK = 1 << 20
IN_FLIGHT = 32 << 20
"""What may lie in buffers on the way when the client hangs up."""
PATIENCE = 60


def item(number: int) -> bytes:
    """Return the usage of one idle pod: taken at its word, the target would shrink."""
    return (
        b'{"metadata":{"name":"web-%d","namespace":"default","labels":{"app":"web"}},"timestamp":"%s",'
        b'"window":"15s","containers":[{"name":"main","usage":{"cpu":"1m","memory":"1Mi"}}]}'
        % (number, f"{CLOCK.now():%Y-%m-%dT%H:%M:%SZ}".encode())
    )


@cache
def blanks() -> bytes:
    """Return a long answer of nothing, compressed a thousandfold."""
    return gzip.compress(b" " * LONG, compresslevel=6)


class Metrics:
    """metrics.k8s.io as somebody with bad intentions, or none at all, would write it."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.sent: list[int] = []
        """Bytes that went into the socket, by request."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer with a list of usage."""
        if self.way == "sane":
            body = b'{"kind":"PodMetricsList","items":[%s]}' % b",".join(item(number) for number in range(3))
            return web.Response(body=body, content_type="application/json")
        position = len(self.sent)
        self.sent.append(0)
        response = web.StreamResponse()
        if self.way == "declared":
            response.content_length = LONG
        if self.way == "compressed":
            response.headers["Content-Encoding"] = "gzip"
        try:
            await response.prepare(request)
            async for chunk in self._body():
                await response.write(chunk)
                self.sent[position] += len(chunk)
            await response.write_eof()
        except ConnectionError:
            pass
        return response

    async def _body(self) -> AsyncIterator[bytes]:
        if self.way == "compressed":
            yield blanks()
            return
        one = item(1)
        many = b",".join([one] * (CHUNK // len(one)))
        head, tail = b'{"kind":"PodMetricsList","items":[', b"]}"
        yield head
        written = len(head)
        while self.way == "endless" or written + len(many) + 1 < LONG:
            yield many + b","
            written += len(many) + 1
        yield one
        # Blanks up to the declared length: JSON allows them.
        yield tail + b" " * (LONG - written - len(one) - len(tail))


class Routed:
    """A transport to a cluster, and to another server for usage, as an aggregation layer would forward it."""

    def __init__(self, cluster: Transport, metrics: Transport) -> None:
        self._cluster = cluster
        self._metrics = metrics

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        """Send a request where it belongs."""
        to = self._metrics if path.startswith("/apis/metrics.k8s.io/") else self._cluster
        return await to.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout=timeout
        )

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch of the cluster."""
        return self._cluster.watch(path, query=query)

    async def close(self) -> None:
        """Close both."""
        await self._cluster.close()
        await self._metrics.close()


@asynccontextmanager
async def served(metrics: Metrics) -> AsyncIterator[HttpTransport]:
    app = web.Application()
    app.router.add_get("/{path:.*}", metrics.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    async with listening(runner, "127.0.0.1", 0) as port:
        yield HttpTransport(Access(server=f"http://127.0.0.1:{port}", trust=ServerTrust(), credentials=Static()))


async def prepare(server: Running) -> None:
    client = Client(server.transport(), clock=CLOCK)
    await client.create(DEPLOYMENTS, make_deployment("web", replicas=3, cpu="100m"), namespace="default")
    for number in range(3):
        made = make_pod(f"web-{number}", labels={"app": "web"}, cpu="100m", phase="Running", ready=True)
        made["status"]["startTime"] = made["status"]["conditions"][0]["lastTransitionTime"] = "2024-01-01T00:00:00Z"
        await client.create(PODS, made, namespace="default")
        await client.update(PODS, made["metadata"]["name"], made, namespace="default", subresource="status")
    await client.create(HPAS, make_hpa("web", cpu_percent=50), namespace="default")
    await client.close()


@asynccontextmanager
async def autoscaler(client: Client) -> AsyncIterator[None]:
    settings = HpaSettings(
        sync_period=timedelta(seconds=1), downscale_stabilization=timedelta(0), leader_elect=False, workers=1
    )
    recorder = EventRecorder(client, clock=CLOCK, component="horizontal-pod-autoscaler")
    controller = HpaController(client, CLOCK, settings, Telemetry(), recorder, random.Random(1))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(recorder.run()), group.create_task(controller.run())]
        yield
        for task in tasks:
            task.cancel()


async def active(client: Client) -> tuple[str, str]:
    """Return reason and message of ScalingActive; empty before the first turn."""
    found: dict[str, Any] = await client.get_raw(HPAS, "web", namespace="default")
    for one in (found.get("status") or {}).get("conditions") or ():
        if one["type"] == "ScalingActive":
            return one["reason"], one["message"]
    return "", ""


async def replicas(client: Client) -> int:
    return int((await client.get_raw(DEPLOYMENTS, "web", namespace="default"))["spec"]["replicas"])


@pytest.mark.parametrize(
    ("way", "most"),
    [
        pytest.param("streamed", METRICS_LIMIT + IN_FLIGHT, id="110-megabytes-in-chunks"),
        pytest.param("declared", IN_FLIGHT, id="110-megabytes-declared"),
        pytest.param("endless", METRICS_LIMIT + IN_FLIGHT, id="without-an-end"),
        pytest.param("compressed", IN_FLIGHT, id="110-megabytes-compressed"),
    ],
)
async def test_an_answer_without_measure_is_cut_off_and_shrinks_nothing(way: str, most: int) -> None:
    metrics = Metrics(way)
    async with running() as server, served(metrics) as usage:
        await prepare(server)
        client = Client(Routed(server.transport(), usage), clock=CLOCK, rng=random.Random(1))
        async with autoscaler(client), asyncio.timeout(PATIENCE):
            while len(metrics.sent) < 4 or not (await active(client))[0]:  # noqa: ASYNC110 - the world has no event
                await asyncio.sleep(0.05)
            reason, message = await active(client)
            assert reason == "FailedGetResourceMetric"
            assert f"longer than the limit of {METRICS_LIMIT} bytes" in message
            assert await replicas(client) == 3
            assert max(metrics.sent) < most
            # The same samples in an answer of sane length do shrink the target: it was the length that did not.
            metrics.way = "sane"
            while await replicas(client) != 1:  # noqa: ASYNC110 - the world has no event
                await asyncio.sleep(0.05)
        await client.close()
