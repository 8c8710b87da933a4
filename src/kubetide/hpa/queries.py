"""What a metric needs to know from the outside, as a value: equal questions are asked once per tick."""

from dataclasses import dataclass

from kubetide.api.hpa import (
    ContainerResourceMetricSource,
    CrossVersionObjectReference,
    ExternalMetricSource,
    MetricSpec,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from kubetide.hpa.describe import selector_text, source_of


@dataclass(frozen=True, slots=True)
class ResourceQuery:
    """Usage of a resource by pods, or by one container of each."""

    namespace: str
    selector: str
    resource: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class PodsQuery:
    """A custom metric of pods."""

    namespace: str
    selector: str
    metric: str
    metric_selector: str = ""


@dataclass(frozen=True, slots=True)
class ObjectQuery:
    """A custom metric of one object."""

    namespace: str
    described: CrossVersionObjectReference
    metric: str
    metric_selector: str = ""


@dataclass(frozen=True, slots=True)
class ExternalQuery:
    """A metric that belongs to no object of the cluster."""

    namespace: str
    metric: str
    metric_selector: str = ""


Query = ResourceQuery | PodsQuery | ObjectQuery | ExternalQuery


def query_of(spec: MetricSpec, namespace: str, selector: str) -> Query:
    """Return the question behind a metric; raise MetricFailure where the spec allows none."""
    match source_of(spec):
        case ResourceMetricSource() as source:
            return ResourceQuery(namespace, selector, source.name)
        case ContainerResourceMetricSource() as source:
            return ResourceQuery(namespace, selector, source.name, source.container)
        case PodsMetricSource() as source:
            return PodsQuery(namespace, selector, source.metric.name, selector_text(source.metric))
        case ObjectMetricSource() as source:
            return ObjectQuery(namespace, source.described_object, source.metric.name, selector_text(source.metric))
        case ExternalMetricSource() as source:
            return ExternalQuery(namespace, source.metric.name, selector_text(source.metric))
