"""Caches of everything the SLO controller looks at, and the observation of one node taken from them."""

import random
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from kubetide.api.objects.core import ConfigMap, Container, Node, Pod, PodSpec, PodStatus
from kubetide.api.objects.meta import ObjectKey, ObjectMeta, TypedObject, key_of
from kubetide.api.objects.scheme import (
    CONFIG_MAPS,
    DEVICES,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODE_SLOS,
    NODES,
    PODS,
    Resource,
)
from kubetide.api.objects.slo import Device, NodeMetric, NodeResourceTopology
from kubetide.api.qos.qos import ANNOTATION_RESOURCE_STATUS, LABEL_PRIORITY_CLASS, LABEL_QOS
from kubetide.api.values.codec import convert
from kubetide.clock import Clock
from kubetide.errors import DecodeError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.view import CacheView
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.log import get_logger
from kubetide.slo.core.config import AmplificationState, ColocationState, NormalizationState
from kubetide.slo.core.decide import decide_node
from kubetide.slo.core.departures import Departures
from kubetide.slo.core.observation import NodeObservation
from kubetide.slo.core.overcommit.claims import PodClaim, claim_of
from kubetide.slo.settings import SloSettings

log = get_logger("slo")

T = TypeVar("T")

Raw = dict[str, Any]
BY_NODE = "node"


class RawNodeSLO(TypedObject, frozen=True, kw_only=True, gc=False):
    """A NodeSLO whose spec is compared and rendered as a whole, unknown fields included."""

    spec: dict[str, Any] | None = None


class RawTopology(TypedObject, frozen=True, kw_only=True, gc=False):
    """A NodeResourceTopology whose zones are written back, unknown fields included."""

    topology_policies: list[str] | None = None
    zones: list[dict[str, Any]] | None = None


RAW_NODE_SLOS = Resource(NODE_SLOS.group, NODE_SLOS.version, NODE_SLOS.plural, NODE_SLOS.kind, RawNodeSLO, False)
RAW_TOPOLOGIES = Resource(
    NODE_RESOURCE_TOPOLOGIES.group,
    NODE_RESOURCE_TOPOLOGIES.version,
    NODE_RESOURCE_TOPOLOGIES.plural,
    NODE_RESOURCE_TOPOLOGIES.kind,
    RawTopology,
    False,
)


_LABELS = (LABEL_QOS, LABEL_PRIORITY_CLASS)


def slim_pod(pod: Pod) -> Pod:
    """Keep of a pod what a claim is read off; a cluster has many pods, and most of each is of no interest here."""
    meta = pod.metadata
    labels = {name: meta.labels[name] for name in _LABELS if name in meta.labels} if meta.labels else None
    chosen = (meta.annotations or {}).get(ANNOTATION_RESOURCE_STATUS)
    return Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels=labels or None,
            annotations=None if chosen is None else {ANNOTATION_RESOURCE_STATUS: chosen},
        ),
        spec=PodSpec(
            node_name=sys.intern(pod.spec.node_name),
            containers=_slim(pod.spec.containers),
            init_containers=_slim(pod.spec.init_containers),
            overhead=pod.spec.overhead,
            resources=pod.spec.resources,
            priority=pod.spec.priority,
        ),
        status=PodStatus(phase=pod.status.phase, qos_class=pod.status.qos_class),
    )


def _slim(containers: tuple[Container, ...] | None) -> tuple[Container, ...] | None:
    return None if containers is None else tuple(Container(resources=each.resources) for each in containers)


