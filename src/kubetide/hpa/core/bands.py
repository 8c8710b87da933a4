"""When fresh samples are worth a reconcile: as soon as a metric leaves the band in which nothing would change.

    ratio = what the decision compares with its tolerance        band = [1 - down, 1 + up]

The ratio is worked out as the decision does (`core.evaluate`), in whole percents of the requests and without the pods
that do not count: a band drawn any other way would let samples pass that the decision acts on. What the samples ask for
is not decided here; the reconcile that is woken reads and decides as always, with its windows, limits and rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HpaSpec
from kubetide.api.objects.metrics import PodMetrics
from kubetide.hpa.core.decide import metrics_of, tolerance_of
from kubetide.hpa.core.evaluate import TargetState, evaluate
from kubetide.hpa.core.observation import Options
from kubetide.hpa.core.samples import MetricFailure, resource_reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a metric stood when its autoscaler was woken last."""

    side: int
    """-1 below the band, 0 within, 1 above."""
    ratio: float
    step: float
    """How far the ratio has to move outside of the band, as a share of itself, to be worth another reconcile."""


def reads_usage(spec: HpaSpec) -> bool:
    """Return whether a metric of an autoscaler is the usage of its pods."""
    return any(metric.resource or metric.container_resource for metric in metrics_of(spec))


def position(
    spec: HpaSpec, pods: Sequence[Pod], usage: Sequence[PodMetrics], options: Options, *, now: datetime
) -> Position | None:
    """Return where the pods stand: at the metric that asks for most; None while nothing is known of them."""
    tolerance = tolerance_of(spec, options)
    target = TargetState(replicas=len(pods), observed=len(pods), pods=pods)
    ratios = []
    for metric in metrics_of(spec):
        of_container = metric.container_resource
        source = metric.resource or of_container
        if source is None:
            continue
        try:
            reading = resource_reading(usage, source.name, of_container.container if of_container else "")
        except MetricFailure:
            continue
        found = evaluate(metric, reading, target, tolerance, options.readiness, now=now, compat=options.compat)
        if found.proposal is not None:
            ratios.append(found.proposal.ratio)
    if not ratios:
        return None
    ratio = max(ratios)
    side = (ratio > 1.0 + tolerance.up) - (ratio < 1.0 - tolerance.down)
    return Position(side=side, ratio=ratio, step=max(min(tolerance.up, tolerance.down), 0.01))


def wakes(before: Position | None, now: Position) -> bool:
    """Return whether a move is worth a reconcile: across an edge of the band, or further away by a whole tolerance."""
    if before is None or now.side != before.side:
        return now.side != 0 or before is not None
    return now.side != 0 and abs(now.ratio - before.ratio) > now.step * before.ratio
