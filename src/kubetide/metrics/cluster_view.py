"""The part of the cluster that the metrics server looks at: pods and nodes, by name, labels and place, nothing else."""

import random

import msgspec

from kubetide.api.objects.core import ConfigMap
from kubetide.api.objects.meta import ApiObject, ObjectKey, ObjectMeta, TypedObject
from kubetide.api.objects.scheme import CONFIG_MAPS, Resource
from kubetide.clock import Clock
from kubetide.errors import InvalidInput
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.view import CacheView
from kubetide.kube.client.client import Client
from kubetide.log import get_logger
from kubetide.metrics.core.adapter_rules import Rules, read_rules
from kubetide.metrics.core.backends import Backends, read_backends
from kubetide.metrics.core.identity import CONFIG_NAME, CONFIG_NAMESPACE, TrustedProxies, read_proxies
from kubetide.metrics.core.scaler_triggers import Scalers, read_scalers

log = get_logger("metrics")

DEFAULT_KUBELET_PORT = 10250


class _PodSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    node_name: str = ""


class PlacedPod(TypedObject, frozen=True, kw_only=True, gc=False):
    """A pod and where it runs."""

    spec: _PodSpec = _PodSpec()


class NodeAddress(ApiObject, frozen=True, kw_only=True, gc=False):
    type: str = ""
    address: str = ""


class _Endpoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    Port: int = DEFAULT_KUBELET_PORT


class _Endpoints(ApiObject, frozen=True, kw_only=True, gc=False):
    kubelet_endpoint: _Endpoint | None = None


class _NodeStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    addresses: tuple[NodeAddress, ...] | None = None
    daemon_endpoints: _Endpoints | None = None


class ReachableNode(TypedObject, frozen=True, kw_only=True, gc=False):
    """A node and where its kubelet listens."""

    status: _NodeStatus = _NodeStatus()

    def address(self, types: tuple[str, ...]) -> str:
        """Return the first address of the types in their order; empty if it has none."""
        for wanted in types:
            for each in self.status.addresses or ():
                if each.type == wanted and each.address:
                    return each.address
        return ""

    @property
    def port(self) -> int:
        """Where the kubelet listens, as the node reports it."""
        endpoints = self.status.daemon_endpoints
        endpoint = endpoints.kubelet_endpoint if endpoints is not None else None
        return endpoint.Port if endpoint is not None and endpoint.Port else DEFAULT_KUBELET_PORT


_PODS = Resource("", "v1", "pods", "Pod", PlacedPod)
_NODES = Resource("", "v1", "nodes", "Node", ReachableNode, namespaced=False)
_BY_NODE = "node"


def _slim(pod: PlacedPod) -> PlacedPod:
    meta = pod.metadata
    return PlacedPod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels=meta.labels,
        ),
        spec=pod.spec,
    )


class ClusterView(CacheView):
    """Pods and nodes as last seen, and whom the API server vouches with."""

    def __init__(self, client: Client, clock: Clock, rng: random.Random, *, namespace: str, config_name: str) -> None:
        self.pods: Informer[PlacedPod] = Informer(
            client, _PODS, clock=clock, rng=rng, slim=_slim, indexes={_BY_NODE: lambda pod: (pod.spec.node_name,)}
        )
        self.nodes: Informer[ReachableNode] = Informer(client, _NODES, clock=clock, rng=rng)
        self._config: Informer[ConfigMap] = Informer(
            client,
            CONFIG_MAPS,
            clock=clock,
            rng=rng,
            namespace=CONFIG_NAMESPACE,
            field_selector=f"metadata.name={CONFIG_NAME}",
        )
        self._config.add_handler(self._on_config)
        self.proxies = TrustedProxies()
        self._declared: Informer[ConfigMap] = Informer(
            client,
            CONFIG_MAPS,
            clock=clock,
            rng=rng,
            namespace=namespace,
            field_selector=f"metadata.name={config_name}",
        )
        self._declared.add_handler(self._on_declared)
        self.rules = Rules()
        self.backends = Backends()
        self.scalers = Scalers()
        self.caches = (self.pods, self.nodes, self._config, self._declared)

    def pod(self, namespace: str, name: str) -> PlacedPod | None:
        """Return a pod."""
        return self.pods.store.get(ObjectKey(namespace, name))

    def _on_config(self, _: ConfigMap | None, new: ConfigMap | None) -> None:
        if new is None:
            # Deleted by mistake, most likely; the API servers write it again. Until then the CAs still hold.
            return
        try:
            self.proxies = read_proxies(new.data)
        except InvalidInput as error:
            log.warning("cannot tell who vouches for callers, keeping what is known", error=str(error))

    def _on_declared(self, _: ConfigMap | None, new: ConfigMap | None) -> None:
        """Take rules and backends as they are now; what cannot be read at all leaves those known in force."""
        data = (new.data if new is not None else None) or {}
        try:
            self.rules = read_rules(data.get("config.yaml", ""))
            self.backends = read_backends(data.get("backends.yaml", ""))
            self.scalers = read_scalers(data.get("scalers.yaml", ""))
        except InvalidInput as error:
            log.warning("metrics configuration cannot be used, keeping what is known", error=str(error))
            return
        for problem in (*self.rules.problems, *self.backends.problems, *self.scalers.problems):
            log.warning("a part of the metrics configuration cannot be used", error=problem)
