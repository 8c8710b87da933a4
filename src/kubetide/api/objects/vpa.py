"""VerticalPodAutoscaler and its checkpoint (`autoscaling.k8s.io/v1`), reduced to what kubetide reads.

Enumerations stay plain texts: an object written for a newer version must still be readable, and what to do with an
unknown mode is a decision of `kubetide.vpa.core.policy`, not of the decoder.
"""

from datetime import datetime
from typing import Any

import msgspec

from kubetide.api.objects.core import ResourceList
from kubetide.api.objects.meta import ApiObject, CrossVersionObjectReference, TypedObject
from kubetide.api.values.conditions import Condition
from kubetide.api.values.quantity import QuantityText

CHECKPOINT_VERSION = "v3"
DEFAULT_RECOMMENDER = "default"

# Update modes.
OFF = "Off"
INITIAL = "Initial"
RECREATE = "Recreate"
AUTO = "Auto"
IN_PLACE_OR_RECREATE = "InPlaceOrRecreate"
IN_PLACE = "InPlace"

# Container modes beside `Auto` and `Off`.
RECOMMENDATION_ONLY = "RecommendationOnly"

# Controlled values.
REQUESTS_AND_LIMITS = "RequestsAndLimits"
REQUESTS_ONLY = "RequestsOnly"

# Condition types.
RECOMMENDATION_PROVIDED = "RecommendationProvided"
LOW_CONFIDENCE = "LowConfidence"
NO_PODS_MATCHED = "NoPodsMatched"
FETCHING_HISTORY = "FetchingHistory"
CONFIG_DEPRECATED = "ConfigDeprecated"
CONFIG_UNSUPPORTED = "ConfigUnsupported"


class EvictionRequirement(ApiObject, frozen=True, kw_only=True, gc=False):
    resources: tuple[str, ...] | None = None
    change_requirement: str = ""


class StartupBoostCpu(ApiObject, frozen=True, kw_only=True, gc=False):
    type: str = ""
    factor: int | float | None = None
    quantity: QuantityText | None = None
    duration_seconds: int | None = None


class StartupBoost(ApiObject, frozen=True, kw_only=True, gc=False):
    cpu: StartupBoostCpu | None = None


class PodUpdatePolicy(ApiObject, frozen=True, kw_only=True, gc=False):
    update_mode: str | None = None
    min_replicas: int | None = None
    eviction_requirements: tuple[EvictionRequirement, ...] | None = None
    evict_after_oom_seconds: int | None = msgspec.field(name="evictAfterOOMSeconds", default=None)


class RecommendationPercentiles(ApiObject, frozen=True, kw_only=True, gc=False):
    """Percentiles of usage that become a container's recommendation, in percent; None: the recommender's flag."""

    target_cpu: int | None = msgspec.field(name="targetCPU", default=None)
    target_memory: int | None = None
    lower_bound_cpu: int | None = msgspec.field(name="lowerBoundCPU", default=None)
    lower_bound_memory: int | None = None
    upper_bound_cpu: int | None = msgspec.field(name="upperBoundCPU", default=None)
    upper_bound_memory: int | None = None


class LimitFromRequest(ApiObject, frozen=True, kw_only=True, gc=False):
    """How a limit follows its request: `Percentage` of it (150 is half as much again), or a `Quantity` more."""

    type: str = ""
    percentage: int | None = None
    quantity: QuantityText | None = None


class RequestToLimitRatio(ApiObject, frozen=True, kw_only=True, gc=False):
    cpu: LimitFromRequest | None = None
    memory: LimitFromRequest | None = None


class ContainerResourcePolicy(ApiObject, frozen=True, kw_only=True, gc=False):
    container_name: str = ""
    mode: str | None = None
    min_allowed: ResourceList | None = None
    max_allowed: ResourceList | None = None
    controlled_resources: tuple[str, ...] | None = None
    """None means cpu and memory; an empty tuple means nothing."""
    controlled_values: str | None = None
    oom_bump_up_ratio: QuantityText | None = None
    oom_min_bump_up: QuantityText | None = None
    memory_aggregation_interval_seconds: int | None = None
    memory_aggregation_interval_count: int | None = None
    recommendation_percentiles: RecommendationPercentiles | None = None
    request_to_limit_ratio: RequestToLimitRatio | None = None
    startup_boost: StartupBoost | None = None


