"""Everything the updater looks at, once per loop: VPAs with their pods, limits, usage and nodes."""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from kubetide.api.objects.core import Lease, Node, Pod
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.resources import parse_list
from kubetide.api.objects.scheme import LEASES, NODES, PODS, VPA_CHECKPOINTS
from kubetide.api.objects.vpa import (
    AUTO,
    IN_PLACE,
    IN_PLACE_OR_RECREATE,
    RECREATE,
    VerticalPodAutoscaler,
    update_mode,
)
from kubetide.api.values.quantity import Quantity
from kubetide.clock import Clock
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.view import CacheView
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.kube.control.core.ranges import ShardMode
from kubetide.kube.metrics import ResourceMetrics
from kubetide.kube.owners import ControllerKey
from kubetide.kube.pacing import Backoff
from kubetide.log import get_logger
from kubetide.vpa.admission.core.heartbeat import ABSENT, Heartbeat, read_heartbeat
from kubetide.vpa.admission.core.mutate import SizeLimits
from kubetide.vpa.core.boost import has_boost
from kubetide.vpa.core.matching import Candidate, controlling, pod_owner
from kubetide.vpa.core.policy import recommendations
from kubetide.vpa.core.safety import largest, largest_usage, memory_usage
from kubetide.vpa.core.scope import checkpoint_name, for_group, group_key, scope_of, scope_value
from kubetide.vpa.core.sidecars import with_sidecars
from kubetide.vpa.targets import Targets, own_namespace
from kubetide.vpa.updater.core.budget import Creator, creator_of
from kubetide.vpa.updater.core.plan import Grouped, Observation
from kubetide.vpa.updater.core.trust import needs_evidence, old_enough, why_not_ready
from kubetide.vpa.updater.settings import UpdaterSettings

log = get_logger("updater")

BY_CREATOR, BY_NODE = "creator", "node"
FINISHED = ("Succeeded", "Failed")
NOT_FINISHED = ",".join(f"status.phase!={phase}" for phase in FINISHED)
LEASE_RETRY = Backoff(base=0.1, factor=3.0, cap=1.0, jitter=0.0)

PodUsage = Mapping[ObjectKey, Mapping[str, int]]


