"""Local copies of everything the SLO controller looks at, and the observation of one node taken from them."""

import asyncio
import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.codec import convert
from kubetide.api.core import ConfigMap, Node, Pod
from kubetide.api.meta import ObjectKey, TypedObject
from kubetide.api.scheme import (
    CONFIG_MAPS,
    DEVICES,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODE_SLOS,
    NODES,
    PODS,
    Resource,
)
from kubetide.api.slo import Device, NodeMetric, NodeResourceTopology
from kubetide.clock import Clock
from kubetide.kube.client import Client
from kubetide.kube.informer import Informer
from kubetide.slo.continuity import Departure
from kubetide.slo.decide import NodeObservation
from kubetide.slo.settings import SloSettings

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


class SloView:
    """The informers of the SLO controller."""

    def __init__(self, client: Client, *, clock: Clock, settings: SloSettings, chance: random.Random) -> None:
        self._clock = clock
        self.nodes: Informer[Node] = Informer(client, NODES, clock=clock, chance=chance, resync=settings.sync_period)
        self.pods: Informer[Pod] = Informer(
            client, PODS, clock=clock, chance=chance, indexes={BY_NODE: lambda pod: (pod.spec.node_name,)}
        )
        self.metrics: Informer[NodeMetric] = Informer(client, NODE_METRICS, clock=clock, chance=chance)
        self.slos: Informer[RawNodeSLO] = Informer(client, RAW_NODE_SLOS, clock=clock, chance=chance)
        self.topologies: Informer[RawTopology] = Informer(client, RAW_TOPOLOGIES, clock=clock, chance=chance)
        self.devices: Informer[Device] = Informer(client, DEVICES, clock=clock, chance=chance)
        self.configs: Informer[ConfigMap] = Informer(
            client,
            CONFIG_MAPS,
            clock=clock,
            chance=chance,
            namespace=settings.config_namespace,
            field_selector=f"metadata.name={settings.config_name}",
        )
        self.config_key = ObjectKey(settings.config_namespace, settings.config_name)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (self.nodes, self.pods, self.metrics, self.slos, self.topologies, self.devices, self.configs)

    @property
    def synced(self) -> bool:
        """Whether every copy is complete: nothing is decided before."""
        return all(informer.has_synced for informer in self.informers)

    async def run(self) -> None:
        """Follow everything until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=informer.name)

    async def wait_synced(self) -> None:
        """Wait until every copy is complete."""
        for informer in self.informers:
            await informer.wait_synced()

    def node(self, name: str) -> Node | None:
        """Return a node by name."""
        return self.nodes.store.get(ObjectKey("", name))

    def metric(self, name: str) -> NodeMetric | None:
        """Return the NodeMetric of a node."""
        return self.metrics.store.get(ObjectKey("", name))

    def pods_on(self, name: str) -> list[Pod]:
        """Return the pods bound to a node."""
        return self.pods.store.by_index(BY_NODE, name)

    def observation(
        self,
        node: Node,
        *,
        colocation: Mapping[str, Any],
        normalization: Mapping[str, Any],
        written: Mapping[str, datetime],
        departures: tuple[Departure, ...],
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
            pods=self.pods_on(name),
            metric=self.metric(name),
            topology=convert({"zones": zones}, NodeResourceTopology) if zones else None,
            zones=zones,
            topology_annotations=(raw.metadata.annotations if raw else None) or {},
            device=self.devices.store.get(ObjectKey("", name)),
            colocation=colocation,
            normalization=normalization,
            since_status_write=since("status"),
            since_zone_write=since("zones"),
            since_device_write=since("devices"),
            departures=departures,
        )
