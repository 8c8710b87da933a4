"""Records a cluster as it runs: objects as they change, usage as the metrics API shows it.

Every object is sanitised before it is kept (`core.sanitize`). Usage is read once per resolution; a sample is kept when
it is new, with the time at which it was seen: a replay then shows it to a policy no sooner than a controller could have
seen it. An API that is away leaves a gap that the manifest names; nothing is filled in.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.meta import ObjectKey, controller_of, key_of
from kubetide.api.objects.scheme import (
    DAEMON_SETS,
    DEPLOYMENTS,
    HPAS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    VPAS,
    Resource,
)
from kubetide.api.values.quantity import parse_quantity
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.kube.metrics import CustomMetrics, MetricsNotRegistered, ResourceMetrics
from kubetide.log import get_logger
from kubetide.recording.core.amounts import millis, pruned, usage_amounts, whole, window_seconds
from kubetide.recording.core.layout import ABSENT
from kubetide.recording.core.sanitize import sanitized
from kubetide.recording.tables import write_size
from kubetide.recording.writer import Writer
from kubetide.stats.instants import microseconds
from kubetide.vpa.recommender.core.oom import Seen, from_pod, from_update

log = get_logger("record")

T = TypeVar("T")
Explain = Callable[[str, ObjectKey], Awaitable[Mapping[str, Any] | None]]
"""Returns what a running controller reports about an object, None where nobody knows it."""
AgentEvents = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]
"""Returns the audit log of the node agents that are reachable."""
FOLLOWED: tuple[Resource[Any], ...] = (
    PODS, HPAS, VPAS, NODES, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS,
)  # fmt: skip
AUDIT_SECONDS = 60.0
THROTTLED = "cpu_throttled_ratio"
"""The custom metric of pods that the metrics server makes of what node agents send it."""
_TEMPLATE_HASH = "pod-template-hash"


class LiveRecorder:
    """Writes what happens in a cluster into a recording."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        writer: Writer,
        *,
        namespace: str | None = None,
        resolution: timedelta = timedelta(seconds=15),
        load_metric: str = "",
        explain: Explain | None = None,
        agents: AgentEvents | None = None,
    ) -> None:
        self._clock = clock
        self._writer = writer
        self._namespace = namespace
        self._resolution = resolution.total_seconds()
        self._load_metric = load_metric
        self._explain = explain
        self._agents = agents
        self._usage = ResourceMetrics(client)
        self._custom = CustomMetrics(client)
        self._informers: dict[str, Informer[Any]] = {}
        for resource in FOLLOWED:
            informer: Informer[Any] = Informer(
                client, resource, clock=clock, namespace=namespace if resource.namespaced else None
            )
            informer.add_handler(self._handler(resource))
            self._informers[resource.kind] = informer
        self._newest: dict[int, int] = {}
        self._listed: set[int] = set()
        """Containers that the last answer had usage of."""
        self._sizes: dict[int, tuple[int | None, ...]] = {}
        self._seen = Seen()
        self._agent_events: set[bytes] = set()
        self._audited: dict[ObjectKey, str] = {}
        self._recommended: dict[ObjectKey, Any] = {}
        self._away_since: datetime | None = None
        self._reports_throttling = True

    async def run(self, duration: timedelta, *, stop: asyncio.Event | None = None) -> None:
        """Record for a while, or until somebody stops it."""
        stop = stop or asyncio.Event()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run(), name=each.name) for each in self._informers.values()]
            await self._informers["Pod"].wait_synced()
            await self._poll_until(self._clock.monotonic() + duration.total_seconds(), stop)
            for task in tasks:
                task.cancel()
        if self._explain is not None:
            await self._audit()

    async def _poll_until(self, end: float, stop: asyncio.Event) -> None:
        due, audit_due = self._clock.monotonic(), 0.0
        while due <= end and not await self._stopped(stop, due):
            await self._poll()
            if self._explain is not None and due >= audit_due:
                await self._audit()
                audit_due = due + AUDIT_SECONDS
            due += self._resolution
        await self._stopped(stop, end)
        if self._away_since is not None:
            self._note_away(self._clock.now())

    async def _stopped(self, stop: asyncio.Event, until: float) -> bool:
        """Wait for a time, or until somebody stops it; return which."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - self._clock.monotonic())):
                await stop.wait()
        return stop.is_set()

    def _note_away(self, now: datetime) -> None:
        assert self._away_since is not None
        self._writer.gap(int(self._away_since.timestamp()), int(now.timestamp()), "the metrics API was away")
        self._away_since = None

    # ------------------------------------------------------------------ usage

    async def _poll(self) -> None:
        now = self._clock.now()
        try:
            listed = await self._usage.pods(self._namespace)
        except KubetideError as error:
            if self._away_since is None:
                self._away_since = now
                log.warning("usage cannot be read, recording a gap", error=str(error))
            return
        if self._away_since is not None:
            self._note_away(now)
        ids: list[int] = []
        times: list[int] = []
        cpu: list[int] = []
        memory: list[int] = []
        windows: list[float] = []
        shares: list[float] = []
        throttled = await self._throttled()
        pods = self._informers["Pod"].store
        before, self._listed = self._listed, set()
        for each in listed:
            if each.timestamp is None:
                self._writer.note("samples without a time")
                continue
            at, window = microseconds(each.timestamp), window_seconds(each.window)
            key = ObjectKey(each.metadata.namespace, each.metadata.name)
            pod = pods.get(key)
            for container in each.containers or ():
                number = self._container(each.metadata.namespace, each.metadata.name, container.name, pod)
                self._listed.add(number)
                if self._newest.get(number, -1) >= at:
                    continue
                amounts = usage_amounts(container.usage or {})
                if amounts is None:
                    self._writer.note("samples that cannot be read")
                    continue
                self._newest[number] = at
                ids.append(number)
                times.append(at)
                cpu.append(amounts[0])
                memory.append(amounts[1])
                windows.append(window)
                shares.append(throttled.get(key, float("nan")))
        for number in sorted(before - self._listed):
            # A row without amounts: from here on nobody could see the samples before it.
            ids.append(number)
            times.append(microseconds(now))
            cpu.append(ABSENT)
            memory.append(ABSENT)
            windows.append(float("nan"))
            shares.append(float("nan"))
        if ids:
            self._writer.usage(ids, times, cpu, memory, throttled=shares, windows=windows, seen=microseconds(now))
        if self._load_metric:
            await self._poll_load(now)

    async def _throttled(self) -> Mapping[ObjectKey, float]:
        """Return the share of CPU periods in which each pod was throttled, as node agents report it."""
        found: dict[ObjectKey, float] = {}
        for namespace in sorted({pod.metadata.namespace for pod in self._informers["Pod"].store.values()}):
            if not self._reports_throttling:
                break
            try:
                for value in await self._custom.for_pods(namespace, THROTTLED):
                    key = ObjectKey(namespace, value.described_object.name)
                    found[key] = parse_quantity(value.value).milli / 1000.0
            except (MetricsNotRegistered, NotFound):
                self._reports_throttling = False
            except KubetideError as error:
                log.debug("throttling cannot be read", namespace=namespace, error=str(error))
        return found

    async def _poll_load(self, now: datetime) -> None:
        """Record a custom metric of pods, summed by workload."""
        pods = self._informers["Pod"].store
        namespaces = sorted({pod.metadata.namespace for pod in pods.values()})
        for namespace in namespaces:
            try:
                values = await self._custom.for_pods(namespace, self._load_metric)
            except KubetideError as error:
                log.debug("load cannot be read", namespace=namespace, metric=self._load_metric, error=str(error))
                self._writer.note("loads that could not be read")
                continue
            totals: dict[str, float] = {}
            for value in values:
                pod = pods.get(ObjectKey(namespace, value.described_object.name))
                if pod is not None:
                    workload = self._workload(pod)[1]
                    totals[workload] = totals.get(workload, 0.0) + parse_quantity(value.value).milli / 1000.0
            for workload, total in sorted(totals.items()):
                self._writer.row(
                    "load",
                    namespace=namespace,
                    workload=workload,
                    metric=self._load_metric,
                    time=microseconds(now),
                    value=total,
                )

    def _container(self, namespace: str, pod_name: str, container: str, pod: Pod | None) -> int:
        kind, workload = self._workload(pod) if pod is not None else ("Pod", pod_name)
        return self._writer.container(namespace, kind, workload, pod_name, container)

    def _workload(self, pod: Pod) -> tuple[str, str]:
        """Return kind and name of the topmost controller that is known."""
        owner = controller_of(pod.metadata)
        if owner is None:
            return "Pod", pod.metadata.name
        if owner.kind != "ReplicaSet":
            return owner.kind, owner.name
        replica_set = self._informers["ReplicaSet"].store.get(ObjectKey(pod.metadata.namespace, owner.name))
        above = controller_of(replica_set.metadata) if replica_set is not None else None
        if above is not None:
            return above.kind, above.name
        template = (pod.metadata.labels or {}).get(_TEMPLATE_HASH)
        if template and owner.name.endswith(f"-{template}"):
            return "Deployment", owner.name.removesuffix(f"-{template}")
        return owner.kind, owner.name

    # ------------------------------------------------------------------ objects

    def _handler(self, resource: Resource[T]) -> Callable[[T | None, T | None], None]:
        def handle(old: T | None, new: T | None) -> None:
            self._on_change(resource.kind, old, new)

        return handle

    def _on_change(self, kind: str, old: Any, new: Any) -> None:
        now, found = microseconds(self._clock.now()), new if new is not None else old
        event = "DELETED" if new is None else "ADDED" if old is None else "MODIFIED"
        kept = sanitized(kind, pruned(msgspec.to_builtins(found)))
        if kept is None:
            return
        meta = found.metadata
        self._writer.row(
            "objects", time=now, event=event, kind=kind, namespace=meta.namespace, name=meta.name, object=kept
        )
        if new is None:
            return
        if isinstance(new, Pod):
            self._on_pod(old, new, now)
        elif isinstance(new, Node):
            self._on_node(new, now)
        elif kind in ("Deployment", "StatefulSet"):
            spec, status = kept.get("spec") or {}, kept.get("status") or {}
            self._writer.row(
                "replicas",
                namespace=meta.namespace,
                kind=kind,
                workload=meta.name,
                time=now,
                wanted=spec.get("replicas", 1),
                ready=status.get("readyReplicas", 0),
            )
        elif kind == "VerticalPodAutoscaler" and self._explain is not None:
            self._on_vpa(key_of(new), kept, None if old is None else now)

    def _on_pod(self, old: Pod | None, new: Pod, now: int) -> None:
        meta = new.metadata
        for container in new.spec.containers or ():
            resources = container.resources
            requests = (resources.requests if resources is not None else None) or {}
            limits = (resources.limits if resources is not None else None) or {}
            size = (
                millis(requests.get("cpu")),
                whole(requests.get("memory")),
                millis(limits.get("cpu")),
                whole(limits.get("memory")),
            )
            if any(amount is not None for amount in size):
                number = self._container(meta.namespace, meta.name, container.name, new)
                if self._sizes.get(number) != size:
                    self._sizes[number] = size
                    write_size(self._writer, number, now, *size)
        kills = [*(from_update(old, new) if old is not None else ()), *from_pod(new)]
        for kill in self._seen.fresh(kills):
            number = self._container(meta.namespace, meta.name, kill.container, new)
            self._writer.row(
                "oom_kills", container_id=number, time=microseconds(kill.at), seen=now, memory_bytes=kill.memory_bytes
            )

    def _on_node(self, node: Node, now: int) -> None:
        capacity = node.status.capacity or {}
        self._writer.row(
            "nodes",
            node=node.metadata.name,
            time=now,
            cpu_millis=millis(capacity.get("cpu")),
            memory_bytes=whole(capacity.get("memory")),
        )

    def _on_vpa(self, key: ObjectKey, kept: Mapping[str, Any], now: int | None) -> None:
        """Keep what the recommender decided: it is in the status. What was there at first was decided before (None)."""
        found = (kept.get("status") or {}).get("recommendation")
        if found is not None and self._recommended.get(key) != found:
            self._recommended[key] = found
            if now is not None:
                self._decided(now, "VerticalPodAutoscaler", key, found)

    # ------------------------------------------------------------------ decisions

    async def _audit(self) -> None:
        """Keep what the horizontal autoscaler decided since the last time."""
        assert self._explain is not None
        for key in sorted(self._informers["HorizontalPodAutoscaler"].store.keys()):
            try:
                trace = await self._explain("hpa", key)
            except KubetideError as error:
                log.debug("decisions cannot be read", autoscaler=str(key), error=str(error))
                self._writer.note("decisions that could not be read")
                continue
            lines = list((trace or {}).get("history") or ())
            last = self._audited.get(key, "")
            fresh = [line for line in lines if line["at"] > last]
            if last and lines and len(fresh) == len(lines):
                self._writer.note("decisions that were forgotten before they could be read")
            for line in fresh:
                at = microseconds(datetime.fromisoformat(line["at"]))
                self._decided(at, "HorizontalPodAutoscaler", key, line)
            if fresh:
                self._audited[key] = fresh[-1]["at"]

        if self._agents is not None:
            await self._audit_agents()

    async def _audit_agents(self) -> None:
        """Keep what node agents did since the last time."""
        assert self._agents is not None
        try:
            events = await self._agents()
        except KubetideError as error:
            log.debug("a node agent cannot be asked", error=str(error))
            self._writer.note("audit logs that could not be read")
            return
        known, self._agent_events = self._agent_events, set()
        now = microseconds(self._clock.now())
        for event in reversed(events):
            text = msgspec.json.encode(event)
            self._agent_events.add(text)
            if text not in known:
                self._decided(now, "NodeAgent", ObjectKey("", ""), event)

    def _decided(self, at: int, kind: str, key: ObjectKey, decision: Any) -> None:
        self._writer.row("decisions", time=at, kind=kind, namespace=key.namespace, name=key.name, decision=decision)
