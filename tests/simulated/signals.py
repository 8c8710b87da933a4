"""Agents that stream, and the metrics server that hears them, beside a simulated cluster in virtual time.

Everything is as in production but the network: agents read the simulated kernel's files, make frames and hand them to
the server's streams, and the server's lists and watches are read through a transport that stands for the aggregation
layer.

async with signals(cluster) as heard:
    client = heard.client()        # `podsignals` can be listed and watched with it
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.world import PODS
from kubetide.errors import Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response, Transport
from kubetide.metrics.core.frames import SampleStream as ReceivedStream
from kubetide.metrics.core.requests import SIGNALS, parse_path
from kubetide.metrics.core.statuses import Refused
from kubetide.metrics.server import MetricsServer
from kubetide.metrics.settings import MetricsSettings
from kubetide.metrics.signals_api import HEARTBEAT_LINE
from kubetide.node.core.layout import Layout
from kubetide.node.core.series.ring import Ring
from kubetide.node.core.series.store import SeriesStore
from kubetide.node.core.snapshot import PodState, pod_state
from kubetide.node.host.readers import CgroupReader
from kubetide.node.host.worker import Inline
from kubetide.node.sample_stream import SampleStream
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry


class Receiver:
    """Where an agent sends: the server's end of a stream."""

    def __init__(self, server: MetricsServer, node: str, cluster: SimCluster) -> None:
        self._server = server
        self._stream = ReceivedStream(node)
        self._cluster = cluster

    async def send_bytes(self, message: bytes) -> None:
        """Take a message as the server does."""
        self._server.streams.keep(self._stream.take(message, arrived=self._cluster.clock.now()))


class Aggregated:
    """A transport on which signals can be read, until the server is `down`."""

    def __init__(self, inner: Transport, server: MetricsServer) -> None:
        self._inner = inner
        self._server = server
        self.close = inner.close
        self.down = False
        self.opened = 0

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        """Pass a request on; of signals, ask the server."""
        question = parse_path(path)
        if question is None or question.resource != SIGNALS:
            return await self._inner.request(method, path, **parts)
        if self.down:
            return Response(503, body=b"")
        try:
            return Response(200, body=self._server.api._signals.answer(question, parts.get("query") or {}))
        except Refused as error:
            return Response(error.code, body=b"")

    @asynccontextmanager
    async def watch(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch; of signals, the server's."""
        question = parse_path(path)
        if question is None or question.resource != SIGNALS:
            async with self._inner.watch(path, query=query) as lines:
                yield lines
            return
        if self.down:
            raise Unavailable("the metrics server does not answer")
        waiting: asyncio.Queue[Callable[[], list[bytes]]] = asyncio.Queue()
        self.opened += 1

        async def told() -> AsyncIterator[bytes]:
            while not self.down:
                try:
                    async with asyncio.timeout(10):
                        lines = await waiting.get()
                except TimeoutError:
                    yield HEARTBEAT_LINE
                    continue
                for line in lines():
                    yield line

        with self._server.api._hearing(question, waiting.put_nowait):
            yield told()


@dataclass
class Signals:
    """The server and the agents that run."""

    cluster: SimCluster
    server: MetricsServer
    agents: dict[str, SampleStream]
    transports: list[Aggregated] = field(default_factory=list)

    def client(self, seed: int = 0) -> Client:
        """Return a client that can read signals."""
        transport = Aggregated(self.cluster.transport(), self.server)
        self.transports.append(transport)
        return Client(transport, clock=self.cluster.clock, rng=Random(seed))


@asynccontextmanager
async def signals(cluster: SimCluster, *, window: float = 5.0, look: float = 1.0) -> AsyncIterator[Signals]:
    """Run a metrics server, and an agent on every node there is, while the block lasts."""
    client = cluster.client()
    settings = MetricsSettings(register=False)
    server = MetricsServer(client, cluster.clock, settings, Telemetry(), Random(0), serve=False)
    node_settings = NodeSettings(
        metrics_window=timedelta(seconds=window), memory_alarm_interval=timedelta(seconds=look), audit_log_dir=""
    )
    agents = {}
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(server.run())]
        await server.wait_synced()
        for name, host in cluster.hosts.items():
            store = SeriesStore(Ring(60.0))
            agent = agents[name] = SampleStream(
                client,
                cluster.clock,
                node_settings,
                Telemetry(),
                CgroupReader(host, Layout(version=host.version, paths=host.paths)),
                Inline(),
                _Pods(cluster, name),
                lambda store=store: store.view(cluster.clock.now, 1.0),  # type: ignore[misc]
            )
            receiver = Receiver(server, name, cluster)
            parts = (agent._sample(), agent._watch_memory(), agent._send_windows(receiver))  # type: ignore[arg-type]
            tasks.extend(map(group.create_task, parts))
        try:
            yield Signals(cluster, server, agents)
        finally:
            for task in tasks:
                task.cancel()


class _Pods:
    """The running pods of a node, as its agent knows them."""

    def __init__(self, cluster: SimCluster, node: str) -> None:
        self._cluster = cluster
        self._node = node
        self._known: dict[str, tuple[str, PodState]] = {}

    def __call__(self) -> tuple[PodState, ...]:
        paths = self._cluster.hosts[self._node].paths
        found = {}
        for raw in self._cluster.world.all(PODS):
            if raw["spec"].get("nodeName") != self._node or raw["status"].get("phase") != "Running":
                continue
            meta = raw["metadata"]
            before = self._known.get(meta["uid"])
            if before is None or before[0] != meta["resourceVersion"]:
                before = (meta["resourceVersion"], pod_state(convert(raw, Pod), paths))
            found[meta["uid"]] = before
        self._known = found
        return tuple(state for _, state in found.values())
