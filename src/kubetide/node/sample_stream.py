"""Sends the metrics server a frame per window: one reading of the cgroups, one stream to each of its replicas.

Containers whose memory is running out (`memory_watch`) do not wait for the window: they are sent as they are found.

Replicas are found through the EndpointSlices of the Service, ready or not (a replica becomes ready by hearing of
nodes); their certificate is verified against the CA that the server publishes. A replica that cannot be reached, or
takes its time, delays nobody: it is sent the newest window when it can take one, and older ones are not made up for.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from kubetide.api.objects.sample_frames import STREAM_CA, STREAM_PATH, STREAM_PROTOCOL
from kubetide.api.objects.scheme import CONFIG_MAPS
from kubetide.api.values.codec import decode_raw
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import TokenFile
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import Pem, ServerTrust
from kubetide.kube.pacing import Backoff, Retry
from kubetide.log import get_logger
from kubetide.node.collectors.base import READ_ERRORS, skips
from kubetide.node.core.formats.memory import meminfo
from kubetide.node.core.memory_alarms import Alarm, ContainerKey, worse
from kubetide.node.core.samples import (
    ContainerCounters,
    FrameBuilder,
    NodeCounters,
    NodeWindow,
    PodCounters,
    window_between,
)
from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import AVG, P99
from kubetide.node.core.series.store import RecentMetrics
from kubetide.node.core.snapshot import PodState
from kubetide.node.host.readers import CgroupReader
from kubetide.node.host.worker import Worker
from kubetide.node.memory_watch import MemoryWatch
from kubetide.node.settings import NodeSettings
from kubetide.node.supervisor import Pace
from kubetide.telemetry import Telemetry

log = get_logger("node.samples")

LOOK_EVERY = 15.0
"""Seconds between two looks for replicas."""
REPEAT_SECONDS = 5.0
"""Alarms are repeated this often while they last, for servers forget what is not."""
PEAK_SECONDS = 60.0
"""Peaks are those of the seconds of the last minute."""
_RETRY = Backoff(base=1.0, cap=30.0, jitter=0.5)


class SampleStream:
    """Reads the node once per window and sends it to all replicas of the metrics server."""

    name = "sample-stream"

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: NodeSettings,
        telemetry: Telemetry,
        reader: CgroupReader,
        worker: Worker,
        pods: Callable[[], tuple[PodState, ...]],
        recent: Callable[[], RecentMetrics],
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._reader = reader
        self._worker = worker
        self._pods = pods
        self._recent = recent
        self._before: NodeCounters | None = None
        self._latest: NodeWindow | None = None
        self._memory = MemoryWatch(reader, clock)
        self._alarms: dict[ContainerKey, Alarm] = {}
        self._alarmed_at = 0.0
        self._alarm_count = 0
        self._news = asyncio.Event()
        self._known: set[tuple[str, str]] = set()
        self._problems: dict[str, str] = {}
        self._frames = telemetry.counts("kubetide_node_frames_total", "Frames sent to metrics servers.", ("result",))
        self._alarm_gauge = telemetry.gauge(
            "kubetide_node_memory_alarms", "Containers whose memory is running out, as the metrics server is told."
        )
        self._streams = telemetry.gauge("kubetide_node_streams", "Open streams to metrics servers.")

    def ready(self) -> bool:
        """Return True: the agent does its work whether or not somebody listens."""
        return True

    def healthy(self) -> bool:
        """A server that cannot be reached is tried again; a restart would not help."""
        return True

    async def run(self) -> None:
        """Read and send until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sample(), name="samples")
            if self._settings.memory_alarm_interval:
                group.create_task(self._watch_memory(), name="memory alarms")
            streams: dict[tuple[str, str], asyncio.Task[None]] = {}
            while True:
                wanted = await self._replicas()
                for key in streams.keys() - wanted:
                    streams.pop(key).cancel()
                    self._problems.pop(key[0], None)
                for key in sorted(wanted - streams.keys()):
                    streams[key] = group.create_task(self._stream(*key), name=f"stream to {key[0]}")
                await asyncio.sleep(LOOK_EVERY)

    # ---- reading

    async def _sample(self) -> None:
        pace = Pace(self._settings.metrics_window.total_seconds())
        while True:
            try:
                self.take(await self._worker.call(partial(self.read, self._pods()), "samples of pods"))
            except READ_ERRORS as error:
                self._note("host", str(error))
            await asyncio.sleep(pace.rest())

    async def _watch_memory(self) -> None:
        pace = Pace(self._settings.memory_alarm_interval.total_seconds())
        while True:
            with suppress(*READ_ERRORS):
                self.raise_alarms(await self._worker.call(partial(self._memory.look, self._pods()), "memory of pods"))
            await asyncio.sleep(pace.rest())

    def raise_alarms(self, alarms: dict[ContainerKey, Alarm]) -> None:
        """Keep the alarms there are; those that are new, worse, over, or were not sent lately are sent at once."""
        before, self._alarms = self._alarms, alarms
        self._alarm_gauge.set(len(alarms))
        now = self._clock.now().timestamp()
        if worse(before, alarms) or (alarms and now - self._alarmed_at >= REPEAT_SECONDS):
            self._alarmed_at = now
            self._alarm_count += 1
            self._tell()
        for key in alarms.keys() - before.keys():
            one = alarms[key]
            log.info(
                "memory is running out", pod_uid=key[0], container=key[1], rule=one.rule, need=one.need, limit=one.limit
            )

    def _tell(self) -> None:
        """Wake whoever sends."""
        self._news.set()
        self._news = asyncio.Event()

    def take(self, now: NodeCounters) -> None:
        """Make a window of a reading and the one before it, for whoever sends."""
        before, self._before = self._before, now
        if before is None or now.monotonic <= before.monotonic:
            return
        recent, seconds = self._recent(), now.monotonic - before.monotonic
        cores = recent.query(kinds.NODE_CPU, seconds=seconds).aggregate(AVG)
        gpus = recent.averages(kinds.POD_GPU_CORE, kinds.POD_UID, seconds=seconds)
        self._latest = window_between(
            before,
            now,
            node_cores=cores,
            gpus={uid: percent / 100 for uid, percent in gpus.items()},
            peaks=self._peaks(recent, now),
            throttled=recent.averages(kinds.CONTAINER_THROTTLED, kinds.CONTAINER_ID, seconds=seconds),
        )
        self._tell()

    def _peaks(self, recent: RecentMetrics, now: NodeCounters) -> dict[str, float]:
        """Return the 99th percentile of the seconds of the last minute in cores, by container."""
        found = {}
        for identity in (one.id for pod in now.pods.values() for one in pod.containers.values() if one.id):
            points = recent.query(kinds.CONTAINER_CPU, {kinds.CONTAINER_ID: identity}, seconds=PEAK_SECONDS)
            if (peak := points.aggregate(P99)) is not None:
                found[identity] = peak
        return found

    def read(self, pods: tuple[PodState, ...]) -> NodeCounters:
        """Read the counters of the node and its pods, on a worker."""
        reader = self._reader
        memory = meminfo(reader.host.read(reader.layout.proc("meminfo")))
        found = {}
        self._memory.begin_window()
        for pod in pods:
            try:
                found[pod.uid] = self._read_pod(pod)
            except READ_ERRORS as error:
                skips(pod, error)
        return NodeCounters(
            at=self._clock.now().timestamp(),
            monotonic=self._clock.monotonic(),
            working_set=memory.working_set_bytes,
            pods=found,
        )

    def _read_pod(self, pod: PodState) -> PodCounters:
        reader = self._reader
        containers = {}
        for container in (*pod.containers, *pod.init_containers):
            if container.directory and container.running:
                usage, stat = reader.memory_usage(container.directory), reader.memory_stat(container.directory)
                limit = reader.memory_limit(container.directory)
                self._memory.note_limit(container.directory, limit)
                containers[container.name] = ContainerCounters(
                    cpu_nanos=reader.cpu_usage_nanos(container.directory),
                    working_set=max(usage - stat.inactive_file, 0),
                    need=max(usage - stat.inactive_file - stat.active_file, 0),
                    limit=limit,
                    id=container.id,
                )
        cpu_pressure = memory_pressure = None
        with suppress(*READ_ERRORS):
            pressure = reader.pressure(pod.directory)
            cpu_pressure = pressure.cpu.some.avg10 / 100 if pressure.cpu.some_supported else None
            memory_pressure = pressure.memory.some.avg10 / 100 if pressure.memory.some_supported else None
        kills = None
        with suppress(*READ_ERRORS):
            kills = sum(map(reader.oom_kills, _counting(pod, reader.layout.version)))
        return PodCounters(
            namespace=pod.namespace,
            name=pod.name,
            containers=containers,
            throttling=reader.throttling(pod.directory),
            cpu_pressure=cpu_pressure,
            memory_pressure=memory_pressure,
            oom_kills=kills,
        )

    # ---- sending

    async def _replicas(self) -> set[tuple[str, str]]:
        """Return where replicas are, each with the CA of their certificate; the last ones known if nobody says."""
        settings = self._settings
        try:
            ca = settings.metrics_ca_file and await asyncio.to_thread(Path(settings.metrics_ca_file).read_text)
            if not ca:
                found = await self._client.get_raw(CONFIG_MAPS, STREAM_CA, namespace=settings.own_namespace)
                ca = str((found.get("data") or {}).get("ca.crt") or "")
            addresses = [settings.metrics_address] if settings.metrics_address else await self._endpoints()
        except (KubetideError, OSError) as error:
            self._note("service", str(error))
            return self._known
        self._note("service", "" if addresses else "the metrics server has no replica")
        self._known = {(address, ca) for address in addresses}
        return self._known

    async def _endpoints(self) -> list[str]:
        namespace, service = self._settings.own_namespace, self._settings.metrics_service
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        query = {"labelSelector": f"kubernetes.io/service-name={service}"}
        answer = decode_raw((await self._client.request("GET", path, query=query)).body, what=path)
        return [address for item in answer.get("items") or () for address in _addresses(item)]

    async def _stream(self, address: str, ca: str) -> None:
        """Keep a stream to one replica until cancelled."""
        retry = Retry(_RETRY, self._client.rng)
        access = Access(
            server=f"https://{address}",
            trust=ServerTrust(ca=Pem(data=ca)),
            credentials=TokenFile(Path(self._settings.metrics_token_file)),
            tls_server_name=f"{self._settings.metrics_service}.{self._settings.own_namespace}.svc",
        )
        while True:
            transport = HttpTransport(access)
            try:
                async with transport.socket(STREAM_PATH, {}, STREAM_PROTOCOL) as socket:
                    self._note(address, "")
                    retry.succeeded()
                    self._streams.inc()
                    try:
                        reason = await self._send(socket)
                    finally:
                        self._streams.dec()
            except (KubetideError, aiohttp.ClientError, OSError) as error:
                self._note(address, str(error) or type(error).__name__)
            else:
                self._note(address, reason)
            finally:
                await transport.close()
            await asyncio.sleep(retry.next_delay())

    async def _send(self, socket: aiohttp.ClientWebSocketResponse) -> str:
        """Send windows until the server ends the stream; return why it did."""
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._send_windows(socket))
            # The server says nothing but goodbye.
            reason = await _ended(socket)
            sending.cancel()
        return reason

    async def _send_windows(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        builder, sent, alarms_sent = FrameBuilder(), None, self._alarm_count
        while True:
            window, now = self._latest, self._clock.now().timestamp()
            if window is not None and window is not sent:
                message: bytes | None = builder.frame(window, sent=now, alarms=self._alarms)
            elif alarms_sent != self._alarm_count:
                message = builder.alarm(self._alarms, at=self._alarmed_at, sent=now)
            else:
                await self._news.wait()
                continue
            sent, alarms_sent = window, self._alarm_count
            if message is None:
                continue
            try:
                await socket.send_bytes(message)
            except (aiohttp.ClientError, OSError):
                # Reading ends too, and knows why.
                return
            self._frames.add("sent")

    def _note(self, what: str, problem: str) -> None:
        """Report a problem once, and that it is over."""
        if problem and self._problems.get(what) != problem:
            log.warning("samples not sent", to=what, error=problem)
            self._problems[what] = problem
        elif not problem and self._problems.pop(what, None) is not None:
            log.info("samples are sent again", to=what)

    def notes(self) -> tuple[str, ...]:
        """Return what is wrong, in words that name no object."""
        return (f"{len(self._problems)} problems with sending samples",) if self._problems else ()


async def _ended(socket: aiohttp.ClientWebSocketResponse) -> str:
    while not socket.closed:
        message = await socket.receive()
        if message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR):
            break
    code = socket.close_code
    return "" if code in (1000, 1001) else f"the server ended the stream with code {code}"


def _counting(pod: PodState, version: int) -> list[str]:
    """Return the cgroups whose OOM kills are those of a pod: v2 counts what is below, v1 each one for itself."""
    return [pod.directory] if version == 2 else [one.directory for one in pod.containers if one.directory]


def _addresses(item: dict[str, Any]) -> list[str]:
    """Return host and port of the endpoints of a slice that are not about to end."""
    ports = [port.get("port") for port in item.get("ports") or ()]
    hosts = [
        host
        for endpoint in item.get("endpoints") or ()
        if not (endpoint.get("conditions") or {}).get("terminating")
        for host in (endpoint.get("addresses") or ())[:1]
    ]
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts for port in ports[:1] if port]
