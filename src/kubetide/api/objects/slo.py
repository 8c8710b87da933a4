"""NodeSLO, NodeMetric, NodeResourceTopology, Device and ClusterColocationProfile, reduced to what kubetide reads.

The strategy blocks of a NodeSLO are in `api.slo_strategies`; defaults and the merge rule are in `api.slo_merge`.
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from kubetide.api.objects.core import ResourceList
from kubetide.api.objects.meta import ApiObject, TypedObject
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.quantity import QuantityText
from kubetide.api.values.selectors import LabelSelector


class NodeSLO(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: NodeSLOSpec = NodeSLOSpec()


class DeviceTopology(ApiObject, frozen=True, kw_only=True, gc=False):
    socket_id: int = msgspec.field(name="socketID", default=-1)
    node_id: int = msgspec.field(name="nodeID", default=-1)
    pcie_id: str = msgspec.field(name="pcieID", default="")
    bus_id: str = msgspec.field(name="busID", default="")


class DeviceInfo(ApiObject, frozen=True, kw_only=True, gc=False):
    type: str = ""
    id: str = ""
    minor: int | None = None
    module_id: int | None = msgspec.field(name="moduleID", default=None)
    health: bool = False
    resources: ResourceList | None = None
    labels: dict[str, str] | None = None
    topology: DeviceTopology | None = None


class DeviceSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    devices: tuple[DeviceInfo, ...] | None = None


class Device(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: DeviceSpec = DeviceSpec()


class AggregatePolicy(ApiObject, frozen=True, kw_only=True, gc=False):
    durations: tuple[str, ...] | None = None


class MetricCollectPolicy(ApiObject, frozen=True, kw_only=True, gc=False):
    aggregate_duration_seconds: int | None = None
    report_interval_seconds: int | None = None
    node_aggregate_policy: AggregatePolicy | None = None
    node_memory_collect_policy: str | None = None


class NodeMetricSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    metric_collect_policy: MetricCollectPolicy | None = None


class ResourceMap(ApiObject, frozen=True, kw_only=True, gc=False):
    resources: ResourceList | None = None
    devices: tuple[DeviceInfo, ...] | None = None


class AggregatedUsage(ApiObject, frozen=True, kw_only=True, gc=False):
    duration: str = ""
    usage: dict[str, ResourceMap] | None = None


class NodeUsageInfo(ApiObject, frozen=True, kw_only=True, gc=False):
    node_usage: ResourceMap = ResourceMap()
    system_usage: ResourceMap = ResourceMap()
    aggregated_node_usages: tuple[AggregatedUsage, ...] | None = None
    aggregated_system_usages: tuple[AggregatedUsage, ...] | None = None


class PodMetricInfo(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    namespace: str = ""
    pod_usage: ResourceMap = ResourceMap()
    priority: str = ""
    qos: str = ""
    extensions: dict[str, Any] | None = None


class HostApplicationMetricInfo(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    usage: ResourceMap = ResourceMap()
    priority: str = ""
    qos: str = ""


class ReclaimableMetric(ApiObject, frozen=True, kw_only=True, gc=False):
    resource: ResourceMap = ResourceMap()


class NodeMetricStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    update_time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    node_metric: NodeUsageInfo | None = None
    pods_metric: tuple[PodMetricInfo, ...] | None = None
    host_application_metric: tuple[HostApplicationMetricInfo, ...] | None = None
    prod_reclaimable_metric: ReclaimableMetric | None = None


class NodeMetric(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()


class ZoneResource(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    capacity: QuantityText = "0"
    allocatable: QuantityText = "0"
    available: QuantityText = "0"


class ZoneAttribute(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    value: str = ""


class Zone(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    type: str = ""
    parent: str = ""
    attributes: tuple[ZoneAttribute, ...] | None = None
    resources: tuple[ZoneResource, ...] | None = None


class NodeResourceTopology(TypedObject, frozen=True, kw_only=True, gc=False):
    topology_policies: tuple[str, ...] | None = None
    zones: tuple[Zone, ...] | None = None


class ProfileSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    """Which pods a profile is for, and what it makes of them.

    Every field may be null: decoding never has to drop nulls, which mean "remove" inside the patch.
    """

    namespace_selector: LabelSelector | None = None
    selector: LabelSelector | None = None
    probability: int | str | None = None
    qos_class: str | None = None
    priority_class_name: str | None = None
    koordinator_priority: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    label_keys_mapping: dict[str, str] | None = None
    annotation_keys_mapping: dict[str, str] | None = None
    label_suffixes: dict[str, str] | None = None
    scheduler_name: str | None = None
    patch: Any = None


class ClusterColocationProfile(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: ProfileSpec = ProfileSpec()


class PriorityClass(TypedObject, frozen=True, kw_only=True, gc=False):
    value: int = 0
    preemption_policy: str | None = None
