"""Whether a recommendation rests on anything yet.

A recommender that has just started, or a VPA that has just been made, has no samples; the recommendation is then the
minimum for every bound, and every pod that asks for more lies "outside the range". Acting on it would shrink
everything at once. So nothing is done

    before the recommendation is provided, and while history is being fetched (conditions of the VPA);
    while all three bounds are the same, until samples are known to exist: a checkpoint that counts some, or a day
    during which the recommendation was there.

A truly idle container has equal bounds too (all at the minimum), which is why equal bounds alone say nothing.
"""

from datetime import datetime, timedelta

from kubetide.api.objects.vpa import FETCHING_HISTORY, RECOMMENDATION_PROVIDED, VerticalPodAutoscaler
from kubetide.api.values.conditions import find_condition, is_true
from kubetide.vpa.core.policy import Recommended

PATIENCE = timedelta(hours=24)


def why_not_ready(vpa: VerticalPodAutoscaler) -> str:
    """Return why the recommendation must not be acted on yet; empty when it may."""
    conditions = vpa.status.conditions if vpa.status is not None else None
    if is_true(conditions, FETCHING_HISTORY):
        return "the recommender is still fetching history"
    provided = find_condition(conditions, RECOMMENDATION_PROVIDED)
    if provided is not None and not provided.is_true:
        return "the recommender says that there is no recommendation"
    return ""


def needs_evidence(one: Recommended) -> bool:
    """Return whether a container's recommendation may rest on no sample at all."""
    return bool(one.target) and one.lower == one.target == one.upper


def old_enough(vpa: VerticalPodAutoscaler, *, now: datetime) -> bool:
    """Return whether the recommendation has been there for a day."""
    provided = find_condition(vpa.status.conditions if vpa.status is not None else None, RECOMMENDATION_PROVIDED)
    since = provided.last_transition_time if provided is not None and provided.is_true else None
    return since is not None and now - since >= PATIENCE
