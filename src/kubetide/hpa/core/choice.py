"""Several metrics, one size: the largest proposal wins, and what is not known never makes the target smaller.

| failed | best of the others      | outcome                                           |
|--------|-------------------------|---------------------------------------------------|
| none   | any                     | active, named after the winning metric            |
| all    | –                       | failure, with the reason of the first that failed |
| some   | below the present size  | failure: the broken metric might have said more   |
| some   | at or above it          | active; the error is reported at the end          |

After this stands the guard: a proposal to shrink is not acted on if a metric that asks for it rests on an input that
cannot be true, such as a negative sample, on usage that is too old to show the load of today, or on a ratio that was
multiplied by no ready pod at all.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from kubetide.hpa.core.evaluate import MetricResult

ANNOUNCED = "smaller pods that the VPA announced"


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of all metrics together."""

    active: bool
    replicas: int
    reason: str
    message: str
    description: str = ""
    winner: int | None = None
    """Position of the winning metric."""
    error: str = ""
    """Set if any metric failed."""
    guarded: bool = False


def choose(results: Sequence[MetricResult], current: int, *, guard: bool) -> Choice:
    """Choose the size that the metrics ask for together."""
    best = 0
    winner: int | None = None
    for position, result in enumerate(results):
        if result.proposal is None:
            continue
        # Ties keep the earlier metric, except that anything replaces a best of 0.
        if best == 0 or result.proposal.replicas > best:
            best, winner = result.proposal.replicas, position
    failed = [result for result in results if result.proposal is None]
    error = ""
    if failed:
        error = f"{len(failed)} of {len(results)} metrics failed, the first with: {failed[0].failure}"
        if winner is None or best < current:
            message = f"the replica count could not be computed: {failed[0].failure}"
            return Choice(active=False, replicas=best, reason=failed[0].reason, message=message, error=error)
    assert winner is not None, "an autoscaler has at least one metric"
    if guard and (refused := _guarded(results, best, current)):
        return refused
    description = results[winner].description
    return Choice(
        active=True,
        replicas=best,
        reason="ValidMetricFound",
        message=f"the replica count was computed from {description}",
        description=description,
        winner=winner,
        error=error,
    )


def with_announced(choice: Choice, announced: int) -> Choice:
    """Return the choice with no fewer pods than the vertical side announced for smaller ones.

    How busy pods are says nothing about a size that they do not have yet, so the count is taken as it was announced.
    """
    if not choice.active or choice.replicas >= announced or choice.replicas < 1:
        return choice
    message = f"{ANNOUNCED} take {announced} replicas, {choice.description} asks for {choice.replicas}"
    return replace(choice, replicas=announced, message=message, description=ANNOUNCED)


def _guarded(results: Sequence[MetricResult], best: int, current: int) -> Choice | None:
    wanted = max(0, best)
    if current == 0 or wanted >= current:
        return None
    for position, result in enumerate(results):
        if result.defect is None or result.proposal is None or max(0, result.proposal.replicas) >= current:
            continue
        return Choice(
            active=False,
            replicas=best,
            reason=result.defect.reason.value,
            message=f"{result.description}: {result.defect.text}; the proposal of {wanted} replicas is not acted on",
            description=result.description,
            winner=position,
            guarded=True,
        )
    return None
