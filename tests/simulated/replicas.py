"""Replicas of a component that share the work, and a checker at the server that counts double writes.

A write is a double write if the replica that made it had to expect that another one owns the object by then: another
replica wrote to the same range since the writer last claimed it in its Lease, anew or as the only one whose Lease is
alive and claims it, or its Lease does not claim it at all.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Protocol

from msgspec.structs import replace

from kubetide.clock import Clock
from kubetide.embedded.apiserver.gates import DEFAULT_GATES, SHARDED_LIST_AND_WATCH
from kubetide.embedded.apiserver.rest.requests import Request, User
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.embedded.sim.world import DEPLOYMENTS
from kubetide.hpa.controller import HpaController
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.control.controller import Controller
from kubetide.kube.control.core.ranges import ShardMode, parse_ranges
from kubetide.kube.control.instruments import Instruments
from kubetide.kube.control.manager import running
from kubetide.kube.control.range_fence import range_of_write
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.control.shards import CLAIMS
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_hpa
from simulated.autoscaling import Meddler

DEADLINE_SECONDS = 10.0
HPA = HpaSettings(shards=ShardMode.AUTO)


class WriteChecker:
    """Hears every request at the server; `doubles` are the writes that should not have been."""

    def __init__(self, clock: Clock, *, deadline: float = DEADLINE_SECONDS) -> None:
        self._clock = clock
        self._deadline = deadline
        self.range_of: Callable[[Request], int] = lambda request: range_of_write(request.path, request.body)
        """The range of what is written."""
        self.writes: list[tuple[float, str, str]] = []
        """When, by whom, and to what range."""
        self.doubles: list[str] = []
        self._claims: dict[str, frozenset[int]] = {}
        self._renewed: dict[str, float] = {}
        self._may: defaultdict[str, set[int]] = defaultdict(set)
        self._last: dict[int, str] = {}

    def __call__(self, request: Request, status: int) -> None:
        """Judge one request."""
        who = request.user.name
        if not who.startswith("replica-") or request.method in ("GET", "HEAD") or status >= 300:
            return
        now = self._clock.monotonic()
        if "/leases" in request.path:
            metadata = json.loads(request.body or b"{}").get("metadata") or {}
            if CLAIMS in (metadata.get("annotations") or {}):
                self._claimed(who, parse_ranges(metadata["annotations"][CLAIMS]), now)
            return
        if "/events" in request.path:
            return
        number = self.range_of(request)
        self.writes.append((now, who, request.path))
        claimed = number in self._claims.get(who, ())
        if not claimed or (self._last.get(number) != who and number not in self._may[who]):
            self.doubles.append(f"{now:.1f} {who} {request.method} {request.path}")
        for other in self._may:
            if other != who:
                self._may[other].discard(number)
        self._last[number] = who

    def _claimed(self, who: str, claims: frozenset[int], now: float) -> None:
        fresh = now - self._renewed.get(who, now) < self._deadline
        before = self._claims.get(who, frozenset()) if fresh else frozenset()
        # A claim that waits for the owner to give the range up is not new when that happens.
        alive = [other for other, at in self._renewed.items() if other != who and now - at < 1.5 * self._deadline]
        contested = frozenset().union(*(self._claims[other] for other in alive))
        self._may[who] |= (claims - before) | (claims - contested)
        self._claims[who], self._renewed[who] = claims, now


class SkewedClock:
    """A clock that shows another time of day and runs a little fast or slow."""

    def __init__(self, inner: Clock, ahead: timedelta, rate: float = 1.0) -> None:
        self._inner, self._ahead, self._rate = inner, ahead, rate

    def now(self) -> datetime:
        return self._inner.now() + self._ahead

    def monotonic(self) -> float:
        return self._inner.monotonic() * self._rate


class MakesController(Protocol):
    """The constructor of a component."""

    def __call__(
        self, client: Client, clock: Clock, settings: Any, telemetry: Telemetry, recorder: EventRecorder, rng: Random, /
    ) -> Controller: ...


@dataclass(slots=True)
class RunningComponent:
    """A component that runs, and short ways to ask what it brought about."""

    cluster: SimCluster
    controller: Controller
    telemetry: Telemetry
    requests: Meddler

    def replicas(self, namespace: str, name: str) -> int:
        """Return the wanted size of a Deployment."""
        found = self.cluster.world.get(DEPLOYMENTS, StoreKey(namespace, name))
        assert found is not None, f"deployment {namespace}/{name} is not there"
        return int(found["spec"].get("replicas", 1))

    def counted(self, metric: str, **labels: str) -> float:
        """Return the value of one of its own metrics, summed over the labels not given."""
        samples = (sample for family in self.telemetry.registry.collect() for sample in family.samples)
        return sum(one.value for one in samples if one.name == metric and labels.items() <= one.labels.items())


@dataclass(slots=True)
class Replica:
    """One replica that runs, until it is stopped or killed."""

    running: RunningComponent
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ranges(self) -> int:
        """How many ranges it owns and works on."""
        return int(self.running.counted("kubetide_shard_ranges"))

    def cut(self, *, off: bool = True) -> None:
        """Cut it off from the API server, or connect it again."""
        self.running.requests.interfere = (lambda method, path: ConnectionLost("cut off")) if off else None

    def stop(self, *, kill: bool = False) -> None:
        """Ask it to end; one that is killed cannot say goodbye."""
        if kill:
            self.cut()
        self._stop.set()


class Replicas:
    """All replicas of one component."""

    def __init__(
        self, cluster: SimCluster, group: asyncio.TaskGroup, checker: WriteChecker, make: MakesController, settings: Any
    ) -> None:
        self.cluster = cluster
        self.checker = checker
        self.all: list[Replica] = []
        self.clocks: list[Clock] = []
        """Clocks of the replicas that start next; those after them have the right time."""
        self._group = group
        self._make = make
        self._settings = settings
        self._started = 0

    async def start(self, **settings: Any) -> Replica:
        """Start one more."""
        self._started += 1
        seed, ready = self._started, asyncio.Event()
        user = User(f"replica-{seed}", ("system:masters", "system:authenticated"))
        options = replace(self._settings, **settings)
        clock = self.clocks.pop(0) if self.clocks else self.cluster.clock

        async def live() -> None:
            meddler, telemetry = Meddler(self.cluster.transport(user)), Telemetry()
            announce = Instruments(telemetry).of("replica")
            client = Client(meddler, clock=clock, rng=Random(seed), announce=announce)
            recorder = EventRecorder(client, clock=clock, component="replica")
            made = self._make(client, clock, options, telemetry, recorder, Random(seed))
            async with running(made, recorder):
                replica = Replica(RunningComponent(self.cluster, made, telemetry, meddler))
                self.all.append(replica)
                ready.set()
                await replica._stop.wait()
            self.all.remove(replica)

        self._group.create_task(live(), name=user.name)
        await ready.wait()
        return self.all[-1]


@asynccontextmanager
async def replicas_of(
    make: MakesController = HpaController, settings: Any = HPA, *, server_shards: bool = True
) -> AsyncIterator[Replicas]:
    """A cluster with one node, no replicas yet, and the checker at its API server."""
    clock = virtual_clock()
    checker = WriteChecker(clock)
    gates = DEFAULT_GATES | ({SHARDED_LIST_AND_WATCH} if server_shards else frozenset())
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(SimCluster(api=ApiServer(clock=clock, gates=gates, audit=checker)))
        cluster.add_node("node-1")
        async with asyncio.TaskGroup() as group:
            replicas = Replicas(cluster, group, checker, make, settings)
            try:
                yield replicas
            finally:
                for replica in replicas.all:
                    replica.stop()
                await cluster.run_for(timedelta(seconds=1))


QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
QUICK = {"scaleDown": {"stabilizationWindowSeconds": 0}}


def drill(
    main: Callable[[Replicas], Awaitable[None]],
    make: MakesController = HpaController,
    settings: Any = HPA,
    *,
    server_shards: bool = True,
) -> None:
    """Run a test with replicas, and fail if any of them wrote what was not its own."""

    async def body() -> None:
        async with replicas_of(make, settings, server_shards=server_shards) as replicas:
            await main(replicas)
            assert not replicas.checker.doubles

    run_virtual(body())


async def workloads(replicas: Replicas, count: int) -> list[str]:
    """Make namespaces with a workload and its autoscaler each."""
    cluster = replicas.cluster
    cluster.metrics.set_external_metric("", "queue", 20.0)
    names = [f"{number}-shop" for number in range(count)]
    for name in names:
        await cluster.ensure_namespace(name)
        await cluster.apply(make_deployment("web", name, replicas=1, cpu="1m", memory="1Mi"))
        await cluster.apply(make_hpa("web", name, maximum=4, metrics=[QUEUE], behavior=QUICK))
    return names


def sizes(replicas: Replicas, names: list[str]) -> set[int]:
    """Return the sizes that the workloads have."""
    return {replicas.all[0].running.replicas(name, "web") for name in names}


async def bad_day(
    replicas: Replicas,
    rng: Random,
    *,
    minutes: int = 30,
    count: int = 3,
    each_minute: Callable[[int], None] = lambda minute: None,
) -> None:
    """Let replicas die, stop, or lose the network for a while, one every half minute; clocks of new ones are wrong."""

    async def start() -> None:
        replicas.clocks.append(SkewedClock(replicas.cluster.clock, timedelta(minutes=rng.uniform(-3, 3))))
        await replicas.start()

    for _ in range(count):
        await start()
    for minute in range(minutes):
        for _ in range(2):
            await asyncio.sleep(rng.uniform(25, 35))
            hit = rng.choice(replicas.all)
            match rng.choice(("kill", "kill", "stop", "cut")):
                case "cut":
                    hit.cut()
                    await asyncio.sleep(rng.uniform(5, 30))
                    hit.cut(off=False)
                case how:
                    hit.stop(kill=how == "kill")
                    await start()
        each_minute(minute)
