"""Servers and machines: a server that comes back older, disks that are full, a process without descriptors."""

import asyncio
import logging
import os
import resource
import socket
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from cluster.test_informer_restore import Cluster as RestorableServer
from drills.audit import WRITES
from drills.drill import Run, drill
from drills.existing import module, run_tests
from drills.stage import MASTERS, Scene, play
from drills.test_horizontal import AT_ONCE, external
from embedded_server import running as served
from kubetide import crds
from kubetide.clock import Clock, SystemClock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import User
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.journal import Journal
from kubetide.embedded.apiserver.storage.objects import ResourceKey, StoreKey
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.hpa.controller import HpaController
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response
from kubetide.kube.control.manager import running
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_hpa, make_pod, make_vpa
from kubetide.vpa.recommender.loop import Recommender
from kubetide.vpa.recommender.settings import RecommenderSettings
from qosagent import make_agent
from qosagent import running as running_agent
from simulated.usage import PodUsageOnly

Raw = dict[str, Any]


class Usage(PodUsageOnly):
    """Usage of pods, and one external metric per workload, for a server that can be taken back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.wanted = 3.0

    def external(self, namespace: str, metric: str, selector: str = "") -> list[Raw]:
        stamp = f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}"
        return [{"metricName": metric, "metricLabels": {}, "timestamp": stamp, "value": f"{self.wanted:.0f}"}]

    def pod_metrics(self, namespace: str = "", selector: str = "", name: str = "") -> list[Raw]:
        stamp = f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}"
        meta = {"namespace": "default", "name": "web-1", "labels": {"app": "web"}}
        used = [{"name": "main", "usage": {"cpu": "300m", "memory": "300Mi"}}]
        return [{"metadata": meta, "timestamp": stamp, "window": "30s", "containers": used}]


DEPLOYMENTS = ResourceKey("apps", "deployments")


@drill(
    "server-restored",
    shows="the API server is away for ten minutes and comes back from a snapshot of half an hour ago: resource "
    "versions "
    "and counts go back, objects of the last half hour are gone",
    figure="time until all counts are what the load asks for",
    bound=120,
    unit="s",
)
def test_a_server_that_comes_back_older_is_brought_up_to_date(run: Run) -> float:
    async def main() -> float:
        clock = virtual_clock()
        server = RestorableServer(partial(ApiServer, audit=run.audit(clock)))
        usage = Usage(clock)
        _fill(server.api, workloads=10)
        server.api.metrics_provider = usage
        client = Client(
            _As(server, User("kubetide-hpa-1", MASTERS)), clock=clock, rng=Random(1), cache_check=timedelta(minutes=1)
        )
        other = Client(_As(server, User("kubetide-recommender-1", MASTERS)), clock=clock, rng=Random(2))
        recorder = EventRecorder(client, clock=clock, component="hpa")
        hpa = HpaController(client, clock, HpaSettings(), Telemetry(), recorder, Random(3))
        settings = RecommenderSettings(leader_elect=True)
        sizes = Recommender(other, clock, settings, Telemetry(), recorder, Random(4))
        async with running(hpa, recorder, sizes):
            await _settle(server, 3)
            backup = server.backup()
            usage.wanted = 7.0
            await _settle(server, 7)
            _fill(server.api, workloads=1, prefix="late")
            await asyncio.sleep(1800)
            begin = clock.now()

            def away(path: str) -> Response | None:
                raise ConnectionLost("the server is down")

            server.answer = away
            await asyncio.sleep(600)
            server.restore(backup)
            server.api.metrics_provider = usage
            server.answer = lambda path: None
            run.doubt(begin, clock.now(), "the server was away")
            run.restored.append(clock.now())
            took = await _settle(server, 7)
            await asyncio.sleep(900)
            status = server.api.store.get(
                ResourceKey("autoscaling.k8s.io", "verticalpodautoscalers"), StoreKey("default", "web-0")
            )
            assert status is not None
            assert status.obj["status"]["recommendation"]["containerRecommendations"]
            return took

    return run_virtual(main(), limit=timedelta(days=1))


class _As:
    """The transport of a user to a server that can be taken back."""

    def __init__(self, server: RestorableServer, user: User) -> None:
        self._server, self._user = server, user

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        answer = self._server.answer(path)
        return answer or await InProcessTransport(self._server.api, user=self._user).request(method, path, **parts)

    @asynccontextmanager
    async def watch(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        self._server.answer(path)
        async with self._server.watch(path, query=query) as lines:
            yield lines

    async def close(self) -> None:
        """Nothing is held."""


def _fill(api: ApiServer, *, workloads: int, prefix: str = "web") -> None:
    for definition in crds.load_all():
        if prefix == "web":
            api.insert(definition)
    for number in range(workloads):
        name = f"{prefix}-{number}"
        made = make_deployment(name, replicas=3, cpu="100m")
        made["status"] = {"replicas": 3, "readyReplicas": 3}
        api.insert(made)
        api.insert(make_hpa(name, target=name, maximum=20, metrics=[external("queue")], behavior=AT_ONCE))
        api.insert(make_vpa(name, target=name, mode="Off"))
    if prefix == "web":
        pod = make_pod("web-1", labels={"app": "web-0"}, cpu="100m", phase="Running", ready=True)
        api.insert(pod)


async def _settle(server: RestorableServer, wanted: int) -> float:
    """Wait until all counts are as wanted, and play the workload controllers meanwhile; return the seconds."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while True:
        entries = server.api.store.collection(DEPLOYMENTS).entries()
        for entry in list(entries):
            replicas = entry.obj["spec"]["replicas"]
            if entry.obj["status"].get("replicas") != replicas:
                status = {"replicas": replicas, "readyReplicas": replicas}
                server.api.store.put(DEPLOYMENTS, entry.key, {**entry.obj, "status": status})
        if all(entry.obj["spec"]["replicas"] == wanted for entry in entries):
            return loop.time() - begin
        if loop.time() - begin > 3600:
            raise TimeoutError
        await asyncio.sleep(1)


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow, as on a disk without room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@drill(
    "disk-full-server",
    shows="the disk under the embedded API server is full for a minute while a client writes",
    figure="acknowledged writes that a restart does not bring back, and refused ones that it does",
    bound=0,
    unit="writes",
    writes=False,
)
def test_a_full_disk_loses_no_acknowledged_write(run: Run) -> float:
    disks = module("unit/embedded/test_disk_full.py")

    async def main() -> float:
        acknowledged: set[str] = set()
        async with disks.server(run.folder) as (one, disk):
            for second in range(180):
                disk.error = disks.ENOSPC if 60 <= second < 120 else None
                status, _ = await one.create(f"c-{second}")
                if status == 201:
                    acknowledged.add(f"c-{second}")
                await asyncio.sleep(1)
        assert len(acknowledged) >= 100
        assert not acknowledged >= {"c-90"}
        journal = Journal(run.folder, clock=virtual_clock())
        api = ApiServer(clock=SystemClock(), seed=None, store=journal.load(), audit=run.audit(SystemClock()))
        names = {entry.key.name for entry in api.store.collection(ResourceKey("", "configmaps")).entries()}
        await journal.close()
        return len(acknowledged ^ {name for name in names if name.startswith("c-")})

    return run_virtual(main())


