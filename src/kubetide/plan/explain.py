"""A plan explained: `kubetide explain plan NAMESPACE/NAME`."""

from collections.abc import Iterator, Mapping
from typing import Any

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.scheme import HPAS, VPAS
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.clock import Clock
from kubetide.errors import InvalidInput
from kubetide.kube.client.client import Client
from kubetide.plan.core.derive import Derived, derive, size_of, without_absent
from kubetide.plan.core.judge import CONFLICT, INVALID, PLANNED, belongs_to, conflict
from kubetide.plan.core.objects import PLANS, WorkloadPlan
from kubetide.plan.settings import PlanSettings


def judged(
    plan: WorkloadPlan,
    hpas: list[HorizontalPodAutoscaler],
    vpas: list[VerticalPodAutoscaler],
    plans: list[WorkloadPlan],
) -> tuple[Derived | None, str, str]:
    """Return what a plan means, and whether it may be carried out: a reason and its message."""
    own = next((vpa for vpa in vpas if key_of(vpa) == key_of(plan) and belongs_to(plan, vpa)), None)
    try:
        derived = derive(plan, size_of(own))
    except InvalidInput as error:
        return None, INVALID, str(error)
    if rival := conflict(plan, hpas, vpas, plans):
        return derived, CONFLICT, f"{rival}; nothing is changed"
    name = plan.metadata.name
    return derived, PLANNED, f"HorizontalPodAutoscaler {name} and VerticalPodAutoscaler {name} follow one plan"


def trace(
    plan: WorkloadPlan,
    hpas: list[HorizontalPodAutoscaler],
    vpas: list[VerticalPodAutoscaler],
    plans: list[WorkloadPlan],
) -> dict[str, Any]:
    """Return a plan, what it comes to, and its autoscalers as they should be."""
    derived, reason, message = judged(plan, hpas, vpas, plans)
    key = key_of(plan)
    hpa = next((one for one in hpas if key_of(one) == key and belongs_to(plan, one)), None)
    vpa = next((one for one in vpas if key_of(one) == key and belongs_to(plan, one)), None)
    return {
        "kind": PLANS.kind,
        "namespace": key.namespace,
        "name": key.name,
        "reason": reason,
        "message": message,
        "goal": plan.spec.goal.cpu_utilization,
        "replicas": None if hpa is None else hpa.status.current_replicas,
        "desiredReplicas": None if hpa is None else hpa.status.desired_replicas,
        "minReplicas": plan.spec.replicas.min,
        "maxReplicas": None if derived is None else derived.max_replicas,
        "budget": "" if derived is None else derived.limited_by,
        "size": {name: str(amount) for name, amount in sorted(size_of(vpa).items())},
        "horizontalPodAutoscaler": None if derived is None else without_absent(derived.hpa["spec"]),
        "verticalPodAutoscaler": None if derived is None else without_absent(derived.vpa["spec"]),
    }


async def recompute(client: Client, clock: Clock, settings: PlanSettings, key: ObjectKey) -> dict[str, Any]:
    """Return what a plan comes to now, from the cluster."""
    plan = await client.get(PLANS, key.name, namespace=key.namespace)
    hpas = await client.list(HPAS, namespace=key.namespace)
    vpas = await client.list(VPAS, namespace=key.namespace)
    plans = await client.list(PLANS, namespace=key.namespace)
    return trace(plan, list(hpas.items), list(vpas.items), list(plans.items))


def render(found: Mapping[str, Any]) -> str:
    """Return the explanation as text."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    name = f"{found['namespace']}/{found['name']}"
    yield f"WorkloadPlan {name}"
    yield f"  {found['reason']}: {found['message']}"
    yield f"  goal     {found['goal']} % of the CPU that pods request"
    if found["replicas"] is not None:
        bounds = f"{found['minReplicas']} to {found['maxReplicas']}"
        yield f"  count    {found['replicas']}, {found['desiredReplicas']} wanted, {bounds} allowed"
    if found["budget"]:
        yield f"  budget   {found['budget']}"
    if found["size"]:
        yield "  size     " + ", ".join(f"{resource} {amount}" for resource, amount in found["size"].items())
    if found["replicas"] is not None:
        yield f"  why so many:  kubetide explain hpa {name}"
        yield f"  why so big:   kubetide explain vpa {name}"
