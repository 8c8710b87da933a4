"""What makes a HorizontalPodAutoscaler invalid, on the raw v2 form, after defaults.

Each `Problem` names the field and the class of error that the API server reports. A metric entry is checked in
depth for the first source that is present only; a second source is itself the error.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.hpa_compat import (
    ERRORS_ONCE,
    MAX_REPLICAS_REQUIRED,
    MINIMUM_OF_ZERO,
    REFERENCE_VERSIONS,
    HpaCompat,
)
from kubetide.api.values.quantity import parse_quantity
from kubetide.errors import QuantityError

Raw = dict[str, Any]

MAX_PERIOD_SECONDS = 1800
MAX_STABILIZATION_SECONDS = 3600

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SOURCES = ("object", "external", "pods", "resource", "containerResource")
_FIELD_OF = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_CONTAINER_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_OTHER_RESOURCES = frozenset(
    {
        *(f"{side}.{name}" for side in ("requests", "limits") for name in _CONTAINER_RESOURCES),
        "requests.storage",
        "storage",
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
"""Names that stand for something elsewhere, in quotas or volumes, and never for the usage of a container."""
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule: where, which class of error, and what the rule says."""

    field: str
    type: str
    detail: str


def invalid(field: str, detail: str) -> Problem:
    return Problem(field, "FieldValueInvalid", detail)


def _required(field: str, detail: str = "") -> Problem:
    return Problem(field, "FieldValueRequired", detail)


def _forbidden(field: str, detail: str) -> Problem:
    return Problem(field, "FieldValueForbidden", detail)


def _not_supported(field: str, allowed: tuple[str, ...]) -> Problem:
    listing = ", ".join(f'"{item}"' for item in sorted(allowed))
    return Problem(field, "FieldValueNotSupported", f"supported values: {listing}")


def validate(obj: Raw, *, old: Raw | None = None, compat: HpaCompat | None = None) -> list[Problem]:
    """Return everything wrong with a v2 object; `old` is the stored one when it is changed."""
    compat = compat or HpaCompat()
    spec, was = obj.get("spec") or {}, (old or {}).get("spec") or {}
    least = 0 if compat.has(MINIMUM_OF_ZERO) or was.get("minReplicas") == 0 else 1
    found = [*_name(obj), *_spec(spec, least, required=compat.has(MAX_REPLICAS_REQUIRED))]
    if compat.has(REFERENCE_VERSIONS):
        found += _reference_versions(spec, was)
    return list(dict.fromkeys(found)) if compat.has(ERRORS_ONCE) else found


def _name(obj: Raw) -> Iterator[Problem]:
    name = (obj.get("metadata") or {}).get("name") or ""
    if not name:
        yield _required("metadata.name", "name or generateName is required")
    elif len(name) > 253 or _SUBDOMAIN.fullmatch(name) is None:
        yield invalid("metadata.name", "a lowercase RFC 1123 subdomain is required")


def _reference_versions(spec: Raw, was: Raw) -> Iterator[Problem]:
    """Check the apiVersion of references; what is stored already may stay as it is."""
    reference, stored = spec.get("scaleTargetRef") or {}, was.get("scaleTargetRef") or {}
    changed = any((reference.get(field) or "") != (stored.get(field) or "") for field in ("apiVersion", "kind"))
    if not was or changed:
        group = _group(reference.get("apiVersion") or "")
        if group is None or (not group and reference.get("kind") != "ReplicationController"):
            yield invalid("spec.scaleTargetRef.apiVersion", "must be group/version, and name a group")
    if any(_group(version) is None for _, version in _described_versions(was)):
        return
    for index, version in _described_versions(spec):
        if _group(version) is None:
            path = f"spec.metrics[{index}].object.describedObject.apiVersion"
            yield invalid(path, "must be version or group/version")


def _described_versions(spec: Raw) -> Iterator[tuple[int, str]]:
    for index, metric in enumerate(spec.get("metrics") or ()):
        source = metric.get("object") if isinstance(metric, dict) else None
        if isinstance(source, dict):
            yield index, (source.get("describedObject") or {}).get("apiVersion") or ""


def _group(api_version: str) -> str | None:
    """Return the group of an apiVersion, empty for the core group; None if it is malformed."""
    if api_version.count("/") > 1:
        return None
    return api_version.rpartition("/")[0]


