"""Replicas of the autoscaler or the recommender that share the work, each in its own process, and so the API server.

    python -m benchmarks.shards [--component hpa] [--workloads 10000 40000] [--replicas 1 2 4] [--rounds 2]
                                [--period 15] [--no-server-shards] [--lease-duration 15]
    python -m benchmarks.shards --bad-day [--workloads 10000] [--minutes 30]

For each number of replicas: seconds of CPU and requests per period and replica, peak memory, the period that workloads
really got (the recommender: how long a loop took), then one replica is killed and the time taken until others own all
ranges and work on them; and double writes, counted at the server. One pod per workload. `--no-server-shards` is a
server that does not filter by shard. On a machine that gives a process no CPU for ten seconds, leases are lost:
`--lease-duration` makes them longer, and the take-over with them.

`--bad-day` runs autoscalers in one process and in virtual time, and kills, stops or cuts one off every half minute.
"""

import argparse
import asyncio
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise, product
from multiprocessing.connection import Connection
from random import Random
from typing import Any, Protocol, cast

from benchmarks.hpa_round import NAMESPACES, Counting, Measured, Silent, fill

from kubetide import crds
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.scheme import HPAS
from kubetide.clock import Clock, SystemClock
from kubetide.embedded.apiserver.gates import DEFAULT_GATES, SHARDED_LIST_AND_WATCH
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import ADMIN, User
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.hpa.controller import HpaController
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.decoding import Listing, tune_gc
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.kube.control.controller import Controller
from kubetide.kube.control.core.ranges import RANGES, ShardMode
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.control.shards import ShardMembership
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_vpa
from kubetide.vpa.recommender.loop import Recommender
from kubetide.vpa.recommender.settings import HpaConflicts, RecommenderSettings
from simulated.replicas import Replicas, WriteChecker, bad_day

HPA, RECOMMENDER = "hpa", "recommender"
POLL_SECONDS = 0.1
Raw = dict[str, Any]


def server(pipe: Connection, options: argparse.Namespace, workloads: int) -> None:
    """Serve a filled cluster until asked what the checker has seen."""

    async def main() -> None:
        clock = SystemClock()
        checker = WriteChecker(clock, deadline=options.lease_duration * 2 / 3)
        usual = options.component == HPA
        api = filled(clock, checker, workloads, changing=not usual, vpas=not usual, shards=options.server_shards)
        async with serve(api) as serving:
            pipe.send(serving.url)
            while not pipe.poll():  # noqa: ASYNC110 - a pipe of another process has no event
                await asyncio.sleep(POLL_SECONDS)
            pipe.send((len(checker.writes), len(checker.doubles)))

    asyncio.run(main())


def filled(
    clock: Clock, checker: WriteChecker, workloads: int, *, changing: bool, vpas: bool, shards: bool
) -> ApiServer:
    """Return an API server with workloads, their pods, autoscalers and perhaps VPAs; usage may change all the time."""
    gates = DEFAULT_GATES | ({SHARDED_LIST_AND_WATCH} if shards else frozenset())
    tokens = {name: User(name, ("system:masters",)) for name in (f"replica-{number}" for number in range(16))}
    api = ApiServer(clock=clock, gates=gates, tokens=tokens, audit=checker)
    fill(api, workloads, workloads, changing=changing)
    if vpas:
        for crd in crds.load_all():
            api.insert(crd)
        for number in range(workloads):
            api.insert(make_vpa(f"app-{number}", f"{number % NAMESPACES}-ns", target=f"app-{number}"))
    return api


class Component(Protocol):
    """A replica that runs, and what is asked of it."""

    @property
    def controller(self) -> Controller:
        """The component itself."""
        ...

    def done(self) -> int:
        """Return how many workloads were looked after, counting each time."""
        ...

    def begin(self) -> None:
        """Forget what was measured so far."""
        ...

    def seconds(self) -> list[float]:
        """Return what was measured: periods of workloads, or how long loops took."""
        ...


