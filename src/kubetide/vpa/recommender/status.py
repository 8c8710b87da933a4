"""What the recommender says about a VPA: conditions and the status it writes.

    RecommendationProvided   True with at least one container recommendation, else False, with the reason why if known
    NoPodsMatched            True when no pod of the model matches; gone otherwise
    ConfigUnsupported        True with what is wrong with selector or target; gone otherwise
    ConfigDeprecated         always gone

`lastTransitionTime` moves only when the status flips. Conditions of others (the updater's among them) are kept.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from kubetide.api.conditions import Condition, find_condition, is_true, set_condition, without_condition
from kubetide.api.vpa import (
    CONFIG_DEPRECATED,
    CONFIG_UNSUPPORTED,
    NO_PODS_MATCHED,
    RECOMMENDATION_PROVIDED,
    PodRecommendation,
    VerticalPodAutoscalerStatus,
)
from kubetide.vpa.policy import Amounts, Recommended, amounts, texts

NO_PODS_MESSAGE = "No pods match this VPA object"


def conditions_after(
    conditions: Iterable[Condition] | None,
    *,
    provided: bool,
    pods: int,
    problem: str | None,
    now: datetime,
) -> tuple[Condition, ...]:
    """Return the conditions after an evaluation, sorted by type; `problem` is what ConfigUnsupported says."""
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


def recommendation_body(given: Sequence[Recommended]) -> dict[str, Any]:
    """Return `status.recommendation`; an empty result is an empty object."""
    if not given:
        return {}
    entries = []
    for one in sorted(given, key=lambda one: one.container):
        entry: dict[str, Any] = {"containerName": one.container, "target": texts(one.target)}
        for name, bound in (("lowerBound", one.lower), ("upperBound", one.upper), ("uncappedTarget", one.uncapped)):
            if bound is not None:
                entry[name] = texts(bound)
        entries.append(entry)
    return {"containerRecommendations": entries}


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


def status_body(
    recommendation: Sequence[Recommended], conditions: Sequence[Condition], generation: int
) -> dict[str, Any]:
    """Return the whole status."""
    body: dict[str, Any] = {
        "recommendation": recommendation_body(recommendation),
        "conditions": [condition_body(condition) for condition in conditions],
    }
    if generation:
        body["observedGeneration"] = generation
    return body


def same_status(
    old: VerticalPodAutoscalerStatus | None,
    recommendation: Sequence[Recommended],
    conditions: Sequence[Condition],
    generation: int,
) -> bool:
    """Tell whether the object already says all of this, amounts compared by value."""
    if old is None or (old.observed_generation or 0) != generation:
        return False
    if [condition_body(c) for c in old.conditions or ()] != [condition_body(c) for c in conditions]:
        return False
    return same_recommendation(old.recommendation, recommendation)


def same_recommendation(old: PodRecommendation | None, new: Sequence[Recommended]) -> bool:
    """Tell whether a stored recommendation has the same amounts."""
    if old is None:
        return False
    entries = old.container_recommendations or ()
    ordered = sorted(new, key=lambda one: one.container)
    if [entry.container_name for entry in entries] != [one.container for one in ordered]:
        return False
    return all(
        _same(entry.target, one.target)
        and _same(entry.lower_bound, one.lower)
        and _same(entry.upper_bound, one.upper)
        and _same(entry.uncapped_target, one.uncapped)
        for entry, one in zip(entries, ordered, strict=True)
    )


def _same(old: dict[str, Any] | None, new: Amounts | None) -> bool:
    listed = new or {}
    if {name: str(amount) for name, amount in listed.items()} == (old or {}):
        return True
    return amounts(old) == listed
