"""What is decided about a VPA beside its numbers: who serves it, is its target usable, what does its status become.

A VPA whose target or policy cannot be used keeps its last good recommendation, and `ConfigUnsupported` says why. One
whose history has not been read yet gets no recommendation: recommending from the few samples since a restart would be
bolder than anything it said before.
"""

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

import msgspec

from kubetide.api.objects.coordination import COORDINATED, COORDINATION_ANNOTATION
from kubetide.api.objects.meta import CrossVersionObjectReference
from kubetide.api.objects.vpa import (
    DEFAULT_RECOMMENDER,
    FETCHING_HISTORY,
    LOW_CONFIDENCE,
    RECOMMENDATION_PROVIDED,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerStatus,
)
from kubetide.api.values.conditions import Condition, find_condition, is_true, set_condition, without_condition
from kubetide.errors import KubetideError
from kubetide.stats.instants import microseconds
from kubetide.vpa.core.ceilings import CAPPED, CAPPED_REASON
from kubetide.vpa.core.learned import (
    ADAPTIVE_ESTIMATOR,
    LIMITS_ANNOTATION,
    SWITCH_HOURS,
    ChosenBy,
    learned_share,
    switched_at,
)
from kubetide.vpa.core.pod_level import declared_policy, pod_policy, whole_pod
from kubetide.vpa.core.policy import CPU, MEMORY, Recommended, amounts, recommendations, recommended
from kubetide.vpa.core.scope import GROUPS_ANNOTATION, groups_of
from kubetide.vpa.recommender.core.aggregate import Aggregates, Tuning
from kubetide.vpa.recommender.core.conflicts import HPA_CONFLICT, REASON, message
from kubetide.vpa.recommender.core.coordination.coordinated import condition_text
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.estimator import Estimation
from kubetide.vpa.recommender.core.evidence.heaps import NEVER_SHRINKS
from kubetide.vpa.recommender.core.evidence.heaps import REASON as HEAP_REASON
from kubetide.vpa.recommender.core.recommend import Options
from kubetide.vpa.recommender.core.significance import can_wait
from kubetide.vpa.recommender.core.status import change, conditions_after, groups_body, says
from kubetide.vpa.recommender.settings import HpaConflicts, RecommenderSettings


@dataclass(frozen=True, slots=True)
class StatusDecision:
    """What the status of a VPA becomes; `status` is the body to write; None: it is there, or can wait."""

    recommendation: tuple[Recommended, ...]
    conditions: tuple[Condition, ...]
    status: Mapping[str, Any] | None
    groups: str | None = None
    """The annotation with the groups, where it has to change; empty: it has to go."""
    limits: str | None = None
    """The annotation with memory limits apart from requests, where it has to change; empty: it has to go."""
    coordination: str | None = None
    """The annotation about an HPA that the VPA is sized for, where it has to change; empty: it has to go."""
    waits: bool = False
    """Whether the status differs, by nothing that anybody decides on."""


