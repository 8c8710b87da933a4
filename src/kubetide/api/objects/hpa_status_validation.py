"""What makes the status of a HorizontalPodAutoscaler invalid, on the raw v2 form."""

from typing import Any

import msgspec

from kubetide.api.objects.hpa import HpaStatus
from kubetide.api.objects.hpa_compat import CONDITION_GENERATION, HpaCompat
from kubetide.api.objects.hpa_validation import Problem, invalid
from kubetide.api.objects.meta import ApiObject, CrossVersionObjectReference
from kubetide.api.objects.metrics import MetricIdentifier
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import QuantityText, parse_quantity
from kubetide.errors import DecodeError, QuantityError

Raw = dict[str, Any]


class _Amounts(ApiObject, frozen=True, kw_only=True):
    value: QuantityText | None = None
    average_value: QuantityText | None = None
    average_utilization: int | None = None


class _Shown(ApiObject, frozen=True, kw_only=True):
    """Any source of a metric status: the members of all of them."""

    name: str = ""
    container: str = ""
    metric: MetricIdentifier | None = None
    described_object: CrossVersionObjectReference | None = None
    current: _Amounts = _Amounts()


class _MetricStatus(ApiObject, frozen=True, kw_only=True):
    type: str = ""
    object: _Shown | None = None
    pods: _Shown | None = None
    resource: _Shown | None = None
    container_resource: _Shown | None = None
    external: _Shown | None = None


class _Status(HpaStatus, frozen=True, kw_only=True):
    """The status with its metrics looked into, which only whoever stores them has to do."""

    current_metrics: tuple[_MetricStatus, ...] | None = None  # type: ignore[assignment]  # narrower than what is read


def validate_status(obj: Raw, compat: HpaCompat | None = None) -> list[Problem]:
    """Return everything wrong with the status of an object; first of all, whether it is one."""
    compat = compat or HpaCompat()
    raw = obj.get("status") or {}
    try:
        status = msgspec.convert(raw, _Status)
    except msgspec.ValidationError:
        try:
            status = convert(raw, _Status)  # which leaves nulls out
        except DecodeError as error:
            return [invalid("status", error.message)]
    problems: list[Problem] = []
    for field, count in (("currentReplicas", status.current_replicas), ("desiredReplicas", status.desired_replicas)):
        if count < 0:
            problems.append(invalid(f"status.{field}", "must be greater than or equal to 0"))
    for index, metric in enumerate(status.current_metrics or ()):
        for source in (metric.object, metric.pods, metric.resource, metric.container_resource, metric.external):
            if source is None:
                continue
            value, average = source.current.value, source.current.average_value
            if not ((value is None or _is_quantity(value)) and (average is None or _is_quantity(average))):
                problems.append(invalid(f"status.currentMetrics[{index}]", "must hold quantities"))
    if compat.has(CONDITION_GENERATION):
        problems += [
            invalid(f"status.conditions[{index}].observedGeneration", "must be greater than or equal to 0")
            for index, condition in enumerate(status.conditions or ())
            if (condition.observed_generation or 0) < 0
        ]
    return problems


def _is_quantity(amount: QuantityText) -> bool:
    try:
        parse_quantity(amount)
    except QuantityError:
        return False
    return True
