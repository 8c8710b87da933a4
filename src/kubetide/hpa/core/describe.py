"""A metric of an autoscaler in words and as a question: its name in reasons, its status entry, what to ask the APIs.

Equal questions are asked once per sync period, so a question is a value.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from kubetide.api.objects.hpa import (
    ContainerResourceMetricSource,
    ExternalMetricSource,
    MetricSpec,
    MetricTarget,
    MetricType,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from kubetide.api.objects.hpa_compat import BINARY_MEMORY, HpaCompat
from kubetide.api.objects.meta import CrossVersionObjectReference
from kubetide.api.objects.metrics import MetricIdentifier
from kubetide.api.values.quantity import binary_milli_text, milli_text
from kubetide.api.values.selectors import LabelSelector, selector_from
from kubetide.errors import SelectorError
from kubetide.hpa.core.annotations import NO_OVERRIDES, Overrides
from kubetide.hpa.core.replicas import Proposal
from kubetide.hpa.core.samples import ErrorKind, MetricFailure

Source = (
    ResourceMetricSource | ContainerResourceMetricSource | PodsMetricSource | ObjectMetricSource | ExternalMetricSource
)


def source_of(spec: MetricSpec) -> Source:
    """Return the source that the type names; raise MetricFailure where the spec cannot be used."""
    match spec.type:
        case MetricType.RESOURCE:
            source: Source | None = spec.resource
        case MetricType.CONTAINER_RESOURCE:
            source = spec.container_resource
        case MetricType.PODS:
            source = spec.pods
        case MetricType.OBJECT:
            source = spec.object
        case MetricType.EXTERNAL:
            source = spec.external
        case _:
            raise MetricFailure(ErrorKind.UNKNOWN_TYPE, f"{spec.type!r} is no metric source type")
    if source is None:
        raise MetricFailure(ErrorKind.INVALID_TARGET, f"the {spec.type} metric has no source")
    return source


def selector_text(identifier: MetricIdentifier) -> str:
    """Return the metric selector as the APIs take it; none and an empty one both ask for everything."""
    if identifier.selector is None:
        return ""
    try:
        return str(selector_from(identifier.selector))
    except SelectorError as error:
        raise MetricFailure(ErrorKind.INVALID_SELECTOR, f"the selector of metric {identifier.name}: {error}") from error


def describe(spec: MetricSpec) -> str:
    """Return the words for a metric that reasons and messages use."""
    if spec.type == MetricType.RESOURCE and spec.resource is not None:
        return _describe_resource(spec.resource.name, spec.resource.target, "resource")
    if spec.type == MetricType.CONTAINER_RESOURCE and spec.container_resource is not None:
        return _describe_resource(spec.container_resource.name, spec.container_resource.target, "container resource")
    if spec.type == MetricType.PODS and spec.pods is not None:
        return f"pods metric {spec.pods.metric.name}"
    if spec.type == MetricType.OBJECT and spec.object is not None:
        return f"{spec.object.described_object.kind} metric {_named(spec.object.metric)}"
    if spec.type == MetricType.EXTERNAL and spec.external is not None:
        return f"external metric {_named(spec.external.metric)}"
    return f"metric of unknown type {spec.type!r}"


def target_text(spec: MetricSpec) -> str:
    """Return the target as people write it."""
    try:
        target = source_of(spec).target
    except MetricFailure:
        return ""
    if target.average_value is not None:
        return f"{target.average_value} (average)"
    if target.average_utilization is not None:
        return f"{target.average_utilization}%"
    return str(target.value) if target.value is not None else ""


def resource_text(resource: str, milli: int, compat: HpaCompat) -> str:
    """Return an average of a resource as the status shows it."""
    return binary_milli_text(milli) if resource == "memory" and compat.has(BINARY_MEMORY) else milli_text(milli)


def metric_status(spec: MetricSpec, source: Source, proposal: Proposal, compat: HpaCompat) -> dict[str, Any]:
    """Return the entry of `status.currentMetrics`."""
    value = milli_text(proposal.value)
    match source:
        case ResourceMetricSource() | ContainerResourceMetricSource():
            current: dict[str, Any] = {"averageValue": resource_text(source.name, proposal.value, compat)}
            if proposal.utilization is not None:
                current["averageUtilization"] = proposal.utilization
            if isinstance(source, ContainerResourceMetricSource):
                shown: dict[str, Any] = {"name": source.name, "container": source.container, "current": current}
                return {"type": spec.type, "containerResource": shown}
            return {"type": spec.type, "resource": {"name": source.name, "current": current}}
        case PodsMetricSource():
            shown = {"metric": _identifier(source.metric), "current": {"averageValue": value}}
            return {"type": spec.type, "pods": shown}
        case ObjectMetricSource():
            current = {"averageValue": value} if source.target.type == "AverageValue" else {"value": value}
            reference = source.described_object
            described = {"kind": reference.kind, "name": reference.name}
            if reference.api_version:
                described["apiVersion"] = reference.api_version
            shown = {"metric": _identifier(source.metric), "describedObject": described, "current": current}
            return {"type": spec.type, "object": shown}
        case ExternalMetricSource():
            current = {"averageValue": value} if source.target.average_value is not None else {"value": value}
            return {"type": spec.type, "external": {"metric": _identifier(source.metric), "current": current}}


def _identifier(metric: MetricIdentifier) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": metric.name}
    if metric.selector is not None:
        shown["selector"] = _selector(metric.selector)
    return shown


def _selector(selector: LabelSelector) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if selector.match_labels:
        shown["matchLabels"] = dict(selector.match_labels)
    if selector.match_expressions:
        shown["matchExpressions"] = [
            {"key": one.key, "operator": one.operator, **({"values": list(one.values)} if one.values else {})}
            for one in selector.match_expressions
        ]
    return shown


def _describe_resource(name: str, target: MetricTarget, kind: str) -> str:
    if target.average_value is not None:
        return f"{name} resource"
    return f"{name} {kind} utilization (percentage of request)"


def _named(metric: MetricIdentifier) -> str:
    try:
        selector = selector_text(metric)
    except MetricFailure:
        selector = "invalid selector"
    return f"{metric.name}({selector})" if selector else metric.name


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
        """Return whether an answer is good for this reconcile: used in it already, or young and newer than the last."""
        if self.used.get(question) == serial:
            return True
        return age < self.max_age.total_seconds() and self.before.get(question, 0) < serial
