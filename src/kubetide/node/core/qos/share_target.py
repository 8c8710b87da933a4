"""The best-effort share as a controlled quantity: as much as the latency-sensitive pods do not feel.

A fixed threshold is too high on a node whose pods suffer from their neighbours and too low on one where they do not.
With a target, the threshold follows what the latency-sensitive side feels, second by second:

    observed > target    above the fixed threshold: back to it at once; below it: down by up to a quarter of it a second
    observed unknown     at most the fixed threshold: unknown is not calm
    otherwise            after ten calm seconds up by a fifth of a point a second, to the edge at most

    observed = sum(signal of pod x CPU of pod) / sum(CPU of pod)      over pods that are not best effort, in percent
    signal   = throttled periods, or the time in which tasks waited for CPU (pressure), in the last second

Fast down and slow up: what is taken too long costs batch work some CPU, what is given too long costs latency. The edge
is where the last trouble came from, less three points; it starts three points above the fixed threshold and, after ten
calm minutes, moves up by three points in ten minutes. So a node is tried with more every ten minutes at most, and as a
burst is felt for about two seconds until it is answered, less than a hundredth of the time is lost to that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kubetide.errors import InvalidInput

ANNOTATION = "kubetide.io/best-effort-target"
"""On the Node: the target of this node instead of the agent's, or `off`."""
OFF = "off"
DEFAULT_CEILING = 90
UP_PER_SECOND = 0.2
DOWN_SHARE = 0.25
CALM_SECONDS = 10.0
EDGE_BACK = 3.0
EDGE_CALM_SECONDS = 600.0
EDGE_UP_PER_SECOND = EDGE_BACK / EDGE_CALM_SECONDS
LONGEST_STEP = 5.0
"""Seconds that one sync may count for: an agent that was away knows nothing about the time in between."""
FLOOR = 5


class Signal(StrEnum):
    """What the latency-sensitive side is asked for."""

    THROTTLED = "throttled"
    PRESSURE = "pressure"


class BadTarget(InvalidInput):
    """A target that cannot be read."""


@dataclass(frozen=True, slots=True)
class ShareTarget:
    """What latency-sensitive pods may feel, in percent of the time."""

    signal: Signal
    percent: float

    def __str__(self) -> str:
        return f"{self.signal}={self.percent:g}"


def parse_target(text: str) -> ShareTarget | None:
    """Return the target that `pressure=5` or `throttled=2.5` names; None for no target. Raise BadTarget."""
    if text in ("", OFF):
        return None
    name, _, number = text.partition("=")
    try:
        signal, percent = Signal(name.strip()), float(number)
    except ValueError:
        raise BadTarget(f"{text!r} is not pressure=PERCENT, throttled=PERCENT or {OFF}") from None
    if not 0 < percent <= 100:
        raise BadTarget(f"{text!r}: the percentage must be above 0 and at most 100")
    return ShareTarget(signal, percent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The threshold in force and how far it may rise."""

    percent: float
    edge: float
    """What has caused no trouble lately."""
    calm: float = 0.0
    """Seconds without trouble."""
    reason: str = "starts at the fixed threshold"


def first_share(fixed: int) -> Share:
    """Return the share to begin with."""
    return Share(percent=float(fixed), edge=fixed + EDGE_BACK)


def next_share(
    share: Share, observed: float | None, target: ShareTarget, *, fixed: int, ceiling: int, floor: int, elapsed: float
) -> Share:
    """Return the threshold after a sync that came `elapsed` seconds after the one before."""
    seconds = min(max(elapsed, 0.0), LONGEST_STEP)
    ceiling, floor = max(ceiling, fixed), min(floor, fixed)
    percent = min(max(share.percent, float(floor)), float(ceiling))
    edge = min(max(share.edge, float(fixed)), float(ceiling))
    if observed is None:
        reason = "not known: the fixed threshold at most"
        return Share(percent=min(percent, float(fixed)), edge=edge, reason=reason)
    if observed > target.percent:
        if percent > fixed:
            edge = max(min(edge, percent) - EDGE_BACK, float(fixed))
            return Share(percent=float(fixed), edge=edge, reason="over the target: back to the fixed threshold")
        excess = min((observed - target.percent) / target.percent, 1.0)
        lower = max(percent - percent * DOWN_SHARE * excess * seconds, float(floor))
        return Share(percent=lower, edge=float(fixed), reason="over the target: less")
    calm = share.calm + seconds
    if calm >= EDGE_CALM_SECONDS:
        edge = min(edge + EDGE_UP_PER_SECOND * seconds, float(ceiling))
    if calm < CALM_SECONDS:
        return Share(percent=percent, edge=edge, calm=calm, reason="within the target, not for long enough yet")
    higher = min(percent + UP_PER_SECOND * seconds, edge)
    reason = "within the target: more" if higher > percent else "within the target, as far as it may go"
    return Share(percent=higher, edge=edge, calm=calm, reason=reason)


def felt(signals: Mapping[str, float], used: Mapping[str, float]) -> float | None:
    """Return what pods feel in percent, weighted by the CPU they use; None when no pod with a signal is known.

    Pods that use nothing feel nothing. Both are by the uid of the pod; a signal is between 0 and 1.
    """
    known = [(signal, used[uid]) for uid, signal in signals.items() if uid in used]
    if not known:
        return None
    total = sum(cores for _, cores in known)
    return 100 * sum(signal * cores for signal, cores in known) / total if total > 0 else 0.0
