"""HorizontalPodAutoscaler versions on raw objects: defaults, what v1 and v2 look like, and the way between them.

v2 is the full form. v1 has a CPU percentage and carries the rest as JSON text in annotations, in shapes of its own:

    spec.metrics except CPU utilization   autoscaling.alpha.kubernetes.io/metrics
    status.currentMetrics                 autoscaling.alpha.kubernetes.io/current-metrics
    status.conditions                     autoscaling.alpha.kubernetes.io/conditions
    spec.behavior                         autoscaling.alpha.kubernetes.io/behavior

Annotation text that cannot be read is ignored: it was never validated, and refusing it would make stored objects
unreadable. The embedded API server and the controller share this module.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kubetide.api.objects import hpa_annotations as v1
from kubetide.api.objects.hpa_compat import CONDITION_GENERATION, OBSERVED_GENERATION, TOLERANCE, HpaCompat
from kubetide.api.values.quantity import parse_quantity
from kubetide.errors import QuantityError

Raw = dict[str, Any]

V1 = "autoscaling/v1"
V2 = "autoscaling/v2"
KIND = "HorizontalPodAutoscaler"

DEFAULT_CPU_UTILIZATION = 80
DEFAULT_SCALE_UP: Raw = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
DEFAULT_SCALE_DOWN: Raw = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}

SOURCES = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
"""Metric type to the field that holds its source."""


def default_metrics() -> list[Raw]:
    """Return what is measured when nothing else is said."""
    return [cpu_metric(DEFAULT_CPU_UTILIZATION)]


def cpu_metric(percent: int) -> Raw:
    """Return the v2 form of a CPU utilization target."""
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def default_v2(obj: Raw) -> None:
    """Fill the defaults of a v2 object, in place."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        spec = obj["spec"] = {}
    if spec.get("minReplicas") is None:
        spec["minReplicas"] = 1
    if not spec.get("metrics"):
        spec["metrics"] = default_metrics()
    behavior = spec.get("behavior")
    if isinstance(behavior, dict):
        spec["behavior"] = {
            **behavior,
            "scaleUp": merge_rules(DEFAULT_SCALE_UP, behavior.get("scaleUp")),
            "scaleDown": merge_rules(DEFAULT_SCALE_DOWN, behavior.get("scaleDown")),
        }


def settle_v2(obj: Raw) -> None:
    """Bring a v2 object into the form in which it is served, in place: canonical quantities, no annotations of v1.

    A quantity that cannot be read stays: whoever validates the object names it.
    """
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(annotations, dict):
        for name in v1.ANNOTATIONS & annotations.keys():
            del annotations[name]
    try:
        obj["spec"] = canonical_v2(obj)["spec"]
    except QuantityError:
        return


def merge_rules(defaults: Raw, given: Any) -> Raw:
    """Return scaling rules over their defaults; what is given wins, and policies win as a whole list."""
    merged = {
        key: [dict(policy) for policy in value] if key == "policies" else value for key, value in defaults.items()
    }
    if isinstance(given, dict):
        merged.update({key: value for key, value in given.items() if value is not None})
    return merged


