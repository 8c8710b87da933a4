"""Pods that come and go on a simulated node while its agent runs: what must stay bounded, measured.

Every ten seconds the oldest of the pods is replaced. Samples are taken every ten seconds; history, models and the
audit log are on disk. Virtual time, so hours take minutes.
"""

import asyncio
import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from kubetide.api.scheme import PODS
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.node.agent import NodeAgent
from kubetide.node.controller import make_modules
from kubetide.node.host.layout import Layout
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_pod
from kubetide.testing.cluster import run

PODS_AT_ONCE = 20
STEP = timedelta(seconds=10)
NODE = "node-1"
NODE_METRIC = {
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "kind": "NodeMetric",
    "metadata": {"name": NODE},
    "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What the agent holds at one moment."""

    hours: float
    pods_seen: int
    resident_mib: float
    agent_objects: int
    descriptors: int
    series: int
    ring_mib: float
    models: int
    model_files: int
    executor_entries: int
    known_pods: int
    history_mib: float
    telemetry_lines: int
    restarts: int


def resident_mib() -> float:
    """Return the memory of this process."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def agent_objects() -> int:
    """Return how many objects of the agent's own types are alive; the simulated cluster is not counted."""
    owners = ("kubetide.node", "kubetide.stats", "prometheus_client")
    return sum(str(type(one).__module__).startswith(owners) for one in gc.get_objects())


def soak(
    duration: timedelta, folder: Path, *, every: timedelta, show: Callable[[Measure], None] | None = None
) -> list[Measure]:
    """Run the churn and return a measure at every step of `every`."""
    measures: list[Measure] = []

    async def main(cluster: SimCluster) -> None:
        host = cluster.add_node(NODE, cpu="16", memory="64Gi", pods=110)
        await cluster.apply(NODE_METRIC)
        telemetry = Telemetry()
        agent = NodeAgent(
            cluster.client(),
            cluster.clock,
            NodeSettings(
                node_name=NODE,
                collect_res_used_interval=STEP,
                feature_gates="PSICollector=true",
                audit_log_dir=str(folder / "audit"),
                metric_history_path=str(folder / "history"),
                prediction_checkpoint_filepath=str(folder / "models"),
                reconcile_interval_seconds=10,
                cpu_suppress_interval_seconds=10,
            ),
            host,
            telemetry,
            layout=Layout(version=host.version, paths=host.paths),
            commands=host,
            modules=lambda made: make_modules(made, sockets=False),
        )
        client = cluster.client()
        seen = 0
        alive: list[str] = []

        def measure() -> Measure:
            gc.collect()
            history = folder / "history" / "samples.sqlite"
            return Measure(
                hours=cluster.elapsed() / 3600,
                pods_seen=seen,
                resident_mib=resident_mib(),
                agent_objects=agent_objects(),
                descriptors=len(os.listdir("/proc/self/fd")),
                series=agent.store.ring.series_count,
                ring_mib=agent.store.ring.nbytes / 2**20,
                models=len(agent.prediction.models),
                model_files=len(list((folder / "models").glob("*"))),
                executor_entries=agent.executor.remembered,
                known_pods=len(agent.pods.states()),
                history_mib=history.stat().st_size / 2**20 if history.exists() else 0.0,
                telemetry_lines=telemetry.render().count(b"\n"),
                restarts=sum(state.restarts for state in agent.modules.states.values()),
            )

        task = asyncio.get_running_loop().create_task(agent.run())
        try:
            steps = int(duration / STEP)
            between = max(int(every / STEP), 1)
            for step in range(steps):
                name = f"pod-{step:06d}"
                await cluster.apply(make_pod(name, cpu="200m", memory="128Mi", cpu_limit="400m"))
                cluster.set_usage("default", name, cpu="100m", memory="64Mi")
                alive.append(name)
                seen += 1
                if len(alive) > PODS_AT_ONCE:
                    await client.delete(PODS, alive.pop(0), namespace="default", grace_period_seconds=0)
                await cluster.run_for(STEP)
                if (step + 1) % between == 0:
                    measures.append(measure())
                    if show is not None:
                        show(measures[-1])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(main, nodes=0)
    return measures
