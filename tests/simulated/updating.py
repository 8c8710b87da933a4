"""Updater and admission controller at work in a simulated cluster, for tests.

async with vpa_parts(cluster) as running:
    await cluster.run_for(timedelta(minutes=5))
    assert running.evictions == 1
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from kubetide import crds
from kubetide.api.objects.scheme import VPAS as VPA_RESOURCE
from kubetide.api.values.patch import MergePatch
from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.watching import WatchPlan
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.client.client import Client
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.admission.webhook import AdmissionController
from kubetide.vpa.updater.loop import Updater
from kubetide.vpa.updater.settings import UpdaterSettings

Raw = dict[str, Any]

VPAS = ResourceKey("autoscaling.k8s.io", "verticalpodautoscalers")
CHECKPOINTS = ResourceKey("autoscaling.k8s.io", "verticalpodautoscalercheckpoints")


@dataclass(slots=True)
class Disruptions:
    """Evictions and resizes as the API server saw them succeed."""

    evictions: list[tuple[datetime, str]] = field(default_factory=list)
    resizes: list[tuple[datetime, str]] = field(default_factory=list)

    def most_in_a_minute(self) -> int:
        """Return the largest number of both together in any sixty seconds."""
        times = sorted(at for at, _ in (*self.evictions, *self.resizes))
        most, first = 0, 0
        for last, at in enumerate(times):
            while (at - times[first]).total_seconds() >= 60:
                first += 1
            most = max(most, last - first + 1)
        return most


@dataclass(slots=True)
class RunningParts:
    """The components that run."""

    cluster: SimCluster
    updaters: list[Updater]
    admission: AdmissionController | None
    telemetry: Telemetry

    @property
    def updater(self) -> Updater:
        """The only updater."""
        assert len(self.updaters) == 1
        return self.updaters[0]

    def condition(self, name: str, kind: str, *, namespace: str = "default") -> Raw | None:
        """Return a condition of a VPA."""
        return vpa_condition(self.cluster, name, kind, namespace=namespace)


def watch_disruptions(cluster: SimCluster) -> Disruptions:
    """Count evictions and resizes from now on, whoever asks for them."""
    seen = Disruptions()
    handle = cluster.api.handle

    async def counting(request: Request) -> Answer | WatchPlan:
        answer = await handle(request)
        if isinstance(answer, Answer) and answer.status < 300 and request.method in ("POST", "PATCH"):
            parts = request.path.split("/")
            if parts[-1] == "eviction":
                seen.evictions.append((cluster.clock.now(), f"{parts[-4]}/{parts[-2]}"))
            elif parts[-1] == "resize":
                seen.resizes.append((cluster.clock.now(), f"{parts[-4]}/{parts[-2]}"))
        return answer

    cluster.api.handle = counting  # type: ignore[method-assign]
    return seen


def end_watches_after(cluster: SimCluster, longest: timedelta) -> None:
    """Let the API server end every watch that is opened from now on after this time, as one that restarts does."""
    handle = cluster.api.handle
    seconds = longest.total_seconds()

    async def ending(request: Request) -> Answer | WatchPlan:
        answer = await handle(request)
        if isinstance(answer, WatchPlan):
            answer.timeout = min(answer.timeout or seconds, seconds)
        return answer

    cluster.api.handle = ending  # type: ignore[method-assign]


async def install_crds(cluster: SimCluster) -> None:
    """Let the cluster know VPAs."""
    for crd in crds.load_all():
        await cluster.apply(crd)


def vpa_condition(cluster: SimCluster, name: str, kind: str, *, namespace: str = "default") -> Raw | None:
    """Return a condition of a VPA."""
    vpa = cluster.world.get(VPAS, StoreKey(namespace, name))
    assert vpa is not None, f"VPA {namespace}/{name} is not there"
    for condition in (vpa.get("status") or {}).get("conditions") or ():
        if condition["type"] == kind:
            return dict(condition)
    return None


async def recommend(
    cluster: SimCluster,
    name: str,
    target: Mapping[str, str],
    *,
    namespace: str = "default",
    container: str = "main",
    lower: Mapping[str, str] | None = None,
    upper: Mapping[str, str] | None = None,
) -> None:
    """Write a recommendation into the status of a VPA, in place of a recommender."""
    client = cluster.client()
    entry = {
        "containerName": container,
        "target": dict(target),
        "lowerBound": dict(lower if lower is not None else _scaled(target, 0.9)),
        "upperBound": dict(upper if upper is not None else _scaled(target, 1.1)),
        "uncappedTarget": dict(target),
    }
    status = {
        "recommendation": {"containerRecommendations": [entry]},
        "conditions": [{"type": "RecommendationProvided", "status": "True", "lastTransitionTime": _stamp(cluster)}],
    }
    await client.patch(VPA_RESOURCE, name, MergePatch({"status": status}), namespace=namespace, subresource="status")


def _scaled(amounts: Mapping[str, str], factor: float) -> dict[str, str]:
    return {
        name: f"{int(parse_quantity(text).milli * factor)}m"
        if name == "cpu"
        else str(int(parse_quantity(text).value * factor))
        for name, text in amounts.items()
    }


def _stamp(cluster: SimCluster) -> str:
    return cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


@asynccontextmanager
async def vpa_parts(
    cluster: SimCluster,
    updater: UpdaterSettings | None = None,
    admission: AdmissionSettings | None = None,
    *,
    updaters: int = 1,
    with_admission: bool = True,
    seed: int = 0,
    client_of: Callable[[], Client] | None = None,
) -> AsyncIterator[RunningParts]:
    """Run updaters and the webhook beside the cluster; an error of one of them is an error of the test."""
    telemetry = Telemetry()
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    webhook = None
    if with_admission:
        client = cluster.client()
        webhook = AdmissionController(
            client,
            cluster.clock,
            admission or AdmissionSettings(local_name="vpa"),
            telemetry,
            None,
            Random(seed),
            local=cluster.api.admission,
        )
        tasks.append(loop.create_task(webhook.run(), name="admission"))
    running: list[Updater] = []
    for number in range(updaters):
        client = cluster.client() if client_of is None else client_of()
        recorder = EventRecorder(client, clock=cluster.clock, component="vpa-updater")
        made = Updater(
            client, cluster.clock, updater or UpdaterSettings(), Telemetry(), recorder, Random(seed * 100 + number)
        )
        running.append(made)
        tasks.append(loop.create_task(made.run(), name=f"updater-{number}"))
        tasks.append(loop.create_task(recorder.run(), name=f"recorder-{number}"))
    try:
        yield RunningParts(cluster, running, webhook, telemetry)
    finally:
        await stop(tasks)


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and raise what went wrong in them."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