def judge(
    current: VerticalPodAutoscaler,
    state: VpaState,
    found: tuple[Recommended, ...],
    *,
    aggregates: Aggregates,
    settings: RecommenderSettings,
    now: datetime,
    groups: Mapping[str, tuple[Recommended, ...]] | None = None,
    dropped: Collection[str] = (),
    may_wait: bool = False,
    limits: str = "",
    coordination: str = "",
) -> StatusDecision:
    """Return what the status of a VPA becomes, given the recommendation found for it.

    `groups` are the recommendations of a scoped VPA, `dropped` fields of the status that the CRD does not know. With
    `may_wait`, what differs without changing any decision is left for later. `limits` is the annotation with memory
    limits apart from requests, `coordination` the one about an HPA that the VPA is sized for.
    """
    if state.problem is not None:
        found = stored_recommendation(current) or found
        groups = None if groups is None else {**groups, **_stored_groups(current)}
    provided = bool(found) or any((groups or {}).values())
    conditions = conditions_after(
        current.status.conditions if current.status is not None else None,
        provided=provided,
        pods=state.pod_count,
        problem=state.problem,
        now=now,
    )
    conditions = _extra_conditions(state, conditions, aggregates, settings, now)
    policy = (
        pod_policy(current) if settings.gate("VPAPodLevelResources") and "podRecommendation" not in dropped else None
    )
    old, generation = current.status, current.metadata.generation
    # Recommendations for whole pods and for groups have other readers than the bounds of one: they do not wait.
    if may_wait and groups is None and policy is None and old is not None and says(old, conditions, generation):
        written = _published(old, state)
        if written is not None and can_wait(written, found, state.label_sets.values()):
            return StatusDecision(
                found,
                conditions,
                None,
                limits=_note(current, LIMITS_ANNOTATION, limits),
                coordination=_note(current, COORDINATION_ANNOTATION, coordination),
                waits=written != found,
            )
    status = change(
        old,
        found,
        conditions,
        generation,
        whole=None if policy is None else whole_pod(found, policy),
        groups=None if "groups" in dropped else groups,
    )
    noted = groups_body(groups) if groups is not None and "groups" in dropped else None
    everything = found if groups is None else tuple(chain.from_iterable(groups.values()))
    text = "" if noted is None else msgspec.json.encode(noted).decode()
    return StatusDecision(
        everything,
        conditions,
        status,
        _note(current, GROUPS_ANNOTATION, text),
        _note(current, LIMITS_ANNOTATION, limits),
        _note(current, COORDINATION_ANNOTATION, coordination),
    )


def _note(current: VerticalPodAutoscaler, annotation: str, text: str) -> str | None:
    """Return what an annotation has to become; None when it is right."""
    return None if (current.metadata.annotations or {}).get(annotation, "") == text else text


def _stored_groups(current: VerticalPodAutoscaler) -> dict[str, tuple[Recommended, ...]]:
    try:
        return {
            value: tuple(recommended(entry) for entry in group.container_recommendations or ())
            for value, group in groups_of(current).items()
        }
    except KubetideError:
        return {}


def _published(status: VerticalPodAutoscalerStatus, state: VpaState) -> tuple[Recommended, ...] | None:
    """Return the recommendation as it is written, read once for each time it is written."""
    given = status.recommendation
    if given is None:
        return None
    if state.published is None or state.published[0] is not given:
        try:
            state.published = given, recommendations(given) or ()
        except KubetideError:
            return None
    return state.published[1]


def fetching(current: VerticalPodAutoscaler, *, now: datetime) -> Mapping[str, Any] | None:
    """Return the status that reports that history is being read, or None when it is there already."""
    old = current.status.conditions if current.status is not None else None
    conditions = set_condition(old, FETCHING_HISTORY, "True", reason="", message="", now=now)
    return change(current.status, stored_recommendation(current) or (), conditions, current.metadata.generation)


def _extra_conditions(
    state: VpaState,
    conditions: tuple[Condition, ...],
    aggregates: Aggregates,
    settings: RecommenderSettings,
    now: datetime,
) -> tuple[Condition, ...]:
    """Return the conditions with those that only some settings ask for."""
    if settings.hpa_conflicts is not HpaConflicts.IGNORE:
        conditions = _conflict_condition(state, conditions, settings, now)
    conditions = adaptive_condition_after(state, conditions, now)
    if state.heaps:
        conditions = set_condition(conditions, NEVER_SHRINKS, "True", reason=HEAP_REASON, message=state.heaps, now=now)
    elif state.heaps is not None or not settings.never_shrinking_condition:
        conditions = without_condition(conditions, NEVER_SHRINKS)
    if state.capped:
        text = "; ".join(state.capped)
        conditions = set_condition(conditions, CAPPED, "True", reason=CAPPED_REASON, message=text, now=now)
    else:
        conditions = without_condition(conditions, CAPPED)
    if settings.low_confidence_condition:
        longest = max(settings.confidence_interval_cpu, settings.confidence_interval_memory).total_seconds()
        firsts = [int(aggregates.first[slot]) for _, slot in state.aggregates() if aggregates.count[slot]]
        if not firsts or (microseconds(now) - min(firsts)) / 1e6 < longest:
            conditions = set_condition(
                conditions, LOW_CONFIDENCE, "True", reason=LOW_CONFIDENCE, message="History is short", now=now
            )
        else:
            conditions = without_condition(conditions, LOW_CONFIDENCE)
    if settings.fetching_history_condition:
        conditions = without_condition(conditions, FETCHING_HISTORY)
    return tuple(sorted(conditions, key=lambda condition: condition.type))