class PodLevelPolicy(ApiObject, frozen=True, kw_only=True, gc=False):
    """How the resources of the pod as a whole follow the recommendation (proposal AEP-7571)."""

    mode: str | None = None
    """`Off` (the default) or `Auto`."""
    min_allowed: ResourceList | None = None
    max_allowed: ResourceList | None = None
    controlled_resources: tuple[str, ...] | None = None
    controlled_values: str | None = None


class PodResourcePolicy(ApiObject, frozen=True, kw_only=True, gc=False):
    container_policies: tuple[ContainerResourcePolicy, ...] | None = None
    pod_policy: PodLevelPolicy | None = None


class RecommenderSelector(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""


class VerticalPodAutoscalerSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    target_ref: CrossVersionObjectReference | None = None
    update_policy: PodUpdatePolicy | None = None
    resource_policy: PodResourcePolicy | None = None
    recommenders: tuple[RecommenderSelector, ...] | None = None
    startup_boost: StartupBoost | None = None
    scope: str = ""
    """Node label by whose value the pods of a DaemonSet are sized apart (proposal AEP-10031)."""


class ContainerRecommendation(ApiObject, frozen=True, kw_only=True, gc=False):
    container_name: str = ""
    target: ResourceList | None = None
    lower_bound: ResourceList | None = None
    upper_bound: ResourceList | None = None
    uncapped_target: ResourceList | None = None


class PodLevelRecommendation(ApiObject, frozen=True, kw_only=True, gc=False):
    """What the pod as a whole should request: for people, every component sums up the containers itself."""

    target: ResourceList | None = None
    lower_bound: ResourceList | None = None
    upper_bound: ResourceList | None = None
    uncapped_target: ResourceList | None = None


class PodRecommendation(ApiObject, frozen=True, kw_only=True, gc=False):
    container_recommendations: tuple[ContainerRecommendation, ...] | None = None
    pod_recommendation: PodLevelRecommendation | None = None


class GroupRecommendation(ApiObject, frozen=True, kw_only=True, gc=False):
    """The recommendation for the pods on nodes with one value of the scope label."""

    scope_value: str = ""
    container_recommendations: tuple[ContainerRecommendation, ...] | None = None


class VerticalPodAutoscalerStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    recommendation: PodRecommendation | None = None
    groups: tuple[GroupRecommendation, ...] | None = None
    conditions: tuple[Condition, ...] | None = None
    observed_generation: int | None = None


class VerticalPodAutoscaler(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: VerticalPodAutoscalerSpec = VerticalPodAutoscalerSpec()
    status: VerticalPodAutoscalerStatus | None = None


class HistogramCheckpoint(ApiObject, frozen=True, kw_only=True, gc=False):
    reference_timestamp: datetime | None = None
    bucket_weights: dict[str, Any] | None = None
    """Bucket index to integer weight. The schema leaves it open, so it is checked when a checkpoint is loaded."""
    total_weight: float | None = None


class CheckpointSpec(ApiObject, frozen=True, kw_only=True, gc=False):
    vpa_object_name: str = ""
    container_name: str = ""


class CheckpointStatus(ApiObject, frozen=True, kw_only=True, gc=False):
    last_update_time: datetime | None = None
    version: str = ""
    cpu_histogram: HistogramCheckpoint | None = None
    memory_histogram: HistogramCheckpoint | None = None
    first_sample_start: datetime | None = None
    last_sample_start: datetime | None = None
    total_samples_count: int = 0


class VerticalPodAutoscalerCheckpoint(TypedObject, frozen=True, kw_only=True, gc=False):
    spec: CheckpointSpec = CheckpointSpec()
    status: CheckpointStatus | None = None


def update_mode(vpa: VerticalPodAutoscaler) -> str:
    """Return the mode in force; unset means `Recreate`."""
    policy = vpa.spec.update_policy
    return (policy.update_mode if policy is not None else None) or RECREATE
