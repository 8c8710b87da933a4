"""Many autoscalers at once: the rules of `replicas`, `stabilization` and `behavior` on arrays, one column each.

For autoscalers with one resource metric whose pods request the same: what the formula needs of them are then counts and
sums. Each rule gives, column by column, what its scalar twin gives; the twins decide in a cluster, this decides in
replays of thousands of autoscalers over weeks.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kubetide.api.objects.hpa import ScalingRules
from kubetide.hpa.core.behavior import Rules
from kubetide.hpa.core.replicas import INT32_MAX, Tolerance

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_DISABLED, _MIN, _PERCENT = "Disabled", "Min", "Percent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodColumns:
    """The pods of each target: how many are of which kind, and what the ready ones use together."""

    used_millis: Ints
    ready: Ints
    """Ready pods that have a sample."""
    unready: Ints
    missing: Ints
    """Ready pods without a sample."""
    request_millis: Ints
    """Of one pod."""


def propose_utilization(pods: PodColumns, *, target: int | Ints, current: Ints, tolerance: Tolerance) -> Ints:
    """Propose counts for a target in percent of the requests; where no pod has a sample the count stays."""
    goal = np.asarray(target, dtype=np.float64)
    known = pods.ready > 0
    ready = np.maximum(pods.ready, 1)
    percent = pods.used_millis * 100 // (ready * pods.request_millis)
    ratio = percent / goal
    plain = np.where(_covered(ratio, tolerance), current, _rounded_up(ratio * ready))
    grows_with_unready = (pods.unready > 0) & (ratio > 1.0)
    filling = grows_with_unready | (pods.missing > 0)
    if not filling.any():
        return np.where(known, plain, current)
    below = ratio < 1.0
    added = np.where(ratio != 1.0, pods.missing, 0)
    at_target = pods.request_millis * np.maximum(100, target) // 100
    used = pods.used_millis + np.where(below, pods.missing * at_target, 0)
    count = ready + added + np.where(grows_with_unready, pods.unready, 0)
    second = (used * 100 // (count * pods.request_millis)) / goal
    proposed = _rounded_up(second * count)
    turned = (below & (second > 1.0)) | ((second < 1.0) & (ratio > 1.0))
    against = ((second < 1.0) & (proposed > current)) | ((second > 1.0) & (proposed < current))
    filled = np.where(_covered(second, tolerance) | turned | against, current, proposed)
    return np.where(known, np.where(filling, filled, plain), current)


def _covered(ratio: Floats, tolerance: Tolerance) -> Mask:
    covered: Mask = (1.0 - tolerance.down <= ratio) & (ratio <= 1.0 + tolerance.up)
    return covered


def _rounded_up(values: Floats) -> Ints:
    whole: Ints = np.ceil(np.minimum(values, INT32_MAX)).astype(np.int64)
    return whole


class AutoscalerColumns:
    """Windows and limits of autoscalers that share their rules, and what they remember. Times are whole seconds."""

    def __init__(
        self,
        replicas: Ints,
        *,
        minimum: int | Ints,
        maximum: int | Ints,
        window_seconds: int,
        rules: Rules | None,
        at_seconds: int,
    ) -> None:
        self._minimum, self._maximum = minimum, maximum
        self._window = window_seconds
        self._rules = rules
        self._past: deque[tuple[int, Ints]] = deque([(at_seconds, replicas.copy())])
        self._changes: deque[tuple[int, Ints]] = deque()

    def decide(self, proposal: Ints, current: Ints, *, at_seconds: int) -> Ints:
        """Take proposals through windows and limits, and remember them; return the counts to ask for."""
        rules = self._rules
        if rules is None:
            stable = self._highest(proposal, at_seconds - self._window, edge=True)
            decided = self._limit_plain(stable, current)
            longest = self._window
        else:
            up, down = (int(each.total_seconds()) for each in (rules.up_window, rules.down_window))
            low = self._lowest(proposal, at_seconds - up)
            high = self._highest(proposal, at_seconds - down, edge=False)
            stable = np.minimum(np.maximum(current, low), high)
            decided = self._limit_by_rules(stable, current, rules, at_seconds)
            longest = max(up, down)
        self._past.append((at_seconds, proposal))
        while self._past and self._past[0][0] < at_seconds - longest:
            self._past.popleft()
        if rules is not None:
            self._remember(decided - current, rules, at_seconds)
        return decided

    def _highest(self, proposal: Ints, cutoff: int, *, edge: bool) -> Ints:
        seen = [past for at, past in self._past if at > cutoff or (edge and at == cutoff)]
        highest: Ints = np.maximum.reduce([proposal, *seen])
        return highest

    def _lowest(self, proposal: Ints, cutoff: int) -> Ints:
        lowest: Ints = np.minimum.reduce([proposal, *(past for at, past in self._past if at > cutoff)])
        return lowest

    def _limit_plain(self, stable: Ints, current: Ints) -> Ints:
        limit = np.maximum(2 * current, 4)
        cut = np.where(stable > self._maximum, self._maximum, stable)
        cut = np.where((self._maximum > limit) & (stable > limit), limit, cut)
        limited: Ints = np.where(stable < self._minimum, self._minimum, cut)
        return limited

    def _limit_by_rules(self, stable: Ints, current: Ints, rules: Rules, at_seconds: int) -> Ints:
        up = np.maximum(self._policy_limit(current, rules.up, at_seconds, upward=True), current)
        cap = np.minimum(up, self._maximum)
        down = np.minimum(self._policy_limit(current, rules.down, at_seconds, upward=False), current)
        floor = np.maximum(down, self._minimum)
        grown = np.where((stable > current) & (stable > cap), cap, stable)
        limited: Ints = np.where((stable < current) & (stable < floor), floor, grown)
        return limited

    def _policy_limit(self, current: Ints, rules: ScalingRules, at_seconds: int, *, upward: bool) -> Ints:
        if rules.select_policy == _DISABLED or not rules.policies:
            return current
        limits = []
        for policy in rules.policies:
            cutoff = at_seconds - policy.period_seconds
            start = current - np.sum([change for at, change in self._changes if at > cutoff] or [0 * current], axis=0)
            if policy.type == _PERCENT:
                share = float(policy.value) / 100
                scaled = start.astype(np.float64) * (1 + share if upward else 1 - share)
                limits.append((np.ceil(scaled) if upward else np.trunc(scaled)).astype(np.int64))
            else:
                limits.append(start + policy.value if upward else start - policy.value)
        least = (rules.select_policy == _MIN) == upward
        picked: Ints = (np.minimum if least else np.maximum).reduce(limits)
        return picked

    def _remember(self, change: Ints, rules: Rules, at_seconds: int) -> None:
        if change.any():
            self._changes.append((at_seconds, change))
        policies = (*(rules.up.policies or ()), *(rules.down.policies or ()))
        longest = max((policy.period_seconds for policy in policies), default=0)
        while self._changes and self._changes[0][0] <= at_seconds - longest:
            self._changes.popleft()
