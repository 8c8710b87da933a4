"""The status of an autoscaler: conditions that keep their age, and whether anything changed that is worth a write.

A status is written only when it differs from what is stored. Differences are those a reader could see: quantities
compare by amount, times by instant, and a list that is missing equals an empty one. Values of metrics that drift a
little differ in every reconcile, and are written from time to time only.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaStatus
from kubetide.api.values.conditions import Condition, set_condition
from kubetide.api.values.quantity import parse_quantity
from kubetide.errors import QuantityError

ABLE_TO_SCALE = "AbleToScale"
SCALING_ACTIVE = "ScalingActive"
SCALING_LIMITED = "ScalingLimited"

LITTLE = 0.1
"""The share by which a value of a metric may differ from the one that is written and still wait for its turn."""

_UTILIZATION = "averageUtilization"
_VALUES = {"value", "averageValue", _UTILIZATION}
Conditions = tuple[Condition, ...]


def whole_seconds(moment: datetime) -> datetime:
    """Return a time as the API keeps it."""
    return moment.replace(microsecond=0) if moment.microsecond else moment


def with_condition(
    conditions: Conditions, kind: str, *, holds: bool, reason: str, message: str, now: datetime
) -> Conditions:
    """Set one condition; its time moves only if its status flips."""
    status = "True" if holds else "False"
    for known in conditions:
        if known.type == kind and known.status == status and known.reason == reason and known.message == message:
            return conditions
    return set_condition(conditions, kind, status, reason=reason, message=message, now=whole_seconds(now))


def full_status(
    before: HpaStatus,
    conditions: Conditions,
    *,
    current: int,
    desired: int,
    metrics: tuple[dict[str, Any], ...] | None,
    generation: int | None,
    scaled_at: datetime | None = None,
) -> HpaStatus:
    """Return the status of a reconcile that got as far as the scale of the target.

    `generation` is that of the object that was worked on; None writes none, so that an older release finds nothing
    that it would not have written.
    """
    return HpaStatus(
        current_replicas=current,
        desired_replicas=desired,
        last_scale_time=whole_seconds(scaled_at) if scaled_at is not None else before.last_scale_time,
        current_metrics=metrics,
        conditions=conditions,
        observed_generation=generation,
    )


def conditions_only(before: HpaStatus, conditions: Conditions) -> HpaStatus:
    """Return the status of a reconcile that did not get that far: everything else stays."""
    return msgspec.structs.replace(before, conditions=conditions)


def same_status(one: HpaStatus, other: HpaStatus) -> bool:
    """Return whether two statuses say the same."""
    return same_beside_metrics(one, other) and _near(one.current_metrics or (), other.current_metrics or ())


def only_drifted(one: HpaStatus, other: HpaStatus) -> bool:
    """Return whether two statuses differ in nothing but values of the same metrics, each by at most `LITTLE`.

    Nobody decides on these values, the autoscaler least of all: it reads the metrics themselves.
    """
    return same_beside_metrics(one, other) and _near(one.current_metrics or (), other.current_metrics or (), LITTLE)


def same_beside_metrics(one: HpaStatus, other: HpaStatus) -> bool:
    """Return whether two statuses differ in nothing but values of metrics."""
    return (
        one.current_replicas == other.current_replicas
        and one.desired_replicas == other.desired_replicas
        and one.last_scale_time == other.last_scale_time
        and one.observed_generation == other.observed_generation
        and (one.conditions or ()) == (other.conditions or ())
    )


def status_body(status: HpaStatus) -> dict[str, Any]:
    """Return the status as the API takes it."""
    body: dict[str, Any] = {
        "currentReplicas": status.current_replicas,
        "desiredReplicas": status.desired_replicas,
        "currentMetrics": list(status.current_metrics) if status.current_metrics is not None else None,
        "conditions": [_condition_body(condition) for condition in status.conditions or ()],
    }
    if status.last_scale_time is not None:
        body["lastScaleTime"] = shown_time(status.last_scale_time)
    if status.observed_generation is not None:
        body["observedGeneration"] = status.observed_generation
    return body


@lru_cache(maxsize=1024)
def _condition_body(condition: Condition) -> dict[str, Any]:
    """Return a condition as the API takes it; most are written again as they are, and none is changed."""
    body: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "lastTransitionTime": shown_time(condition.last_transition_time),
        "reason": condition.reason,
        "message": condition.message,
    }
    if condition.observed_generation is not None:
        body["observedGeneration"] = condition.observed_generation
    return body


def object_body(hpa: HorizontalPodAutoscaler, status: HpaStatus) -> dict[str, Any]:
    """Return the object for a write of its status.

    Such a write replaces the metadata too, so all of it is sent back; the resourceVersion makes the write fail if
    somebody else was faster. The spec is not sent: the server keeps the stored one.
    """
    metadata = msgspec.to_builtins(msgspec.structs.replace(hpa.metadata, managed_fields=None))
    for reference in metadata.get("ownerReferences", ()):
        for optional in ("controller", "blockOwnerDeletion"):
            if reference.get(optional) is None:
                reference.pop(optional, None)
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "status": status_body(status),
    }


def _near(one: Any, other: Any, little: float = 0.0, name: str = "") -> bool:
    """Compare what the API shows, with amounts and utilizations that may differ by a share."""
    if one == other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        # By name, so that utilizations come before amounts, which take longest to read.
        names = sorted({**one, **other})
        return all(_near(_shown(one.get(each)), _shown(other.get(each)), little, each) for each in names)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(_near(*pair, little) for pair in zip(one, other, strict=True))
    if one is None or other is None or name not in _VALUES:
        return False
    try:
        mine, theirs = parse_quantity(one).nanos, parse_quantity(other).nanos
    except QuantityError:
        return False
    # One point of utilization is the grain of what is shown, however small the number.
    grain = 10**9 if little and name == _UTILIZATION else 0
    return abs(mine - theirs) <= max(little * abs(mine), grain)


def _shown(value: Any) -> Any:
    return None if value == {} else value


def shown_time(moment: datetime | None) -> str | None:
    """Return a time as the API writes it."""
    if moment is None:
        return None
    if moment.tzinfo is not UTC or moment.microsecond:
        moment = moment.astimezone(UTC).replace(microsecond=0)
    # Unlike strftime this writes the zeros of the year 1.
    text: str = msgspec.to_builtins(moment)
    return text
