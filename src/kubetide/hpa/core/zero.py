"""Scaling to zero replicas and back: whose zero is it?

A target at 0 replicas was either switched off by a person, and then stays off, or put there by its autoscaler, which
may wake it again. From 1.36 on the condition `ScaledToZero` distinguishes the two; up to 1.35 a minimum of 0 does.

| at 0 replicas                                  | up to 1.35     | from 1.36      |
|------------------------------------------------|----------------|----------------|
| ScaledToZero, minimum above 0                  | stays off      | metrics decide |
| ScaledToZero, minimum 0, Object or External    | metrics decide | metrics decide |
| ScaledToZero, minimum 0, no such metric        | metrics decide | stays off      |
| otherwise, minimum 0                           | metrics decide | stays off      |
| otherwise, minimum above 0                     | stays off      | stays off      |
"""

from datetime import datetime

from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaSpec, MetricType
from kubetide.api.objects.hpa_compat import SCALE_TO_ZERO, SCALED_TO_ZERO, HpaCompat
from kubetide.api.values.conditions import is_true, without_condition
from kubetide.hpa.core.status import Conditions, with_condition

CONDITION = "ScaledToZero"


def minimum_of(spec: HpaSpec) -> int:
    """Return the lower bound; 1 where none is set."""
    return 1 if spec.min_replicas is None else spec.min_replicas


def may_wake(hpa: HorizontalPodAutoscaler, compat: HpaCompat) -> bool:
    """Return whether metrics decide about a target that has 0 replicas."""
    minimum = minimum_of(hpa.spec)
    if not compat.has(SCALED_TO_ZERO):
        return minimum == 0
    if not compat.gate(SCALE_TO_ZERO) or not is_true(hpa.status.conditions, CONDITION):
        return False
    return minimum != 0 or _measured_outside(hpa.spec)


def after_rescale(
    conditions: Conditions, spec: HpaSpec, compat: HpaCompat, *, current: int, desired: int, now: datetime
) -> Conditions:
    """Return the conditions with `ScaledToZero` as a rescale that worked leaves it."""
    if not compat.has(SCALED_TO_ZERO):
        return conditions
    if not compat.gate(SCALE_TO_ZERO):
        return without_condition(conditions, CONDITION)
    to_zero = current > 0 and desired == 0 and minimum_of(spec) == 0 and _measured_outside(spec)
    return with_condition(
        conditions,
        CONDITION,
        holds=to_zero,
        reason="ScaledToZero" if to_zero else "NotScaledToZero",
        message="the autoscaler scaled the target to zero" if to_zero else "the target was not scaled to zero",
        now=now,
    )


def while_disabled(conditions: Conditions, compat: HpaCompat) -> Conditions:
    """Return the conditions of a target that stays off: without its gate `ScaledToZero` must not wake it later."""
    if compat.has(SCALED_TO_ZERO) and not compat.gate(SCALE_TO_ZERO):
        return without_condition(conditions, CONDITION)
    return conditions


def _measured_outside(spec: HpaSpec) -> bool:
    """Return whether a metric has a value even while there is no pod."""
    return any(metric.type in (MetricType.OBJECT, MetricType.EXTERNAL) for metric in spec.metrics or ())