class UpdaterView(CacheView):
    """Caches of what the updater needs, and the questions it asks of them."""

    def __init__(self, client: Client, *, clock: Clock, settings: UpdaterSettings, rng: random.Random) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._metrics = ResourceMetrics(client)
        self._warned = False
        self._evidence: set[tuple[ObjectKey, str]] = set()
        self.targets = Targets(
            client,
            clock=clock,
            namespace=settings.vpa_object_namespace,
            ignored=settings.ignored_vpa_object_namespaces,
            rng=rng,
        )
        indexes: dict[str, Callable[[Pod], Iterable[str]]] = {BY_CREATOR: lambda pod: [creator_index(creator_of(pod))]}
        if settings.resize_before_oom:
            indexes[BY_NODE] = lambda pod: [pod.spec.node_name]
        self.pods: Informer[Pod] = Informer(
            client,
            PODS,
            clock=clock,
            namespace=settings.vpa_object_namespace or None,
            field_selector=NOT_FINISHED,
            indexes=indexes,
            slim=with_sidecars if settings.gate("NativeSidecar") else None,
        )
        self.nodes: Informer[Node] | None = None
        self._fits = settings.fit_nodes and not settings.upstream_behavior
        if self._fits or settings.gate("DaemonSetScope") or settings.resize_before_oom:
            self.nodes = Informer(client, NODES, clock=clock)
        self.caches = [cache for cache in (self.targets, self.pods, self.nodes) if cache is not None]

    def workload(self, creator: Creator) -> list[Pod]:
        """Return all pods of one controller, terminating ones included."""
        return self.pods.store.by_index(BY_CREATOR, creator_index(creator))

    @property
    def holds_all_pods(self) -> bool:
        """Whether the cache has every pod of the cluster: neither one namespace alone nor a replica's share of them."""
        return not self._settings.vpa_object_namespace and self._settings.shards is ShardMode.OFF

    def on_node(self, node: str) -> list[Pod]:
        """Return the pods of a node that have not finished, of those the cache has, for --resize-before-oom."""
        return self.pods.store.by_index(BY_NODE, node)

    async def heartbeat(self) -> Heartbeat:
        """Read the lease of the admission controller."""
        namespace = own_namespace(self._settings.admission_namespace)
        for attempt in range(3):
            try:
                lease = await self._client.get(LEASES, self._settings.admission_lease, namespace=namespace)
            except NotFound:
                return ABSENT
            except KubetideError as error:
                log.warning("admission lease cannot be read", error=str(error))
                await asyncio.sleep(LEASE_RETRY.delay(attempt, self._client.rng))
                continue
            self._compare_times(lease)
            return read_heartbeat(lease, now=self._clock.now(), timeout=self._settings.admission_lease_timeout)
        return ABSENT

    def _compare_times(self, lease: Lease) -> None:
        """Warn once where a single late renewal would make the lease look abandoned."""
        timeout, interval = self._settings.admission_lease_timeout, lease.spec.lease_duration_seconds
        if not self._warned and timeout.total_seconds() <= 2 * interval:
            self._warned = True
            log.warning(
                "timeout of the admission lease is short",
                timeout_seconds=timeout.total_seconds(),
                renewed_every_seconds=interval,
            )

    def updated_vpas(self) -> list[VerticalPodAutoscaler]:
        """Return the VPAs whose pods are changed while they run."""
        modes = {RECREATE, AUTO, IN_PLACE_OR_RECREATE}
        if self._settings.gate("InPlace"):
            modes.add(IN_PLACE)
        boosts = self._settings.gate("CPUStartupBoost")
        return [v for v in self.targets.all_vpas() if update_mode(v) in modes or (boosts and has_boost(v))]

    async def observe(self, vpas: list[VerticalPodAutoscaler]) -> list[Observation]:
        """Return these VPAs with their pods and everything else that decides about them."""
        if not vpas:
            return []
        grouped = await self._group(vpas)
        usage = await self._usage()
        nodes = self._nodes()
        now = self._clock.now()
        result = []
        for count, vpa in enumerate(vpas):
            if count % 100 == 99:
                await asyncio.sleep(0)
            result.append(await self._observation(vpa, grouped.get(key_of(vpa), []), usage, nodes, now=now))
        return result

    async def _group(self, vpas: Iterable[VerticalPodAutoscaler]) -> dict[ObjectKey, list[Pod]]:
        """Find the controlling VPA of every live pod."""
        by_target: dict[tuple[str, str, str], list[Candidate]] = {}
        for vpa in vpas:
            candidate = await self.targets.candidate(vpa)
            if candidate is not None and candidate.target is not None:
                target = (candidate.namespace, candidate.target.kind, candidate.target.name)
                by_target.setdefault(target, []).append(candidate)
        namespaces = {namespace for namespace, _, _ in by_target}
        known: dict[tuple[str, str, str, str], ControllerKey | None] = {}
        grouped: dict[ObjectKey, list[Pod]] = {}
        for count, pod in enumerate(self.pods.store.values()):
            if count % 1000 == 999:
                await asyncio.sleep(0)
            namespace = pod.metadata.namespace
            if namespace not in namespaces or not is_live(pod):
                continue
            owner = pod_owner(pod.metadata)
            if owner is None:
                continue
            maker = (namespace, owner.api_version, owner.kind, owner.name)
            if maker not in known:
                known[maker] = await self.targets.topmost(namespace, owner)
            top = known[maker]
            if top is None:
                continue
            candidates = by_target.get((namespace, top.kind, top.name), ())
            best = controlling(
                candidates, namespace=namespace, labels=pod.metadata.labels, kind=top.kind, name=top.name
            )
            if best is not None:
                grouped.setdefault(ObjectKey(best.namespace, best.name), []).append(pod)
        return grouped

    async def _observation(
        self,
        vpa: VerticalPodAutoscaler,
        pods: list[Pod],
        usage: PodUsage | None,
        nodes: tuple[dict[str, Quantity], ...],
        *,
        now: datetime,
    ) -> Observation:
        gate = self._settings.gate
        limits = SizeLimits(limit_ratio=gate("RequestToLimitRatio"), pod_level=gate("VPAPodLevelResources"))
        if not self._settings.upstream_behavior:
            of_workload = None if usage is None else largest_usage(usage.get(key_of(pod), {}) for pod in pods)
            limits = replace(limits, usage=of_workload, headroom=self._settings.memory_headroom, nodes=nodes)
        creators = {creator_of(pod) for pod in pods}
        stated = {c: self.targets.stated_replicas(c.namespace, c.kind, c.name) for c in creators}
        groups = self._groups(vpa, pods)
        not_ready = await self._not_ready(vpa, groups, now=now)
        try:
            ranges = self.targets.limits_in(vpa.metadata.namespace)
        except InvalidInput as error:
            not_ready = not_ready or f"the LimitRanges of the namespace cannot be read: {error}"
            return Observation(vpa=vpa, pods=tuple(pods), stated=stated, limits=limits, not_ready=not_ready)
        return Observation(
            vpa=vpa,
            pods=tuple(pods),
            stated=stated,
            ranges=ranges,
            limits=limits,
            not_ready=not_ready,
            groups={
                key_of(pod): Grouped(for_group(vpa, groups[key_of(pod)]), self._nodes(pod.spec.node_name))
                for pod in (pods if groups else ())
            },
        )

    def _groups(self, vpa: VerticalPodAutoscaler, pods: Iterable[Pod]) -> dict[ObjectKey, str | None]:
        """Return the group of nodes of each pod of a scoped VPA; None for a pod on a node that is not known."""
        scope = scope_of(vpa) if self._settings.gate("DaemonSetScope") else ""
        if not scope or self.nodes is None:
            return {}
        found: dict[ObjectKey, str | None] = {}
        for pod in pods:
            node = self.nodes.store.get(ObjectKey("", pod.spec.node_name))
            found[key_of(pod)] = None if node is None else scope_value(node.metadata.labels, scope)
        return found

    async def _not_ready(
        self, vpa: VerticalPodAutoscaler, groups: Mapping[ObjectKey, str | None], *, now: datetime
    ) -> str:
        if self._settings.upstream_behavior:
            return ""
        reason = why_not_ready(vpa)
        if reason or old_enough(vpa, now=now):
            return reason
        own = key_of(vpa)
        seen = {group_key(own, value): for_group(vpa, value) for value in set(groups.values()) if value is not None}
        for key, each in (seen or {own: vpa}).items():
            try:
                given = recommendations(each.status.recommendation if each.status is not None else None) or ()
            except InvalidInput as error:
                return f"the recommendation cannot be used: {error}"
            for one in given:
                if needs_evidence(one) and not await self._has_samples(key, one.container):
                    return f"the recommendation of container {one.container} rests on no known sample yet"
        return ""

    async def _has_samples(self, vpa: ObjectKey, container: str) -> bool:
        if (vpa, container) in self._evidence:
            return True
        try:
            found = await self._client.get(
                VPA_CHECKPOINTS, checkpoint_name(vpa.name, container), namespace=vpa.namespace
            )
        except KubetideError:
            return False
        if found.status is None or found.status.total_samples_count <= 0:
            return False
        self._evidence.add((vpa, container))
        return True

    async def _usage(self) -> PodUsage | None:
        """Return memory in use by pod and container. Empty when it cannot be read: then all of it is unknown."""
        if self._settings.upstream_behavior or self._settings.memory_headroom < 0:
            return None
        try:
            listed = await self._metrics.pods(self._settings.vpa_object_namespace or None)
        except KubetideError as error:
            log.warning("usage cannot be read, memory is not shrunk", error=str(error))
            return {}
        return {key_of(pod): memory_usage(pod) for pod in listed}

    def _nodes(self, bound: str = "") -> tuple[dict[str, Quantity], ...]:
        """Return what the nodes offer: all of them, or the one that a pod is bound to."""
        if self.nodes is None or not self._fits:
            return ()
        nodes = [node for node in self.nodes.store.values() if not bound or node.metadata.name == bound]
        return largest(parse_list(node.status.allocatable) for node in nodes)


def is_live(pod: Pod) -> bool:
    """Return whether a pod runs or is about to: on a node, not finished, not being deleted."""
    return bool(pod.spec.node_name) and pod.status.phase not in FINISHED and pod.metadata.deletion_timestamp is None


def creator_index(creator: Creator) -> str:
    """Return the text under which the pods of a controller are filed."""
    return f"{creator.namespace}/{creator.kind}/{creator.name}"
