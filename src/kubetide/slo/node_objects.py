"""The two objects that every node has: its NodeSLO and its NodeMetric, created, kept and deleted with the node.

Both are put back when somebody else changes what belongs to the controller. Only the spec is written; labels,
annotations and whatever others keep in the metadata stay.
"""

from functools import partial
from typing import Any

from kubetide.api.objects.core import Node
from kubetide.api.objects.events import reference_to, warning
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import NODE_METRICS
from kubetide.api.values.codec import to_builtins, without_nulls
from kubetide.api.values.patch import JsonPatch, MergePatch
from kubetide.clock import Clock
from kubetide.kube.cache.informer import Informer
from kubetide.kube.client.client import Client
from kubetide.kube.control.reconcile import Result
from kubetide.kube.control.recorder import Recorder
from kubetide.log import get_logger
from kubetide.slo.at_rest import AtRest
from kubetide.slo.cluster_view import RAW_NODE_SLOS, RawNodeSLO, SloView
from kubetide.slo.config_source import Configuration
from kubetide.slo.core.nodeslo import BANDWIDTH_ANNOTATION, node_bandwidth, render, same_spec
from kubetide.slo.core.strategy import metric_spec
from kubetide.slo.telemetry import NODE_METRIC, NODE_SLO, SloInstruments

log = get_logger("slo")

_GET_ERRORS = {NODE_SLO: "reconcileNodeSLOGetError", NODE_METRIC: "reconcileNodeMetricGetError"}


class ObjectReconciler:
    """Keeps the NodeSLO and the NodeMetric of each node as the configuration wants them."""

    def __init__(
        self,
        client: Client,
        *,
        view: SloView,
        configuration: Configuration,
        instruments: SloInstruments,
        recorder: Recorder,
        at_rest: AtRest,
        clock: Clock,
    ) -> None:
        self._client = client
        self._view = view
        self._configuration = configuration
        self._instruments = instruments
        self._recorder = recorder
        self._at_rest = at_rest
        self._clock = clock
        self._reported: dict[str, str] = {}

    async def reconcile_slo(self, name: str) -> Result:
        """Bring the NodeSLO of a node up to date."""
        config = self._configuration.slo
        if not config.available or self._unreadable(NODE_SLO, name):
            return Result()
        node, stored = self._view.node(name), self._view.slos.store.get(ObjectKey("", name))
        counted = partial(self._instruments.counted, NODE_SLO)
        if node is None:
            if stored is not None:
                await counted("deleteNodeSLO", self._client.delete(RAW_NODE_SLOS, name))
            return Result()
        basis, now = (config, node, stored), self._clock.now()
        if self._at_rest.holds(NODE_SLO, name, basis, now):
            return Result()
        self._report_bandwidth(node)
        spec = render(config, node, stored.spec if stored else None)
        self._instruments.rendered_slo(self._configuration.broken_keys)
        if stored is None:
            await counted("createNodeSLO", self._client.create(RAW_NODE_SLOS, _object("NodeSLO", name, spec)))
        elif not same_spec(stored.spec or {}, spec):
            patch = replaced_spec(stored, spec)
            await counted("updateNodeSLO", self._client.patch(RAW_NODE_SLOS, name, patch))
        else:
            self._at_rest.settle(NODE_SLO, name, basis, now)
        return Result()

    async def reconcile_metric(self, name: str) -> Result:
        """Bring the collect policy of a node's NodeMetric up to date."""
        colocation = self._configuration.colocation
        if not colocation.available or self._unreadable(NODE_METRIC, name):
            return Result()
        node, stored = self._view.node(name), self._view.metric(name)
        counted = partial(self._instruments.counted, NODE_METRIC)
        if node is None:
            if stored is not None:
                await counted("deleteNodeMetric", self._client.delete(NODE_METRICS, name))
            return Result()
        basis, now = (colocation, node, stored), self._clock.now()
        if self._at_rest.holds(NODE_METRIC, name, basis, now):
            return Result()
        old = without_nulls(to_builtins(stored.spec)) if stored is not None else None
        spec = metric_spec(colocation.config, error=colocation.error, node=node, old=old, compat=colocation.compat)
        self._instruments.rendered_metric(failed=colocation.error)
        if stored is None:
            await counted("createNodeMetric", self._client.create(NODE_METRICS, _object("NodeMetric", name, spec)))
        elif not same_spec(old, spec):
            patch = MergePatch({"spec": spec})
            await counted("updateNodeMetric", self._client.patch(NODE_METRICS, name, patch))
        else:
            self._at_rest.settle(NODE_METRIC, name, basis, now)
        return Result()

    def _report_bandwidth(self, node: Node) -> None:
        """Report a bandwidth annotation that cannot be read, once per text."""
        name, text = node.metadata.name, (node.metadata.annotations or {}).get(BANDWIDTH_ANNOTATION)
        if text is None or node_bandwidth(node) is not None:
            self._reported.pop(name, None)
        elif self._reported.get(name) != text:
            self._reported[name] = text
            log.warning("bandwidth annotation ignored", node=name, value=text)
            about = reference_to(node, kind="Node", api_version="v1")
            message = f"annotation {BANDWIDTH_ANNOTATION}: {text!r} is not a quantity, the configured bandwidth applies"
            self._recorder.publish(warning(about, "NetworkBandwidthIgnored", message))

    def _unreadable(self, controller: str, name: str) -> bool:
        """Return whether the node or its object is there but cannot be read, which is not the same as absent."""
        key = ObjectKey("", name)
        own: Informer[Any] = self._view.slos if controller == NODE_SLO else self._view.metrics
        caches: dict[str, Informer[Any]] = {"reconcileNodeGetError": self._view.nodes, _GET_ERRORS[controller]: own}
        for reason, informer in caches.items():
            if key in informer.rejected and informer.store.get(key) is None:
                self._instruments.reconciled(controller, reason, failed=True)
                return True
        return False


def replaced_spec(stored: RawNodeSLO, spec: dict[str, Any]) -> JsonPatch:
    """Return the patch that replaces the spec as a whole, unless the object has changed since it was read."""
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": stored.metadata.resource_version}
    return JsonPatch([version, {"op": "add", "path": "/spec", "value": spec}])


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": NODE_METRICS.api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