def _spec(spec: Raw, least: int, *, required: bool) -> Iterator[Problem]:
    minimum, maximum = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if minimum is not None and minimum < least:
        yield invalid("spec.minReplicas", f"must be greater than or equal to {least}")
    if maximum == 0 and required:
        yield _required("spec.maxReplicas")
    elif maximum < 1:
        yield invalid("spec.maxReplicas", "must be greater than 0")
    if minimum is not None and maximum < minimum:
        yield invalid("spec.maxReplicas", "must be greater than or equal to `minReplicas`")
    yield from _reference(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef")
    yield from _metrics(spec.get("metrics") or [], minimum)
    behavior = spec.get("behavior")
    if behavior is not None:
        for direction in ("scaleUp", "scaleDown"):
            if behavior.get(direction) is not None:
                yield from _rules(behavior[direction], f"spec.behavior.{direction}")


def _reference(reference: Raw, path: str) -> Iterator[Problem]:
    for field in ("kind", "name"):
        value = reference.get(field) or ""
        if not value:
            yield _required(f"{path}.{field}")
        else:
            yield from _path_segment(value, f"{path}.{field}")


def _path_segment(value: str, path: str) -> Iterator[Problem]:
    if value in (".", ".."):
        yield invalid(path, f"may not be '{value}'")
        return
    found = [f"may not contain '{character}'" for character in ("/", "%") if character in value]
    for detail in found:
        yield invalid(path, detail)


def _metrics(metrics: list[Any], minimum: int | None) -> Iterator[Problem]:
    outside = False
    for index, metric in enumerate(metrics):
        path = f"spec.metrics[{index}]"
        yield from _metric(metric if isinstance(metric, dict) else {}, path)
        outside = outside or (isinstance(metric, dict) and metric.get("type") in ("Object", "External"))
    if minimum == 0 and not outside:
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        yield _forbidden("spec.metrics", detail)


def _metric(metric: Raw, path: str) -> Iterator[Problem]:
    kind = metric.get("type") or ""
    if not kind:
        yield _required(f"{path}.type", "must specify a metric source type")
    if kind not in _FIELD_OF:
        yield _not_supported(f"{path}.type", tuple(_FIELD_OF))
    present = [field for field in _SOURCES if isinstance(metric.get(field), dict)]
    if present:
        yield from _DEPTH[present[0]](metric[present[0]], f"{path}.{present[0]}")
    expected = _FIELD_OF.get(kind)
    if expected is None:
        # Reported a second time: once as a bad value, once because no source can be the right one.
        yield _not_supported(f"{path}.type", tuple(_FIELD_OF))
    elif expected not in present:
        yield _required(f"{path}.{expected}", "must populate information for the given metric source")
    if len(present) != 1:
        for field in present:
            if field != expected:
                yield _forbidden(f"{path}.{field}", "must populate the given metric source only")


def _object(source: Raw, path: str) -> Iterator[Problem]:
    yield from _reference(source.get("describedObject") or {}, f"{path}.describedObject")
    yield from _identifier(source, path)
    target = source.get("target") or {}
    yield from _target(target, path)
    if target.get("value") is None and target.get("averageValue") is None:
        yield _required(f"{path}.target.averageValue", "must set either a target value for metric or a per-pod target")


def _external(source: Raw, path: str) -> Iterator[Problem]:
    yield from _identifier(source, path)
    target = source.get("target") or {}
    yield from _target(target, path)
    value, average = target.get("value"), target.get("averageValue")
    if value is None and average is None:
        yield _required(f"{path}.target.averageValue", "must set either a target value for metric or a per-pod target")
    if value is not None and average is not None:
        yield _forbidden(f"{path}.target.value", "may not set both a target value for metric and a per-pod target")


def _pods(source: Raw, path: str) -> Iterator[Problem]:
    yield from _identifier(source, path)
    target = source.get("target") or {}
    yield from _target(target, path)
    if target.get("averageValue") is None:
        yield _required(f"{path}.target.averageValue", "must specify a positive target averageValue")


def _resource(source: Raw, path: str) -> Iterator[Problem]:
    if not source.get("name"):
        yield _required(f"{path}.name", "must specify a resource name")
    yield from _resource_target(source.get("target") or {}, path)


def _container_resource(source: Raw, path: str) -> Iterator[Problem]:
    name = source.get("name") or ""
    if not name:
        yield _required(f"{path}.name", "must specify a resource name")
    for detail in _container_resource_problems(name):
        yield invalid(f"{path}.name", detail)
    container = source.get("container") or ""
    if not container:
        yield _required(f"{path}.container", "must specify a container")
    else:
        if len(container) > 63:
            yield invalid(f"{path}.container", "must be no more than 63 characters")
        if _LABEL.fullmatch(container) is None:
            yield invalid(f"{path}.container", _LABEL_RULE)
    yield from _resource_target(source.get("target") or {}, path)


def _container_resource_problems(name: str) -> Iterator[str]:
    """Return what keeps a name from being that of a resource of containers; one broken rule may follow from another."""
    if not name:
        return
    problems = list(_qualified_name_problems(name))
    yield from problems
    if "/" in name:
        # With a prefix it is an extended resource, and those of quotas have no usage of their own.
        if problems or name.startswith("requests."):
            yield "doesn't follow extended resource name standard"
        return
    huge = name.removeprefix("requests.").startswith("hugepages-")
    if not problems and not huge and name not in _CONTAINER_RESOURCES | _OTHER_RESOURCES:
        yield "must be a standard resource type or fully qualified"
    if name not in _CONTAINER_RESOURCES and not name.startswith("hugepages-"):
        yield "must be a standard resource for containers"


def _qualified_name_problems(name: str) -> Iterator[str]:
    *prefixes, base = name.split("/")
    if len(prefixes) > 1:
        yield "a qualified name has at most one prefix"
        return
    for prefix in prefixes:
        if not prefix:
            yield "prefix part must be non-empty"
            continue
        if len(prefix) > 253:
            yield "prefix part must be no more than 253 characters"
        if _SUBDOMAIN.fullmatch(prefix) is None:
            yield "prefix part must be a lowercase RFC 1123 subdomain"
    if not base:
        yield "name part must be non-empty"
    if len(base) > 63:
        yield "name part must be no more than 63 characters"
    if _QUALIFIED.fullmatch(base) is None:
        yield "name part must consist of alphanumeric characters, '-', '_' or '.', the first and last alphanumeric"


def _resource_target(target: Raw, path: str) -> Iterator[Problem]:
    yield from _target(target, path)
    utilization, average = target.get("averageUtilization"), target.get("averageValue")
    if utilization is None and average is None:
        yield _required(
            f"{path}.target.averageUtilization", "must set either a target raw value or a target utilization"
        )
    if utilization is not None and average is not None:
        yield _forbidden(f"{path}.target.averageValue", "may not set both a target raw value and a target utilization")


def _identifier(source: Raw, path: str) -> Iterator[Problem]:
    name = (source.get("metric") or {}).get("name") or ""
    if not name:
        yield _required(f"{path}.metric.name", "must specify a metric name")
    else:
        yield from _path_segment(name, f"{path}.metric.name")


def _target(target: Raw, path: str) -> Iterator[Problem]:
    kind = target.get("type") or ""
    if not kind:
        yield _required(f"{path}.target.type", "must specify a metric target type")
    if kind not in ("Utilization", "Value", "AverageValue"):
        yield invalid(f"{path}.target.type", "must be either Utilization, Value, or AverageValue")
    for field in ("value", "averageValue"):
        if target.get(field) is not None and not _is_positive(target[field]):
            yield invalid(f"{path}.target.{field}", "must be positive")
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        yield invalid(f"{path}.target.averageUtilization", "must be greater than 0")


def _is_positive(amount: Any) -> bool:
    try:
        return parse_quantity(amount).sign > 0
    except QuantityError:
        return False


def _rules(rules: Raw, path: str) -> Iterator[Problem]:
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        yield invalid(f"{path}.stabilizationWindowSeconds", "must be greater than or equal to zero")
    if window is not None and window > MAX_STABILIZATION_SECONDS:
        detail = f"must be less than or equal to {MAX_STABILIZATION_SECONDS}"
        yield invalid(f"{path}.stabilizationWindowSeconds", detail)
    choice = rules.get("selectPolicy")
    if choice is not None and choice not in ("Max", "Min", "Disabled"):
        yield _not_supported(f"{path}.selectPolicy", ("Max", "Min", "Disabled"))
    policies = rules.get("policies") or []
    if not policies:
        yield _required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in enumerate(policies):
        yield from _policy(policy or {}, f"{path}.policies[{index}]")
    tolerance = rules.get("tolerance")
    if tolerance is not None and parse_quantity(tolerance).sign < 0:
        yield invalid(f"{path}.tolerance", "must be greater than or equal to 0")


def _policy(policy: Raw, path: str) -> Iterator[Problem]:
    if policy.get("type") not in ("Pods", "Percent"):
        yield _not_supported(f"{path}.type", ("Pods", "Percent"))
    if (policy.get("value") or 0) <= 0:
        yield invalid(f"{path}.value", "must be greater than zero")
    period = policy.get("periodSeconds") or 0
    if period <= 0:
        yield invalid(f"{path}.periodSeconds", "must be greater than zero")
    if period > MAX_PERIOD_SECONDS:
        yield invalid(f"{path}.periodSeconds", f"must be less than or equal to {MAX_PERIOD_SECONDS}")


_DEPTH: dict[str, Callable[[Raw, str], Iterator[Problem]]] = {
    "object": _object,
    "external": _external,
    "pods": _pods,
    "resource": _resource,
    "containerResource": _container_resource,
}
