"""Pods that come and go on a simulated node while its agent runs: what must stay bounded, measured and judged.

Every ten seconds the oldest of the pods is replaced. Samples are taken every ten seconds; history, models and the
audit log are on disk. Virtual time, so hours take minutes.

What the agent keeps for a while (samples, models, history) is full after the longest of these times. From then on
nothing may grow: neither what the agent holds, nor the memory of the whole process. The simulated cluster runs in the
same process; it is given short memories (watch windows, events, its journal of writes), so that it hides no leak of
the agent. Names of pods come again when nothing of the old pod may be left; UIDs and container ids never do.
"""

import asyncio
import gc
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from kubetide.api.objects.scheme import PODS
from kubetide.clock import Clock
from kubetide.embedded.apiserver.rest.requests import ADMIN, User
from kubetide.embedded.apiserver.server import ApiServer, Audit
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.time.loop import DEFAULT_START, run_virtual, virtual_clock
from kubetide.embedded.sim.world import EVENTS
from kubetide.embedded.sim.world import PODS as PODS_KEY
from kubetide.kube.client.decoding import GC_THRESHOLDS
from kubetide.node.agent import NodeAgent
from kubetide.node.core.layout import Layout
from kubetide.node.enforcement import make_modules
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_pod
from soak.memory import heap_mib, resident_mib

PODS_AT_ONCE = 20
STEP = timedelta(seconds=10)
NODE = "node-1"
AGENT = User("kubetide-node-1", ADMIN.groups)
WATCH_WINDOW = 4
"""How many past changes of each kind the embedded API server keeps: few, so that they are soon full."""
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
    heap_mib: float
    """The size of all objects that are alive, to whomever they belong."""
    resident_mib: float
    memory_blocks: int
    """Blocks of memory that the interpreter has given out, to whomever."""
    cluster_objects: int
    agent_objects: int
    descriptors: int
    series: int
    ring_mib: float
    models: int
    model_files: int
    executor_entries: int
    known_pods: int
    history_mib: float
    audit_mib: float
    telemetry_lines: int
    restarts: int


TOLERANCE = {
    "heap_mib": (1.03, 2.0),
    "memory_blocks": (1.03, 2000),
    "agent_objects": (1.03, 100),
    "descriptors": (1.0, 0),
    "cluster_objects": (1.0, 25),
    "series": (1.05, 5),
    "ring_mib": (1.05, 0.5),
    "models": (1.05, 5),
    "model_files": (1.05, 15),
    "executor_entries": (1.05, 10),
    "known_pods": (1.0, 2),
    "history_mib": (1.1, 0.5),
    "audit_mib": (1.0, 2.5),
    "telemetry_lines": (1.02, 5),
}
"""By how much a figure may exceed what it was when the agent had settled: factor and addend.

The audit log is rotated in files of 2 MiB; model files are removed once a minute.
"""


def grown(settled: Sequence[Measure], last: Measure) -> list[str]:
    """Return what is larger now than it ever was in the time when the agent had settled."""
    found = [f"{last.restarts} restarts of modules"] if last.restarts else []
    for name, (factor, addend) in TOLERANCE.items():
        before, now = max(getattr(one, name) for one in settled), getattr(last, name)
        if now > before * factor + addend:
            found.append(f"{name}: {before} -> {now}")
    return found


def mib_of(folder: Path) -> float:
    """Return the size of the files in a folder."""
    return sum(path.stat().st_size for path in folder.glob("*")) / 2**20


def agent_objects() -> int:
    """Return how many objects of the agent's own types are alive; the simulated cluster is not counted."""
    owners = ("kubetide.node", "kubetide.stats", "prometheus_client")
    return sum(str(type(one).__module__).startswith(owners) for one in gc.get_objects())


def soak(
    duration: timedelta,
    folder: Path,
    *,
    every: timedelta,
    keep: timedelta,
    show: Callable[[Measure], None] | None = None,
    pods: int = PODS_AT_ONCE,
    audit: Callable[[Clock], Audit] | None = None,
) -> list[Measure]:
    """Run the churn and return a measure at every step of `every`; samples, models and history last for `keep`."""
    measures: list[Measure] = []

    async def main(cluster: SimCluster) -> None:
        cluster.world.most_events = 5 * pods
        host = cluster.add_node(NODE, cpu="64", memory="256Gi", pods=5 * pods)
        host.writes = deque(maxlen=pods)
        await cluster.apply(NODE_METRIC)
        telemetry = Telemetry()
        agent = NodeAgent(
            cluster.client(AGENT),
            cluster.clock,
            NodeSettings(
                node_name=NODE,
                collect_res_used_interval=STEP,
                feature_gates="PSICollector=true",
                audit_log_dir=str(folder / "audit"),
                audit_max_disk_space_mb=2,
                metric_memory_window=keep,
                metric_history_path=str(folder / "history"),
                metric_history_retention=keep,
                prediction_checkpoint_filepath=str(folder / "models"),
                prediction_model_expiration_duration=keep,
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
        names = max(int(2 * keep / STEP), 2 * pods)
        seen = 0
        alive: list[str] = []

        def measure() -> Measure:
            held = heap_mib()
            return Measure(
                hours=cluster.elapsed() / 3600,
                pods_seen=seen,
                heap_mib=held,
                resident_mib=resident_mib(),
                memory_blocks=sys.getallocatedblocks(),
                cluster_objects=sum(len(cluster.world.all(kind)) for kind in (PODS_KEY, EVENTS)),
                agent_objects=agent_objects(),
                descriptors=len(os.listdir("/proc/self/fd")),
                series=agent.store.ring.series_count,
                ring_mib=agent.store.ring.nbytes / 2**20,
                models=len(agent.prediction.models),
                model_files=len(list((folder / "models").glob("*"))),
                executor_entries=agent.executor.remembered,
                known_pods=len(agent.pods.states()),
                history_mib=mib_of(folder / "history"),
                audit_mib=mib_of(folder / "audit"),
                telemetry_lines=telemetry.render().count(b"\n"),
                restarts=sum(state.restarts for state in agent.modules.states.values()),
            )

        task = asyncio.get_running_loop().create_task(agent.run())
        try:
            steps = int(duration / STEP)
            between = max(int(every / STEP), 1)
            for step in range(steps):
                name = f"pod-{step % names:06d}"
                await cluster.apply(make_pod(name, cpu="200m", memory="128Mi", cpu_limit="400m"))
                cluster.set_usage("default", name, cpu="100m", memory="64Mi")
                alive.append(name)
                seen += 1
                if len(alive) > pods:
                    await client.delete(PODS, alive.pop(0), namespace="default", grace_period_seconds=0)
                await cluster.run_for(STEP)
                if (step + 1) % between == 0:
                    measures.append(measure())
                    if show is not None:
                        show(measures[-1])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def body() -> None:
        clock = virtual_clock()
        made = ApiServer(clock=clock, window=WATCH_WINDOW, audit=audit(clock) if audit is not None else None)
        async with SimCluster(api=made) as cluster:
            await main(cluster)

    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)  # as an agent of its own has it
    try:
        run_virtual(body(), start=DEFAULT_START, limit=duration + timedelta(hours=1))
    finally:
        gc.set_threshold(*before)
    return measures
