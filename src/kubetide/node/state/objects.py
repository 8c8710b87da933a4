"""The objects of this node, followed through the API server: Node, NodeSLO, NodeMetric, volume claims.

Objects with strategies are read raw, because they are completed by merging and unknown fields must survive. A NodeSLO
that is deleted stays in force: the last known settings are better than none.
"""

import asyncio
from datetime import timedelta
from typing import Any

from kubetide.api.objects.core import Node, PersistentVolumeClaim
from kubetide.api.objects.meta import ObjectKey, TypedObject
from kubetide.api.objects.scheme import NODES, PVCS, Resource
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import parse_quantity
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.log import get_logger
from kubetide.node.core import slo
from kubetide.node.core.compat import NEWEST
from kubetide.node.state.callbacks import Callbacks, News
from kubetide.telemetry import Telemetry

log = get_logger("node.state")

RESYNC = timedelta(hours=12)
_EXTENDED = {
    "kubernetes.io/batch-cpu": "integer",
    "kubernetes.io/batch-memory": "byte",
    "kubernetes.io/mid-cpu": "integer",
    "kubernetes.io/mid-memory": "byte",
}


class RawSpec(TypedObject, frozen=True, kw_only=True, gc=False):
    """An object whose spec is kept as it came."""

    spec: dict[str, Any] | None = None


RAW_NODE_SLOS: Resource[RawSpec] = Resource(
    "slo.koordinator.sh", "v1alpha1", "nodeslos", "NodeSLO", RawSpec, namespaced=False
)
RAW_NODE_METRICS: Resource[RawSpec] = Resource(
    "slo.koordinator.sh", "v1alpha1", "nodemetrics", "NodeMetric", RawSpec, namespaced=False
)


def metadata_below(node: Node | None, name: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return the metadata of an object of a node that goes when its Node goes."""
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": name,
        "uid": node.metadata.uid if node else "",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"name": name, "labels": labels, "ownerReferences": [owner]}


class NodeObjects:
    """What the API server reports about this node."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        node_name: str,
        callbacks: Callbacks,
        telemetry: Telemetry,
        *,
        claims: bool,
        report: bool,
        compat: Compat = NEWEST,
    ) -> None:
        only = f"metadata.name={node_name}"
        self.node: Node | None = None
        self.slo: NodeSLOSpec | None = None
        self.slo_raw: dict[str, Any] | None = None
        self.metric_spec: dict[str, Any] | None = None
        self.volumes: dict[str, str] = {}
        self._name = node_name
        self._compat = compat
        self._callbacks = callbacks
        self._allocatable = telemetry.gauge(
            "koordlet_node_resource_allocatable",
            "Allocatable overcommitted resources.",
            ("node", "resource", "unit"),
        )
        self._nodes = Informer(client, NODES, clock=clock, field_selector=only, resync=RESYNC)
        self._slos = Informer(client, RAW_NODE_SLOS, clock=clock, field_selector=only, resync=RESYNC)
        self._metrics = Informer(client, RAW_NODE_METRICS, clock=clock, field_selector=only, resync=RESYNC)
        self._claims = Informer(client, PVCS, clock=clock, resync=RESYNC)
        self._nodes.add_handler(self._on_node)
        self._slos.add_handler(self._on_slo)
        self._metrics.add_handler(self._on_metric)
        self._claims.add_handler(self._on_claim)
        self.informers: tuple[Informer[Any], ...] = (
            self._nodes,
            self._slos,
            *((self._metrics,) if report else ()),
            *((self._claims,) if claims else ()),
        )

    def metric_version(self) -> str:
        """Return the version of the NodeMetric as last seen; empty if there is none."""
        found = self._metrics.store.get(ObjectKey("", self._name))
        return found.metadata.resource_version if found is not None else ""

    def waiting_for(self) -> list[str]:
        """Return what has not been listed yet; an empty list of Nodes is not this node's."""
        missing = [str(informer.resource) for informer in self.informers if not informer.has_synced]
        return missing if self.node is not None or missing else [f"Node {self._name}"]

    async def run(self) -> None:
        """Follow all objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=informer.name)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if new is None or (old and old.metadata.resource_version == new.metadata.resource_version):
            return
        before = self.node
        self.node = new
        for resource, unit in _EXTENDED.items():
            quantity = (new.status.allocatable or {}).get(resource)
            if quantity is not None:
                self._allocatable.labels(self._name, resource, unit).set(float(parse_quantity(quantity)))
        if (
            before is None
            or before.metadata.labels != new.metadata.labels
            or before.metadata.annotations != new.metadata.annotations
        ):
            self._callbacks.signal(News.NODE)

    def _on_slo(self, old: RawSpec | None, new: RawSpec | None) -> None:
        if new is None or (self.slo is not None and new.spec == self.slo_raw):
            return
        try:
            self.slo = slo.complete_spec(new.spec, self._compat)
        except KubetideError as error:
            log.warning("NodeSLO not usable, the last one stays", error=str(error))
            return
        self.slo_raw = new.spec
        self._callbacks.signal(News.NODE_SLO)

    def _on_metric(self, old: RawSpec | None, new: RawSpec | None) -> None:
        if new is None:
            self.metric_spec = None
            return
        changed = old is None or (old.metadata.generation != new.metadata.generation and old.spec != new.spec)
        if changed or self.metric_spec is None:
            self.metric_spec = slo.complete_collect_policy(new.spec)

    def _on_claim(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        if new is not None:
            self.volumes[f"{new.metadata.namespace}/{new.metadata.name}"] = new.spec.volume_name
        elif old is not None:
            self.volumes.pop(f"{old.metadata.namespace}/{old.metadata.name}", None)