@drill(
    "disk-full-agent",
    shows="the disk of a node is full for ten minutes: history, models and audit log cannot be written",
    figure="reports of the node that are missing in that time (one a minute)",
    bound=1,
    unit="reports",
)
def test_an_agent_on_a_full_disk_goes_on(run: Run) -> float:
    logging.getLogger("kubetide").setLevel(logging.CRITICAL)

    async def main(scene: Scene) -> float:
        await scene.cluster.apply(
            {
                "apiVersion": "slo.koordinator.sh/v1alpha1",
                "kind": "NodeMetric",
                "metadata": {"name": "node-1"},
                "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
            }
        )
        agent = make_agent(
            scene.cluster,
            user=User("kubetide-node-1", MASTERS),
            enable_node_metric_report=True,
            audit_log_dir=str(run.folder / "audit"),
            metric_history_path=str(run.folder / "history"),
            prediction_checkpoint_filepath=str(run.folder / "models"),
        )
        async with running_agent(agent):
            await scene.pass_time(minutes=3)
            before = _reports(scene)
            with full_disk():
                await scene.pass_time(minutes=10)
            written = _reports(scene) - before
            await scene.pass_time(minutes=2)
            assert agent.healthy()
        return 10 - written

    return play(run, main)


def _reports(scene: Scene) -> int:
    return sum(event.kind == "nodemetrics/status" and event.accepted for event in scene.log.events)