class SloView(CacheView):
    """The informers of the SLO controller."""

    def __init__(self, client: Client, *, clock: Clock, settings: SloSettings, rng: random.Random) -> None:
        self._clock = clock
        self.nodes: Informer[Node] = Informer(client, NODES, clock=clock, rng=rng, resync=settings.sync_period)
        self.pods: Informer[Pod] = Informer(
            client,
            PODS,
            clock=clock,
            rng=rng,
            indexes={BY_NODE: lambda pod: (pod.spec.node_name,)},
            slim=slim_pod,
        )
        self.metrics: Informer[NodeMetric] = Informer(client, NODE_METRICS, clock=clock, rng=rng)
        self.slos: Informer[RawNodeSLO] = Informer(client, RAW_NODE_SLOS, clock=clock, rng=rng)
        self.topologies: Informer[RawTopology] = Informer(client, RAW_TOPOLOGIES, clock=clock, rng=rng)
        self.devices: Informer[Device] = Informer(client, DEVICES, clock=clock, rng=rng)
        self.configs: Informer[ConfigMap] = Informer(
            client,
            CONFIG_MAPS,
            clock=clock,
            rng=rng,
            namespace=settings.config_namespace,
            field_selector=f"metadata.name={settings.config_name}",
        )
        self.by_node: tuple[Informer[Any], ...] = (self.nodes, self.metrics, self.slos, self.topologies, self.devices)
        """One object per node each, of its name."""
        self.caches = (*self.by_node, self.pods, self.configs)
        self._claims: dict[ObjectKey, tuple[Pod, PodClaim]] = {}
        self._pod_changes: dict[str, int] = {}
        """How often a pod of a node came, changed or left."""
        self.pods.add_handler(self._pod_changed)
        self.config_key = ObjectKey(settings.config_namespace, settings.config_name)

    def node(self, name: str) -> Node | None:
        """Return a node by name."""
        return self.nodes.store.get(ObjectKey("", name))

    def metric(self, name: str) -> NodeMetric | None:
        """Return the NodeMetric of a node."""
        return self.metrics.store.get(ObjectKey("", name))

    def claims_on(self, name: str) -> list[PodClaim]:
        """Return what the pods bound to a node claim; each version of a pod is looked at once."""
        claims = []
        for pod in self.pods.store.by_index(BY_NODE, name):
            key = key_of(pod)
            known = self._claims.get(key)
            if known is None or known[0] is not pod:
                known = self._claims[key] = (pod, claim_of(pod))
            claims.append(known[1])
        return claims

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        for node in {pod.spec.node_name for pod in (old, new) if pod is not None}:
            self._pod_changes[node] = self._pod_changes.get(node, 0) + 1
        if new is None and old is not None:
            self._claims.pop(key_of(old), None)

    def basis(self, node: Node) -> tuple[object, ...]:
        """Return what an observation of a node is taken from, apart from configuration and time."""
        name = node.metadata.name
        key = ObjectKey("", name)
        return (
            node,
            self._pod_changes.get(name, 0),
            self.metrics.store.get(key),
            self.topologies.store.get(key),
            self.devices.store.get(key),
        )

    def observation(
        self,
        node: Node,
        *,
        colocation: Mapping[str, Any],
        normalization: Mapping[str, Any],
        amplification: Mapping[str, Any],
        written: Mapping[str, datetime],
        departures: Departures,
    ) -> NodeObservation:
        """Take one observation of a node; `written` says when this process last wrote what."""
        name = node.metadata.name
        raw = self.topologies.store.get(ObjectKey("", name))
        zones = (raw.zones if raw else None) or []
        now = self._clock.now()

        def since(what: str) -> timedelta | None:
            return now - written[what] if what in written else None

        return NodeObservation(
            node=node,
            pods=self.claims_on(name),
            metric=self.metric(name),
            topology=_typed(zones),
            zones=zones,
            topology_annotations=(raw.metadata.annotations if raw else None) or {},
            topology_version=raw.metadata.resource_version if raw else "",
            device=self.devices.store.get(ObjectKey("", name)),
            colocation=colocation,
            normalization=normalization,
            amplification=amplification,
            since_status_write=since("status"),
            since_zone_write=since("zones"),
            departures=departures.of(name),
            watched_for=departures.watched_for(name, now),
        )


async def recompute(client: Client, clock: Clock, settings: SloSettings, key: ObjectKey) -> dict[str, Any]:
    """Calculate a node from the cluster as it is now, without a running controller: nothing is written."""
    name = key.name
    node = await client.get(NODES, name)
    config = await _or_none(client, CONFIG_MAPS, settings.config_name, settings.config_namespace)
    data = None if config is None else (config.data or {})
    colocation, _ = ColocationState.initial(settings.version).updated(data)
    normalization, _ = NormalizationState(compat=settings.version).updated(data)
    amplification, _ = AmplificationState(compat=settings.version).updated(data)
    pods = await client.list(PODS, field_selector=f"spec.nodeName={name}")
    topology = await _or_none(client, RAW_TOPOLOGIES, name)
    zones = (topology.zones if topology is not None else None) or []
    metric = await _or_none(client, NODE_METRICS, name)
    device = await _or_none(client, DEVICES, name)
    seen = NodeObservation(
        node=node,
        pods=[claim_of(pod) for pod in pods.items],
        metric=metric,
        topology=_typed(zones),
        zones=zones,
        topology_annotations=(topology.metadata.annotations if topology is not None else None) or {},
        device=device,
        colocation=colocation.config,
        normalization=normalization.config,
        amplification=amplification.config,
    )
    decision = decide_node(seen, settings, clock.now())
    return {"kind": "node", "recomputed": True, "overcommit": decision.trace}


def _typed(zones: Sequence[Raw]) -> NodeResourceTopology | None:
    """Read zones; zones that cannot be read only cost the part of the calculation that is about them."""
    try:
        return convert({"zones": list(zones)}, NodeResourceTopology) if zones else None
    except DecodeError as error:
        log.warning("cannot read the zones of a topology", error=str(error))
        return None


async def _or_none(client: Client, resource: Resource[T], name: str, namespace: str | None = None) -> T | None:
    try:
        return await client.get(resource, name, namespace=namespace)
    except NotFound:
        return None
