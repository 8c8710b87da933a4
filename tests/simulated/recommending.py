"""The recommender at work in a simulated cluster, for tests.

async with recommender(cluster) as running:
    await cluster.run_for(timedelta(hours=1))
    assert running.target("default", "web", "main")["cpu"] > 100
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from kubetide.api.values.quantity import parse_quantity
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.client.client import Client
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.loop import Recommender
from kubetide.vpa.recommender.prometheus import Prometheus
from kubetide.vpa.recommender.settings import RecommenderSettings

Raw = dict[str, Any]

VPAS = ResourceKey("autoscaling.k8s.io", "verticalpodautoscalers")
CHECKPOINTS = ResourceKey("autoscaling.k8s.io", "verticalpodautoscalercheckpoints")


def vpa_status(cluster: SimCluster, namespace: str, name: str) -> Raw:
    """Return the status of a VPA as it is stored."""
    found = cluster.world.get(VPAS, StoreKey(namespace, name))
    assert found is not None, f"VPA {namespace}/{name} is not there"
    return dict(found.get("status") or {})


def recommended(
    cluster: SimCluster, namespace: str, name: str, container: str = "main", bound: str = "target"
) -> dict[str, int]:
    """Return one bound of a container's recommendation in millicores and bytes; empty while there is none."""
    recommendation = vpa_status(cluster, namespace, name).get("recommendation") or {}
    for entry in recommendation.get("containerRecommendations") or ():
        if entry["containerName"] == container:
            amounts = {resource: parse_quantity(text) for resource, text in entry[bound].items()}
            return {r: amount.milli if r == "cpu" else amount.value for r, amount in amounts.items()}
    return {}


def condition(cluster: SimCluster, namespace: str, name: str, kind: str) -> Raw:
    """Return a condition of a VPA; empty if it is not there."""
    for one in vpa_status(cluster, namespace, name).get("conditions") or ():
        if one["type"] == kind:
            return dict(one)
    return {}


def checkpoint(cluster: SimCluster, namespace: str, name: str) -> Raw | None:
    """Return a checkpoint as it is stored."""
    return cluster.world.get(CHECKPOINTS, StoreKey(namespace, name))


@dataclass(slots=True)
class RunningRecommender:
    """A recommender that runs."""

    recommender: Recommender
    telemetry: Telemetry
    task: "asyncio.Task[None]"

    def counted(self, metric: str, **labels: str) -> float:
        """Return the value of one of its own metrics, summed over the labels not given."""
        total = 0.0
        for family in self.telemetry.registry.collect():
            for sample in family.samples:
                if sample.name == metric and labels.items() <= sample.labels.items():
                    total += sample.value
        return total


@asynccontextmanager
async def recommender(
    cluster: SimCluster,
    settings: RecommenderSettings | None = None,
    *,
    client: Client | None = None,
    seed: int = 0,
    prometheus: Prometheus | None = None,
    elect: bool = False,
) -> AsyncIterator[RunningRecommender]:
    """Run the recommender beside the cluster; an error of it is an error of the test.

    Without `elect` it always leads: renewing a lease every two seconds would dominate days of simulated time.
    """
    used = client or cluster.client()
    chosen = msgspec.structs.replace(settings or RecommenderSettings(), leader_elect=elect)
    telemetry = Telemetry()
    recorder = EventRecorder(used, clock=cluster.clock, component="vpa-recommender")
    made = Recommender(
        used,
        cluster.clock,
        chosen,
        telemetry,
        recorder,
        Random(seed),
        prometheus=prometheus,
    )
    loop = asyncio.get_running_loop()
    work = loop.create_task(made.run(), name="recommender")
    writing = loop.create_task(recorder.run(), name="recorder")
    try:
        yield RunningRecommender(made, telemetry, work)
    finally:
        if work.done() and not work.cancelled():
            work.result()
        work.cancel()
        writing.cancel()
        await asyncio.gather(work, writing, return_exceptions=True)