def _conflict_condition(
    state: VpaState, conditions: tuple[Condition, ...], settings: RecommenderSettings, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions with the one about an HPA on the same workload."""
    alone, obstacle = left_alone(state, settings), state.coordination.obstacle
    mode = state.coordination.mode or settings.hpa_conflicts
    contested = {name: hpa for name, hpa in state.contested.items() if name in alone or mode is HpaConflicts.REPORT}
    if state.coordination.goal is not None and MEMORY not in contested:
        text = condition_text(state)
        return set_condition(conditions, HPA_CONFLICT, "False", reason=COORDINATED, message=text, now=now)
    if not contested or mode is HpaConflicts.IGNORE:
        return without_condition(conditions, HPA_CONFLICT)
    text = message(contested, avoided=bool(alone), why=f": {obstacle}" if obstacle else "")
    return set_condition(conditions, HPA_CONFLICT, "True", reason=REASON, message=text, now=now)


def adaptive_condition_after(
    state: VpaState, conditions: tuple[Condition, ...], now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions with the one that reports learned sizes, until a switch back to the plain rule is over."""
    choice, before = state.choice, find_condition(conditions, ADAPTIVE_ESTIMATOR)
    if not choice.learned:
        if before is None:
            return conditions
        if choice.by is ChosenBy.KILL_SWITCH:
            since = before.last_transition_time
            over = before.status == "False" and (since is None or now - since >= SWITCH_HOURS * timedelta(hours=1))
        else:
            over = learned_share(choice, before, created=state.created, now=now) == 0.0
        if over:
            return without_condition(conditions, ADAPTIVE_ESTIMATOR)
    return set_condition(
        conditions,
        ADAPTIVE_ESTIMATOR,
        "True" if choice.learned else "False",
        reason=choice.by.value,
        message=choice.message,
        now=switched_at(choice, before, created=state.created, now=now),
    )


def memory_floors(state: VpaState, settings: RecommenderSettings, now: datetime) -> dict[str, int]:
    """Return the memory that OOM-killed containers keep, by name."""
    if not settings.oom_floor:
        return {}
    half_life = settings.oom_floor_half_life
    return {name: int(floor.now(now, half_life)) for name, floor in state.floors.items()}


def left_alone(state: VpaState, settings: RecommenderSettings) -> frozenset[str]:
    """Return the resources that are not recommended because an HPA scales on them."""
    mode, coordination = state.coordination.mode or settings.hpa_conflicts, state.coordination
    if mode is HpaConflicts.COORDINATE:
        # Memory stays vertical, and what cannot be sized for the HPA must not be moved under it.
        alone = {MEMORY} & state.contested.keys()
        unsized = coordination.obstacle or (coordination.goal is not None and state.unsized)
        return frozenset(alone | ({CPU} if unsized else set()))
    return frozenset(state.contested if mode is HpaConflicts.AVOID else ())


def may_save(state: VpaState, settings: RecommenderSettings) -> bool:
    """Return whether checkpoints of a VPA may be written: all it had is known, and its pods are."""
    if not state.loaded or state.problem is not None or state.is_scoped:
        return False
    return settings.fetching_history_condition or not is_true(state.conditions, FETCHING_HISTORY)


def stored_recommendation(vpa: VerticalPodAutoscaler) -> tuple[Recommended, ...] | None:
    """Return what the object recommends now, if its conditions report that it does."""
    status = vpa.status
    if status is None or not is_true(status.conditions, RECOMMENDATION_PROVIDED):
        return None
    try:
        return recommendations(status.recommendation)
    except KubetideError:
        return None


def policy_problem(vpa: VerticalPodAutoscaler) -> str | None:
    """Return what is wrong with the amounts of a resource policy."""
    policy = vpa.spec.resource_policy
    for i, entry in enumerate((policy.container_policies if policy is not None else None) or ()):
        for name, listed in (("minAllowed", entry.min_allowed), ("maxAllowed", entry.max_allowed)):
            try:
                amounts(listed)
            except KubetideError as error:
                return f"spec.resourcePolicy.containerPolicies[{i}].{name}: {error}"
    try:
        declared_policy(vpa)
    except KubetideError as error:
        return f"spec.resourcePolicy.podPolicy: {error}"
    return None


def tuning_of(settings: RecommenderSettings) -> Tuning:
    """Return how samples are weighed by default."""
    return Tuning(
        cpu_half_life=settings.cpu_histogram_decay_half_life,
        memory_half_life=settings.memory_histogram_decay_half_life,
        interval=settings.memory_aggregation_interval,
        interval_count=settings.memory_aggregation_interval_count,
        oom_ratio=settings.oom_bump_up_ratio,
        oom_min_bytes=settings.oom_min_bump_up_bytes,
    )


def options_of(settings: RecommenderSettings) -> Options:
    """Return how recommendations are made by default."""
    return Options(
        estimation=Estimation(
            target_cpu=settings.target_cpu_percentile,
            target_memory=settings.target_memory_percentile,
            lower_cpu=settings.lower_bound_cpu_percentile,
            lower_memory=settings.lower_bound_memory_percentile,
            upper_cpu=settings.upper_bound_cpu_percentile,
            upper_memory=settings.upper_bound_memory_percentile,
            margin=settings.margin_fraction,
            confidence_cpu=settings.confidence_interval_cpu,
            confidence_memory=settings.confidence_interval_memory,
            min_cpu_millis=settings.pod_min_cpu_millicores,
            min_memory_bytes=settings.pod_min_memory_mb * 1024 * 1024,
        ),
        round_cpu_millis=settings.round_cpu_millicores,
        round_memory_bytes=settings.round_memory_bytes,
        humanize_memory=settings.humanize_memory,
        integer_cpu=settings.cpu_integer_post_processor_enabled,
        largest=settings.largest,
    )


# Which VPAs a recommender serves, and what is wrong with those whose target cannot be used.


def serves(settings: RecommenderSettings, vpa: VerticalPodAutoscaler) -> bool:
    """Return whether this recommender is responsible for a VPA."""
    namespace, name = vpa.metadata.namespace, vpa.metadata.name
    if namespace in settings.ignored_vpa_object_namespaces:
        return False
    if settings.vpa_object_namespace and namespace != settings.vpa_object_namespace:
        return False
    number, count = settings.shard_of
    return names_recommender(settings.recommender_name, vpa) and shard(namespace, name, count) == number


def names_recommender(own: str, vpa: VerticalPodAutoscaler) -> bool:
    """Return whether a VPA asks for the recommender of that name."""
    named = vpa.spec.recommenders or ()
    if not named:
        return own == DEFAULT_RECOMMENDER
    return any(one.name == own for one in named)


def shard(namespace: str, name: str, count: int) -> int:
    """Return the shard of a VPA."""
    return zlib.crc32(f"{namespace}/{name}".encode()) % count


def target_text(target: CrossVersionObjectReference | None) -> str:
    """Return a target as messages name it."""
    return "" if target is None else f"{target.api_version}.{target.kind}/{target.name}"


_TOPMOST = "a topmost well-known or scalable controller"


def unreadable_target(reason: str) -> str:
    """Return what ConfigUnsupported reports when the selector cannot be read."""
    return f"Cannot read targetRef. Reason: {reason}" if reason else "Cannot read targetRef"


def failed_check(target: CrossVersionObjectReference, reason: str) -> str:
    """Return what ConfigUnsupported reports when the owners of the target cannot be followed."""
    return f"Error checking if target {target_text(target)} is {_TOPMOST}: {reason}"


def no_controller(target: CrossVersionObjectReference) -> str:
    """Return what ConfigUnsupported reports when nothing scalable was found."""
    return f"Unknown error during checking if target {target_text(target)} is {_TOPMOST}"


def has_parent(target: CrossVersionObjectReference) -> str:
    """Return what ConfigUnsupported reports when the target is itself controlled."""
    return f"The target {target_text(target)} has a parent controller but it should point to {_TOPMOST}"
