"""What an autoscaler reports: every event reason in one list, and the events themselves.

Reasons are words that dashboards and alerts match on; they are those of Kubernetes, and a few of kubetide's own.
"""

from collections.abc import Sequence
from enum import StrEnum

from kubetide.api.objects.events import Event, normal, warning
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, MetricType
from kubetide.api.objects.meta import ObjectReference
from kubetide.hpa.core.takeover import HAND_OVER


class Reason(StrEnum):
    """Reasons of events; those about metrics are the reasons of conditions too."""

    FAILED_GET_SCALE = "FailedGetScale"
    SELECTOR_REQUIRED = "SelectorRequired"
    INVALID_SELECTOR = "InvalidSelector"
    AMBIGUOUS_SELECTOR = "AmbiguousSelector"
    FAILED_GET_RESOURCE_METRIC = "FailedGetResourceMetric"
    FAILED_GET_CONTAINER_RESOURCE_METRIC = "FailedGetContainerResourceMetric"
    FAILED_GET_PODS_METRIC = "FailedGetPodsMetric"
    FAILED_GET_OBJECT_METRIC = "FailedGetObjectMetric"
    FAILED_GET_EXTERNAL_METRIC = "FailedGetExternalMetric"
    INVALID_METRIC_SOURCE_TYPE = "InvalidMetricSourceType"
    FAILED_COMPUTE = "FailedComputeMetricsReplicas"
    FAILED_RESCALE = "FailedRescale"
    SUCCESSFUL_RESCALE = "SuccessfulRescale"
    FAILED_UPDATE_STATUS = "FailedUpdateStatus"
    # kubetide's own
    INVALID_METRIC_VALUE = "InvalidMetricValue"
    INVALID_METRIC_NO_READY_PODS = "InvalidMetricNoReadyPods"
    INVALID_METRIC_STALE = "InvalidMetricStale"
    BUILT_IN_CONTROLLER_ACTIVE = "BuiltInControllerActive"
    METRIC_FALLBACK = "MetricFallback"
    INVALID_ANNOTATION = "InvalidAnnotation"
    STRATEGY_CHANGED = "StrategyChanged"
    HEADROOM_CHANGED = "HeadroomChanged"


FAILED_METRIC_REASONS = {
    MetricType.RESOURCE: Reason.FAILED_GET_RESOURCE_METRIC,
    MetricType.CONTAINER_RESOURCE: Reason.FAILED_GET_CONTAINER_RESOURCE_METRIC,
    MetricType.PODS: Reason.FAILED_GET_PODS_METRIC,
    MetricType.OBJECT: Reason.FAILED_GET_OBJECT_METRIC,
    MetricType.EXTERNAL: Reason.FAILED_GET_EXTERNAL_METRIC,
}


def about(hpa: HorizontalPodAutoscaler) -> ObjectReference:
    """Return the reference that events about an autoscaler carry."""
    meta = hpa.metadata
    return ObjectReference(
        api_version="autoscaling/v2",
        kind="HorizontalPodAutoscaler",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def failed(hpa: HorizontalPodAutoscaler, reason: str, message: str) -> Event:
    """Return a warning about an autoscaler."""
    return warning(about(hpa), str(reason), message)


def rescaled(hpa: HorizontalPodAutoscaler, replicas: int, why: str) -> Event:
    """Return the event of a rescale that worked."""
    return normal(about(hpa), Reason.SUCCESSFUL_RESCALE.value, f"New size: {replicas}; reason: {why}")


def not_rescaled(hpa: HorizontalPodAutoscaler, replicas: int, why: str, error: str) -> Event:
    """Return the event of a rescale that the API server refused."""
    return failed(hpa, Reason.FAILED_RESCALE, f"New size: {replicas}; reason: {why}; error: {error}")


def samples_refused(hpa: HorizontalPodAutoscaler, metric: str, texts: Sequence[str]) -> Event:
    """Return the warning about samples that count as missing because they cannot be true."""
    more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
    return failed(hpa, Reason.INVALID_METRIC_VALUE, f"{metric}: {texts[0]}{more}; it is not counted")


def strategy_changed(hpa: HorizontalPodAutoscaler, strategy: str) -> Event:
    """Return the event that pods are selected in another way from now on."""
    return normal(about(hpa), Reason.STRATEGY_CHANGED.value, f"pods are selected by {strategy}")


def headroom_changed(hpa: HorizontalPodAutoscaler, stands: str) -> Event:
    """Return the event that learned headroom was switched on or off."""
    return normal(about(hpa), Reason.HEADROOM_CHANGED.value, f"learned headroom: {stands}")


def built_in_active(hpa: HorizontalPodAutoscaler, sign: str, *, acting: bool) -> Event:
    """Return the warning that another controller is at work on the same autoscaler."""
    if acting:
        text = f"kubetide scales this target while the built-in controller does so too ({sign}): switch one of them off"
    else:
        text = (
            f"kubetide computes but does not act, because the built-in controller is at work ({sign}); "
            f"{HAND_OVER}, or annotate this object with kubetide.io/managed-by: kubetide"
        )
    return failed(hpa, Reason.BUILT_IN_CONTROLLER_ACTIVE, text)
