"""What the recommender looks at: pods, usage, OOM kills, and the selector of each VPA's target.

Pods come from an informer, slimmed to what the model needs. OOM kills come from pod updates and from eviction events
and wait in a bounded queue until the loop takes them. Usage is one list for the whole cluster.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from kubetide.api.objects.core import Container, Pod, PodSpec, PodStatus
from kubetide.api.objects.meta import CrossVersionObjectReference, ObjectKey, ObjectMeta, key_of
from kubetide.api.objects.metrics import ContainerUsage, PodMetrics, PodSignals, UsagePages
from kubetide.api.objects.scheme import EVENTS, POD_SIGNALS, PODS
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.selectors import NOTHING, Selector
from kubetide.clock import Clock
from kubetide.errors import KubetideError, Unavailable
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.nodes import NodeSizes
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import ADDED, WatchEvent
from kubetide.kube.client.errors import ApiError
from kubetide.kube.control.core.ranges import ShardMode
from kubetide.kube.metrics import ExternalMetrics, ResourceMetrics
from kubetide.kube.owners import ControllerKey, OwnerChain
from kubetide.log import get_logger
from kubetide.vpa.core.ceilings import NODES
from kubetide.vpa.core.grown import GROWN
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.core.sidecars import with_sidecars
from kubetide.vpa.recommender.core.decisions import failed_check, has_parent, no_controller, unreadable_target
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.oom import Oom, Seen, from_event, from_pod, from_update
from kubetide.vpa.recommender.settings import HpaConflicts, RecommenderSettings

log = get_logger("vpa.recommender")

OOM_QUEUE = 5000
SIGNALS_PAUSE = 600.0
REWATCH_SECONDS = 10.0


class Selectors(Protocol):
    """Finds the selector of a target."""

    async def selector(self, namespace: str, target: CrossVersionObjectReference) -> Selector:
        """Return the selector, or raise what kept it from being read."""
        ...


@dataclass(frozen=True, slots=True)
class ResolvedTarget:
    """What became of a VPA's target: its selector, or what is wrong with it.

    `transient`: nothing is known just now, which is not the same as nothing being there.
    """

    selector: Selector
    problem: str | None = None
    transient: bool = False


class Observer:
    """Pods, usage and OOM kills."""

    def __init__(self, client: Client, *, clock: Clock, settings: RecommenderSettings, rng: random.Random) -> None:
        self._client = client
        self._clock = clock
        self._ask_signals_at = float("-inf")
        self.signals_problem = ""
        self._settings = settings
        self._rng = rng
        self._namespace = settings.vpa_object_namespace or None
        self._usage = ResourceMetrics(client)
        self._external = ExternalMetrics(client)
        self.pods: Informer[Pod] = Informer(
            client,
            PODS,
            clock=clock,
            namespace=self._namespace,
            field_selector="status.phase!=Pending",
            slim=_slimming(settings),
            rng=rng,
        )
        self.pods.add_handler(self._on_pod)
        self.nodes = NodeSizes(client, clock=clock, rng=rng)
        self.seen = Seen()
        self._clock = clock
        self._follows_starts = settings.hpa_conflicts is not HpaConflicts.IGNORE
        self.starts: dict[ObjectKey, float] = {}
        """How long pods took to become ready, in seconds, where that was seen."""
        self._early: deque[Oom] = deque(maxlen=OOM_QUEUE)
        self._queue: deque[Oom] = deque(maxlen=OOM_QUEUE)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pods.run(), name=self.pods.name)
            group.create_task(self.nodes.run(), name="vpa-recommender/nodes")
            group.create_task(self._watch_evictions(), name="vpa-recommender/evictions")

    @property
    def has_synced(self) -> bool:
        """Whether pods are known; nodes are looked at where that is allowed."""
        return self.pods.has_synced

    async def wait_synced(self) -> None:
        """Wait until pods are known and nodes were asked for."""
        await self.pods.wait_synced()
        await self.nodes.wait_synced()

    def begin(self) -> None:
        """Look at every pod as if for the first time."""
        self.seen = Seen()
        self._queue.clear()
        self._early.clear()
        for pod in self.pods.store.values():
            self._early.extend(self.seen.fresh(from_pod(pod)))

    def take_early(self) -> list[Oom]:
        """Return and forget the OOM kills found on pods seen for the first time."""
        found = list(self._early)
        self._early.clear()
        return found

    def take(self) -> list[Oom]:
        """Return and forget the OOM kills that happened since the last loop."""
        found = list(self._queue)
        self._queue.clear()
        return found

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            if old is not None:
                self.seen.forget(old.metadata.namespace, old.metadata.name, old.metadata.uid)
                self.starts.pop(key_of(old), None)
            return
        if old is None:
            self._early.extend(self.seen.fresh(from_pod(new)))
            return
        if self._follows_starts and not _is_ready(old) and _is_ready(new):
            created = new.metadata.creation_timestamp
            if created is not None:
                self.starts.setdefault(key_of(new), max(0.0, (self._clock.now() - created).total_seconds()))
        # The edge first, because it knows the request in force when the OOM kill happened; the level finds what a gap
        # hid.
        self._queue.extend(self.seen.fresh(from_update(old, new)))
        self._queue.extend(self.seen.fresh(from_pod(new)))

    async def _watch_evictions(self) -> None:
        while True:
            try:
                stream = self._client.watch_items(
                    EVENTS, namespace=self._namespace, field_selector="reason=Evicted", bookmarks=False
                )
                async with aclosing(stream):
                    async for event in stream:
                        # The server repeats old events at the start of each watch: each OOM kill is counted once.
                        if isinstance(event, WatchEvent) and event.type == ADDED:
                            self._queue.extend(self.seen.fresh(from_event(event.object)))
            except KubetideError as error:
                log.debug("watching eviction events failed", error=str(error))
            await asyncio.sleep(REWATCH_SECONDS * (1 + 0.5 * self._rng.random()))

    async def signals(self) -> tuple[PodSignals, ...]:
        """Return what nodes know of containers beyond their usage; nothing where no server tells."""
        now = self._clock.monotonic()
        if now < self._ask_signals_at:
            return ()
        try:
            found = (await self._client.list(POD_SIGNALS, namespace=self._namespace)).items
        except KubetideError as error:
            # Another metrics server answers 404, one without permission 403: neither changes from minute to minute.
            wait = SIGNALS_PAUSE if isinstance(error, ApiError) and error.status in (403, 404) else 0.0
            self._ask_signals_at = now + wait
            if str(error) != self.signals_problem:
                log.warning("signals of nodes cannot be read, samples stay as they are", error=str(error))
            self.signals_problem = str(error)
            return ()
        self.signals_problem = ""
        return tuple(found)

    async def usage(self, model: Model) -> Sequence[PodMetrics] | UsagePages:
        """Return the usage of all pods, or where replicas share the work, of those that are ours."""
        if self._settings.use_external_metrics:
            return await self._external_usage(model)
        if self._settings.shards is not ShardMode.AUTO:
            return await self._usage.usage(self._namespace)
        ours = self.pods.store
        return await self._usage.pods(self._namespace, foreign=lambda _, key: key not in ours)

    async def _external_usage(self, model: Model) -> tuple[PodMetrics, ...]:
        wanted = {
            CPU: self._settings.external_metrics_cpu_metric,
            MEMORY: self._settings.external_metrics_memory_metric,
        }
        found = []
        for vpa in list(model.vpas.values()):
            for labels in list(vpa.label_sets.values()):
                for key in list(labels.pods):
                    usage: dict[str, dict[str, str]] = {}
                    stamp = None
                    for resource, metric in wanted.items():
                        if not metric:
                            continue
                        text = ",".join(part for part in (str(vpa.selector), f"pod={key.name}") if part)
                        for value in await self._external.values(key.namespace, metric, selector=text):
                            container = (value.metric_labels or {}).get(self._settings.container_name_label)
                            if container:
                                stamp = stamp or value.timestamp
                                usage.setdefault(container, {})[resource] = str(value.value)
                    containers = tuple(ContainerUsage(name=name, usage=dict(used)) for name, used in usage.items())
                    meta = ObjectMeta(namespace=key.namespace, name=key.name)
                    found.append(PodMetrics(metadata=meta, timestamp=stamp, containers=containers))
        return tuple(found)


async def resolve(vpa: VerticalPodAutoscaler, selectors: Selectors, owners: OwnerChain) -> ResolvedTarget:
    """Return the selector of a VPA's target, or what ConfigUnsupported has to say about it."""
    target, namespace = vpa.spec.target_ref, vpa.metadata.namespace
    if target is None:
        return ResolvedTarget(NOTHING, unreadable_target("targetRef not defined"))
    try:
        selector = await selectors.selector(namespace, target)
    except KubetideError as error:
        return ResolvedTarget(NOTHING, unreadable_target(str(error)), transient(error))
    key = ControllerKey(namespace=namespace, kind=target.kind, name=target.name, api_version=target.api_version)
    try:
        topmost = await owners.topmost(key)
    except KubetideError as error:
        return ResolvedTarget(NOTHING, failed_check(target, str(error)), transient(error))
    if topmost is None:
        return ResolvedTarget(NOTHING, no_controller(target))
    if topmost != key:
        return ResolvedTarget(NOTHING, has_parent(target))
    return ResolvedTarget(selector)