class Autoscalers:
    """The horizontal autoscaler, and when each workload was reconciled."""

    def __init__(self, client: Client, seed: int, options: argparse.Namespace) -> None:
        settings = HpaSettings(sync_period=timedelta(seconds=options.period), shards=ShardMode.AUTO, take_over=True)
        self.controller = Measured(client, client.clock, settings, Telemetry(), Silent(), Random(seed))
        self.controller.note_reconciles()

    def done(self) -> int:
        return sum(map(len, self.controller.reconciles.values()))

    def begin(self) -> None:
        self.controller.reconciles.clear()

    def seconds(self) -> list[float]:
        return [after - before for one in self.controller.reconciles.values() for before, after in pairwise(one)]


class TimedRecommender(Recommender):
    """A recommender that notes how long its loops take."""

    loops: list[float]

    async def run_once(self) -> None:
        started = time.monotonic()
        await super().run_once()
        self.loops.append(time.monotonic() - started)


class Recommenders:
    """The recommender, and how long its loops take."""

    def __init__(self, client: Client, seed: int, options: argparse.Namespace) -> None:
        times = [timedelta(seconds=options.lease_duration * part) for part in (1, 2 / 3, 2 / 15)]
        settings = RecommenderSettings(
            interval=timedelta(seconds=options.period),
            shards=ShardMode.AUTO,
            hpa_conflicts=HpaConflicts.IGNORE,
            leader_elect_lease_duration=times[0],
            leader_elect_renew_deadline=times[1],
            leader_elect_retry_period=times[2],
        )
        recorder = EventRecorder(client, clock=client.clock, component="recommender")
        self.controller = TimedRecommender(client, client.clock, settings, Telemetry(), recorder, Random(seed))
        self.controller.loops = []

    def done(self) -> int:
        vpas = self.controller.model.vpas.values()
        return 2 * sum(vpa.loaded and vpa.recommendation is not None for vpa in vpas)

    def begin(self) -> None:
        self.controller.loops.clear()

    def seconds(self) -> list[float]:
        return self.controller.loops


COMPONENTS: dict[str, Callable[[Client, int, argparse.Namespace], Component]] = {
    HPA: Autoscalers,
    RECOMMENDER: Recommenders,
}


def replica(pipe: Connection, url: str, number: int, options: argparse.Namespace) -> None:
    """Run one replica, and answer what it is asked: how much it owns and has done, or what was measured."""

    async def main() -> None:
        tune_gc()
        bearer = Static((("Authorization", f"Bearer replica-{number}"),))
        transport = Counting(HttpTransport(Access(server=url, trust=ServerTrust(), credentials=bearer)))
        client = Client(transport, clock=SystemClock())
        running = COMPONENTS[options.component](client, number + 1, options)
        shards = running.controller._leadership
        assert isinstance(shards, ShardMembership)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(running.controller.run())
            cpu, before = time.process_time(), transport.counts.total()
            while True:
                while not pipe.poll():  # noqa: ASYNC110 - a pipe of another process has no event
                    await asyncio.sleep(POLL_SECONDS)
                match pipe.recv():
                    case "state":
                        pipe.send((len(shards.held), running.done()))
                    case "begin":
                        cpu, before = time.process_time(), transport.counts.total()
                        running.begin()
                        pipe.send(None)
                    case "report":
                        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                        used, requests = time.process_time() - cpu, transport.counts.total() - before
                        pipe.send({"cpu": used, "requests": requests, "memory": memory, "gaps": running.seconds()})
                    case _:
                        task.cancel()
                        break
        await client.close()

    asyncio.run(main())


def ask(pipe: Connection, question: str) -> Any:
    """Ask a process."""
    pipe.send(question)
    return pipe.recv()


