"""Rate limits: how far one reconcile may move the count, from the policies in `behavior` and what was done lately.

For each policy the count at the beginning of its period is worked out from the remembered rescales, and the policy
says how far from there the count may be:

    start = current - (grown within the period) + (shrunk within the period)

                 Pods              Percent
    up limit     start + value     ceil(start x (1 + value/100))
    down limit   start - value     trunc(start x (1 - value/100))

`selectPolicy` picks the policy that allows the most change (Max), the least (Min), or forbids any (Disabled). The
products are those of doubles: 100 x 1.1 rounds up to 111, as it does in every cluster.

Without `behavior` the count may at most double, or reach four, in one reconcile, and shrinking has no limit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from kubetide.api.objects.hpa import Behavior, ScalingPolicy, ScalingRules

DESIRED_WITHIN_RANGE = "DesiredWithinRange"
TOO_FEW_REPLICAS = "TooFewReplicas"
TOO_MANY_REPLICAS = "TooManyReplicas"
SCALE_UP_LIMIT = "ScaleUpLimit"
SCALE_DOWN_LIMIT = "ScaleDownLimit"

_FACTOR = 2.0
_FIRST_STEP = 4.0
_DISABLED = "Disabled"
_MIN = "Min"
_PERCENT = "Percent"

ScaleEvents = tuple["ScaleEvent", ...]

DEFAULT_UP = ScalingRules(
    stabilization_window_seconds=0,
    select_policy="Max",
    policies=(
        ScalingPolicy(type="Pods", value=4, period_seconds=15),
        ScalingPolicy(type="Percent", value=100, period_seconds=15),
    ),
)
DEFAULT_DOWN = ScalingRules(
    select_policy="Max", policies=(ScalingPolicy(type="Percent", value=100, period_seconds=15),)
)


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """One rescale of ours: by how many, and when. `outdated` entries give their place to new ones."""

    change: int
    at: datetime
    outdated: bool = False


class Limited(msgspec.Struct, frozen=True):
    """A count after the limits, with the limit that cut it, or the reason for none."""

    replicas: int
    reason: str
    limit: int | None = None

    @property
    def cut(self) -> bool:
        return self.reason != DESIRED_WITHIN_RANGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Both directions, complete: no field is left to a default."""

    up: ScalingRules
    down: ScalingRules

    @property
    def up_window(self) -> timedelta:
        return timedelta(seconds=self.up.stabilization_window_seconds or 0)

    @property
    def down_window(self) -> timedelta:
        return timedelta(seconds=self.down.stabilization_window_seconds or 0)


def complete_rules(behavior: Behavior, down_window: timedelta) -> Rules:
    """Fill in what `behavior` leaves open; an unset window for shrinking is the cluster's, in whole seconds."""
    default_down = _over(DEFAULT_DOWN, ScalingRules(stabilization_window_seconds=int(down_window.total_seconds())))
    return Rules(up=_over(DEFAULT_UP, behavior.scale_up), down=_over(default_down, behavior.scale_down))


def limit_plain(stable: int, current: int, *, minimum: int, maximum: int) -> Limited:
    """Limit the count of an autoscaler without `behavior`."""
    limit = int(max(_FACTOR * float(current), _FIRST_STEP))
    if stable < minimum:
        return Limited(minimum, TOO_FEW_REPLICAS, minimum)
    if maximum > limit and stable > limit:
        return Limited(limit, SCALE_UP_LIMIT, limit)
    if stable > maximum:
        return Limited(maximum, TOO_MANY_REPLICAS, maximum)
    return Limited(stable, DESIRED_WITHIN_RANGE)


