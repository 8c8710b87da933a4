"""One reconcile of one autoscaler, without any I/O: what is observed goes in, what to do comes out, with its reasons.

    target unreadable            -> say so, change nothing else
    target at 0, switched off    -> rest (`hpa.core.zero` knows whose zero it is)
    target outside [min, max]    -> to the bound, at once
    otherwise                    -> largest proposal of all metrics -> guard -> learned headroom, if asked for
                                    -> smaller pods that the vertical side announced
                                    -> windows -> limits -> new size

A metric that fails never lets the target shrink: unknown is not low. `decide` goes as far as the wanted size,
`hpa.core.conclude` decides what follows once the write of the scale has worked or not.
"""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from kubetide.api.objects.hpa import (
    HorizontalPodAutoscaler,
    HpaSpec,
    MetricSpec,
    MetricTarget,
    ResourceMetricSource,
)
from kubetide.api.objects.hpa_compat import SPEC_ERROR_LABEL, TOLERANCE, HpaCompat
from kubetide.api.values.quantity import quantity_float
from kubetide.errors import QuantityError, SelectorError
from kubetide.hpa.core import events
from kubetide.hpa.core.behavior import Limited, complete_rules
from kubetide.hpa.core.choice import Choice, choose, with_announced
from kubetide.hpa.core.claims import selector_of
from kubetide.hpa.core.evaluate import TargetState, evaluate
from kubetide.hpa.core.events import Reason
from kubetide.hpa.core.fallback import (
    fallback_condition,
    remember_failures,
    remember_good,
    stand_in,
    stand_in_by_spec,
)
from kubetide.hpa.core.headroom.learner import with_headroom
from kubetide.hpa.core.observation import (
    HpaProblem,
    Memory,
    Observation,
    Options,
    ProblemKind,
    ScaleDecision,
    ScaleView,
    normalize,
)
from kubetide.hpa.core.replicas import Tolerance
from kubetide.hpa.core.samples import ErrorKind
from kubetide.hpa.core.stabilization import READY_FOR_NEW_SCALE, SCALE_DOWN_STABILIZED, Stabilized
from kubetide.hpa.core.status import ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED, Conditions, with_condition
from kubetide.hpa.core.zero import may_wake, minimum_of, while_disabled

DEFAULT_METRICS = (
    MetricSpec(
        type="Resource",
        resource=ResourceMetricSource(name="cpu", target=MetricTarget(type="Utilization", average_utilization=80)),
    ),
)


def metrics_of(spec: HpaSpec) -> tuple[MetricSpec, ...]:
    """Return the metrics; an object that got around the defaults is taken to mean CPU at 80 %."""
    return spec.metrics or DEFAULT_METRICS


def needs_metrics(hpa: HorizontalPodAutoscaler, scale: ScaleView, compat: HpaCompat) -> bool:
    """Return whether metrics decide at this size."""
    if scale.replicas == 0:
        return may_wake(hpa, compat)
    return minimum_of(hpa.spec) <= scale.replicas <= hpa.spec.max_replicas


def decide(observation: Observation, memory: Memory, options: Options, *, now: datetime) -> ScaleDecision:
    """Return the size that the target should have, and why."""
    hpa, scale = observation.hpa, observation.scale
    conditions = hpa.status.conditions or ()
    if scale is None:
        return _unreadable(observation, conditions, memory, options, now)
    current = scale.replicas
    spec = hpa.spec
    rules = complete_rules(spec.behavior, options.downscale_window) if spec.behavior is not None else None
    base = ScaleDecision(
        hpa=hpa,
        at=now,
        current=current,
        desired=current,
        rule="",
        conditions=conditions,
        memory=memory.seeded(current, now).looking_back(hpa, current, rules, now),
        rules=rules,
        scale=scale,
        passed_over=observation.passed_over,
        pods_seen=len(observation.pods),
        compat=options.compat,
    )
    if not needs_metrics(hpa, scale, options.compat):
        return _by_size_alone(_scale_read(base, now), current, spec, now)
    if refused := _check_selector(observation, base, now):
        return refused
    return _from_metrics(observation, base, scale, options, now)


def _scale_read(base: ScaleDecision, now: datetime) -> ScaleDecision:
    """Report that the scale was read, where a reconcile has nothing more to say about its target."""
    conditions = with_condition(
        base.conditions,
        ABLE_TO_SCALE,
        holds=True,
        reason="SucceededGetScale",
        message="the current scale of the target was read",
        now=now,
    )
    return replace(base, conditions=conditions)


def _by_size_alone(base: ScaleDecision, current: int, spec: HpaSpec, now: datetime) -> ScaleDecision:
    """Decide where no metric is asked: the target is switched off, or outside its bounds."""
    if current == 0:
        disabled = with_condition(
            while_disabled(base.conditions, base.compat),
            SCALING_ACTIVE,
            holds=False,
            reason="ScalingDisabled",
            message="the target has 0 replicas: it is switched off until somebody sets a count",
            now=now,
        )
        return replace(base, desired=0, conditions=disabled, rule="ScalingDisabled")
    if current > spec.max_replicas:
        why = "Current number of replicas above maxReplicas"
        return replace(base, desired=spec.max_replicas, rescale=True, why=why, rule="AboveMaximum")
    why = _BELOW_MINIMUM
    return replace(base, desired=minimum_of(spec), rescale=True, why=why, rule="BelowMinimum")