def measure(workloads: int, replicas: int, options: argparse.Namespace) -> Raw:
    """Measure one number of replicas."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    serving = context.Process(target=server, args=(far, options, workloads), daemon=True)
    serving.start()
    url = near.recv()
    pipes, processes = [], []
    for number in range(replicas):
        mine, theirs = context.Pipe()
        processes.append(context.Process(target=replica, args=(theirs, url, number, options), daemon=True))
        pipes.append(mine)
        processes[-1].start()

    def until(owned: int, done: int) -> None:
        while True:
            states = [ask(pipe, "state") for pipe in pipes]
            if sum(held for held, _ in states) >= owned and sum(each for _, each in states) >= done:
                return
            time.sleep(POLL_SECONDS)

    # The first time writes a status for each; measured is what comes after.
    until(RANGES, 2 * workloads)
    for pipe in pipes:
        ask(pipe, "begin")
    time.sleep(options.rounds * options.period)
    reports = [ask(pipe, "report") for pipe in pipes]
    taken = None
    if replicas > 1:
        processes.pop().kill()
        pipes.pop()
        killed = time.monotonic()
        until(RANGES, 2 * workloads if options.component == RECOMMENDER else 0)
        taken = time.monotonic() - killed
    for pipe in pipes:
        pipe.send("stop")
    for process in processes:
        process.join()
    near.send("stop")
    writes, doubles = near.recv()
    serving.join()
    gaps = sorted(gap for report in reports for gap in report["gaps"]) or [float("nan")]
    return {
        "cpu": [report["cpu"] / options.rounds for report in reports],
        "requests": sum(report["requests"] for report in reports) / options.rounds,
        "memory": max(report["memory"] for report in reports),
        "p50": statistics.median(gaps),
        "p99": gaps[int(len(gaps) * 0.99)],
        "taken": taken,
        "writes": writes,
        "doubles": doubles,
    }


class BareCluster:
    """An API server without nodes or controllers: what replicas need of a cluster."""

    def __init__(self, api: ApiServer, clock: Clock) -> None:
        self.clock = clock
        self._api = api

    def transport(self, user: User) -> InProcessTransport:
        return InProcessTransport(self._api, user=user)


def have_a_bad_day(workloads: int, minutes: int) -> Raw:
    """Run replicas of the autoscaler that die all the time, in virtual time; return what the server has seen."""

    async def main() -> Raw:
        clock = virtual_clock()
        checker = WriteChecker(clock)
        api = filled(clock, checker, workloads, changing=True, vpas=False, shards=True)
        settings = HpaSettings(shards=ShardMode.AUTO, take_over=True)
        async with asyncio.TaskGroup() as group:
            cluster = cast(SimCluster, BareCluster(api, clock))
            replicas = Replicas(cluster, group, checker, HpaController, settings)
            await bad_day(replicas, Random(1), minutes=minutes)
            await asyncio.sleep(60)
            owned = sum(one.ranges for one in replicas.all)
            for one in replicas.all:
                one.stop()
        told = sum(bool(item.status and item.status.conditions) for item in (await listed(api, clock)).items)
        return {"writes": len(checker.writes), "doubles": len(checker.doubles), "owned": owned, "told": told}

    async def listed(api: ApiServer, clock: Clock) -> Listing[HorizontalPodAutoscaler]:
        return await Client(InProcessTransport(api, user=ADMIN), clock=clock).list(HPAS)

    return run_virtual(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--component", choices=COMPONENTS, default=HPA)
    parser.add_argument("--workloads", type=int, nargs="+", default=[10_000])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--period", type=float, default=15.0)
    parser.add_argument("--lease-duration", type=float, default=15.0, help="of the recommender")
    parser.add_argument("--server-shards", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--bad-day", action="store_true")
    parser.add_argument("--minutes", type=int, default=30)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: a sync period is measured between two reconciles, so at least 2")
    if options.bad_day:
        for workloads in options.workloads:
            started = time.process_time()
            found = have_a_bad_day(workloads, options.minutes)
            print(
                f"{workloads} workloads, {options.minutes} min: {found['writes']} writes, {found['doubles']} double, "
                f"{found['told']} with a status, {found['owned']} ranges owned at the end, "
                f"{time.process_time() - started:.0f} s of CPU",
                flush=True,
            )
        return
    columns = ("workloads", "replicas", "CPU s per period, each", "requests per period, all", "p50", "p99", "peak MiB")
    print("|", " | ".join((*columns, "taken over", "writes", "double")), "|")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for workloads, replicas in product(options.workloads, options.replicas):
        found = measure(workloads, replicas, options)
        cpu = ", ".join(f"{each:.2f}" for each in found["cpu"])
        taken = "–" if found["taken"] is None else f"{found['taken']:.1f} s"
        print(
            f"| {workloads} | {replicas} | {cpu} | {found['requests']:.0f} | {found['p50']:.1f} s"
            f" | {found['p99']:.1f} s | {found['memory']:.0f} | {taken} | {found['writes']} | {found['doubles']} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
