"""What the recommender looks at: pods, usage, OOM kills, and the selector of each VPA's target.

Pods come from an informer, slimmed to what the model needs. OOM kills come from pod updates and from eviction events
and wait in a bounded queue until the loop takes them. Usage is one list for the whole cluster.
"""

import asyncio
import random
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

import msgspec

from kubetide.api.objects.core import Container, Pod, PodSpec, PodStatus
from kubetide.api.objects.meta import ObjectMeta
from kubetide.api.objects.metrics import ContainerUsage, PodMetrics
from kubetide.api.objects.scheme import EVENTS, PODS
from kubetide.api.objects.vpa import CrossVersionObjectReference, VerticalPodAutoscaler
from kubetide.api.values.selectors import NOTHING, Selector
from kubetide.clock import Clock
from kubetide.errors import KubetideError, Unavailable
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.nodes import NodeSizes
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import ADDED, Rejected
from kubetide.kube.client.errors import ApiError
from kubetide.kube.metrics import ExternalMetrics, ResourceMetrics
from kubetide.kube.owners import ControllerKey, OwnerChain
from kubetide.log import get_logger
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.core.sidecars import with_sidecars
from kubetide.vpa.recommender.core.decisions import failed_check, has_parent, no_controller, unreadable_target
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.oom import Oom, Seen, from_event, from_pod, from_update
from kubetide.vpa.recommender.settings import RecommenderSettings

log = get_logger("vpa.recommender")

OOM_QUEUE = 5000
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
            slim=(lambda pod: slim(with_sidecars(pod))) if settings.gate("NativeSidecar") else slim,
            rng=rng,
        )
        self.pods.add_handler(self._on_pod)
        self.nodes = NodeSizes(client, clock=clock, rng=rng)
        self.seen = Seen()
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
            return
        if old is None:
            self._early.extend(self.seen.fresh(from_pod(new)))
            return
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
                        if event.type == ADDED and not isinstance(event, Rejected):
                            self._queue.extend(self.seen.fresh(from_event(event.object)))
            except KubetideError as error:
                log.debug("watching eviction events failed", error=str(error))
            await asyncio.sleep(REWATCH_SECONDS * (1 + 0.5 * self._rng.random()))

    async def usage(self, model: Model) -> tuple[PodMetrics, ...]:
        """Return the usage of all pods."""
        if self._settings.use_external_metrics:
            return await self._external_usage(model)
        return await self._usage.pods(self._namespace)

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


def slim(pod: Pod) -> Pod:
    """Return a pod reduced to what the recommender reads: a cluster's pods are held for hours."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    return Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels=meta.labels,
        ),
        spec=PodSpec(
            node_name=spec.node_name,
            containers=tuple(Container(name=c.name, resources=c.resources) for c in spec.containers or ()),
            init_containers=tuple(Container(name=c.name) for c in spec.init_containers or ()) or None,
        ),
        status=PodStatus(
            phase=status.phase,
            container_statuses=tuple(
                msgspec.structs.replace(s, container_id="", allocated_resources=None)
                for s in status.container_statuses or ()
            ),
        ),
    )
