"""Stabilization windows: a change is believed only once the whole window agrees.

A load that dips for a minute and returns must not cost pods that take minutes to start again.

Without `behavior` there is one window, for shrinking, and its far edge still counts:

    stable = max(proposal, recommendations not before now - window)

With `behavior` both directions have a window, and the far edge does not count:

    low    = min(proposal, recommendations after now - up window)
    high   = max(proposal, recommendations after now - down window)
    stable = current, raised to low, then lowered to high

What is remembered is always the proposal itself, never what became of it. A remembered entry that no window can see
any more gives its place to the new one, so the list is as long as the busiest window so far.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

Recommendations = tuple["Recommendation", ...]


class Recommendation(msgspec.Struct, frozen=True):
    """What one reconcile asked for, before any window or limit."""

    replicas: int
    at: datetime


class Stabilized(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal after its window, and the memory for the next reconcile."""

    replicas: int
    reason: str
    recommendations: Recommendations
    low: int
    high: int


READY_FOR_NEW_SCALE = "ReadyForNewScale"
SCALE_DOWN_STABILIZED = "ScaleDownStabilized"
SCALE_UP_STABILIZED = "ScaleUpStabilized"


def stabilize(
    proposal: int, past: Sequence[Recommendation], window: timedelta, *, now: datetime, held: int | None = None
) -> Stabilized:
    """Apply the one window of an autoscaler without `behavior`. `held` is one more recommendation that counts."""
    cutoff = now - window
    stable = proposal
    outdated: int | None = None
    for position, recommendation in enumerate(past):
        if recommendation.at < cutoff:
            outdated = position
        elif recommendation.replicas > stable:
            stable = recommendation.replicas
    if held is not None:
        stable = max(stable, held)
    return Stabilized(
        replicas=stable,
        reason=SCALE_DOWN_STABILIZED if stable != proposal else READY_FOR_NEW_SCALE,
        recommendations=_remember(past, proposal, now, outdated),
        low=proposal,
        high=stable,
    )


def stabilize_both_ways(
    proposal: int,
    current: int,
    past: Sequence[Recommendation],
    *,
    up_window: timedelta,
    down_window: timedelta,
    now: datetime,
    held: int | None = None,
) -> Stabilized:
    """Apply the two windows of `behavior`. `held` is one more recommendation that counts for shrinking."""
    up_cutoff, down_cutoff = now - up_window, now - down_window
    low = high = proposal
    outdated: int | None = None
    for position, recommendation in enumerate(past):
        if recommendation.at > up_cutoff and recommendation.replicas < low:
            low = recommendation.replicas
        if recommendation.at > down_cutoff and recommendation.replicas > high:
            high = recommendation.replicas
        if recommendation.at < up_cutoff and recommendation.at < down_cutoff:
            outdated = position
    if held is not None:
        high = max(high, held)
    stable = min(max(current, low), high)
    if stable == proposal:
        reason = READY_FOR_NEW_SCALE
    else:
        reason = SCALE_UP_STABILIZED if proposal >= current else SCALE_DOWN_STABILIZED
    return Stabilized(
        replicas=stable,
        reason=reason,
        recommendations=_remember(past, proposal, now, outdated),
        low=low,
        high=high,
    )


def _remember(past: Sequence[Recommendation], proposal: int, now: datetime, outdated: int | None) -> Recommendations:
    new = Recommendation(proposal, now)
    if outdated is None:
        return (*past, new)
    return (*past[:outdated], new, *past[outdated + 1 :])