def _unreadable(
    observation: Observation, conditions: Conditions, memory: Memory, options: Options, now: datetime
) -> ScaleDecision:
    hpa, problem = observation.hpa, observation.scale_problem
    assert problem is not None, "no scale without a reason"
    return ScaleDecision(
        hpa=hpa,
        at=now,
        current=None,
        desired=hpa.status.desired_replicas,
        rule=Reason.FAILED_GET_SCALE.value,
        conditions=with_condition(
            conditions,
            ABLE_TO_SCALE,
            holds=False,
            reason=Reason.FAILED_GET_SCALE.value,
            message=f"the current scale of the target could not be read: {problem.message}",
            now=now,
        ),
        memory=memory,
        events=(events.failed(hpa, Reason.FAILED_GET_SCALE, problem.message),),
        problem=problem,
        ends=True,
        compat=options.compat,
    )


def _check_selector(observation: Observation, base: ScaleDecision, now: datetime) -> ScaleDecision | None:
    """Refuse to count pods where it is not clear which they are."""
    assert observation.scale is not None
    selector = observation.scale.selector
    if not selector:
        text = "the target has no selector: it is needed to find its pods"
        return _selector_refused(base, Reason.SELECTOR_REQUIRED, Reason.INVALID_SELECTOR, text, now)
    try:
        selector_of(selector)
    except SelectorError as error:
        text = f"the selector of the target cannot be read: {error}"
        return _selector_refused(base, Reason.INVALID_SELECTOR, Reason.INVALID_SELECTOR, text, now)
    if len(observation.claimed_by) > 1:
        keys = ", ".join(sorted(observation.claimed_by))
        text = f"pods matched by {selector} are claimed by more than one autoscaler: {keys}"
        return _selector_refused(base, Reason.AMBIGUOUS_SELECTOR, Reason.AMBIGUOUS_SELECTOR, text, now)
    return None


def _selector_refused(base: ScaleDecision, event: Reason, reason: Reason, text: str, now: datetime) -> ScaleDecision:
    base = _scale_read(base, now)
    return replace(
        base,
        conditions=with_condition(
            base.conditions, SCALING_ACTIVE, holds=False, reason=reason.value, message=text, now=now
        ),
        events=(events.failed(base.hpa, event, text),),
        problem=HpaProblem(ProblemKind.COMPUTE_REPLICAS, text),
        ends=True,
        rule=ProblemKind.COMPUTE_REPLICAS.value,
    )


def _from_metrics(
    observation: Observation, base: ScaleDecision, scale: ScaleView, options: Options, now: datetime
) -> ScaleDecision:
    hpa, memory, fallback = base.hpa, base.memory, observation.fallback
    target = TargetState(
        replicas=scale.replicas,
        observed=scale.observed,
        pods=observation.pods,
        passed_over=observation.passed_over,
    )
    tolerance = tolerance_of(hpa.spec, options)
    metrics = zip(metrics_of(hpa.spec), observation.readings, strict=True)
    results = tuple(
        [
            evaluate(
                metric,
                reading,
                target,
                tolerance,
                options.readiness,
                now=now,
                compat=options.compat,
                max_age=options.max_usage_age,
            )
            for metric, reading in metrics
        ]
    )
    if fallback is not None:
        last_good = memory.last_good
        memory = replace(memory, last_good=remember_good(results, last_good, now))
        results = stand_in(results, fallback, last_good, scale.replicas, now=now)
    elif options.external_fallback:
        memory = replace(memory, first_failures=remember_failures(results, memory.first_failures, now))
        results = stand_in_by_spec(results, memory.first_failures, scale.replicas, now=now)
        base = replace(base, conditions=fallback_condition(base.conditions, results, now))
    choice = choose(results, scale.replicas, guard=options.guard)
    base = replace(
        base,
        memory=memory,
        results=results,
        choice=choice,
        learned=observation.learned,
        announced=observation.announced,
        metrics=tuple([result.status for result in results]),
        events=(
            *[events.failed(hpa, result.reason, str(result.failure)) for result in results if result.failure],
            *[events.samples_refused(hpa, result.description, result.refused) for result in results if result.refused],
        ),
    )
    if not choice.active:
        return _inactive(_scale_read(base, now), choice, now)
    choice = with_announced(with_headroom(choice, observation.learned), observation.announced)
    return _normalized(base, choice, options, now)


def _inactive(base: ScaleDecision, choice: Choice, now: datetime) -> ScaleDecision:
    """End the reconcile where the metrics give no size to act on."""
    notices = base.events
    if choice.guarded:
        notices = (*notices, events.failed(base.hpa, choice.reason, choice.message))
    return replace(
        base,
        conditions=_told_by(choice, base.conditions, now),
        events=notices,
        problem=_metrics_problem(ProblemKind.COMPUTE_REPLICAS, choice.error or choice.message, base),
        ends=True,
        rule=choice.reason if choice.guarded else ProblemKind.COMPUTE_REPLICAS.value,
    )


