"""What the HPA and the VPA of a plan look like.

    HPA    the goal as CPU utilization, beside it the metric of an SLO; bounds of the count, the upper one cut so that
           the present size fits into the budget
    VPA    coordinated with that HPA; bounds of the size, the upper one cut so that the smallest count fits into the
           budget; the windows in which pods may be disturbed

Both carry the plan's name and belong to it, so that they go with it. Fields that a plan says nothing about are left to
whoever sets them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubetide.api.objects.coordination import CONFLICTS_ANNOTATION
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.quantity import Quantity, QuantityText, parse_quantity
from kubetide.api.values.schedule import ScheduleError, parse_windows
from kubetide.errors import InvalidInput, QuantityError
from kubetide.plan.core.objects import PLANS, WorkloadPlan
from kubetide.vpa.updater.core.disturbing import WINDOWS_ANNOTATION

Raw = dict[str, Any]

RESOURCES: Final = ("cpu", "memory")
MANAGED_BY: Final = "app.kubernetes.io/managed-by"


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """The two objects of a plan; None as a value: the field has to be absent."""

    hpa: Raw
    vpa: Raw
    max_replicas: int
    limited_by: str = ""
    """How the budget cuts the count, in words."""


def derive(plan: WorkloadPlan, size: Mapping[str, Quantity]) -> Derived:
    """Return the objects of a plan whose pods are to request `size`; raises InvalidInput, which names the field."""
    spec, bounds = plan.spec, _bounds(plan)
    budget = {
        name: _amount(text, f"spec.budget.{name}") for name, text in (spec.budget or {}).items() if name in RESOURCES
    }
    most, limited = spec.replicas.max, ""
    for name, amount in sorted(budget.items()):
        one = size.get(name)
        if one is not None and one.milli > 0 and (fits := amount.milli // one.milli) < most:
            most = max(fits, spec.replicas.min)
            limited = f"{amount} of {name} are {fits} pods of {one}"
            if fits < spec.replicas.min:
                limited += f", fewer than replicas.min ({spec.replicas.min}), which holds"
    return Derived(hpa=_hpa(plan, most), vpa=_vpa(plan, bounds, budget), max_replicas=most, limited_by=limited)


def size_of(vpa: VerticalPodAutoscaler | None) -> dict[str, Quantity]:
    """Return what a pod is to request in all, as far as it is recommended."""
    recommendation = vpa.status.recommendation if vpa is not None and vpa.status is not None else None
    total: dict[str, Quantity] = {}
    for one in (recommendation.container_recommendations if recommendation is not None else None) or ():
        for name, text in (one.target or {}).items():
            if name in RESOURCES:
                amount = parse_quantity(text)
                total[name] = total[name] + amount if name in total else amount
    return total


def differs(wanted: Any, found: Any) -> bool:
    """Return whether an object lacks something that is wanted; what is beside it does not matter."""
    if wanted is None:
        return found is not None
    if isinstance(wanted, dict):
        has = found if isinstance(found, dict) else {}
        return any(differs(value, has.get(name)) for name, value in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return True
        return any(differs(one, other) for one, other in zip(wanted, found, strict=True))
    return bool(wanted != found)


def without_absent(body: Any) -> Any:
    """Return an object to create: without the fields that have to be absent."""
    if isinstance(body, dict):
        return {name: without_absent(value) for name, value in body.items() if value is not None}
    return [without_absent(each) for each in body] if isinstance(body, list) else body


def owner_of(plan: WorkloadPlan) -> Raw:
    """Return the reference by which the objects of a plan belong to it."""
    meta = plan.metadata
    kind = {"apiVersion": PLANS.api_version, "kind": PLANS.kind, "name": meta.name, "uid": meta.uid}
    return {**kind, "controller": True}


def _meta(plan: WorkloadPlan, annotations: Mapping[str, str | None]) -> Raw:
    return {
        "name": plan.metadata.name,
        "namespace": plan.metadata.namespace,
        "labels": {MANAGED_BY: "kubetide"},
        "ownerReferences": [owner_of(plan)],
        **({"annotations": dict(annotations)} if annotations else {}),
    }


def _hpa(plan: WorkloadPlan, most: int) -> Raw:
    spec, target = plan.spec, plan.spec.target_ref
    utilization = {"type": "Utilization", "averageUtilization": spec.goal.cpu_utilization}
    metrics: list[Raw] = [{"type": "Resource", "resource": {"name": "cpu", "target": utilization}}]
    if (slo := spec.goal.slo) is not None:
        metric: Raw = {"name": slo.metric.name}
        if slo.metric.match_labels:
            metric["selector"] = {"matchLabels": dict(slo.metric.match_labels)}
        value = _amount(slo.value, "spec.goal.slo.value")
        metrics.append(
            {"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": str(value)}}}
        )
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _meta(plan, {}),
        "spec": {
            "scaleTargetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": target.name},
            "minReplicas": spec.replicas.min,
            "maxReplicas": most,
            "metrics": metrics,
        },
    }


def _vpa(plan: WorkloadPlan, bounds: Mapping[str, tuple[Quantity | None, Quantity | None]], budget: Any) -> Raw:
    spec, target = plan.spec, plan.spec.target_ref
    allowed: dict[str, Raw] = {"minAllowed": {}, "maxAllowed": {}}
    for name in RESOURCES:
        least, most = bounds.get(name, (None, None))
        if name in budget:
            share = _divided(budget[name], spec.replicas.min, name)
            most = share if most is None else min(most, share)
        if least is not None:
            allowed["minAllowed"][name] = str(least)
        if most is not None:
            allowed["maxAllowed"][name] = str(most)
    policy = {"containerName": "*", **{field: listed or None for field, listed in allowed.items()}}
    windows = "; ".join(spec.disruption.windows or ())
    if windows:
        try:
            parse_windows(windows)
        except ScheduleError as error:
            raise InvalidInput(str(error), field="spec.disruption.windows") from error
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": _meta(plan, {CONFLICTS_ANNOTATION: "coordinate", WINDOWS_ANNOTATION: windows or None}),
        "spec": {
            "targetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": target.name},
            "updatePolicy": {"updateMode": spec.disruption.mode},
            "resourcePolicy": {"containerPolicies": [without_absent(policy)]} if any(allowed.values()) else None,
        },
    }


def _bounds(plan: WorkloadPlan) -> dict[str, tuple[Quantity | None, Quantity | None]]:
    found = {}
    for name, given in (plan.spec.sizes or {}).items():
        least, most = [
            None if text is None else _amount(text, f"spec.sizes.{name}.{field}")
            for field, text in (("min", given.min), ("max", given.max))
        ]
        if least is not None and most is not None and most < least:
            raise InvalidInput(f"min {least} is greater than max {most}", field=f"spec.sizes.{name}")
        found[name] = least, most
    return found


def _amount(text: QuantityText | None, field: str) -> Quantity:
    try:
        amount = parse_quantity("" if text is None else text)
    except QuantityError as error:
        raise InvalidInput(str(error), field=field) from error
    if amount.milli <= 0:
        raise InvalidInput(f"{text} is not greater than 0", field=field)
    return amount


def _divided(amount: Quantity, count: int, name: str) -> Quantity:
    if name == "cpu":
        return Quantity.of_milli(max(1, amount.milli // count))
    return Quantity.of(max(1, amount.value // count), binary=True)
