"""The horizontal autoscaler at work in a simulated cluster, for tests.

async with autoscaler(cluster) as running:
    await cluster.run_for(timedelta(minutes=5))
    assert running.replicas("default", "web") == 4
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.world import DEPLOYMENTS
from kubetide.hpa.controller import HpaController
from kubetide.hpa.headroom.past_loads import PastLoads
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response, Transport
from kubetide.kube.control.instruments import Instruments
from kubetide.kube.control.manager import running
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry

HPAS = ResourceKey("autoscaling", "horizontalpodautoscalers")


@dataclass(slots=True)
class Running:
    """A controller that runs, and short ways to ask what it brought about."""

    cluster: SimCluster
    controller: HpaController
    telemetry: Telemetry
    requests: "Meddler"

    def replicas(self, namespace: str, name: str, resource: ResourceKey = DEPLOYMENTS) -> int:
        """Return the wanted size of a workload."""
        found = self.cluster.world.get(resource, StoreKey(namespace, name))
        assert found is not None, f"{resource.plural} {namespace}/{name} is not there"
        return int(found["spec"].get("replicas", 1))

    async def follow(
        self, duration: timedelta, namespace: str, name: str, *, every: timedelta = timedelta(seconds=1)
    ) -> list[tuple[float, int]]:
        """Let time pass and return the sizes of a deployment as (second, replicas), one entry per change."""
        sizes: list[tuple[float, int]] = []
        end = self.cluster.elapsed() + duration.total_seconds()
        while True:
            size = self.replicas(namespace, name)
            if not sizes or sizes[-1][1] != size:
                sizes.append((self.cluster.elapsed(), size))
            if self.cluster.elapsed() >= end:
                return sizes
            await self.cluster.run_for(every)

    def status(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the status of an autoscaler."""
        found = self.cluster.world.get(HPAS, StoreKey(namespace, name))
        assert found is not None, f"autoscaler {namespace}/{name} is not there"
        return dict(found.get("status") or {})

    def condition(self, namespace: str, name: str, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition; empty texts if it is not there."""
        for one in self.status(namespace, name).get("conditions") or ():
            if one["type"] == kind:
                return one["status"], one["reason"]
        return "", ""

    def counted(self, metric: str, **labels: str) -> float:
        """Return the value of one of the controller's own metrics, summed over the labels not given."""
        total = 0.0
        for family in self.telemetry.registry.collect():
            for sample in family.samples:
                if sample.name == metric and labels.items() <= sample.labels.items():
                    total += sample.value
        return total


Interference = Callable[[str, str], Response | Exception | None]
"""Given method and path, what to answer instead; None lets the request through."""


class Meddler:
    """A transport that counts requests and, where asked to, answers them itself."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.counts: Counter[str] = Counter()
        """Requests by what they are about: `scale`, `status`, `metrics`, `custom`, `external`, else the method."""
        self.writes: list[str] = []
        self.interfere: Interference | None = None

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
        """Count, perhaps answer, else pass on."""
        self.counts[kind_of(method, path)] += 1
        if method not in ("GET", "HEAD") and "/leases" not in path and "/events" not in path:
            self.writes.append(f"{method} {path}")
        found = self.interfere(method, path) if self.interfere is not None else None
        if isinstance(found, Exception):
            raise found
        if found is not None:
            return found
        return await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout=timeout
        )

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch."""
        self.counts["watch"] += 1
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        """Close the transport behind."""
        await self._inner.close()


def kind_of(method: str, path: str) -> str:
    """Say what a request is about."""
    for group, name in (("custom.metrics", "custom"), ("external.metrics", "external"), ("metrics.k8s.io", "metrics")):
        if path.startswith(f"/apis/{group}") and path.count("/") > 3:
            return name
    if path.endswith("/scale"):
        return "scale" if method == "GET" else "rescale"
    if path.endswith("/status"):
        return "status"
    return method


@asynccontextmanager
async def autoscaler(
    cluster: SimCluster,
    settings: HpaSettings | None = None,
    *,
    user: User | str | None = None,
    seed: int = 0,
    interfere: Interference | None = None,
    past: PastLoads | None = None,
) -> AsyncIterator[Running]:
    """Run the horizontal autoscaler beside the cluster; an error of it is an error of the test."""
    meddler = Meddler(cluster.transport(user))
    meddler.interfere = interfere
    telemetry = Telemetry()
    announce = Instruments(telemetry).of("hpa")
    client = Client(meddler, clock=cluster.clock, rng=Random(seed), announce=announce)
    recorder = EventRecorder(client, clock=cluster.clock, component="horizontal-pod-autoscaler")
    chosen = settings or HpaSettings()
    controller = HpaController(client, cluster.clock, chosen, telemetry, recorder, Random(seed), past)
    async with running(controller, recorder):
        yield Running(cluster, controller, telemetry, meddler)
