"""Objects of this capability, reduced to what kubetide reads."""

from kubetide.api.meta import TypedObject
from kubetide.api.slo_strategies import NodeSLOSpec


class Device(TypedObject, frozen=True, kw_only=True, gc=False):
    pass


class NodeMetric(TypedObject, frozen=True, kw_only=True, gc=False):
    pass


class NodeResourceTopology(TypedObject, frozen=True, kw_only=True, gc=False):
    pass


class NodeSLO(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: NodeSLOSpec = NodeSLOSpec()
