"""What a metric needs to know from the outside, as a value: equal questions are asked once per tick."""

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from kubetide.api.objects.hpa import (
    ContainerResourceMetricSource,
    CrossVersionObjectReference,
    ExternalMetricSource,
    MetricSpec,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from kubetide.hpa.core.annotations import NO_OVERRIDES, Overrides
from kubetide.hpa.core.describe import selector_text, source_of


class ResourceQuery(msgspec.Struct, frozen=True):
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


Used = dict[Hashable, int]
"""Which answer to each question an autoscaler has had."""


class MetricsRequest(msgspec.Struct):
    """What is particular to the autoscaler that asks."""

    max_age: timedelta
    overrides: Overrides = NO_OVERRIDES
    before: Used = msgspec.field(default_factory=dict)
    """The answers of its last reconcile."""
    used: Used = msgspec.field(default_factory=dict)
    """The answers of this reconcile."""

    def may_use(self, question: Hashable, serial: int, age: float) -> bool:
        """Tell whether an answer is good for this reconcile: used in it already, or young and new to the request."""
        if self.used.get(question) == serial:
            return True
        return age < self.max_age.total_seconds() and self.before.get(question) != serial
