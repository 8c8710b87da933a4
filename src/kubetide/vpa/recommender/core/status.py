"""What the recommender reports about a VPA: conditions, the status it writes, and events.

    RecommendationProvided   True with at least one container recommendation, else False, with the reason why if known
    NoPodsMatched            True when no pod of the model matches; gone otherwise
    ConfigUnsupported        True with what is wrong with selector or target; gone otherwise
    ConfigDeprecated         always gone

`lastTransitionTime` moves only when the status flips. Conditions of others (the updater's among them) are kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from kubetide.api.objects.core import ResourceList
from kubetide.api.objects.events import Event, normal, reference_to, warning
from kubetide.api.objects.meta import ObjectReference
from kubetide.api.objects.vpa import (
    CONFIG_DEPRECATED,
    CONFIG_UNSUPPORTED,
    NO_PODS_MATCHED,
    RECOMMENDATION_PROVIDED,
    ContainerRecommendation,
    GroupRecommendation,
    PodLevelRecommendation,
    PodRecommendation,
    VerticalPodAutoscaler,
    VerticalPodAutoscalerStatus,
)
from kubetide.api.values.conditions import Condition, find_condition, is_true, set_condition, without_condition
from kubetide.api.values.quantity import Notation, Quantity
from kubetide.errors import QuantityError
from kubetide.vpa.core.policy import Amounts, Recommended, amounts

NO_PODS_MESSAGE = "No pods match this VPA object"
UNREADABLE_CHECKPOINT = "UnreadableCheckpoint"
HEALED_CHECKPOINT = "HealedCheckpoint"
INVALID_TUNING = "InvalidTuning"
ESTIMATOR_CHANGED = "EstimatorChanged"
COORDINATED_SIZE = "CoordinatedSize"


def conditions_after(
    conditions: Iterable[Condition] | None,
    *,
    provided: bool,
    pods: int,
    problem: str | None,
    now: datetime,
) -> tuple[Condition, ...]:
    """Return the conditions after an evaluation, sorted by type; `problem` is what ConfigUnsupported reports."""
    found = without_condition(conditions, CONFIG_DEPRECATED)
    if problem is None:
        found = without_condition(found, CONFIG_UNSUPPORTED)
    else:
        found = set_condition(found, CONFIG_UNSUPPORTED, "True", reason="", message=problem, now=now)
    if pods > 0:
        found = without_condition(found, NO_PODS_MATCHED)
    else:
        found = set_condition(found, NO_PODS_MATCHED, "True", reason=NO_PODS_MATCHED, message=NO_PODS_MESSAGE, now=now)
    if provided:
        found = set_condition(found, RECOMMENDATION_PROVIDED, "True", reason="", message="", now=now)
    else:
        why = find_condition(found, NO_PODS_MATCHED) if is_true(found, NO_PODS_MATCHED) else None
        reason, message = (why.reason, why.message) if why is not None else ("", "")
        found = set_condition(found, RECOMMENDATION_PROVIDED, "False", reason=reason, message=message, now=now)
    return tuple(sorted(found, key=lambda condition: condition.type))


def recommendation_body(given: Sequence[Recommended], whole: Recommended | None = None) -> dict[str, Any]:
    """Return `status.recommendation`; an empty result is an empty object. `whole` is the pod as a whole."""
    body: dict[str, Any] = {"containerRecommendations": _entries(given)} if given else {}
    if whole is not None:
        body["podRecommendation"] = _bounds(whole)
    return body


def groups_body(groups: Mapping[str, Sequence[Recommended]]) -> list[dict[str, Any]]:
    """Return `status.groups`: the recommendations by value of the scope label."""
    return [
        {"scopeValue": value, "containerRecommendations": _entries(given)}
        for value, given in sorted(groups.items())
        if given
    ]


def _entries(given: Sequence[Recommended]) -> list[dict[str, Any]]:
    ordered = sorted(given, key=lambda one: one.container)
    return [{"containerName": one.container, **_bounds(one)} for one in ordered]


def _bounds(one: Recommended) -> dict[str, Any]:
    target = _texts(one.target)
    entry: dict[str, Any] = {"target": target}
    for name, bound in (("lowerBound", one.lower), ("upperBound", one.upper), ("uncappedTarget", one.uncapped)):
        if bound is not None:
            entry[name] = target if bound is one.target else _texts(bound)
    return entry


def _texts(listed: Amounts) -> dict[str, str]:
    return {name: _text(amount.nanos, amount.notation) for name, amount in listed.items()}


# The same few bucket edges are spelled over and over.
@lru_cache(maxsize=65536)
def _text(nanos: int, notation: Notation) -> str:
    return str(Quantity(nanos, notation))


def describe_change(before: VerticalPodAutoscalerStatus | None, after: Mapping[str, Any]) -> str:
    """Say in one line what a status that is about to be written changes: targets, conditions, or bounds alone."""
    given = before.recommendation if before is not None else None
    had = {one.container_name: one.target or {} for one in (given.container_recommendations if given else None) or ()}
    entries = (after.get("recommendation") or {}).get("containerRecommendations") or ()
    now = {one["containerName"]: one["target"] for one in entries}
    said = [
        f"{container}: {resource} {had.get(container, {}).get(resource, 'unset')} to {amount}"
        for container, target in now.items()
        for resource, amount in target.items()
        if had.get(container, {}).get(resource) != amount
    ]
    said += [f"{container}: no recommendation any more" for container in had if container not in now]
    old = {one.type: one.status for one in (before.conditions if before is not None else None) or ()}
    new = {one["type"]: one["status"] for one in after.get("conditions") or ()}
    said += [f"{name} is {status}" for name, status in new.items() if old.get(name) != status]
    said += [f"{name} is gone" for name in old if name not in new]
    return "; ".join(said) or "bounds moved"


def condition_body(condition: Condition) -> dict[str, Any]:
    """Return a condition as the API writes it: absent members left out, times in whole seconds."""
    body: dict[str, Any] = {"type": condition.type, "status": condition.status}
    if condition.last_transition_time is not None:
        body["lastTransitionTime"] = f"{condition.last_transition_time.isoformat()[:19]}Z"
    if condition.reason:
        body["reason"] = condition.reason
    if condition.message:
        body["message"] = condition.message
    if condition.observed_generation is not None:
        body["observedGeneration"] = condition.observed_generation
    return body


def change(
    old: VerticalPodAutoscalerStatus | None,
    recommendation: Sequence[Recommended],
    conditions: Sequence[Condition],
    generation: int,
    *,
    whole: Recommended | None = None,
    groups: Mapping[str, Sequence[Recommended]] | None = None,
) -> dict[str, Any] | None:
    """Return the whole status to write, or None when the object says all of this already.

    `whole` is the recommendation for the pod as a whole, `groups` those of a scoped VPA; None: no such field.
    """
    body = recommendation_body(recommendation, whole)
    listed = None if groups is None else groups_body(groups)
    if (
        old is not None
        and says(old, conditions, generation)
        and _same_recommendation(old.recommendation, body)
        and _same_groups(old.groups, listed)
    ):
        return None
    written: dict[str, Any] = {
        "recommendation": body,
        "conditions": [condition_body(condition) for condition in conditions],
    }
    if listed is not None:
        written["groups"] = listed
    if generation:
        written["observedGeneration"] = generation
    return written


def says(old: VerticalPodAutoscalerStatus, conditions: Sequence[Condition], generation: int) -> bool:
    """Return whether a status has these conditions and this generation already."""
    return (old.observed_generation or 0) == generation and _same_conditions(old.conditions or (), conditions)


def _same_conditions(old: Sequence[Condition], new: Sequence[Condition]) -> bool:
    if len(old) != len(new):
        return False
    return all(a is b or condition_body(a) == condition_body(b) for a, b in zip(old, new, strict=True))


_BOUNDS = ("target", "lowerBound", "upperBound", "uncappedTarget")


def _same_recommendation(old: PodRecommendation | None, body: Mapping[str, Any]) -> bool:
    """Return whether a stored recommendation has the same amounts, however they are spelled."""
    if old is None:
        return False
    whole, wanted_whole = old.pod_recommendation, body.get("podRecommendation")
    if (whole is None) != (wanted_whole is None):
        return False
    if whole is not None and wanted_whole is not None and not _same_bounds(whole, wanted_whole):
        return False
    return _same_entries(old.container_recommendations or (), body.get("containerRecommendations") or ())


def _same_groups(old: Sequence[GroupRecommendation] | None, wanted: Sequence[Mapping[str, Any]] | None) -> bool:
    if old is None or wanted is None:
        return old is None and wanted is None
    if [group.scope_value for group in old] != [group["scopeValue"] for group in wanted]:
        return False
    return all(
        _same_entries(has.container_recommendations or (), want["containerRecommendations"])
        for has, want in zip(old, wanted, strict=True)
    )


def _same_entries(entries: Sequence[ContainerRecommendation], wanted: Sequence[Mapping[str, Any]]) -> bool:
    if [entry.container_name for entry in entries] != [entry["containerName"] for entry in wanted]:
        return False
    return all(_same_bounds(entry, want) for entry, want in zip(entries, wanted, strict=True))


def _same_bounds(has: ContainerRecommendation | PodLevelRecommendation, want: Mapping[str, Any]) -> bool:
    had = (has.target, has.lower_bound, has.upper_bound, has.uncapped_target)
    return all(_same(listed, want.get(name)) for listed, name in zip(had, _BOUNDS, strict=True))


def _same(old: ResourceList | None, new: Mapping[str, str] | None) -> bool:
    have, want = old or {}, new or {}
    if have == want:
        return True
    if have.keys() != want.keys():
        return False
    try:
        return amounts(have) == amounts(dict(want))
    except QuantityError:
        # What is stored cannot be read, so it is certainly not the same.
        return False


def unreadable_checkpoint(vpa: VerticalPodAutoscaler, checkpoint: str, problem: str) -> Event:
    """Return the event about a checkpoint that is kept but cannot be used."""
    message = f"Checkpoint {checkpoint} cannot be read and is left as it is: {problem}"
    return warning(_reference(vpa), UNREADABLE_CHECKPOINT, message)


def healed_checkpoint(vpa: VerticalPodAutoscaler, checkpoint: str, problem: str) -> Event:
    """Return the event about a checkpoint that lay in the future."""
    message = f"Checkpoint {checkpoint} lies in the future ({problem}): its amounts are kept and count as of now"
    return warning(_reference(vpa), HEALED_CHECKPOINT, message)


def invalid_tuning(vpa: VerticalPodAutoscaler, problem: str) -> Event:
    """Return the event about an annotation that cannot be used; the general setting applies instead."""
    return warning(_reference(vpa), INVALID_TUNING, problem)


def estimator_changed(vpa: VerticalPodAutoscaler, message: str) -> Event:
    """Return the event about another rule that sizes the pods of a VPA, with who chose it."""
    return normal(_reference(vpa), ESTIMATOR_CHANGED, message)


def coordinated_size(vpa: VerticalPodAutoscaler, message: str) -> Event:
    """Return the event about a size that is chosen for an HPA on the same workload."""
    return normal(_reference(vpa), COORDINATED_SIZE, message)


def _reference(vpa: VerticalPodAutoscaler) -> ObjectReference:
    return reference_to(vpa, kind="VerticalPodAutoscaler", api_version="autoscaling.k8s.io/v1")