def limit_by_rules(
    stable: int,
    current: int,
    rules: Rules,
    ups: Sequence[ScaleEvent],
    downs: Sequence[ScaleEvent],
    *,
    minimum: int,
    maximum: int,
    now: datetime,
    hold_down: bool = False,
) -> Limited:
    """Limit the count by the policies. `hold_down` forbids shrinking: what was done lately is not known."""
    if stable > current:
        limit = max(up_limit(current, ups, downs, rules.up, now=now), current)
        cap, reason = (limit, SCALE_UP_LIMIT) if maximum > limit else (maximum, TOO_MANY_REPLICAS)
        if stable > cap:
            return Limited(cap, reason, cap)
    elif stable < current:
        limit = current if hold_down else min(down_limit(current, ups, downs, rules.down, now=now), current)
        floor, reason = (limit, SCALE_DOWN_LIMIT) if minimum < limit else (minimum, TOO_FEW_REPLICAS)
        if stable < floor:
            return Limited(floor, reason, floor)
    return Limited(stable, DESIRED_WITHIN_RANGE)


def up_limit(
    current: int, ups: Sequence[ScaleEvent], downs: Sequence[ScaleEvent], rules: ScalingRules, *, now: datetime
) -> int:
    """Return the highest count that the policies allow now."""
    if rules.select_policy == _DISABLED:
        return current
    limits = []
    for policy in rules.policies or ():
        start = _start(current, ups, downs, policy, now)
        if policy.type == _PERCENT:
            limits.append(math.ceil(float(start) * (1 + float(policy.value) / 100)))
        else:
            limits.append(start + policy.value)
    return _pick(limits, current, least=rules.select_policy == _MIN, upward=True)


def down_limit(
    current: int, ups: Sequence[ScaleEvent], downs: Sequence[ScaleEvent], rules: ScalingRules, *, now: datetime
) -> int:
    """Return the lowest count that the policies allow now."""
    if rules.select_policy == _DISABLED:
        return current
    limits = []
    for policy in rules.policies or ():
        start = _start(current, ups, downs, policy, now)
        if policy.type == _PERCENT:
            limits.append(math.trunc(float(start) * (1 - float(policy.value) / 100)))
        else:
            limits.append(start - policy.value)
    return _pick(limits, current, least=rules.select_policy == _MIN, upward=False)


def changed_within(events: Sequence[ScaleEvent], period_seconds: int, *, now: datetime) -> int:
    """Sum up the changes of the last `period_seconds`."""
    cutoff = now - timedelta(seconds=period_seconds)
    return sum(event.change for event in events if event.at > cutoff)


def longest_period(rules: ScalingRules | None) -> timedelta:
    """Return the longest period that any policy looks back."""
    policies = (rules.policies if rules is not None else None) or ()
    return timedelta(seconds=max((policy.period_seconds for policy in policies), default=0))


def remember_event(events: Sequence[ScaleEvent], change: int, longest: timedelta, *, now: datetime) -> ScaleEvents:
    """Add a rescale: mark what no policy can see any more, and take the last marked place if there is one."""
    cutoff = now - longest
    marked = [replace(event, outdated=True) if event.at < cutoff else event for event in events]
    new = ScaleEvent(change, now)
    for position in range(len(marked) - 1, -1, -1):
        if marked[position].outdated:
            return (*marked[:position], new, *marked[position + 1 :])
    return (*marked, new)


def _start(
    current: int, ups: Sequence[ScaleEvent], downs: Sequence[ScaleEvent], policy: ScalingPolicy, now: datetime
) -> int:
    grown = changed_within(ups, policy.period_seconds, now=now)
    shrunk = changed_within(downs, policy.period_seconds, now=now)
    return current - grown + shrunk


def _pick(limits: list[int], current: int, *, least: bool, upward: bool) -> int:
    if not limits:
        return current
    return min(limits) if least == upward else max(limits)


def _over(default: ScalingRules, given: ScalingRules | None) -> ScalingRules:
    if given is None:
        return default
    window, select, policies = given.stabilization_window_seconds, given.select_policy, given.policies
    return ScalingRules(
        stabilization_window_seconds=default.stabilization_window_seconds if window is None else window,
        select_policy=default.select_policy if select is None else select,
        policies=default.policies if policies is None else policies,
        tolerance=given.tolerance,
    )
