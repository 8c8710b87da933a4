"""Pods, nodes and the other core objects, reduced to the fields that kubetide reads."""

from datetime import datetime
from typing import Any

import msgspec

from kubetide.api.objects.meta import ApiObject, TypedObject
from kubetide.api.values.conditions import Condition
from kubetide.api.values.quantity import QuantityText

ResourceList = dict[str, QuantityText]
"""Resource name to quantity, as written; `api.resources` does the arithmetic."""


class ResourceRequirements(ApiObject, frozen=True, kw_only=True, gc=False):
    requests: ResourceList | None = None
    limits: ResourceList | None = None


class ContainerResizePolicy(ApiObject, frozen=True, kw_only=True, gc=False):
    resource_name: str = ""
    restart_policy: str = ""


class VolumeMount(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    mount_path: str = ""


class EnvVar(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    value: str = ""


class Container(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    """`Always` on an init container makes it a sidecar."""
    resize_policy: tuple[ContainerResizePolicy, ...] | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None
    env: tuple[EnvVar, ...] | None = None


class PersistentVolumeClaimSource(ApiObject, frozen=True, kw_only=True, gc=False):
    claim_name: str = ""


class HostPathSource(ApiObject, frozen=True, kw_only=True, gc=False):
    path: str = ""


class Volume(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    host_path: HostPathSource | None = None


class Toleration(ApiObject, frozen=True, kw_only=True, gc=False):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class PodSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    node_name: str = ""
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    resources: ResourceRequirements | None = None
    """Pod-level requests and limits."""
    overhead: ResourceList | None = None
    priority: int | None = None
    priority_class_name: str = ""
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    volumes: tuple[Volume, ...] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    host_network: bool = False
    scheduler_name: str = ""
    runtime_class_name: str | None = None


class ContainerStateRunning(ApiObject, frozen=True, kw_only=True, gc=False):
    started_at: datetime | None = None


class ContainerStateWaiting(ApiObject, frozen=True, kw_only=True, gc=False):
    reason: str = ""
    message: str = ""


class ContainerStateTerminated(ApiObject, frozen=True, kw_only=True, gc=False):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    container_id: str = msgspec.field(name="containerID", default="")


class ContainerState(ApiObject, frozen=True, kw_only=True, gc=False):
    running: ContainerStateRunning | None = None
    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    container_id: str = msgspec.field(name="containerID", default="")
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None


class PodStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    phase: str = ""
    reason: str = ""
    message: str = ""
    qos_class: str = ""
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resize: str = ""
    host_ip: str = msgspec.field(name="hostIP", default="")
    pod_ip: str = msgspec.field(name="podIP", default="")


class Pod(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplateMeta(ApiObject, frozen=True, kw_only=True, gc=False):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(ApiObject, frozen=True, kw_only=True, gc=False):
    metadata: PodTemplateMeta = PodTemplateMeta()
    spec: PodSpec = PodSpec()


class Taint(ApiObject, frozen=True, kw_only=True, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeAddress(ApiObject, frozen=True, kw_only=True, gc=False):
    type: str = ""
    address: str = ""


class NodeSystemInfo(ApiObject, frozen=True, kw_only=True, gc=False):
    kernel_version: str = ""
    kubelet_version: str = ""
    container_runtime_version: str = ""
    architecture: str = ""
    operating_system: str = ""


class NodeStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None
    conditions: tuple[Condition, ...] | None = None
    addresses: tuple[NodeAddress, ...] | None = None
    node_info: NodeSystemInfo | None = None


class Node(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(TypedObject, frozen=True, kw_only=True, gc=False):
    pass


class ConfigMap(TypedObject, frozen=True, kw_only=True, gc=False):
    data: dict[str, str] | None = None


class Secret(TypedObject, frozen=True, kw_only=True, gc=False):
    type: str = ""
    data: dict[str, str] | None = None


class ServiceSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    type: str = ""
    external_name: str = ""
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    selector: dict[str, str] | None = None


class Service(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: ServiceSpec = ServiceSpec()


class LimitRangeItem(ApiObject, frozen=True, kw_only=True, gc=False):
    type: str = ""
    max: ResourceList | None = None
    min: ResourceList | None = None
    default: ResourceList | None = None
    default_request: ResourceList | None = None
    max_limit_request_ratio: ResourceList | None = None


class LimitRangeSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    limits: tuple[LimitRangeItem, ...] | None = None


class LimitRange(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: LimitRangeSpec = LimitRangeSpec()


class ResourceQuotaStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    hard: ResourceList | None = None
    used: ResourceList | None = None


class ResourceQuotaSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    scopes: tuple[str, ...] | None = None
    scope_selector: dict[str, Any] | None = None


class ResourceQuota(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class PersistentVolumeClaimSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    volume_name: str = ""


class PersistentVolumeClaim(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


# Leases: who leads, until when.


class LeaseSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int = 0


class Lease(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: LeaseSpec = LeaseSpec()