def transient(error: KubetideError) -> bool:
    """Return whether an error says nothing about the object: the server is away, overloaded or broken."""
    if isinstance(error, ApiError):
        return error.status >= 500 or error.status in (401, 403, 429)
    return isinstance(error, Unavailable)


def _is_ready(pod: Pod) -> bool:
    statuses = pod.status.container_statuses or ()
    return bool(statuses) and all(status.ready for status in statuses)


def _slimming(settings: RecommenderSettings) -> Callable[[Pod], Pod]:
    placed = NODES in settings.ceilings
    if settings.gate("NativeSidecar"):
        return lambda pod: slim(with_sidecars(pod), placed=placed)
    return partial(slim, placed=placed)


def slim(pod: Pod, *, placed: bool = False) -> Pod:
    """Return a pod reduced to what the recommender reads: a cluster's pods are held for hours.

    With `placed`, what decides on which nodes it may run is kept too.
    """
    meta, spec, status = pod.metadata, pod.spec, pod.status
    return Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels=meta.labels,
            annotations={GROWN: grown} if (grown := (meta.annotations or {}).get(GROWN)) else None,
            creation_timestamp=meta.creation_timestamp,
        ),
        spec=PodSpec(
            node_name=spec.node_name,
            containers=tuple(Container(name=c.name, resources=c.resources) for c in spec.containers or ()),
            init_containers=tuple(Container(name=c.name) for c in spec.init_containers or ()) or None,
            overhead=spec.overhead if placed else None,
            node_selector=spec.node_selector if placed else None,
            tolerations=spec.tolerations if placed else None,
        ),
        status=PodStatus(
            phase=status.phase,
            container_statuses=tuple(
                msgspec.structs.replace(s, container_id="", allocated_resources=None)
                for s in status.container_statuses or ()
            ),
        ),
    )
