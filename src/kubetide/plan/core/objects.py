"""The WorkloadPlan of `kubetide.io/v1alpha1`, as far as it is read."""

from typing import Any

from kubetide.api.objects.meta import ApiObject, CrossVersionObjectReference, TypedObject
from kubetide.api.objects.scheme import Resource
from kubetide.api.values.conditions import Condition
from kubetide.api.values.quantity import QuantityText

READY = "Ready"
BUDGET_LIMITED = "BudgetLimited"


class PlanMetric(ApiObject, frozen=True, kw_only=True):
    """An external metric."""

    name: str = ""
    match_labels: dict[str, str] | None = None


class PlanSlo(ApiObject, frozen=True, kw_only=True):
    """A metric that more pods lower, and what it may be."""

    metric: PlanMetric = PlanMetric()
    value: QuantityText | None = None


class PlanGoal(ApiObject, frozen=True, kw_only=True):
    """What count and size are chosen for."""

    cpu_utilization: int = 70
    slo: PlanSlo | None = None


class PlanReplicas(ApiObject, frozen=True, kw_only=True):
    """Bounds of the count."""

    min: int = 2
    max: int = 0


class PlanBounds(ApiObject, frozen=True, kw_only=True):
    """Bounds of one resource of a container."""

    min: QuantityText | None = None
    max: QuantityText | None = None


class PlanDisruption(ApiObject, frozen=True, kw_only=True):
    """How and when running pods may be resized."""

    mode: str = "InPlaceOrRecreate"
    windows: tuple[str, ...] | None = None


class PlanSpec(ApiObject, frozen=True, kw_only=True):
    target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    goal: PlanGoal = PlanGoal()
    replicas: PlanReplicas = PlanReplicas()
    sizes: dict[str, PlanBounds] | None = None
    budget: dict[str, QuantityText] | None = None
    disruption: PlanDisruption = PlanDisruption()


class PlanStatus(ApiObject, frozen=True, kw_only=True):
    """The status as stored; what is written anew is compared with it whole."""

    observed_generation: int | None = None
    replicas: int | None = None
    desired_replicas: int | None = None
    max_replicas: int | None = None
    size: dict[str, Any] | None = None
    conditions: tuple[Condition, ...] | None = None


class WorkloadPlan(TypedObject, frozen=True, kw_only=True):
    spec: PlanSpec = PlanSpec()
    status: PlanStatus = PlanStatus()


PLANS = Resource("kubetide.io", "v1alpha1", "workloadplans", "WorkloadPlan", WorkloadPlan)