IN_ONE_STEP = {**AT_ONCE, "scaleUp": {"policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]}}


class Queue(PodUsageOnly):
    """One external metric, now."""

    length = 3

    def external(self, namespace: str, metric: str, selector: str = "") -> list[Raw]:
        stamp = f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ}"
        return [{"metricName": metric, "metricLabels": {}, "timestamp": stamp, "value": str(self.length)}]


@drill(
    "out-of-descriptors",
    shows="a process has no file descriptor left: servers and clients pause, report it once, and go on when there "
    "are some; the autoscaler in it and the API server that it asks have none five times while the load changes and "
    "their connections break",
    figure="writes of a count beyond one for each change of the load, and tests of that tier that fail",
    bound=0,
    tier="sockets",
)
def test_a_process_without_descriptors_goes_on_when_there_are_some(run: Run) -> float:
    descriptors = "http/test_out_of_descriptors.py"
    return asyncio.run(_without_descriptors(run, module(descriptors))) + float(run_tests(descriptors, run.folder))


async def _without_descriptors(run: Run, tools: Any) -> int:
    clock, log = SystemClock(), run.audit(SystemClock())
    user = User("kubetide-hpa-1", MASTERS)
    async with served(audit=log, tokens={user.name: user}) as server:
        server.api.metrics_provider = queue = Queue()
        server.api.insert(make_deployment("web", replicas=3, cpu="100m"))
        _follow(server.api, 3)
        server.api.insert(make_hpa("web", maximum=20, metrics=[external("queue")], behavior=IN_ONE_STEP))
        client = Client(server.transport(user.name), clock=clock, rng=Random(1))
        recorder = EventRecorder(client, clock=clock, component="hpa")
        settings = HpaSettings(sync_period=timedelta(seconds=1), leader_elect=False)
        async with running(HpaController(client, clock, settings, Telemetry(), recorder, Random(2)), recorder):
            silent = 0
            for length in (6, 3, 7, 4, 8):
                _break_connections(int(server.serving.url.rpartition(":")[2]))
                with tools.descriptors_left(0) as taken:
                    await asyncio.sleep(0.05)
                    # What the broken connections gave back is taken as well.
                    tools.take_all(taken)
                    queue.length, asked = length, log.requests
                    await asyncio.sleep(2)
                    silent += log.requests == asked
                async with asyncio.timeout(120):
                    while _count(server.api) != length:  # noqa: ASYNC110 - the world has no event
                        await asyncio.sleep(0.1)
                    _follow(server.api, length)
        await client.close()
    assert silent >= 3, "requests came through although there was no descriptor"
    written = [
        event for event in log.events if event.subresource == "scale" and event.accepted and event.verb in WRITES
    ]
    return len(written) - 5


def _break_connections(port: int) -> None:
    """End every connection of this process to a port of its own."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as copy:
                    if copy.family == socket.AF_INET and copy.getpeername()[1] == port:
                        copy.shutdown(socket.SHUT_RDWR)


def _count(api: ApiServer) -> int:
    found = api.store.get(DEPLOYMENTS, StoreKey("default", "web"))
    assert found is not None
    return int(found.obj["spec"]["replicas"])


def _follow(api: ApiServer, replicas: int) -> None:
    """Play the controller of the workload."""
    found = api.store.get(DEPLOYMENTS, StoreKey("default", "web"))
    assert found is not None
    api.store.put(DEPLOYMENTS, found.key, {**found.obj, "status": {"replicas": replicas, "readyReplicas": replicas}})
