"""What to do to one candidate right now: each disruption uses up budget, so the plan alone is not enough.

A replacement that is not Ready, an eviction whose consequences nobody has seen, and an open breaker hold back what the
plan still wanted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kubetide.api.objects.core import Pod
from kubetide.api.objects.vpa import IN_PLACE
from kubetide.vpa.core.grown import held_after_growth
from kubetide.vpa.core.pod_level import changes_pod_level
from kubetide.vpa.updater.core.breaker import CLOSED, STRIKES, BreakerState
from kubetide.vpa.updater.core.budget import Group, is_pending
from kubetide.vpa.updater.core.disturbing import by_rollout
from kubetide.vpa.updater.core.following import IN_PLACE_ONLY
from kubetide.vpa.updater.core.inplace import ResizeState, ResizeVerdict, may_evict, pod_resize_state
from kubetide.vpa.updater.core.memory import Memory
from kubetide.vpa.updater.core.plan import IN_PLACE_MODES, Judgement, Method, VpaPlan, resize_decision, resized_by
from kubetide.vpa.updater.core.resizing import already_asked, changes_qos
from kubetide.vpa.updater.core.settling import blockers, replicas_to_wait_for


@dataclass(frozen=True, slots=True)
class Step:
    """What to do to a candidate at this moment."""

    method: Method
    reason: str


def next_step(
    plan: VpaPlan, candidate: Judgement, pod: Pod, workload: Sequence[Pod], memory: Memory, *, now: datetime
) -> Step:
    """Decide what to do to a candidate right now; `pod` and `workload` are as they are at this moment."""
    group = plan.budget.group_of(pod)
    if group is None:
        return Step(Method.NONE, plan.budget.why_left_out(pod))
    if candidate.fitted is not None and (held := held_after_growth(pod, candidate.fitted.containers, now=now)):
        return Step(Method.NONE, held)
    if plan.rules.settle:
        done = memory.disruptions.get(group.creator, ())
        wanted = replicas_to_wait_for(group.creator, group.configured)
        for blocker in blockers(workload, done, configured=wanted, now=now):
            if blocker.stands_against(pod):
                return Step(Method.WAIT, blocker.reason)
    waited = memory.clock.waited(pod.metadata.uid, pod_resize_state(pod), now=now)
    if candidate.unboost:
        return _unboost_step(candidate, pod, group)
    if plan.mode in IN_PLACE_MODES:
        step = _in_place_step(plan, candidate, pod, group, memory, waited=waited)
        if step.method is not Method.EVICT:
            return step
        if candidate.in_place_only or plan.closed:
            return Step(Method.NONE, plan.closed or IN_PLACE_ONLY)
        if by_rollout(plan.vpa)[0]:
            return Step(Method.NONE, f"{step.reason}; a rollout replaces it once that is seen")
        reason = step.reason
    else:
        reason = candidate.reason
    state = memory.breakers.get(plan.key, CLOSED)
    if state.paused:
        return Step(Method.NONE, _paused(state))
    if plan.key in memory.inherited:
        return Step(Method.WAIT, "what came of an eviction before the last start has not been seen yet")
    if state.strikes + len(memory.evictions.get(plan.key, ())) >= STRIKES:
        return Step(Method.WAIT, "the replacements of evicted pods have not been looked at yet")
    if not may_evict(pod, group, waited=waited):
        return Step(Method.NONE, "the disruption budget of its group is used up")
    return Step(Method.EVICT, reason)


def _unboost_step(candidate: Judgement, pod: Pod, group: Group) -> Step:
    if is_pending(pod):
        return Step(Method.NONE, "the pod is pending")
    if pod_resize_state(pod) is not ResizeState.NONE:
        return Step(Method.NONE, "another resize is under way")
    if not group.disruptable() and not group.below_minimum:
        return Step(Method.NONE, "the disruption budget of its group is used up")
    if candidate.fitted is None or not candidate.fitted.changes:
        return Step(Method.NONE, "there is nothing to take back")
    return Step(Method.RESIZE, candidate.reason)


def _in_place_step(
    plan: VpaPlan, candidate: Judgement, pod: Pod, group: Group, memory: Memory, *, waited: timedelta
) -> Step:
    rules = replace(plan.rules, skip_budget=plan.rules.skip_budget or candidate.in_place_only)
    decision = resize_decision(rules, plan.mode, candidate.targets, memory, pod, group, waited=waited)
    if decision.verdict is ResizeVerdict.EVICT:
        return Step(Method.EVICT, decision.reason)
    if decision.verdict not in resized_by(plan.mode, plan.rules, pod_resize_state(pod)):
        return Step(Method.NONE, decision.reason)
    if candidate.fitted is not None and changes_pod_level(pod, candidate.fitted.pod):
        if plan.mode == IN_PLACE:
            return Step(Method.NONE, "resources of the pod as a whole change, which happens when a pod is made")
        return Step(Method.EVICT, "resources of the pod as a whole change, so it is made anew")
    if candidate.fitted is None or not candidate.fitted.changes:
        return Step(Method.NONE, "there is nothing to write")
    waits = decision.verdict is ResizeVerdict.APPROVED or plan.rules.settle
    if waits and decision.verdict is not ResizeVerdict.INFEASIBLE and already_asked(pod, candidate.fitted.containers):
        return Step(Method.NONE, "the new resources are written, and the kubelet has not answered yet")
    change = changes_qos(pod, candidate.fitted.containers)
    if change:
        if plan.mode == IN_PLACE:
            return Step(Method.NONE, f"the QoS class would change from {change}, which a resize cannot do")
        return Step(Method.EVICT, f"the QoS class changes from {change}, which a resize cannot do: evicted instead")
    return Step(Method.RESIZE, candidate.reason)


def _paused(state: BreakerState) -> str:
    return f"updates of this workload are paused: {state.detail}"
