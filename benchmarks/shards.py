"""Replicas of the autoscaler or the recommender that share the work, each in its own process, and so the API server.

    python -m benchmarks.shards [--component hpa] [--workloads 10000 40000] [--replicas 1 2 4] [--rounds 2]
                                [--period 15] [--changing 0.01] [--no-server-shards] [--lease-duration 15]
    python -m benchmarks.shards --bad-day [--workloads 10000] [--minutes 30] [--seed 1]

For each number of replicas: seconds of CPU per period of each replica and of the server, requests per period, peak
memory, the period that workloads really got (the recommender: how long a loop took), then one replica is killed and the
time taken until others own all ranges and work on them; and double writes, counted at the server. One pod per workload.
The cluster is at rest at the start (`benchmarks.preload`); whenever usage is read, that of some workloads has moved
(`--changing`), and their statuses are written. `--no-server-shards` is a server that does not filter by shard. On a
machine that gives a process no CPU for ten seconds, leases are lost: `--lease-duration` makes them longer, and the
take-over with them.

`--one-core` runs server and replicas in one process whose CPU time is the clock (`benchmarks.cpu_time`): the figures of
one idle core, on a machine that is not. Memory is then what each replica adds.

`--bad-day` runs autoscalers in one process and in virtual time, and kills, stops or cuts one off every half minute.
"""

import argparse
import asyncio
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise, product
from multiprocessing.connection import Connection
from random import Random
from typing import Any, Protocol, cast

from benchmarks.cpu_time import ACCOUNT, SERVER, Charged, CpuLoop, run_on_one_core
from benchmarks.hpa_round import Counting, Measured, Silent
from benchmarks.preload import Models, preload, settled

from kubetide.clock import Clock, LoopClock, SystemClock
from kubetide.embedded.apiserver.gates import DEFAULT_GATES, SHARDED_LIST_AND_WATCH
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.time.loop import DEFAULT_START, run_virtual, virtual_clock
from kubetide.hpa.controller import HpaController
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.decoding import tune_gc
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.kube.control.controller import Controller
from kubetide.kube.control.core.ranges import RANGES, ShardMode
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.control.shards import ShardMembership
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.loop import Recommender
from kubetide.vpa.recommender.settings import HpaConflicts, RecommenderSettings
from simulated.replicas import Replicas, WriteChecker, bad_day
from soak.memory import resident_mib

HPA, RECOMMENDER = "hpa", "recommender"
POLL_SECONDS = 0.1
Raw = dict[str, Any]


def server(pipe: Connection, options: argparse.Namespace, workloads: int) -> None:
    """Serve a filled cluster until asked what the checker has seen."""

    async def main() -> None:
        clock = SystemClock()
        checker = WriteChecker(clock, deadline=options.lease_duration * 2 / 3)
        api = filled(clock, checker, models, workloads, options)
        async with serve(api) as serving:
            pipe.send(serving.url)
            while True:
                while not pipe.poll():  # noqa: ASYNC110 - a pipe of another process has no event
                    await asyncio.sleep(POLL_SECONDS)
                question = pipe.recv()
                pipe.send((len(checker.writes), len(checker.doubles), time.process_time()))
                if question == "stop":
                    break

    models = settled(vpa=options.component == RECOMMENDER, now=SystemClock().now())
    tune_gc()
    asyncio.run(main())


def filled(
    clock: Clock, checker: WriteChecker, models: Models, workloads: int, options: argparse.Namespace
) -> ApiServer:
    """Return an API server with workloads at rest."""
    gates = DEFAULT_GATES | ({SHARDED_LIST_AND_WATCH} if options.server_shards else frozenset())
    tokens = {name: User(name, ("system:masters",)) for name in (f"replica-{number}" for number in range(16))}
    api = ApiServer(clock=clock, gates=gates, tokens=tokens, audit=checker)
    preload(api, models, workloads, changing=options.changing)
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

    def periods(self) -> float:
        """Return how many periods were measured."""
        ...

    def begin(self) -> None:
        """Forget what was measured so far."""
        ...

    def seconds(self) -> list[float]:
        """Return what was measured: periods of workloads, or how long loops took."""
        ...


PARTS = (1, 2 / 3, 2 / 15)
"""Of a Lease's duration: all of it, the renew deadline, the retry period."""


class Autoscalers:
    """The horizontal autoscaler, and when each workload was reconciled."""

    def __init__(self, client: Client, seed: int, options: argparse.Namespace) -> None:
        settings = HpaSettings(sync_period=timedelta(seconds=options.period), shards=ShardMode.AUTO, take_over=True)
        self.controller = Measured(client, client.clock, settings, Telemetry(), Silent(), Random(seed))
        self.controller.note_reconciles(client.clock.monotonic)
        shards = self.controller._leadership
        assert isinstance(shards, ShardMembership)
        for each in (shards, shards._together):
            each._duration, each._deadline, each._period = (options.lease_duration * part for part in PARTS)

    def done(self) -> int:
        return sum(map(len, self.controller.reconciles.values()))

    def periods(self) -> float:
        return self.done() / max(len(self.controller.reconciles), 1)

    def begin(self) -> None:
        self.controller.reconciles.clear()

    def seconds(self) -> list[float]:
        return [after - before for one in self.controller.reconciles.values() for before, after in pairwise(one)]