def default_v1(obj: Raw) -> None:
    """Fill the one default of a v1 object, in place."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        spec = obj["spec"] = {}
    if spec.get("minReplicas") is None:
        spec["minReplicas"] = 1


def drop_disabled(obj: Raw, compat: HpaCompat, *, old: Raw | None = None) -> None:
    """Remove what the release does not know, in place; tolerances stay if the stored object already uses them."""
    if not compat.has(CONDITION_GENERATION):
        for condition in (obj.get("status") or {}).get("conditions") or ():
            condition.pop("observedGeneration", None)
    if compat.has(TOLERANCE) or (old is not None and _uses_tolerance(old)):
        return
    behavior = (obj.get("spec") or {}).get("behavior")
    for rules in (behavior or {}).values():
        if isinstance(rules, dict):
            rules.pop("tolerance", None)


def count_generation(obj: Raw, compat: HpaCompat, *, old: Raw | None = None) -> None:
    """Set `metadata.generation`, in place: 1 for a new object, one more for a changed spec.

    A release that does not count keeps what the creator sent.
    """
    metadata, counts = obj["metadata"], compat.has(OBSERVED_GENERATION)
    if old is None:
        generation = 1 if counts else metadata.get("generation")
    else:
        generation = (old.get("metadata") or {}).get("generation") or 0
        if counts and _meaning(obj.get("spec")) != _meaning(old.get("spec")):
            generation += 1
    if generation:
        metadata["generation"] = generation
    else:
        metadata.pop("generation", None)


def _meaning(value: Any, name: str = "") -> Any:
    """Return a part of the spec in a form in which equal meaning is equal: amounts by value, nothing that is empty."""
    if isinstance(value, dict):
        kept = {key: _meaning(inner, key) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner not in (None, {}, [])}
    if isinstance(value, list):
        return [_meaning(inner) for inner in value]
    if name in ("value", "averageValue", "tolerance") and isinstance(value, str | int | float):
        try:
            return parse_quantity(value).nanos
        except QuantityError:
            return value
    return value


def _uses_tolerance(obj: Raw) -> bool:
    behavior = (obj.get("spec") or {}).get("behavior") or {}
    return any(isinstance(rules, dict) and rules.get("tolerance") is not None for rules in behavior.values())


def cleared_status() -> Raw:
    """Return the status of an autoscaler that nobody has looked at yet."""
    return {"currentMetrics": None, "desiredReplicas": 0}


def to_v2(obj: Raw) -> Raw:
    """Return any version as v2, with defaults of the version it came in."""
    if obj.get("apiVersion") == V1:
        default_v1(obj)
        return v2_from_v1(obj)
    default_v2(obj)
    return canonical_v2(obj)


# -- v2 as it is served


def canonical_v2(obj: Raw) -> Raw:
    """Return a v2 object with quantities in canonical form, a complete status, and no v1 annotations."""
    result = {**obj, "apiVersion": V2, "kind": KIND, "metadata": _without_annotations(obj.get("metadata"))}
    spec = dict(obj.get("spec") or {})
    spec.setdefault("maxReplicas", 0)
    if spec.get("metrics"):
        spec["metrics"] = [_canonical_metric(metric, "target") for metric in spec["metrics"]]
    if isinstance(spec.get("behavior"), dict):
        spec["behavior"] = _canonical_behavior(spec["behavior"])
    result["spec"] = spec
    result["status"] = _canonical_status(obj.get("status"))
    return result


def _canonical_status(status: Any) -> Raw:
    raw = dict(status) if isinstance(status, dict) else {}
    metrics = raw.get("currentMetrics")
    raw["currentMetrics"] = [_canonical_metric(metric, "current") for metric in metrics] if metrics else None
    raw["desiredReplicas"] = raw.get("desiredReplicas") or 0
    if not raw.get("currentReplicas"):
        raw.pop("currentReplicas", None)
    return {key: value for key, value in raw.items() if value is not None or key == "currentMetrics"}


def _canonical_metric(metric: Any, amounts: str) -> Any:
    if not isinstance(metric, dict):
        return {"type": ""} if metric is None else metric
    result = {key: value for key, value in metric.items() if value is not None}
    for field in SOURCES.values():
        source = result.get(field)
        if isinstance(source, dict) and isinstance(source.get(amounts), dict):
            shown = _canonical_amounts(source[amounts])
            result[field] = {**source, amounts: {"type": "", **shown} if amounts == "target" else shown}
    return result


def _canonical_amounts(amounts: Raw) -> Raw:
    result = {key: value for key, value in amounts.items() if value is not None}
    for field in ("value", "averageValue"):
        if field in result:
            result[field] = str(parse_quantity(result[field]))
    return result


def _canonical_behavior(behavior: Raw) -> Raw:
    result: Raw = {}
    for direction, rules in behavior.items():
        if not isinstance(rules, dict):
            continue
        kept = {key: value for key, value in rules.items() if value is not None}
        if "tolerance" in kept:
            kept["tolerance"] = str(parse_quantity(kept["tolerance"]))
        result[direction] = kept
    return result


def _without_annotations(metadata: Any) -> Raw:
    result = dict(metadata) if isinstance(metadata, dict) else {}
    annotations = result.get("annotations")
    if isinstance(annotations, dict):
        kept = {key: value for key, value in annotations.items() if key not in v1.ANNOTATIONS}
        if kept:
            result["annotations"] = kept
        else:
            result.pop("annotations")
    return result


# -- v2 to v1


def v1_from_v2(obj: Raw) -> Raw:
    """Return a v2 object as v1 shows it."""
    whole = canonical_v2(obj)
    spec, status = whole["spec"], whole["status"]
    metadata = whole["metadata"]
    texts = _annotation_texts(spec, status)
    if texts:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **texts}
    v1_spec: Raw = {field: spec[field] for field in ("scaleTargetRef", "minReplicas", "maxReplicas") if field in spec}
    percent = next(
        (m["resource"]["target"]["averageUtilization"] for m in _metrics(spec) if is_cpu_utilization(m)), None
    )
    if percent is not None:
        v1_spec["targetCPUUtilizationPercentage"] = percent
    v1_status: Raw = {
        "currentReplicas": status.get("currentReplicas") or 0,
        "desiredReplicas": status.get("desiredReplicas") or 0,
    }
    for field in ("observedGeneration", "lastScaleTime"):
        if status.get(field) is not None:
            v1_status[field] = status[field]
    current = _current_cpu_percent(status)
    if current is not None:
        v1_status["currentCPUUtilizationPercentage"] = current
    return {**whole, "apiVersion": V1, "metadata": metadata, "spec": v1_spec, "status": v1_status}


def _annotation_texts(spec: Raw, status: Raw) -> dict[str, str]:
    texts: dict[str, str] = {}
    others = [v1.spec_from_v2(metric) for metric in _metrics(spec) if not is_cpu_utilization(metric)]
    if others:
        texts[v1.METRICS] = _text(others)
    current = [v1.status_from_v2(metric) for metric in status.get("currentMetrics") or ()]
    if current:
        texts[v1.CURRENT_METRICS] = _text(current)
    if status.get("conditions"):
        texts[v1.CONDITIONS] = _text(status["conditions"])
    if spec.get("behavior") is not None:
        texts[v1.BEHAVIOR] = _text(v1.behavior_from_v2(spec["behavior"]))
    return texts


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _metrics(spec: Raw) -> list[Raw]:
    return [metric for metric in spec.get("metrics") or () if isinstance(metric, dict)]


def is_cpu_utilization(metric: Mapping[str, Any]) -> bool:
    """Whether a v2 metric is what v1 has a field for."""
    resource = metric.get("resource")
    if metric.get("type") != "Resource" or not isinstance(resource, dict) or resource.get("name") != "cpu":
        return False
    return (resource.get("target") or {}).get("averageUtilization") is not None


def _current_cpu_percent(status: Raw) -> int | None:
    found: int | None = None
    for metric in status.get("currentMetrics") or ():
        resource = metric.get("resource")
        if metric.get("type") == "Resource" and isinstance(resource, dict) and resource.get("name") == "cpu":
            percent = (resource.get("current") or {}).get("averageUtilization")
            found = percent if percent is not None else found
    return found


# -- v1 to v2


def v2_from_v1(obj: Raw) -> Raw:
    """Return a v1 object as v2 shows it. A behavior from the annotation is taken as it is, without defaults."""
    metadata = obj.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    v1_spec, v1_status = obj.get("spec") or {}, obj.get("status") or {}
    spec: Raw = {
        field: v1_spec[field] for field in ("scaleTargetRef", "minReplicas", "maxReplicas") if field in v1_spec
    }
    metrics = _read(annotations.get(v1.METRICS), v1.read_specs) or []
    percent = v1_spec.get("targetCPUUtilizationPercentage")
    if percent is not None:
        metrics.append(cpu_metric(percent))
    spec["metrics"] = metrics or default_metrics()
    behavior = _read(annotations.get(v1.BEHAVIOR), v1.read_behavior)
    if behavior:
        spec["behavior"] = behavior
    status: Raw = {
        field: v1_status[field]
        for field in ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
        if v1_status.get(field) is not None
    }
    current = _read(annotations.get(v1.CURRENT_METRICS), v1.read_statuses) or []
    percent = v1_status.get("currentCPUUtilizationPercentage")
    if percent is not None and not current:
        current = [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}},
        ]
    status["currentMetrics"] = current or None
    conditions = _read(annotations.get(v1.CONDITIONS), v1.read_conditions)
    if conditions:
        status["conditions"] = conditions
    return canonical_v2({**obj, "apiVersion": V2, "metadata": metadata, "spec": spec, "status": status})


def _read(text: Any, reader: Callable[[str], Any]) -> Any:
    return reader(text) if isinstance(text, str) else None