def _metrics_problem(kind: ProblemKind, message: str, base: ScaleDecision) -> HpaProblem:
    """Return the error of a reconcile whose metrics failed; the first that failed shows whose fault it is."""
    first = next((result.failure for result in base.results if result.proposal is None), None)
    unknown = first is not None and first.kind is ErrorKind.UNKNOWN_TYPE
    return HpaProblem(kind, message, in_spec=unknown and base.compat.has(SPEC_ERROR_LABEL))


def _told_by(choice: Choice, conditions: Conditions, now: datetime) -> Conditions:
    return with_condition(
        conditions, SCALING_ACTIVE, holds=choice.active, reason=choice.reason, message=choice.message, now=now
    )


def _normalized(base: ScaleDecision, choice: Choice, options: Options, now: datetime) -> ScaleDecision:
    """Take the proposal through windows and limits."""
    assert base.current is not None
    current, spec = base.current, base.hpa.spec
    proposal = max(0, choice.replicas)
    normalized = normalize(proposal, current, base.memory, spec, base.rules, options.downscale_window, now=now)
    stabilized, limited, minimum = normalized.stabilized, normalized.limited, minimum_of(spec)
    why = ""
    if proposal > current:
        why = above_target(choice)
    elif proposal < current:
        why = BELOW_TARGET
    if current == 0 and limited.replicas < minimum:
        # The minimum was raised while the target was at zero: waking up goes to the new one at least.
        limited = replace(limited, replicas=minimum)
        why = why or _BELOW_MINIMUM
    if not why and limited.replicas != current:
        # The metrics ask for no change, so it is the past that speaks, or a bound.
        moved = stabilized.replicas != current
        why = _REMEMBERED.format(stabilized.replicas) if moved else _sentence(_LIMITED_TEXT[limited.reason])
    conditions = able_to_scale(base.conditions, stabilized, now)
    conditions = scaling_limited(_told_by(choice, conditions, now), limited, now)
    return replace(
        base,
        desired=limited.replicas,
        rescale=limited.replicas != current,
        why=why,
        rule=normalized.rule,
        conditions=conditions,
        memory=normalized.memory,
        problem=_metrics_problem(ProblemKind.PARTIAL_METRICS, choice.error, base) if choice.error else None,
        proposal=proposal,
        stabilized=stabilized,
        limited=limited,
        held=normalized.held,
    )


def above_target(choice: Choice) -> str:
    """Return why a target should grow."""
    return f"{choice.description} above target"


def able_to_scale(conditions: Conditions, stabilized: Stabilized, now: datetime) -> Conditions:
    """Return the conditions with what the window says."""
    reason = stabilized.reason
    return with_condition(
        conditions, ABLE_TO_SCALE, holds=True, reason=reason, message=_STABILIZED_TEXT[reason], now=now
    )


def scaling_limited(conditions: Conditions, limited: Limited, now: datetime) -> Conditions:
    """Return the conditions with what the limits say."""
    reason, cut = limited.reason, limited.cut
    return with_condition(conditions, SCALING_LIMITED, holds=cut, reason=reason, message=_LIMITED_TEXT[reason], now=now)


def tolerance_of(spec: HpaSpec, options: Options) -> Tolerance:
    """Return the tolerance in force: the cluster's, or that of `behavior` where the cluster allows it."""
    down = up = options.tolerance
    if options.compat.has(TOLERANCE) and spec.behavior is not None:
        if (rules := spec.behavior.scale_down) is not None and rules.tolerance is not None:
            down = _double(rules.tolerance, down)
        if (rules := spec.behavior.scale_up) is not None and rules.tolerance is not None:
            up = _double(rules.tolerance, up)
    return Tolerance(down=down, up=up)


def _double(text: Any, otherwise: float) -> float:
    try:
        return quantity_float(text)
    except QuantityError:
        return otherwise


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


_REMEMBERED = "A recommendation of {} replicas is still inside its stabilization window"
BELOW_TARGET = "All metrics below target"
_BELOW_MINIMUM = "Current number of replicas below minReplicas"
_STABILIZED_TEXT = {
    READY_FOR_NEW_SCALE: "the recommended size needs no stabilization",
    SCALE_DOWN_STABILIZED: "a higher recommendation is still inside the window for scaling down, and wins",
    "ScaleUpStabilized": "a lower recommendation is still inside the window for scaling up, and wins",
}
_LIMITED_TEXT = {
    "DesiredWithinRange": "the desired count is within the allowed range",
    "TooFewReplicas": "the desired count is below the minimum",
    "TooManyReplicas": "the desired count is above the maximum",
    "ScaleUpLimit": "the desired count grows faster than the maximum scale rate allows",
    "ScaleDownLimit": "the desired count shrinks faster than the maximum scale rate allows",
}
