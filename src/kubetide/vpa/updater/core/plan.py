"""Evict, resize, or leave alone: a VPA and its pods to candidates in order, everything else with its reason.

`plan` ranks the pods once per loop. Because each disruption uses up budget, `vpa.updater.core.step` decides again right
before anything is done to a pod, on what the pod and its workload are then.

    group left out, budget used up, not far enough off, requirements not met   -> no candidate
    replacement of an earlier one not Ready                                    -> waits
    mode Recreate, Auto                                                        -> evict, or roll out (`disturbing`)
    mode InPlaceOrRecreate    approved: resize · fallback due, QoS class would change: evict
    mode InPlace              approved: resize · otherwise wait; never evicted
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.vpa import (
    AUTO,
    IN_PLACE,
    IN_PLACE_OR_RECREATE,
    RECREATE,
    VerticalPodAutoscaler,
    update_mode,
)
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import Quantity
from kubetide.errors import InvalidInput
from kubetide.vpa.admission.core.mutate import UNLIMITED, Fitted, SizeLimits, fit_pod
from kubetide.vpa.core.boost import boosted_containers, expired, unboost
from kubetide.vpa.core.capping import NewResources
from kubetide.vpa.core.compat import FOLLOWED, RESIZE_ERROR_DEFERRED
from kubetide.vpa.core.grown import held_after_growth
from kubetide.vpa.core.learned import resizes_gladly
from kubetide.vpa.core.limits import NamespaceLimits
from kubetide.vpa.core.policy import container_policy, is_off
from kubetide.vpa.updater.core.budget import Budget, BudgetRules, Creator, Group, build_budget
from kubetide.vpa.updater.core.disturbing import by_rollout, closed
from kubetide.vpa.updater.core.fitting import fitting_of, status_targets, targets_of
from kubetide.vpa.updater.core.following import IN_PLACE_ONLY, following
from kubetide.vpa.updater.core.following import REASON as FOLLOWS
from kubetide.vpa.updater.core.inplace import (
    CACHED,
    InPlaceDecision,
    InPlaceRules,
    ResizeState,
    ResizeVerdict,
    Targets,
    decide,
    lower_somewhere,
    may_evict,
    needs_restart,
    pod_resize_state,
)
from kubetide.vpa.updater.core.memory import Memory
from kubetide.vpa.updater.core.priority import Fitting, Ranked, RankRules, admitted, in_order, rank

STILL_TOO_LARGE = "the node could not give it before, and it has not become smaller"
IN_PLACE_MODES = frozenset({IN_PLACE, IN_PLACE_OR_RECREATE})
UPDATING_MODES = IN_PLACE_MODES | {RECREATE, AUTO}


class Method(Enum):
    """What is done to a pod."""

    EVICT = "evict"
    RESIZE = "resize"
    ROLL_OUT = "roll out"
    WAIT = "wait"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """What holds for all VPAs in a loop."""

    rank: RankRules = field(default_factory=RankRules)
    min_replicas: int = 2
    tolerance: float = 0.5
    skip_budget: bool = False
    in_place_gate: bool = False
    per_vpa_gate: bool = False
    boost_gate: bool = False
    compat: Compat = FOLLOWED
    windows: str = ""
    """When pods may be disturbed, where a VPA does not say."""
    settle: bool = True
    """Wait for replacements, and do not resize what the kubelet has deferred (mode InPlace)."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """A VPA as a pod of one group sees it, and the node that the pod is bound to."""

    vpa: VerticalPodAutoscaler
    nodes: Sequence[Mapping[str, Quantity]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One VPA and what it controls at one moment."""

    vpa: VerticalPodAutoscaler
    pods: tuple[Pod, ...]
    """Its live pods: on a node, neither finished nor being deleted."""
    stated: Mapping[Creator, int | None] = field(default_factory=dict)
    ranges: NamespaceLimits = field(default_factory=NamespaceLimits)
    limits: SizeLimits = UNLIMITED
    not_ready: str = ""
    """Why the recommendation must not be acted on yet."""
    groups: Mapping[ObjectKey, Grouped] = field(default_factory=dict)
    """Pods that are sized by their group of nodes (gate DaemonSetScope)."""

    def vpa_of(self, pod: Pod) -> VerticalPodAutoscaler:
        """Return the VPA with the recommendation for this pod."""
        found = self.groups.get(key_of(pod))
        return self.vpa if found is None else found.vpa

    def limits_of(self, pod: Pod) -> SizeLimits:
        """Return what the recommendation is fitted to for this pod."""
        found = self.groups.get(key_of(pod))
        return self.limits if found is None else replace(self.limits, nodes=found.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What would be done to a pod now, and why."""

    pod: Pod
    method: Method
    reason: str
    ranked: Ranked | None = None
    fitted: Fitted | None = None
    group: Group | None = None
    targets: Targets | None = None
    """What the status recommends for it; None when there is no recommendation."""
    unboost: bool = False
    """Takes a startup boost back; always a resize."""
    in_place_only: bool = False
    """A move that is made in place or not at all (`following`)."""
    skipped: bool = False
    """Not resized because the same recommendation was infeasible before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VpaPlan:
    """The candidates of one VPA in order, and a judgement of every pod."""

    vpa: VerticalPodAutoscaler
    mode: str
    rules: PlanRules
    budget: Budget
    candidates: tuple[Judgement, ...]
    judged: tuple[Judgement, ...]
    closed: str = ""
    """Why pods must not be disturbed now."""
    rolls_out: bool = False
    """Whether the target is to be rolled out, in place of evictions."""

    @property
    def key(self) -> ObjectKey:
        return key_of(self.vpa)


def plan(observation: Observation, memory: Memory, rules: PlanRules, *, now: datetime) -> VpaPlan:
    """Rank the pods of a VPA and say what should be done to each."""
    vpa = observation.vpa
    mode = update_mode(vpa)
    policy = vpa.spec.update_policy
    required = (policy.min_replicas if policy is not None else None) or rules.min_replicas
    budget = build_budget(
        observation.pods,
        observation.stated,
        BudgetRules(
            min_replicas=required,
            tolerance=rules.tolerance,
            keep_below_minimum=((rules.skip_budget or resizes_gladly(vpa)) and mode in IN_PLACE_MODES)
            or (rules.boost_gate and any(map(boosted_containers, observation.pods))),
            count_live_pods=rules.settle,
        ),
    )
    planner = _Planner(observation, memory, replace(rules, rank=_rank_rules(vpa, rules)), budget, mode, now)
    judged = [planner.judge(pod) for pod in observation.pods]
    chosen = (j for j in judged if j.method not in (Method.NONE, Method.ROLL_OUT) and not j.unboost)
    by_pod = {id(j.ranked): j for j in chosen if j.ranked is not None}
    order = [by_pod[id(entry)] for entry in in_order(j.ranked for j in by_pod.values() if j.ranked is not None)]
    requirements = None if policy is None else policy.eviction_requirements or ()
    candidates = [judgement for judgement in judged if judgement.unboost]
    refused: dict[ObjectKey, Judgement] = {}
    for judgement in order:
        if admitted(judgement.pod, fitting_of(judgement.fitted), requirements):
            candidates.append(judgement)
        else:
            refused[key_of(judgement.pod)] = replace(
                judgement, method=Method.NONE, reason="the eviction requirements of the VPA are not met"
            )
    return VpaPlan(
        vpa=vpa,
        mode=mode,
        rules=planner.rules,
        budget=budget,
        candidates=tuple(candidates),
        judged=tuple(refused.get(key_of(j.pod), j) for j in judged),
        closed=planner.closed,
        rolls_out=any(
            judgement.method is Method.ROLL_OUT and admitted(judgement.pod, fitting_of(judgement.fitted), requirements)
            for judgement in judged
        ),
    )


class _Planner:
    def __init__(
        self,
        observation: Observation,
        memory: Memory,
        rules: PlanRules,
        budget: Budget,
        mode: str,
        now: datetime,
    ) -> None:
        self.observation = observation
        self.memory = memory
        self.rules = rules
        self.budget = budget
        self.mode = mode
        self.now = now
        self.targets = status_targets(observation.vpa)
        self.closed = closed(observation.vpa, rules.windows, now=now)
        self.by_rollout, self.rollout_problem = by_rollout(observation.vpa)

    def targets_of(self, pod: Pod) -> Targets | None:
        vpa = self.observation.vpa_of(pod)
        return self.targets if vpa is self.observation.vpa else status_targets(vpa)

    def judge(self, pod: Pod) -> Judgement:
        group = self.budget.group_of(pod)
        boosted = self.rules.boost_gate and boosted_containers(pod)
        if self.observation.not_ready:
            if boosted:
                # A boost is taken back all the same, to what the pod had asked for.
                untouched = tuple(NewResources(name=container.name) for container in pod.spec.containers or ())
                return self._judge_boosted(pod, group, Fitted(adjusted=None, containers=untouched))
            return Judgement(pod=pod, method=Method.NONE, reason=self.observation.not_ready, group=group)
        try:
            seen = self.observation
            fitted = fit_pod(pod, seen.vpa_of(pod), seen.ranges, seen.limits_of(pod))
        except InvalidInput as error:
            return Judgement(pod=pod, method=Method.NONE, reason=f"the recommendation cannot be used: {error}")
        if boosted:
            return self._judge_boosted(pod, group, fitted)
        if self.mode not in UPDATING_MODES:
            return Judgement(pod=pod, method=Method.NONE, reason=f"mode {self.mode} leaves running pods alone")
        fitting = fitting_of(fitted)
        ranked = rank(pod, fitting, self.rules.rank, scaled=self._scaled, now=self.now)
        if not ranked.accepted and self.mode in IN_PLACE_MODES and resizes_gladly(self.observation.vpa):
            follows = following(pod, fitted)
            if follows is not None:
                return self._follow(pod, group, fitting, ranked, follows)
        method, reason = self._method(pod, group, fitting, ranked)
        if method is not Method.NONE and (held := held_after_growth(pod, fitted.containers, now=self.now)):
            method, reason = Method.NONE, held
        return Judgement(
            pod=pod,
            method=method,
            reason=reason,
            ranked=ranked,
            fitted=fitted,
            group=group,
            targets=self.targets_of(pod),
            skipped=reason in (CACHED, STILL_TOO_LARGE),
        )

    def _follow(self, pod: Pod, group: Group | None, fitting: Fitting, ranked: Ranked, fitted: Fitted) -> Judgement:
        """Judge a pod within its bounds whose CPU has moved on."""
        accepted = replace(ranked, accepted=True, reason=FOLLOWS)
        method, reason = self._method(pod, group, fitting, accepted, in_place_only=True)
        return Judgement(
            pod=pod,
            method=method,
            reason=reason,
            ranked=accepted if method is not Method.NONE else ranked,
            fitted=fitted,
            group=group,
            targets=self.targets_of(pod),
            in_place_only=True,
        )

    def _judge_boosted(self, pod: Pod, group: Group | None, fitted: Fitted) -> Judgement:
        """A pod that still starts takes no part in updates; one that has started gives its surplus back."""
        vpa = self.observation.vpa
        if group is None:
            return Judgement(pod=pod, method=Method.NONE, reason=self.budget.why_left_out(pod), fitted=fitted)
        if not expired(pod, vpa, now=self.now):
            reason = "its CPU is boosted while it starts"
            return Judgement(pod=pod, method=Method.NONE, reason=reason, fitted=fitted, group=group)
        taken_back = replace(fitted, containers=unboost(pod, vpa, fitted.containers))
        return Judgement(
            pod=pod,
            method=Method.RESIZE,
            reason="its startup boost is over",
            fitted=taken_back,
            group=group,
            unboost=True,
        )

    def _method(
        self, pod: Pod, group: Group | None, fitting: Fitting, ranked: Ranked, *, in_place_only: bool = False
    ) -> tuple[Method, str]:
        # In place comes first, but too few replicas are not resized either: nobody knows that no container restarts.
        rolls_out = self.by_rollout and (
            self.mode not in IN_PLACE_MODES or (self.mode == IN_PLACE_OR_RECREATE and group is None)
        )
        if group is None and not rolls_out:
            return Method.NONE, self.budget.why_left_out(pod)
        if not ranked.accepted:
            return Method.NONE, ranked.reason
        if rolls_out or group is None:
            return self._roll_out(ranked.reason)
        waited = self.memory.clock.waited(pod.metadata.uid, pod_resize_state(pod), now=self.now)
        if self.closed and (self.mode not in IN_PLACE_MODES or needs_restart(pod)):
            return Method.NONE, self.closed
        if self.mode not in IN_PLACE_MODES:
            if not may_evict(pod, group, waited=waited):
                return Method.NONE, f"the disruption budget of {group.creator} is used up"
            return Method.EVICT, ranked.reason
        rules = replace(self.rules, skip_budget=self.rules.skip_budget or in_place_only)
        decision = resize_decision(rules, self.mode, self.targets_of(pod), self.memory, pod, group, waited=waited)
        remembered = self.memory.infeasible.get(pod.metadata.uid) if self.mode == IN_PLACE else None
        if remembered is not None and not lower_somewhere(targets_of(fitting.values()), remembered):
            return Method.NONE, STILL_TOO_LARGE
        if decision.verdict is ResizeVerdict.EVICT:
            if in_place_only or self.closed:
                return Method.NONE, self.closed or IN_PLACE_ONLY
            if self.by_rollout:
                return self._roll_out(decision.reason)
            return Method.EVICT, decision.reason
        if decision.verdict in resized_by(self.mode, self.rules, pod_resize_state(pod)):
            return Method.RESIZE, ranked.reason
        return Method.NONE, decision.reason

    def _roll_out(self, reason: str) -> tuple[Method, str]:
        refused = self.rollout_problem or self.closed
        return (Method.NONE, refused) if refused else (Method.ROLL_OUT, reason)

    def _scaled(self, container: str) -> bool:
        return not is_off(container_policy(self.observation.vpa.spec.resource_policy, container))


def resize_decision(
    rules: PlanRules,
    mode: str,
    targets: Targets | None,
    memory: Memory,
    pod: Pod,
    group: Group,
    *,
    waited: timedelta,
) -> InPlaceDecision:
    """Return what a resize in place would mean for a pod now."""
    in_place = InPlaceRules(
        only_in_place=mode == IN_PLACE,
        gate=rules.in_place_gate,
        skip_budget=rules.skip_budget,
        error_is_infeasible=not rules.compat.has(RESIZE_ERROR_DEFERRED),
    )
    infeasible = memory.infeasible.get(pod.metadata.uid)
    return decide(pod, group, in_place, targets=targets, infeasible=infeasible, waited=waited)


def resized_by(mode: str, rules: PlanRules, state: ResizeState) -> frozenset[ResizeVerdict]:
    """Return the verdicts that lead to a resize. Upstream resizes deferred pods of mode InPlace all the same."""
    if mode != IN_PLACE:
        return frozenset({ResizeVerdict.APPROVED})
    if rules.settle and state is not ResizeState.ERROR:
        # The kubelet tries again what it has deferred; what failed may succeed with another recommendation.
        return frozenset({ResizeVerdict.APPROVED, ResizeVerdict.INFEASIBLE})
    return frozenset({ResizeVerdict.APPROVED, ResizeVerdict.INFEASIBLE, ResizeVerdict.DEFERRED})


def _rank_rules(vpa: VerticalPodAutoscaler, rules: PlanRules) -> RankRules:
    policy = vpa.spec.update_policy
    seconds = policy.evict_after_oom_seconds if policy is not None and rules.per_vpa_gate else None
    return replace(rules.rank, quick_oom=timedelta(seconds=seconds)) if seconds else rules.rank
