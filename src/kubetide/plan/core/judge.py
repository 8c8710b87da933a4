"""Whether a plan may be carried out, and what its status says.

A plan makes its HPA and VPA itself and adopts nothing: an object of its name that belongs to somebody else, or another
autoscaler of the same workload, is a conflict. While there is one, nothing is made or changed.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import CrossVersionObjectReference, TypedObject, controller_of, group_of
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.conditions import set_condition, without_condition
from kubetide.plan.core.derive import Derived, size_of
from kubetide.plan.core.objects import BUDGET_LIMITED, READY, WorkloadPlan

CONFLICT, INVALID, PLANNED = "Conflict", "InvalidPlan", "Planned"


def belongs_to(plan: WorkloadPlan, found: TypedObject) -> bool:
    """Return whether an object was made for a plan."""
    owner = controller_of(found.metadata)
    return owner is not None and owner.uid == plan.metadata.uid


def conflict(
    plan: WorkloadPlan,
    hpas: Iterable[HorizontalPodAutoscaler],
    vpas: Iterable[VerticalPodAutoscaler],
    plans: Iterable[WorkloadPlan],
) -> str:
    """Return who else sizes or scales the workload, in words; empty: nobody."""
    target = _identity(plan.spec.target_ref)
    older = (plan.metadata.creation_timestamp, plan.metadata.name)
    for other in sorted(plans, key=lambda one: one.metadata.name):
        made = (other.metadata.creation_timestamp, other.metadata.name)
        if other.metadata.uid != plan.metadata.uid and _identity(other.spec.target_ref) == target and made < older:
            return f"WorkloadPlan {other.metadata.name} is older and has the same target"
    others: list[tuple[str, TypedObject, Any]] = [
        *(("HorizontalPodAutoscaler", hpa, _identity(hpa.spec.scale_target_ref)) for hpa in hpas),
        *(("VerticalPodAutoscaler", vpa, _identity(vpa.spec.target_ref)) for vpa in vpas),
    ]
    for kind, found, aims_at in sorted(others, key=lambda one: (one[0], one[1].metadata.name)):
        if belongs_to(plan, found):
            continue
        if found.metadata.name == plan.metadata.name:
            return f"{kind} {found.metadata.name} exists and does not belong to this plan"
        if aims_at == target:
            return f"{kind} {found.metadata.name} has the same target"
    return ""


def status_of(
    plan: WorkloadPlan,
    hpa: HorizontalPodAutoscaler | None,
    vpa: VerticalPodAutoscaler | None,
    *,
    derived: Derived | None,
    reason: str,
    message: str,
    now: datetime,
) -> dict[str, Any]:
    """Return the status of a plan, as it is written."""
    conditions = set_condition(
        plan.status.conditions,
        READY,
        "True" if reason == PLANNED else "False",
        reason=reason,
        message=message,
        now=now,
    )
    if derived is not None and derived.limited_by:
        conditions = set_condition(
            conditions, BUDGET_LIMITED, "True", reason="Budget", message=derived.limited_by, now=now
        )
    else:
        conditions = without_condition(conditions, BUDGET_LIMITED)
    status: dict[str, Any] = {
        "observedGeneration": plan.metadata.generation,
        "replicas": None if hpa is None else hpa.status.current_replicas,
        "desiredReplicas": None if hpa is None else hpa.status.desired_replicas,
        "maxReplicas": None if derived is None else derived.max_replicas,
        "size": {name: str(amount) for name, amount in sorted(size_of(vpa).items())} or None,
        "conditions": [
            {
                "type": one.type,
                "status": one.status,
                "reason": one.reason,
                "message": one.message,
                "lastTransitionTime": msgspec.to_builtins(one.last_transition_time),
            }
            for one in conditions
        ],
    }
    return status


def _identity(reference: CrossVersionObjectReference | None) -> tuple[str, str, str] | None:
    return None if reference is None else (group_of(reference.api_version), reference.kind, reference.name)
