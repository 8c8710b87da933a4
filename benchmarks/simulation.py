"""How fast the simulation runs: simulated seconds per second for 100, 1,000 and 5,000 pods, and a day with autoscalers.

    python benchmarks/simulation.py [PODS ...] [--hours H] [--no-day] [--large H] [--simulate H] [--calls]

Each cluster has deployments of 20 pods under daily load on nodes of 32 CPUs. Starting the pods is timed apart. The
cluster then runs twice that long: once alone, and once with a reader that lists all pod metrics every 15 s, as an
autoscaler does. Then follows a whole day of 200 pods in ten deployments, each with a horizontal autoscaler that is
evaluated every 15 s; they follow their targets by a watch (`scale_watch_from: 10`). `--large H` adds H hours of about
1,300 pods on 40 nodes with ten autoscalers, after 20 minutes in which they find their size. `--simulate H` is that
cluster as `kubetide simulate` runs it, with every controller that has something to do and the series that it writes
down: 20 minutes and H hours, less another run of 20 minutes.

Every measurement has a process of its own. Time is the CPU time of that process: what a clock shows on a machine that
is not busy with something else; the figures in brackets are by the clock. With `--calls` what has autoscalers is run
again and its Python calls are counted, which are the same on every machine however busy it is.
"""

import argparse
import asyncio
import cProfile
import logging
import multiprocessing
import random
import resource
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec

from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.scenario import LoadSpec, MetricsSpec, Scenario, ScenarioNodes, ScenarioWorkload
from kubetide.embedded.sim.time.loop import run_virtual
from kubetide.embedded.sim.world import PODS, is_ready
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.decoding import tune_gc
from kubetide.kube.control.manager import Manager
from kubetide.simulate.controllers import needed
from kubetide.simulate.runs import simulate_once
from kubetide.simulate.variants import AS_IS
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_hpa
from kubetide.wiring import Dependencies, build

T = TypeVar("T")

PODS_PER_WORKLOAD = 20
PODS_PER_NODE = 100


class Span(NamedTuple):
    """How long something took, by the CPU and by the clock."""

    cpu: float
    real: float


class Marks:
    """Spans between moments."""

    def __init__(self) -> None:
        self._last = time.process_time(), time.perf_counter()

    def next(self) -> Span:
        """Return the span since the last call."""
        before, self._last = self._last, (time.process_time(), time.perf_counter())
        return Span(self._last[0] - before[0], self._last[1] - before[1])


