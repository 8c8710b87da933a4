"""How fast the simulation runs: simulated seconds per second for 100, 1,000 and 5,000 pods.

    python benchmarks/simulation.py [PODS ...] [--hours H]

Each cluster has deployments of 20 pods under daily load on nodes of 32 CPUs. Starting the pods is timed apart. The
cluster then runs twice that long: once alone, and once with a reader that lists all pod metrics every 15 s, as an
autoscaler does. With --day follows a whole day of 200 pods in ten deployments, each with a horizontal autoscaler that
is evaluated every 15 s. Time is the CPU time of this one process: what a clock shows on a machine that is not busy
with something else.
"""

import argparse
import asyncio
import random
import time
from datetime import timedelta
from pathlib import Path

import msgspec

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.loop import run_virtual
from kubetide.embedded.sim.scenario import LoadSpec, MetricsSpec, NodeSpec, Scenario, WorkloadSpec
from kubetide.embedded.sim.world import PODS, is_ready
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.gc_tuning import tune_gc
from kubetide.kube.manager import Manager
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_hpa
from kubetide.wiring import World, build

PODS_PER_WORKLOAD = 20
PODS_PER_NODE = 100


def make_scenario(pods: int) -> Scenario:
    """Return a scenario with that many pods."""
    workloads = [
        WorkloadSpec(
            name=f"app-{number}",
            replicas=min(PODS_PER_WORKLOAD, pods),
            requests={"cpu": "200m", "memory": "256Mi"},
            limits={"cpu": "500m", "memory": "512Mi"},
            load=LoadSpec(curve="diurnal", low=50, high=200, noise=0.1),
        )
        for number in range(max(1, pods // PODS_PER_WORKLOAD))
    ]
    nodes = NodeSpec(name="node", count=max(2, -(-pods // PODS_PER_NODE)), cpu="32", memory="128Gi")
    return Scenario(nodes=[nodes], workloads=workloads, metrics=MetricsSpec())


async def measure(pods: int, hours: float) -> tuple[float, float, float, int]:
    """Return seconds for starting, running alone and running with a reader, and how many pods were ready."""
    begin = time.process_time()
    async with SimCluster(make_scenario(pods)) as cluster:
        await cluster.run_for(timedelta(minutes=2))
        started = time.process_time()
        await cluster.run_for(timedelta(hours=hours))
        alone = time.process_time()
        transport = cluster.transport()
        for _ in range(int(hours * 240)):
            await transport.request("GET", "/apis/metrics.k8s.io/v1beta1/pods")
            await cluster.run_for(timedelta(seconds=15))
        ended = time.process_time()
        ready = sum(is_ready(pod) for pod in cluster.world.all(PODS))
    return started - begin, alone - started, ended - alone, ready


async def day_with_autoscalers() -> tuple[int, int]:
    """Live through a day and return how many pods there were at least and at most."""
    scenario = make_scenario(200)
    hpas = [
        make_hpa(spec.name, target=spec.name, minimum=10, maximum=40, cpu_percent=45) for spec in scenario.workloads
    ]
    counts: list[int] = []
    async with SimCluster(msgspec.structs.replace(scenario, objects=hpas)) as cluster:
        world = World(client=cluster.client(), clock=cluster.clock, telemetry=Telemetry(), rng=random.Random(1))
        manager = Manager(name="day")
        for component in build("hpa", world, msgspec.structs.replace(HpaSettings(), leader_elect=False)):
            manager.add(component)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(manager.run())
            for _ in range(24):
                await cluster.run_for(timedelta(hours=1))
                counts.append(len(cluster.world.all(PODS)))
            work.cancel()
    return min(counts), max(counts)


def memory_mib() -> int:
    """Return the resident memory of this process, where the system tells."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * 4096 // 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pods", nargs="*", type=int, default=[100, 1000, 5000])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--day", action="store_true", help="also a day of 200 pods with autoscalers")
    arguments = parser.parse_args()
    tune_gc()
    print("simulated seconds per CPU second")
    print(f"{'pods':>6} {'ready':>6} {'start s':>8} {'alone':>9} {'with reader':>12} {'RSS MiB':>8}")
    for pods in arguments.pods:
        start, alone, read, ready = run_virtual(measure(pods, arguments.hours))
        span = arguments.hours * 3600
        print(f"{pods:>6} {ready:>6} {start:>8.2f} {span / alone:>9,.0f} {span / read:>12,.0f} {memory_mib():>8}")
    if arguments.day:
        begin = time.process_time()
        least, most = run_virtual(day_with_autoscalers())
        took = time.process_time() - begin
        print(
            f"a day of {least} to {most} pods with 10 autoscalers: {took:.1f} s, {86_400 / took:,.0f} times real time"
        )


if __name__ == "__main__":
    main()
