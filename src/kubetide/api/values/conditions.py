"""Conditions: find one, set one without losing its age, return whether anything changed.

`lastTransitionTime` moves only when the status flips, so that people can see how long something has been so.
"""

from collections.abc import Iterable
from datetime import datetime

from kubetide.api.objects.meta import ApiObject


class Condition(ApiObject, frozen=True, kw_only=True, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_probe_time: datetime | None = None
    observed_generation: int | None = None

    @property
    def is_true(self) -> bool:
        return self.status == "True"


def find_condition(conditions: Iterable[Condition] | None, kind: str) -> Condition | None:
    """Return the condition of the given type."""
    for condition in conditions or ():
        if condition.type == kind:
            return condition
    return None


def is_true(conditions: Iterable[Condition] | None, kind: str) -> bool:
    """Return whether the condition is there and true."""
    condition = find_condition(conditions, kind)
    return condition is not None and condition.is_true


def set_condition(
    conditions: Iterable[Condition] | None, kind: str, status: str, *, reason: str, message: str, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions with one set, in its place or at the end; its age is kept if the status stays."""
    existing = tuple(conditions or ())
    old = find_condition(existing, kind)
    since = old.last_transition_time if old is not None and old.status == status else now
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=old.observed_generation if old is not None else None,
    )
    if new == old:
        return existing
    if old is None:
        return (*existing, new)
    return tuple(new if condition is old else condition for condition in existing)


def without_condition(conditions: Iterable[Condition] | None, kind: str) -> tuple[Condition, ...]:
    """Return the conditions without the given type."""
    return tuple(condition for condition in conditions or () if condition.type != kind)