def make_scenario(pods: int, most: int = 0) -> Scenario:
    """Return a scenario with that many pods, and nodes for `most` of them if there may be more."""
    workloads = [
        ScenarioWorkload(
            name=f"app-{number}",
            replicas=min(PODS_PER_WORKLOAD, pods),
            requests={"cpu": "200m", "memory": "256Mi"},
            limits={"cpu": "500m", "memory": "512Mi"},
            load=LoadSpec(curve="diurnal", low=50, high=200, noise=0.1),
        )
        for number in range(max(1, pods // PODS_PER_WORKLOAD))
    ]
    room = most or pods
    nodes = ScenarioNodes(name="node", count=max(2, -(-room // PODS_PER_NODE)), cpu="32", memory="128Gi")
    return Scenario(nodes=[nodes], workloads=workloads, metrics=MetricsSpec())


async def measure(pods: int, hours: float) -> tuple[list[Span], int]:
    """Return how long starting, running alone and running with a reader took, and how many pods were ready."""
    marks = Marks()
    async with SimCluster(make_scenario(pods)) as cluster:
        await cluster.run_for(timedelta(minutes=2))
        spans = [marks.next()]
        await cluster.run_for(timedelta(hours=hours))
        spans.append(marks.next())
        transport = cluster.transport()
        for _ in range(int(hours * 240)):
            await transport.request("GET", "/apis/metrics.k8s.io/v1beta1/pods")
            await cluster.run_for(timedelta(seconds=15))
        spans.append(marks.next())
        ready = sum(is_ready(pod) for pod in cluster.world.all(PODS))
    return spans, ready


class Lived(NamedTuple):
    """What a time with autoscalers took, and how many pods there were at least and at most."""

    span: Span
    least: int
    most: int
    calls: int


def a_day() -> tuple[Scenario, float, float]:
    """Return 200 pods with ten autoscalers, and how many hours pass before and while they are measured."""
    scenario = make_scenario(200, most=400)
    return _with_autoscalers(scenario, minimum=10, maximum=40), 0.0, 24.0


def large(hours: float) -> tuple[Scenario, float, float]:
    """Return about 1,300 pods with ten autoscalers, in the same way."""
    workloads = [
        msgspec.structs.replace(one, replicas=100, load=LoadSpec(curve="diurnal", low=1000, high=2000, noise=0.1))
        for one in make_scenario(200).workloads
    ]
    nodes = ScenarioNodes(name="node", count=40, cpu="32", memory="128Gi")
    scenario = Scenario(nodes=[nodes], workloads=workloads, metrics=MetricsSpec())
    return _with_autoscalers(scenario, minimum=50, maximum=200), 1 / 3, hours


def _with_autoscalers(scenario: Scenario, *, minimum: int, maximum: int) -> Scenario:
    hpas = [
        make_hpa(spec.name, target=spec.name, minimum=minimum, maximum=maximum, cpu_percent=45)
        for spec in scenario.workloads
    ]
    return msgspec.structs.replace(scenario, objects=hpas)


async def live(scenario: Scenario, before: float, hours: float, counted: bool) -> Lived:
    """Live through hours with autoscalers; the start is part of them unless time passes before."""
    marks = Marks()
    counts: list[int] = []
    profile = cProfile.Profile()
    async with SimCluster(scenario) as cluster:
        world = Dependencies(client=cluster.client(), clock=cluster.clock, telemetry=Telemetry(), rng=random.Random(1))
        manager = Manager(name="day")
        settings = msgspec.structs.replace(HpaSettings(), leader_elect=False, scale_watch_from=10)
        for component in build("hpa", world, settings):
            manager.add(component)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(manager.run())
            if before:
                await cluster.run_for(timedelta(hours=before))
                marks.next()
            if counted:
                profile.enable()
            for _ in range(max(1, round(hours))):
                await cluster.run_for(timedelta(hours=hours / max(1, round(hours))))
                counts.append(len(cluster.world.all(PODS)))
            profile.disable()
            span = marks.next()
            work.cancel()
    calls = sum(entry.callcount for entry in profile.getstats()) if counted else 0
    return Lived(span, min(counts), max(counts), calls)


def simulated(scenario: Scenario, hours: float) -> float:
    """Return the CPU that `kubetide simulate` takes for a policy that leaves everything as it is."""
    logging.getLogger("kubetide").setLevel(logging.ERROR)
    tune_gc()
    began = time.process_time()
    simulate_once(scenario, AS_IS, seed=1, length=timedelta(hours=hours), slo=timedelta(seconds=1))
    return time.process_time() - began


def _measured(work: Callable[..., Coroutine[Any, Any, T]], arguments: tuple[Any, ...]) -> tuple[T, int]:
    tune_gc()
    result = run_virtual(work(*arguments))
    return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def apart(work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> tuple[T, int]:
    """Do work in virtual time in a process of its own; return its result and the most memory it held, in MiB."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_measured, work, arguments).result()


def _print_simulated(hours: float) -> None:
    scenario, before, _ = large(hours)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as process:
        start, whole = process.map(simulated, [scenario] * 2, [before, before + hours])
    print(
        f"{hours:g} hours of about 1,300 pods by `kubetide simulate`, {', '.join(needed(scenario))}: "
        f"{whole - start:.1f} s of CPU after {start:.1f} s for the first {before * 60:.0f} minutes, "
        f"{(start + (whole - start) * (168 - before) / hours) / 60:.1f} minutes for a week",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pods", nargs="*", type=int, default=[100, 1000, 5000])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--day", action=argparse.BooleanOptionalAction, default=True, help="a day with autoscalers")
    parser.add_argument("--large", type=float, nargs=1, default=[], help="so many hours of about 1,300 pods")
    parser.add_argument("--simulate", type=float, nargs=1, default=[], help="so many hours by `kubetide simulate`")
    parser.add_argument("--calls", action="store_true", help="count Python calls as well")
    arguments = parser.parse_args()
    seconds = arguments.hours * 3600
    print("simulated seconds per CPU second (in brackets: per second by the clock)")
    print(f"{'pods':>6} {'ready':>6} {'start s':>8} {'alone':>18} {'with reader':>18} {'peak MiB':>9}")
    for pods in arguments.pods:
        (spans, ready), peak = apart(measure, pods, arguments.hours)
        alone, read = (f"{seconds / span.cpu:,.0f} ({seconds / span.real:,.0f})" for span in spans[1:])
        print(f"{pods:>6} {ready:>6} {spans[0].cpu:>8.2f} {alone:>18} {read:>18} {peak:>9}", flush=True)
    for scenario, before, hours in [*([a_day()] if arguments.day else []), *map(large, arguments.large)]:
        lived, peak = apart(live, scenario, before, hours, False)
        print(
            f"{hours:g} hours of {lived.least} to {lived.most} pods with 10 autoscalers every 15 s: "
            f"{lived.span.cpu:.1f} s of CPU ({lived.span.real:.1f} s by the clock), "
            f"{hours * 3600 / lived.span.cpu:,.0f} times real time, peak {peak} MiB",
            flush=True,
        )
        if arguments.calls:
            counted, _ = apart(live, scenario, before, hours, True)
            print(f"  {counted.calls / (hours * 240):,.0f} Python calls every 15 s", flush=True)
    for hours in arguments.simulate:
        _print_simulated(hours)


if __name__ == "__main__":
    main()