class TimedRecommender(Recommender):
    """A recommender that notes how long its loops take."""

    loops: list[float]

    async def run_once(self) -> None:
        started = self._clock.monotonic()
        await super().run_once()
        self.loops.append(self._clock.monotonic() - started)


class Recommenders:
    """The recommender, and how long its loops take."""

    def __init__(self, client: Client, seed: int, options: argparse.Namespace) -> None:
        times = [timedelta(seconds=options.lease_duration * part) for part in PARTS]
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

    def periods(self) -> float:
        return len(self.controller.loops)

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
        async with asyncio.TaskGroup() as group:
            task = group.create_task(running.controller.run())
            cpu, before = time.process_time(), transport.counts.total()
            while True:
                while not pipe.poll():  # noqa: ASYNC110 - a pipe of another process has no event
                    await asyncio.sleep(POLL_SECONDS)
                match pipe.recv():
                    case "state":
                        pipe.send((held(running), running.done()))
                    case "begin":
                        cpu, before = time.process_time(), transport.counts.total()
                        running.begin()
                        pipe.send(None)
                    case "report":
                        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                        used, requests = time.process_time() - cpu, transport.counts.total() - before
                        each = {"cpu": used, "requests": requests, "memory": memory, "gaps": running.seconds()}
                        pipe.send({**each, "periods": running.periods()})
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
    started = time.monotonic()
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
        deadline = time.monotonic() + options.limit
        while time.monotonic() < deadline:
            states = [ask(pipe, "state") for pipe in pipes]
            if sum(held for held, _ in states) >= owned and sum(each for _, each in states) >= done:
                return
            time.sleep(POLL_SECONDS)
        raise TimeoutError(f"{states} (ranges, looked after) of each replica after {options.limit} s")

    def note(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", file=sys.stderr, flush=True)

    # The first time reads all objects, the second finds them at rest; measured is what comes after.
    note("serving")
    until(RANGES, 2 * workloads)
    note("all are looked after")
    for pipe in pipes:
        ask(pipe, "begin")
    _, _, served = ask(near, "state")
    time.sleep(options.rounds * options.period)
    if options.component == HPA:
        # At least one whole period of every workload, however long it is.
        until(RANGES, options.rounds * workloads)
    reports = [ask(pipe, "report") for pipe in pipes]
    periods = statistics.mean(report["periods"] for report in reports)
    served = ask(near, "state")[2] - served
    note("measured")
    taken = None
    if replicas > 1:
        processes.pop().kill()
        pipes.pop()
        killed = time.monotonic()
        until(RANGES, 2 * workloads if options.component == RECOMMENDER else 0)
        taken = time.monotonic() - killed
        # Whoever took over writes as well: what is double would be seen now.
        time.sleep(options.period)
    for pipe in pipes:
        pipe.send("stop")
    for process in processes:
        process.join()
    writes, doubles, _ = ask(near, "stop")
    serving.join()
    note("stopped")
    return {
        "cpu": [report["cpu"] / max(report["periods"], 1) for report in reports],
        "served": served / max(periods, 1),
        "requests": sum(report["requests"] for report in reports) / max(periods, 1),
        "memory": max(report["memory"] for report in reports),
        **quantiles([gap for report in reports for gap in report["gaps"]]),
        "taken": taken,
        "writes": writes,
        "doubles": doubles,
    }


def measure_on_one_core(workloads: int, replicas: int, options: argparse.Namespace) -> Raw:
    """Measure the same with server and replicas in one process, whose CPU time is the clock of all."""

    async def main() -> Raw:
        clock = LoopClock(DEFAULT_START)
        checker = WriteChecker(clock, deadline=options.lease_duration * 2 / 3)
        api = filled(clock, checker, models, workloads, options)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CpuLoop)
        before = resident_mib()
        transports: list[Charged] = []
        parts: list[Component] = []

        async def until(owned: int, done: int) -> None:
            alive = [part for part, transport in zip(parts, transports, strict=True) if not transport.cut]
            while sum(held(part) for part in alive) < owned or sum(part.done() for part in alive) < done:  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)

        async with asyncio.TaskGroup() as group:
            tasks = []
            for number in range(replicas):
                ACCOUNT.set(f"replica-{number}")
                user = User(f"replica-{number}", ("system:masters",))
                transports.append(Charged(InProcessTransport(api, user=user)))
                client = Client(transports[-1], clock=clock, rng=Random(number))
                parts.append(COMPONENTS[options.component](client, number + 1, options))
                tasks.append(group.create_task(parts[-1].controller.run()))
            ACCOUNT.set("")
            await until(RANGES, 2 * workloads)
            memory = (resident_mib() - before) / replicas
            for part in parts:
                part.begin()
            used, asked = loop.used.copy(), sum(each.requests for each in transports)
            await asyncio.sleep(options.rounds * options.period)
            if options.component == HPA:
                await until(RANGES, options.rounds * workloads)
            periods = [max(part.periods(), 1) for part in parts]
            spent = [loop.used[f"replica-{number}"] - used[f"replica-{number}"] for number in range(replicas)]
            served, asked = loop.used[SERVER] - used[SERVER], sum(each.requests for each in transports) - asked
            gaps = [gap for part in parts for gap in part.seconds()]
            taken = None
            if replicas > 1:
                transports[-1].cut = True
                tasks[-1].cancel()
                killed = clock.monotonic()
                await until(RANGES, 2 * workloads if options.component == RECOMMENDER else 0)
                taken = clock.monotonic() - killed
                await asyncio.sleep(options.period)
            for task in tasks:
                task.cancel()
        whole = statistics.mean(periods)
        return {
            "cpu": [each / count for each, count in zip(spent, periods, strict=True)],
            "served": served / whole,
            "requests": asked / whole,
            "memory": memory,
            **quantiles(gaps),
            "taken": taken,
            "writes": len(checker.writes),
            "doubles": len(checker.doubles),
        }

    models = settled(vpa=options.component == RECOMMENDER, now=DEFAULT_START)
    tune_gc()
    return run_on_one_core(main())


