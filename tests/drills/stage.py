"""A simulated cluster with its audit log, and kubetide's components in it, each replica with a user of its own.

async with stage(run, nodes=1) as scene:
    leader = await scene.start("hpa")
    …
    leader.kill()
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

import msgspec

from drills.audit import Recorder
from drills.drill import Run
from kubetide.clock import Clock
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.scenario import Scenario
from kubetide.embedded.sim.time.loop import DEFAULT_START, run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.control.manager import Component, Manager
from kubetide.settings import COMPONENTS
from kubetide.telemetry import Telemetry
from kubetide.wiring import Dependencies, build
from simulated.autoscaling import Interference, Meddler

T = TypeVar("T")
MASTERS = ("system:masters", "system:authenticated")
LIMIT = timedelta(days=30)


@dataclass(slots=True)
class Replica:
    """A component that runs as a process of its own would."""

    component: str
    user: User
    manager: Manager
    parts: list[Component]
    requests: Meddler
    telemetry: Telemetry
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Ask it to end, as SIGTERM does."""
        self._stop.set()

    def kill(self) -> None:
        """End it without a last word, as SIGKILL does."""
        self.cut()
        self._stop.set()

    def cut(self, *, off: bool = True) -> None:
        """Cut it off from the API server, or connect it again."""
        self.requests.interfere = (lambda method, path: ConnectionLost("cut off")) if off else None

    @property
    def leading(self) -> bool:
        """Whether it acts."""
        return any(getattr(part, "leading", False) for part in self.parts)


@dataclass(slots=True)
class Scene:
    """The cluster, its log, and what runs in it."""

    cluster: SimCluster
    log: Recorder
    run: Run
    _group: asyncio.TaskGroup
    replicas: list[Replica] = field(default_factory=list)
    _started: int = 0

    @property
    def now(self) -> datetime:
        return self.cluster.clock.now()

    async def start(
        self,
        component: str,
        *,
        clock: Clock | None = None,
        interfere: Interference | None = None,
        elect: bool = False,
        **settings: Any,
    ) -> Replica:
        """Start one more replica of a component; it elects a leader only if asked to."""
        self._started += 1
        user = User(f"kubetide-{component}-{self._started}", MASTERS)
        meddler = Meddler(self.cluster.transport(user))
        meddler.interfere = interfere
        own, telemetry, rng = clock or self.cluster.clock, Telemetry(), Random(f"{component}/{self._started}")
        made = COMPONENTS[component]()
        if "leader_elect" in made.__struct_fields__:
            settings = {"leader_elect": elect, **settings}
        deps = Dependencies(
            client=Client(meddler, clock=own, rng=rng),
            clock=own,
            telemetry=telemetry,
            rng=rng,
            local_webhooks=self.cluster.api.admission,
        )
        parts = build(component, deps, msgspec.structs.replace(made, **settings))
        manager = Manager(name=user.name)
        for part in parts:
            manager.add(part)
        replica = Replica(component, user, manager, parts, meddler, telemetry)
        self.replicas.append(replica)
        self._group.create_task(self._live(replica), name=user.name)
        await asyncio.sleep(0)
        return replica

    async def _live(self, replica: Replica) -> None:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(replica.manager.run(), name=replica.user.name)
            await replica._stop.wait()
            work.cancel()
        self.replicas.remove(replica)

    async def pass_time(self, **duration: float) -> None:
        """Let the cluster live: `pass_time(minutes=5)`."""
        await self.cluster.run_for(timedelta(**duration))

    def since(self, start: datetime, why: str, *, namespace: str = "", name: str = "") -> None:
        """Name the time from `start` until now as doubtful."""
        self.run.doubt(start, self.now, why, namespace=namespace, name=name)


@asynccontextmanager
async def stage(run: Run, *, nodes: int = 1, scenario: Scenario | None = None, **server: Any) -> AsyncIterator[Scene]:
    """Make the cluster; what runs in it stops at the end, and an error of it is an error of the drill."""
    clock = virtual_clock()
    log = run.audit(clock)
    async with SimCluster(scenario, api=ApiServer(clock=clock, audit=log, **server)) as cluster:
        for number in range(nodes):
            cluster.add_node(f"node-{number + 1}")
        async with asyncio.TaskGroup() as group:
            scene = Scene(cluster, log, run, group)
            try:
                yield scene
            finally:
                for replica in scene.replicas:
                    replica.stop()


def play(
    run: Run,
    main: Callable[[Scene], Awaitable[T]],
    *,
    nodes: int = 1,
    scenario: Scenario | None = None,
    start: datetime = DEFAULT_START,
    **server: Any,
) -> T:
    """Run `main` on a stage in virtual time and return its result."""

    async def body() -> T:
        async with stage(run, nodes=nodes, scenario=scenario, **server) as scene:
            return await main(scene)

    return run_virtual(body(), start=start, limit=LIMIT)
