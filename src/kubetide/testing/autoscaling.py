"""The horizontal autoscaler at work in a simulated cluster, for tests.

async with autoscaler(cluster) as running:
    await cluster.run_for(timedelta(minutes=5))
    assert running.replicas("default", "web") == 4
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

from kubetide.embedded.objects import ResourceKey, StoreKey
from kubetide.embedded.requests import User
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.world import DEPLOYMENTS
from kubetide.hpa.controller import HpaController
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.recorder import EventRecorder
from kubetide.telemetry import Telemetry

HPAS = ResourceKey("autoscaling", "horizontalpodautoscalers")


@dataclass(slots=True)
class Running:
    """A controller that runs, and short ways to ask what it brought about."""

    cluster: SimCluster
    controller: HpaController
    telemetry: Telemetry
    recorder: EventRecorder
    sizes: list[tuple[datetime, int]] = field(default_factory=list)

    def replicas(self, namespace: str, name: str, resource: ResourceKey = DEPLOYMENTS) -> int:
        """Return the wanted size of a workload."""
        found = self.cluster.world.get(resource, StoreKey(namespace, name))
        assert found is not None, f"{resource.plural} {namespace}/{name} is not there"
        return int(found["spec"].get("replicas", 1))

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


@asynccontextmanager
async def autoscaler(
    cluster: SimCluster, settings: HpaSettings | None = None, *, user: User | str | None = None, seed: int = 0
) -> AsyncIterator[Running]:
    """Run the horizontal autoscaler beside the cluster; an error of it is an error of the test."""
    client = cluster.client(user)
    telemetry = Telemetry()
    recorder = EventRecorder(client, clock=cluster.clock, component="horizontal-pod-autoscaler")
    controller = HpaController(client, cluster.clock, settings or HpaSettings(), telemetry, recorder, Random(seed))
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(controller.run(), name="hpa"), loop.create_task(recorder.run(), name="recorder")]
    try:
        yield Running(cluster, controller, telemetry, recorder)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
