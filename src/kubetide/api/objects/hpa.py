"""The HorizontalPodAutoscaler of `autoscaling/v2`, as far as kubetide reads it.

The API server has filled in the defaults before a controller sees an object; where an object comes from elsewhere,
`api.hpa_versions` fills them in on the raw form. Quantities stay texts until they are used.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from kubetide.api.objects.meta import ApiObject, CrossVersionObjectReference, ObjectMeta, TypedObject
from kubetide.api.objects.metrics import MetricIdentifier
from kubetide.api.values.conditions import Condition
from kubetide.api.values.quantity import QuantityText


class MetricType(StrEnum):
    """Where a metric comes from; the field that holds the source has the same name, small at the start."""

    RESOURCE = "Resource"
    CONTAINER_RESOURCE = "ContainerResource"
    PODS = "Pods"
    OBJECT = "Object"
    EXTERNAL = "External"


class ManagedFieldsEntry(ApiObject, frozen=True, kw_only=True, gc=False):
    """Who wrote part of an object, and when."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: datetime | None = None


class HpaMeta(ObjectMeta, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Metadata with its writers: they show whether another controller is at work on the object.

    It is sent back with a status, so what is not set is left out.
    """

    managed_fields: tuple[ManagedFieldsEntry, ...] | None = None


class MetricTarget(ApiObject, frozen=True, kw_only=True, gc=False):
    type: str = ""
    value: QuantityText | None = None
    average_value: QuantityText | None = None
    average_utilization: int | None = None


EMPTY_TARGET = MetricTarget()
EMPTY_IDENTIFIER = MetricIdentifier()
EMPTY_REFERENCE = CrossVersionObjectReference()


class ResourceMetricSource(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    target: MetricTarget = EMPTY_TARGET


class ContainerResourceMetricSource(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    container: str = ""
    target: MetricTarget = EMPTY_TARGET


class PodsMetricSource(ApiObject, frozen=True, kw_only=True, gc=False):
    metric: MetricIdentifier = EMPTY_IDENTIFIER
    target: MetricTarget = EMPTY_TARGET


class ObjectMetricSource(ApiObject, frozen=True, kw_only=True, gc=False):
    described_object: CrossVersionObjectReference = EMPTY_REFERENCE
    metric: MetricIdentifier = EMPTY_IDENTIFIER
    target: MetricTarget = EMPTY_TARGET


class ExternalMetricFallback(ApiObject, frozen=True, kw_only=True, gc=False):
    """What to propose while the metric fails: a field that is proposed and in no release yet."""

    replicas: int = 0
    failure_duration_seconds: int = 180


class ExternalMetricSource(ApiObject, frozen=True, kw_only=True, gc=False):
    metric: MetricIdentifier = EMPTY_IDENTIFIER
    target: MetricTarget = EMPTY_TARGET
    fallback: ExternalMetricFallback | None = None


class MetricSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    type: str = ""
    resource: ResourceMetricSource | None = None
    container_resource: ContainerResourceMetricSource | None = None
    pods: PodsMetricSource | None = None
    object: ObjectMetricSource | None = None
    external: ExternalMetricSource | None = None


class ScalingPolicy(ApiObject, frozen=True, kw_only=True, gc=False):
    type: str = ""
    value: int = 0
    period_seconds: int = 0


class ScalingRules(ApiObject, frozen=True, kw_only=True, gc=False):
    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: tuple[ScalingPolicy, ...] | None = None
    tolerance: QuantityText | None = None


class Behavior(ApiObject, frozen=True, kw_only=True, gc=False):
    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class HpaSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    scale_target_ref: CrossVersionObjectReference = EMPTY_REFERENCE
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: tuple[MetricSpec, ...] | None = None
    behavior: Behavior | None = None
    sync_period_seconds: Any = None
    """Proposed (KEP-6003): its own period; whatever is there is read, and judged where it is used."""
    selection_strategy: Any = None
    """Proposed (KEP-5325): which pods count."""


class HpaStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    """The status as stored. Metric statuses are carried along and compared, never looked into: they stay raw."""

    current_replicas: int = 0
    desired_replicas: int = 0
    last_scale_time: datetime | None = None
    current_metrics: tuple[dict[str, Any], ...] | None = None
    conditions: tuple[Condition, ...] | None = None
    observed_generation: int | None = None


EMPTY_SPEC = HpaSpec()
EMPTY_STATUS = HpaStatus()
EMPTY_HPA_META = HpaMeta()


class HorizontalPodAutoscaler(TypedObject, frozen=True, kw_only=True, gc=False):
    metadata: HpaMeta = EMPTY_HPA_META
    spec: HpaSpec = EMPTY_SPEC
    status: HpaStatus = EMPTY_STATUS