def held(part: Component) -> int:
    """Return how many ranges a replica owns."""
    shards = part.controller._leadership
    assert isinstance(shards, ShardMembership)
    return len(shards.held)


def quantiles(gaps: list[float]) -> Raw:
    """Return median and 99th percentile."""
    ordered = sorted(gaps) or [float("nan")]
    return {"p50": statistics.median(ordered), "p99": ordered[int(len(ordered) * 0.99)]}


class BareCluster:
    """An API server without nodes or controllers: what replicas need of a cluster."""

    def __init__(self, api: ApiServer, clock: Clock) -> None:
        self.clock = clock
        self._api = api

    def transport(self, user: User) -> InProcessTransport:
        return InProcessTransport(self._api, user=user)


def have_a_bad_day(workloads: int, options: argparse.Namespace) -> Raw:
    """Run replicas of the autoscaler that die all the time, in virtual time; return what the server has seen."""

    async def main() -> Raw:
        clock = virtual_clock()
        checker = WriteChecker(clock)
        api = filled(clock, checker, models, workloads, options)
        settings = HpaSettings(shards=ShardMode.AUTO, take_over=True)
        async with asyncio.TaskGroup() as group:
            cluster = cast(SimCluster, BareCluster(api, clock))
            replicas = Replicas(cluster, group, checker, HpaController, settings)
            await bad_day(replicas, Random(options.seed), minutes=options.minutes)
            await asyncio.sleep(60)
            owned = sum(one.ranges for one in replicas.all)
            for one in replicas.all:
                one.stop()
        written = {path for _, _, path in checker.writes}
        return {"writes": len(checker.writes), "doubles": len(checker.doubles), "owned": owned, "told": len(written)}

    tune_gc()
    models = settled(vpa=False, now=DEFAULT_START)
    return run_virtual(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--component", choices=COMPONENTS, default=HPA)
    parser.add_argument("--workloads", type=int, nargs="+", default=[10_000])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--period", type=float, default=15.0)
    parser.add_argument("--lease-duration", type=float, default=15.0, help="of replicas, in seconds")
    parser.add_argument("--server-shards", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--changing", type=float, default=0.01, help="share of workloads whose usage moves")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds after which a step is given up")
    parser.add_argument("--one-core", action="store_true", help="one process, whose CPU time is the clock")
    parser.add_argument("--bad-day", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=int, default=30)
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: a sync period is measured between two reconciles, so at least 2")
    if options.bad_day:
        for workloads in options.workloads:
            started = time.process_time()
            found = have_a_bad_day(workloads, options)
            print(
                f"{workloads} workloads, {options.minutes} min: {found['writes']} writes, {found['doubles']} double, "
                f"{found['told']} objects written, {found['owned']} ranges owned at the end, "
                f"{time.process_time() - started:.0f} s of CPU",
                flush=True,
            )
        return
    columns = ("workloads", "replicas", "CPU s per period, each", "of the server", "requests per period, all")
    print("|", " | ".join((*columns, "p50", "p99", "peak MiB", "taken over", "writes", "double")), "|")
    print("|---" * 11 + "|")
    for workloads, replicas in product(options.workloads, options.replicas):
        found = (measure_on_one_core if options.one_core else measure)(workloads, replicas, options)
        cpu = ", ".join(f"{each:.2f}" for each in found["cpu"])
        taken = "–" if found["taken"] is None else f"{found['taken']:.1f} s"
        print(
            f"| {workloads} | {replicas} | {cpu} | {found['served']:.1f} | {found['requests']:.0f} |"
            f" {found['p50']:.1f} s | {found['p99']:.1f} s | {found['memory']:.0f} | {taken} |"
            f" {found['writes']} | {found['doubles']} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
