"""The shapes in which autoscaling/v1 carries metrics, statuses and behavior inside annotations.

Every amount has a name of its own there (`targetAverageValue`, `currentValue`), and some that are optional in v2 are
not: they appear as 0. Readers return v2 shapes, or None for text that is not what it should be; keys are matched
without regard to case, as upstream does.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from kubetide.api.objects.meta import ApiObject
from kubetide.api.values.codec import decode_folded, to_builtins
from kubetide.api.values.quantity import QuantityText, parse_quantity
from kubetide.errors import InvalidInput

Raw = dict[str, Any]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

_PREFIX = "autoscaling.alpha.kubernetes.io/"
METRICS = _PREFIX + "metrics"
CURRENT_METRICS = _PREFIX + "current-metrics"
CONDITIONS = _PREFIX + "conditions"
BEHAVIOR = _PREFIX + "behavior"
ANNOTATIONS = frozenset(
    [
        METRICS,
        CURRENT_METRICS,
        CONDITIONS,
        BEHAVIOR,
        _PREFIX + "scale-down-tolerance",
        _PREFIX + "scale-up-tolerance",
    ]
)


class _Reference(ApiObject, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""
    api_version: str = ""


class _Expression(ApiObject, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class _Selector(ApiObject, frozen=True, kw_only=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


class _Source(ApiObject, frozen=True, kw_only=True):
    """Any source of a metric spec or status: the members of all of them."""

    name: str = ""
    container: str = ""
    metric_name: str = ""
    target: _Reference | None = None
    selector: _Selector | None = None
    metric_selector: _Selector | None = None
    target_value: QuantityText | None = None
    target_average_value: QuantityText | None = None
    target_average_utilization: Int32 | None = None
    average_value: QuantityText | None = None
    current_value: QuantityText | None = None
    current_average_value: QuantityText | None = None
    current_average_utilization: Int32 | None = None


class _Metric(ApiObject, frozen=True, kw_only=True):
    type: str = ""
    object: _Source | None = None
    pods: _Source | None = None
    resource: _Source | None = None
    container_resource: _Source | None = None
    external: _Source | None = None


class _Condition(ApiObject, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None


class _Policy(ApiObject, frozen=True, kw_only=True):
    type: str = ""
    value: Int32 = 0
    period_seconds: Int32 = 0


class _Rules(ApiObject, frozen=True, kw_only=True):
    stabilization_window_seconds: Int32 | None = None
    select_policy: str | None = None
    policies: tuple[_Policy, ...] | None = None
    tolerance: QuantityText | None = None


class _Behavior(ApiObject, frozen=True, kw_only=True):
    scale_up: _Rules | None = None
    scale_down: _Rules | None = None


# -- reading


def _is_null(text: str) -> bool:
    return text.strip() == "null"


def read_specs(text: str) -> list[Raw] | None:
    """Return the metric specs of an annotation in v2 shape."""
    return _read_metrics(text, _spec_source)


def read_statuses(text: str) -> list[Raw] | None:
    """Return the metric statuses of an annotation in v2 shape."""
    return _read_metrics(text, _status_source)


def _read_metrics(text: str, source_of: Any) -> list[Raw] | None:
    try:
        metrics = () if _is_null(text) else decode_folded(text, tuple[_Metric, ...])
        return [_read_metric(metric, source_of) for metric in metrics]
    except InvalidInput:
        return None


def _read_metric(metric: _Metric, source_of: Any) -> Raw:
    result: Raw = {"type": metric.type}
    for field, source in (
        ("object", metric.object),
        ("pods", metric.pods),
        ("resource", metric.resource),
        ("containerResource", metric.container_resource),
        ("external", metric.external),
    ):
        if source is not None:
            result[field] = source_of(field, source)
    return result


def _spec_source(field: str, source: _Source) -> Raw:
    match field:
        case "object":
            total = _or_zero(source.target_value)
            # v1 always carries a total, so next to an average one of 0 says nothing.
            said = source.average_value is None or bool(parse_quantity(total).sign)
            amounts = _amounts(total if said else None, source.average_value, None)
            kind = "AverageValue" if source.average_value is not None else "Value"
            return {
                **_described(source),
                "metric": _identifier(source, source.selector),
                "target": {"type": kind, **amounts},
            }
        case "pods":
            amounts = _amounts(None, _or_zero(source.target_average_value), None)
            return {"metric": _identifier(source, source.selector), "target": {"type": "AverageValue", **amounts}}
        case "external":
            kind = "Value" if source.target_value is not None else "AverageValue"
            amounts = _amounts(source.target_value, source.target_average_value, None)
            return {"metric": _identifier(source, source.metric_selector), "target": {"type": kind, **amounts}}
    kind = "Utilization" if source.target_average_utilization is not None else "AverageValue"
    amounts = _amounts(None, source.target_average_value, source.target_average_utilization)
    return {**_named(field, source), "target": {"type": kind, **amounts}}


def _status_source(field: str, source: _Source) -> Raw:
    match field:
        case "object":
            amounts = _amounts(_or_zero(source.current_value), source.average_value, None)
            return {**_described(source), "metric": _identifier(source, source.selector), "current": amounts}
        case "pods":
            amounts = _amounts(None, _or_zero(source.current_average_value), None)
            return {"metric": _identifier(source, source.selector), "current": amounts}
        case "external":
            amounts = _amounts(_or_zero(source.current_value), source.current_average_value, None)
            return {"metric": _identifier(source, source.metric_selector), "current": amounts}
    amounts = _amounts(None, _or_zero(source.current_average_value), source.current_average_utilization)
    return {**_named(field, source), "current": amounts}


def _or_zero(amount: QuantityText | None) -> QuantityText:
    return "0" if amount is None else amount


def _amounts(value: QuantityText | None, average: QuantityText | None, utilization: int | None) -> Raw:
    found: Raw = {}
    if value is not None:
        found["value"] = str(parse_quantity(value))
    if average is not None:
        found["averageValue"] = str(parse_quantity(average))
    if utilization is not None:
        found["averageUtilization"] = utilization
    return found


def _named(field: str, source: _Source) -> Raw:
    return (
        {"name": source.name, "container": source.container} if field == "containerResource" else {"name": source.name}
    )


def _described(source: _Source) -> Raw:
    reference = source.target or _Reference()
    found = {"kind": reference.kind, "name": reference.name}
    return {"describedObject": {**found, "apiVersion": reference.api_version} if reference.api_version else found}


def _identifier(source: _Source, selector: _Selector | None) -> Raw:
    return {"name": source.metric_name, **({"selector": _plain(selector)} if selector is not None else {})}


def _plain(selector: _Selector) -> Raw:
    raw: Raw = to_builtins(selector)
    kept = {key: value for key, value in raw.items() if value}
    if "matchExpressions" in kept:
        kept["matchExpressions"] = [
            {key: value for key, value in item.items() if value is not None} for item in kept["matchExpressions"]
        ]
    return kept


def read_conditions(text: str) -> list[Raw] | None:
    """Return the conditions of an annotation."""
    try:
        conditions = () if _is_null(text) else decode_folded(text, tuple[_Condition, ...])
    except InvalidInput:
        return None
    return [_plain_condition(condition) for condition in conditions]


def _plain_condition(condition: _Condition) -> Raw:
    changed = condition.last_transition_time
    if changed is not None:
        # Times are kept in whole seconds of UTC, however they were written.
        condition = msgspec.structs.replace(
            condition, last_transition_time=changed.astimezone(UTC).replace(microsecond=0)
        )
    return {
        key: value
        for key, value in to_builtins(condition).items()
        if value not in (None, "", 0) or key in ("type", "status", "lastTransitionTime")
    }


def read_behavior(text: str) -> Raw | None:
    """Return the behavior of an annotation; None if it states nothing."""
    try:
        if _is_null(text):
            return None
        behavior = decode_folded(text, _Behavior)
        found = {
            name: _rules(rules)
            for name, rules in (("scaleUp", behavior.scale_up), ("scaleDown", behavior.scale_down))
            if rules is not None
        }
    except InvalidInput:
        return None
    return found or None


def _rules(rules: _Rules) -> Raw:
    raw: Raw = {key: value for key, value in to_builtins(rules).items() if value is not None}
    if "tolerance" in raw:
        raw["tolerance"] = str(parse_quantity(raw["tolerance"]))
    return raw


# -- writing


def spec_from_v2(metric: Raw) -> Raw:
    """Return a v2 metric spec in v1 shape."""
    return {"type": metric.get("type", ""), **_sources(metric, _v1_spec_source)}


def status_from_v2(metric: Raw) -> Raw:
    """Return a v2 metric status in v1 shape."""
    return {"type": metric.get("type", ""), **_sources(metric, _v1_status_source)}


def _sources(metric: Raw, source_of: Any) -> Raw:
    fields = ("object", "pods", "resource", "containerResource", "external")
    return {field: source_of(field, metric[field]) for field in fields if isinstance(metric.get(field), dict)}


def _v1_spec_source(field: str, source: Raw) -> Raw:
    target = source.get("target") or {}
    value, average, utilization = (target.get(name) for name in ("value", "averageValue", "averageUtilization"))
    match field:
        case "object":
            amounts = {"targetValue": _or_zero(value), "averageValue": average}
            return _present({**_v1_described(source), **_v1_identifier(source, "selector"), **amounts})
        case "pods":
            return _present({**_v1_identifier(source, "selector"), "targetAverageValue": _or_zero(average)})
        case "external":
            amounts = {"targetValue": value, "targetAverageValue": average}
            return _present({**_v1_identifier(source, "metricSelector"), **amounts})
    amounts = {"targetAverageUtilization": utilization, "targetAverageValue": average}
    return _present({**_v1_named(field, source), **amounts})


def _v1_status_source(field: str, source: Raw) -> Raw:
    current = source.get("current") or {}
    value, average, utilization = (current.get(name) for name in ("value", "averageValue", "averageUtilization"))
    match field:
        case "object":
            amounts = {"currentValue": _or_zero(value), "averageValue": average}
            return _present({**_v1_described(source), **_v1_identifier(source, "selector"), **amounts})
        case "pods":
            return _present({**_v1_identifier(source, "selector"), "currentAverageValue": _or_zero(average)})
        case "external":
            amounts = {"currentValue": _or_zero(value), "currentAverageValue": average}
            return _present({**_v1_identifier(source, "metricSelector"), **amounts})
    amounts = {"currentAverageUtilization": utilization, "currentAverageValue": _or_zero(average)}
    return _present({**_v1_named(field, source), **amounts})


def _present(members: Raw) -> Raw:
    return {key: value for key, value in members.items() if value is not None}


def _v1_named(field: str, source: Raw) -> Raw:
    name = {"name": source.get("name", "")}
    return {**name, "container": source.get("container", "")} if field == "containerResource" else name


def _v1_described(source: Raw) -> Raw:
    reference = source.get("describedObject") or {}
    return {"target": {"kind": "", "name": "", **reference}}


def _v1_identifier(source: Raw, selector: str) -> Raw:
    metric = source.get("metric") or {}
    return {"metricName": metric.get("name", ""), selector: metric.get("selector")}


def behavior_from_v2(behavior: Raw) -> Raw:
    """Return a behavior as the annotation spells it: capital first letters, absent members as null."""
    return {"ScaleUp": _v1_rules(behavior.get("scaleUp")), "ScaleDown": _v1_rules(behavior.get("scaleDown"))}


def _v1_rules(rules: Raw | None) -> Raw | None:
    if rules is None:
        return None
    policies = rules.get("policies")
    return {
        "StabilizationWindowSeconds": rules.get("stabilizationWindowSeconds"),
        "SelectPolicy": rules.get("selectPolicy"),
        "Policies": None
        if policies is None
        else [
            {"Type": p.get("type", ""), "Value": p.get("value", 0), "PeriodSeconds": p.get("periodSeconds", 0)}
            for p in (policy or {} for policy in policies)
        ],
        "Tolerance": rules.get("tolerance"),
    }
