"""A simulated cluster under load that is recorded while recommender and autoscaler run, for tests."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from kubetide.api.objects.meta import ObjectKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.hpa.settings import HpaSettings
from kubetide.recording.core.pseudonyms import Pseudonyms
from kubetide.recording.format import Manifest
from kubetide.recording.live import LiveRecorder
from kubetide.recording.writer import Writer
from kubetide.testing.builders import make_hpa, make_vpa
from kubetide.vpa.recommender.settings import RecommenderSettings
from simulated.autoscaling import autoscaler
from simulated.cluster import run
from simulated.recommending import recommender


def scenario(workloads: int, *, interval: str = "15s") -> str:
    """Return workloads in namespaces of their own; every fifth leaks until it is OOM killed."""
    parts = []
    for number in range(workloads):
        leaks = number % 5 == 0
        parts.append(
            f"""
- name: w{number}
  namespace: ns{number}
  replicas: 2
  requests: {{cpu: 200m, memory: 256Mi}}
  {"limits: {memory: 300Mi}" if leaks else ""}
  load: {{curve: diurnal, low: {5 + number}, high: {40 + 2 * number}, peak-hour: {number % 24}, noise: 0.1}}
  cpu-per-request: 10m
  memory: {{base: 150Mi, per-request: 1Mi, leak-per-hour: {"120Mi" if leaks else "0"}}}
"""
        )
    nodes = '\nnodes:\n- {name: node, count: 4, cpu: "64", memory: 256Gi}\n'
    return f"tick: {interval}\nmetrics: {{interval: {interval}, delay: 2s}}\nworkloads:\n{''.join(parts)}{nodes}"


def record(
    target: Path,
    *,
    workloads: int,
    duration: timedelta,
    resolution: timedelta = timedelta(seconds=15),
    loop: timedelta = timedelta(minutes=1),
    pseudonyms: Pseudonyms | None = None,
    late: timedelta = timedelta(0),
) -> None:
    """Record a cluster where half of the workloads have a VPA and half an HPA; `late` is how long they ran before."""

    async def main(cluster: SimCluster) -> None:
        for number in range(workloads):
            name, namespace = f"w{number}", f"ns{number}"
            if number % 2:
                await cluster.apply(make_vpa(name, target=name, namespace=namespace))
            else:
                await cluster.apply(make_hpa(name, namespace, target=name, maximum=10, cpu_percent=60))
        # The recorder looks just after a scrape is served, so nobody else can have seen it before.
        await cluster.run_for(timedelta(seconds=2, microseconds=10))
        manifest = Manifest(
            source="live",
            interval_seconds=int(resolution.total_seconds()),
            start=int(cluster.clock.now().timestamp()),
        )
        settings = HpaSettings(leader_elect=False, sync_period=resolution)
        with Writer(target, manifest, pseudonyms=pseudonyms) as writer:
            async with (
                recommender(cluster, RecommenderSettings(interval=loop)),
                autoscaler(cluster, settings) as running,
            ):

                async def explain(kind: str, key: ObjectKey) -> Mapping[str, Any] | None:
                    return running.controller.explain(kind, str(key))

                await asyncio.sleep(late.total_seconds())
                recorder = LiveRecorder(cluster.client(), cluster.clock, writer, resolution=resolution, explain=explain)
                async with asyncio.TaskGroup() as group:
                    await group.create_task(recorder.run(duration))

    run(main, scenario=scenario(workloads, interval=f"{int(resolution.total_seconds())}s"))
