"""A whole cluster in one object: the embedded API server, nodes, controllers, scheduler, kubelets, load, metrics APIs.

    async with SimCluster(scenario) as cluster:
        client = cluster.client()
        await cluster.run_for(timedelta(hours=1))

It lives in whatever time the running loop has: virtual in tests and simulation (`loop.run_virtual`), real under
`kubetide up --sim`. The same scenario and seed give the same history, byte for byte.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cache
from random import Random
from types import TracebackType
from typing import Any, Self

import msgspec
import yaml

from kubetide import crds
from kubetide.api.qos.cgroups import CgroupDriver
from kubetide.api.values.quantity import cpu_millis, memory_bytes, quantity_float
from kubetide.clock import Clock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.render import answer_raw
from kubetide.embedded.apiserver.rest.requests import ADMIN, Answer, Request, User
from kubetide.embedded.apiserver.rest.status import Raw, StatusError, no_such_path, unavailable
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.expiry import EVENT_TTL
from kubetide.embedded.sim.controllers.registry import make_controllers
from kubetide.embedded.sim.load.curves import DAY, Constant, Curve
from kubetide.embedded.sim.load.manifests import node_manifest, workload_manifest
from kubetide.embedded.sim.load.model import LoadModel, LoadObserver
from kubetide.embedded.sim.load.profile import Profile
from kubetide.embedded.sim.load.scenario import (
    Amount,
    EventSpec,
    Scenario,
    ScenarioError,
    make_curve,
    make_profile,
    seconds,
)
from kubetide.embedded.sim.load.scenario_events import Announcement, play, set_node_outage
from kubetide.embedded.sim.load.ticks import Ticks
from kubetide.embedded.sim.metrics import SimMetrics
from kubetide.embedded.sim.node.hosts import SimHost
from kubetide.embedded.sim.node.kernel import Kernel
from kubetide.embedded.sim.node.kubelet import Kubelets
from kubetide.embedded.sim.scheduler import Scheduler
from kubetide.embedded.sim.time.loop import virtual_clock
from kubetide.embedded.sim.world import NAMESPACES, NODES, World
from kubetide.errors import InvalidInput
from kubetide.kube.client.client import CACHE_CHECK, Client

_SYSTEM_CPU = 0.05
_SYSTEM_MEMORY = 256.0 * 2**20
_OOM_ROUNDS = 8


@cache
def _custom_resources() -> tuple[Raw, ...]:
    return crds.load_all()


class SimCluster:
    """The cluster. Make it inside a running loop; it works while it is entered."""

    def __init__(
        self,
        scenario: Scenario | None = None,
        *,
        seed: int = 0,
        clock: Clock | None = None,
        api: ApiServer | None = None,
        event_ttl: timedelta = EVENT_TTL,
    ) -> None:
        self.scenario = scenario or Scenario()
        self.seed = seed or self.scenario.seed
        self.clock: Clock = clock or (api.clock if api is not None else virtual_clock())
        self.api = api or ApiServer(clock=self.clock, seed=self.seed)
        self._origin = self.clock.monotonic()
        start = self.clock.now()
        week_start = start.weekday() * DAY + (start.hour * 60 + start.minute) * 60 + start.second
        self.world = World(self.api.store, self.clock, self._send, Random(self.seed + 1))
        self._kernel = kernel = Kernel()
        self.hosts: dict[str, SimHost] = {}
        """The machine under each node, for the node agent."""
        self.scheduler = Scheduler(self.world)
        self.kubelets = Kubelets(
            self.world, kernel, self.hosts, monotonic=self.elapsed, workload_of=self.world.workload_of
        )
        self.model = LoadModel(kernel, seed=self.seed, week_start=week_start, done=self.kubelets.complete)
        self.kubelets.attach(self.model)
        metrics = self.scenario.metrics
        self.metrics = SimMetrics(
            self.world,
            kernel,
            self.kubelets,
            self.model,
            seed=self.seed,
            interval=seconds(metrics.interval),
            delay=seconds(metrics.delay),
            gaps=metrics.gaps,
            week_start=week_start,
            elapsed=self.elapsed,
        )
        self._ticks = Ticks(kernel, self.model, self.metrics)
        self.api.metrics_provider = self.metrics
        self.api.node_proxy = self._kubelet_endpoint
        self.controllers = make_controllers(self.world, event_ttl=event_ttl)
        self.observers: list[LoadObserver] = []
        self.announce: Callable[[Announcement], None] = lambda _: None
        """Hears of scenario events."""
        self._tick = seconds(self.scenario.tick)
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[Any]] = []
        for name, load in metrics.external.items():
            self.metrics.set_external_metric("", name, make_curve(load, seed=self.seed))

    # -- life

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        for controller in self.controllers:
            self._spawn(controller.run(), f"sim-{controller.name}")
        self._spawn(self.scheduler.run(), "sim-scheduler")
        ticking = self._ticks.run(
            self._tick, elapsed=self.elapsed, step=self.step, observed=lambda: bool(self.observers)
        )
        self._spawn(ticking, "sim-model")
        for definition in _custom_resources():
            await self._apply_one(definition, replace_existing=False)
        scenario = self.scenario
        for node in scenario.nodes:
            for number in range(node.count):
                self.add_node(
                    node.name if node.count == 1 else f"{node.name}-{number + 1}",
                    cpu=node.cpu,
                    memory=node.memory,
                    disk=node.disk,
                    pods=node.pods,
                    cgroup=node.cgroup,
                    driver=node.driver,
                    sockets=node.sockets,
                    threads=node.threads,
                    anolis=node.anolis,
                    labels=node.labels,
                    taints=node.taints,
                )
        for workload in scenario.workloads:
            key = (workload.namespace, workload.name)
            self.model.set_profile(key, make_profile(workload, seed=self.seed))
        written = [(f"objects[{index}]", obj) for index, obj in enumerate(scenario.objects)]
        written += [(f"workloads[{index}]", workload_manifest(spec)) for index, spec in enumerate(scenario.workloads)]
        for place, obj in written:
            try:
                await self._apply_one(obj, replace_existing=False)
            except (StatusError, InvalidInput) as error:
                await self.__aexit__(None, None, None)
                raise ScenarioError(str(error), subject=scenario.source, field=place) from error
        for event in scenario.events:
            self.inject(event)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        # Only a cancellation may be the group's own doing (a part failed); the body's own errors stay as they are.
        if kind is asyncio.CancelledError:
            await self._group.__aexit__(kind, error, trace)
        else:
            await self._group.__aexit__(None, None, None)

    def _spawn(self, work: Any, name: str) -> None:
        self._tasks.append(self._group.create_task(work, name=name))

    def inject(self, event: EventSpec) -> None:
        """Let a scenario event happen at its time, also one that the scenario did not have at its start."""
        self._spawn(play(self, event), f"sim-event-{event.do}")

    def elapsed(self) -> float:
        """Return seconds since the cluster was made."""
        return self.clock.monotonic() - self._origin

    def step(self, now: float) -> None:
        """Bring counters up to `now`, set new demands, and let the kernel OOM kill whom it must."""
        self._kernel.advance(now)
        self.model.tick(now)
        for _ in range(_OOM_ROUNDS):
            kills = self._kernel.out_of_memory()
            if not kills:
                break
            taken = self.model.rates() if self.observers else {}
            for kill in kills:
                workload = self.kubelets.workload_at(kill.row)
                self.kubelets.kill(kill.row, scope=kill.scope)
                if workload is not None:
                    for observer in self.observers:
                        observer.killed(workload, taken.get(kill.row, 0.0) * self._tick)
        for observer in self.observers:
            observer.stepped(now)

    # -- access

    @property
    def kernel(self) -> Kernel:
        """The kernels of all nodes, brought up to the last tick."""
        self._kernel.catch_up()
        return self._kernel

    def transport(self, user: User | str | None = None) -> InProcessTransport:
        """Return a transport for a user; None is the administrator."""
        if isinstance(user, str):
            user = User(user, ("system:authenticated",))
        return InProcessTransport(self.api, user=user or ADMIN)

    def client(self, user: User | str | None = None, *, cache_check: timedelta = CACHE_CHECK) -> Client:
        """Return a client for a user; None is the administrator."""
        return Client(self.transport(user), clock=self.clock, rng=Random(self.seed), cache_check=cache_check)

    async def _send(self, request: Request) -> Answer:
        answer = await self.api.handle(request)
        if not isinstance(answer, Answer):
            raise TypeError("a controller of the simulation opened a watch")
        return answer

    async def _kubelet_endpoint(self, node: str, path: str, request: Request) -> Answer:
        """Answer what the API server passes on to a kubelet: its list of pods."""
        if node not in self.hosts or node in self.kubelets.stopped_nodes:
            raise unavailable(f"the kubelet of {node} does not answer")
        if path.strip("/") == "pods":
            return answer_raw(self.kubelets.pods(node))
        if path.strip("/") == "healthz":
            return Answer(200, b"ok", "text/plain")
        raise no_such_path()

    # -- changing the world

    async def ensure_namespace(self, name: str) -> None:
        """Make a namespace if it is not there."""
        if name and self.world.get(NAMESPACES, StoreKey("", name)) is None:
            self.api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def apply(self, objects: Raw | str | Sequence[Raw]) -> list[Raw]:
        """Create objects, or replace those that exist, in order; YAML text may hold several. Namespaces are made."""
        if isinstance(objects, str):
            objects = [document for document in yaml.load_all(objects, Loader=yaml.CSafeLoader) if document]
        if isinstance(objects, Mapping):
            objects = [objects]
        return [await self._apply_one(obj) for obj in objects]

    async def _apply_one(self, obj: Raw, *, replace_existing: bool = True) -> Raw:
        group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
        resource = self.api.registry.by_kind(group, str(obj.get("kind")), version)
        if resource is None:
            raise InvalidInput(f"no resource for {obj.get('apiVersion')} {obj.get('kind')}")
        metadata = obj.get("metadata") or {}
        namespace = (metadata.get("namespace") or "default") if resource.namespaced else ""
        await self.ensure_namespace(namespace)
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        path = f"{base}/namespaces/{namespace}/{resource.plural}" if namespace else f"{base}/{resource.plural}"
        body = msgspec.json.encode({**obj, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}})
        answer = await self._send(Request("POST", path, body=body))
        if answer.status == 409 and metadata.get("name"):
            if not replace_existing:  # a cluster that goes on where it stopped keeps what has become of it
                return obj
            answer = await self._send(Request("PUT", f"{path}/{metadata['name']}", body=body))
        result: Raw = msgspec.json.decode(answer.body)
        if answer.status >= 400:
            raise StatusError(answer.status, result.get("reason", ""), result.get("message", ""))
        return result

    def add_node(
        self,
        name: str,
        cpu: Amount = "8",
        memory: Amount = "32Gi",
        *,
        disk: Amount = "200Mi",
        pods: int = 110,
        labels: dict[str, str] | None = None,
        taints: list[Raw] | None = None,
        cgroup: str = "v2",
        driver: str = "systemd",
        sockets: int = 1,
        threads: int = 1,
        anolis: bool = False,
    ) -> SimHost:
        """Add a machine and its node, ready to run pods; return the machine."""
        if name in self.hosts:
            raise InvalidInput(f"node {name} is already there")
        self.kernel.advance(self.elapsed())
        cpus = max(1, cpu_millis(cpu) // 1000)
        machine = self.kernel.add_machine(name, cpus=cpus, memory_bytes=float(memory_bytes(memory)))
        self.kernel.disks.set_speed(machine.index, quantity_float(disk))
        host = SimHost(
            self.kernel,
            machine,
            monotonic=self.elapsed,
            version=1 if cgroup == "v1" else 2,
            driver=CgroupDriver(driver),
            sockets=sockets,
            threads=threads,
            anolis=anolis,
        )
        self.hosts[name] = host
        row = self.kernel.start(machine, "system.slice/kubelet.service", oom_adjust=-999)
        self.kernel.demand[row] = _SYSTEM_CPU
        self.kernel.anon[row] = min(_SYSTEM_MEMORY, machine.memory_bytes / 16)
        node = node_manifest(
            name, cpu=cpu, memory=memory, pods=pods, labels=labels or {}, taints=taints or [], index=machine.index,
            now=self.world.stamp(),
        )  # fmt: skip
        known = self.world.get(NODES, StoreKey("", name))
        if known is None:
            self.api.insert(node)
        else:
            self.world.put(NODES, known, status={**node["status"], **(known.get("status") or {})})
            self.kubelets.adopt(name)
        return host

    def set_profile(self, namespace: str, workload: str, profile: Profile) -> None:
        """Set how the containers of a workload behave; `workload` is the name of the topmost owner."""
        self.model.set_profile((namespace, workload), profile)

    def set_load(self, namespace: str, workload: str, curve: Curve | float) -> None:
        """Send a workload so many requests per second, constant or as a curve says."""
        self.model.set_load((namespace, workload), Constant(float(curve)) if isinstance(curve, int | float) else curve)

    def set_usage(self, namespace: str, workload: str, *, cpu: Amount, memory: Amount | None = None) -> None:
        """Make every pod of a workload want this much, whatever its load."""
        profile = replace(
            self.model.profile_of((namespace, workload)), cpu_steady=quantity_float(cpu), cpu_idle=0.0, curve=None
        )
        if memory is not None:
            profile = replace(profile, memory_base=quantity_float(memory))
        self.model.set_profile((namespace, workload), profile)

    @contextmanager
    def outage(self, what: str) -> Iterator[None]:
        """Take something down for a while: `metrics`, or `node/NAME`."""
        self.begin_outage(what)
        try:
            yield
        finally:
            self.end_outage(what)

    def begin_outage(self, what: str) -> None:
        """Take something down until `end_outage`."""
        self._set_outage(what, down=True)

    def end_outage(self, what: str) -> None:
        """Bring something up again."""
        self._set_outage(what, down=False)

    def _set_outage(self, what: str, *, down: bool) -> None:
        kind, _, name = what.partition("/")
        if kind == "metrics":
            self.metrics.down = down
        elif kind == "node" and name in self.hosts:
            set_node_outage(self.world, self.kubelets, name, down=down)
        else:
            raise InvalidInput(f"{what!r} cannot be taken down; known are metrics and node/NAME")

    # -- time

    async def run_for(self, duration: timedelta) -> None:
        """Let the cluster live for a while."""
        await asyncio.sleep(duration.total_seconds())

    async def wait_for(
        self,
        condition: Callable[[], bool] | Callable[[], Awaitable[bool]],
        *,
        timeout: timedelta = timedelta(minutes=10),
        every: timedelta = timedelta(seconds=1),
    ) -> None:
        """Let the cluster live until a condition holds; raise TimeoutError if it does not in time."""
        async with asyncio.timeout(timeout.total_seconds()):
            while True:
                holds = condition()
                if not isinstance(holds, bool):
                    holds = await holds
                if holds:
                    return
                await asyncio.sleep(every.total_seconds())
