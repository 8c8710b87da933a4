"""What follows from a decision once the scale was written, refused, or left alone: status, events, memory.

A status always shows the size that was found, not the one that was written: the target has not got there yet. The
next reconcile shows it.
"""

from kubetide.api.objects.events import Event
from kubetide.api.objects.hpa_compat import OBSERVED_GENERATION
from kubetide.hpa.core import events
from kubetide.hpa.core.events import Reason
from kubetide.hpa.core.observation import Conclusion, HpaProblem, ProblemKind, ScaleDecision
from kubetide.hpa.core.status import ABLE_TO_SCALE, conditions_only, full_status, with_condition
from kubetide.hpa.core.zero import after_rescale


def conclude(decision: ScaleDecision, *, scale_error: str | None = None) -> Conclusion:
    """Return what follows, given whether the scale could be written."""
    hpa, now = decision.hpa, decision.at
    before, generation = hpa.status, _generation(decision)
    if decision.current is None:
        return Conclusion(
            status=conditions_only(before, decision.conditions),
            memory=decision.memory,
            events=decision.events,
            problem=decision.problem,
            save_error_counts=False,
        )
    current = decision.current
    if decision.ends:
        status = full_status(
            before,
            decision.conditions,
            current=current,
            desired=before.desired_replicas,
            metrics=decision.metrics,
            generation=generation,
        )
        after: tuple[Event, ...] = ()
        if decision.problem is not None and decision.rule == ProblemKind.COMPUTE_REPLICAS:
            after = (events.failed(hpa, Reason.FAILED_COMPUTE, decision.problem.message),)
        return Conclusion(
            status=status,
            memory=decision.memory,
            events=decision.events,
            events_after_save=after,
            problem=decision.problem,
            save_error_counts=False,
        )
    if not decision.rescale:
        status = full_status(
            before,
            decision.conditions,
            current=current,
            desired=current,
            metrics=decision.metrics,
            generation=generation,
        )
        return Conclusion(
            status=status,
            memory=decision.memory,
            events=decision.events,
            problem=decision.problem,
            desired=decision.desired,
        )
    if scale_error is not None:
        return _not_rescaled(decision, current, scale_error)
    conditions = with_condition(
        decision.conditions,
        ABLE_TO_SCALE,
        holds=True,
        reason="SucceededRescale",
        message=f"the target was set to {decision.desired} replicas",
        now=now,
    )
    conditions = after_rescale(
        conditions, hpa.spec, decision.compat, current=current, desired=decision.desired, now=now
    )
    return Conclusion(
        status=full_status(
            before,
            conditions,
            current=current,
            desired=decision.desired,
            metrics=decision.metrics,
            generation=generation,
            scaled_at=now,
        ),
        memory=decision.memory.rescaled(current, decision.desired, decision.rules, now),
        events=(*decision.events, events.rescaled(hpa, decision.desired, decision.why)),
        problem=decision.problem,
        action="scale_up" if decision.desired > current else "scale_down",
        desired=decision.desired,
    )


def _not_rescaled(decision: ScaleDecision, current: int, error: str) -> Conclusion:
    hpa, before = decision.hpa, decision.hpa.status
    conditions = with_condition(
        decision.conditions,
        ABLE_TO_SCALE,
        holds=False,
        reason="FailedUpdateScale",
        message=f"the scale of the target could not be written: {error}",
        now=decision.at,
    )
    target = hpa.spec.scale_target_ref
    return Conclusion(
        status=full_status(
            before,
            conditions,
            current=current,
            desired=before.desired_replicas,
            metrics=decision.metrics,
            generation=_generation(decision),
        ),
        memory=decision.memory,
        events=(*decision.events, events.not_rescaled(hpa, decision.desired, decision.why, error)),
        problem=HpaProblem(ProblemKind.UPDATE_SCALE, f"rescaling {target.kind} {target.name}: {error}"),
        save_error_counts=False,
    )


def _generation(decision: ScaleDecision) -> int | None:
    """Return the generation that a full status shows as observed, where the release has one."""
    return decision.hpa.metadata.generation or 0 if decision.compat.has(OBSERVED_GENERATION) else None
