"""Whether a vertical autoscaler has something to recommend, may recommend it, and sees it applied."""

from collections.abc import Iterable, Iterator

from kubetide.api.objects.coordination import HPA_CONFLICT
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import key_of
from kubetide.api.objects.vpa import (
    CONFIG_UNSUPPORTED,
    IN_PLACE,
    INITIAL,
    NO_PODS_MATCHED,
    OFF,
    RECOMMENDATION_PROVIDED,
    ContainerRecommendation,
    VerticalPodAutoscaler,
    update_mode,
)
from kubetide.api.values.conditions import Condition, find_condition, is_true
from kubetide.api.values.quantity import ZERO, readable
from kubetide.verdicts.core.commands import closest, rounded, with_bound, without_resource, workload_argument
from kubetide.verdicts.core.finding import found
from kubetide.verdicts.core.verdict import Finding, Severity
from kubetide.verdicts.core.view import ClusterView, Workload, amount_of, amounts, target_of
from kubetide.verdicts.core.webhook import applies, webhook_problem
from kubetide.vpa.core.policy import RESOURCES, container_policy, controlled_resources, is_off
from kubetide.vpa.recommender.core.conflicts import conflicts, index_by_target
from kubetide.vpa.updater.core.breaker import UPDATES_PAUSED
from kubetide.vpa.updater.core.disturbing import by_rollout

KIND = "vpa"
MIN_REPLICAS = 2
"""The updater's `--min-replicas`, unless its operator set another."""

_CAP_MATTERS = 0.05
"""A cap that takes less than this share away is not worth a line."""


def judge_vpa(view: ClusterView, vpa: VerticalPodAutoscaler) -> list[Finding]:
    """Return what there is to say about an autoscaler."""
    findings = list(_about_target(view, vpa))
    if not findings:
        findings += _about_rivals(view, vpa)
        findings += _about_recommendation(view, vpa)
        findings += _about_bounds(vpa)
        findings += _about_applying(view, vpa)
    if not any(finding.severity is not Severity.NOTE for finding in findings):
        findings.append(_fine(vpa))
    return findings


def contested(vpa: VerticalPodAutoscaler, hpa: HorizontalPodAutoscaler) -> tuple[str, ...]:
    """Return the resources that the HPA scales on and the VPA sets; none where they have different targets."""
    if vpa.status is not None and _is_coordinated(vpa.status.conditions):
        return ()
    both = conflicts(vpa.metadata.namespace, vpa.spec.target_ref, index_by_target([hpa]))
    policies = (vpa.spec.resource_policy.container_policies if vpa.spec.resource_policy is not None else None) or ()
    # Containers that no policy names are controlled in full.
    named = [controlled_resources(policy) for policy in policies if not is_off(policy)]
    everything = () if any(policy.container_name == "*" for policy in policies) else (RESOURCES,)
    controlled = {name for resources in (*named, *everything) for name in resources}
    return tuple(name for name in RESOURCES if name in both and name in controlled)


def _is_coordinated(conditions: Iterable[Condition] | None) -> bool:
    """Return whether the recommender sizes for the HPA, so that the two do not pull at one string."""
    condition = find_condition(conditions, HPA_CONFLICT)
    return condition is not None and condition.status == "False"


def _target(view: ClusterView, vpa: VerticalPodAutoscaler) -> Workload | None:
    ref = vpa.spec.target_ref
    return None if ref is None else view.workloads.get((ref.kind, key_of(vpa)._replace(name=ref.name)))


def _about_target(view: ClusterView, vpa: VerticalPodAutoscaler) -> Iterator[Finding]:
    ref, key = vpa.spec.target_ref, key_of(vpa)
    known = ref is not None and ref.kind in ("Deployment", "StatefulSet", "DaemonSet")
    if ref is None or not known or f"{ref.kind.lower()}s.apps" in view.unreadable or _target(view, vpa) is not None:
        return
    values = {"target_kind": ref.kind, "target": ref.name}
    near = closest(ref.name, view.names_of(ref.kind, key.namespace))
    if near:
        yield found("vpa-target-misspelt", KIND, key, **values, close=near, kind=KIND, field="targetRef")
    else:
        yield found("vpa-target-missing", KIND, key, **values)


def _about_rivals(view: ClusterView, vpa: VerticalPodAutoscaler) -> Iterator[Finding]:
    key, ref = key_of(vpa), vpa.spec.target_ref
    if ref is None:
        return
    family = view.family(target_of(vpa))
    for other in family.vpas:
        if other.metadata.name != key.name:
            younger = max((vpa, other), key=lambda one: (str(one.metadata.creation_timestamp), one.metadata.name))
            yield found(
                "vpa-two-on-target",
                KIND,
                key,
                other=other.metadata.name,
                younger=younger.metadata.name,
                target_kind=ref.kind,
                target=ref.name,
            )
    if update_mode(vpa) == OFF:
        return
    for hpa in family.hpas:
        if both := contested(vpa, hpa):
            yield found(
                "vpa-hpa-conflict",
                KIND,
                key,
                hpa=hpa.metadata.name,
                vpa=key.name,
                resource=" and ".join(both),
                patch=without_resource(vpa, both),
            )


def _about_recommendation(view: ClusterView, vpa: VerticalPodAutoscaler) -> Iterator[Finding]:
    key, ref = key_of(vpa), vpa.spec.target_ref
    conditions = vpa.status.conditions if vpa.status is not None else None
    unsupported = find_condition(conditions, CONFIG_UNSUPPORTED)
    if unsupported is not None and unsupported.is_true:
        yield found("vpa-unsupported", KIND, key, message=unsupported.message or unsupported.reason)
        return
    provided = find_condition(conditions, RECOMMENDATION_PROVIDED)
    if provided is None and not _recommended(vpa):
        yield found("vpa-not-seen", KIND, key)
    elif provided is not None and not provided.is_true:
        target = _target(view, vpa)
        without_pods = target is not None and not view.pods_of(ref.kind if ref else "", key_of(target))
        if ref is not None and (is_true(conditions, NO_PODS_MATCHED) or without_pods):
            values = {"target_kind": ref.kind, "target": ref.name, "workload": workload_argument(ref.kind, ref.name)}
            yield found("vpa-no-pods", KIND, key, **values)
        else:
            yield found("vpa-no-samples", KIND, key)


def _recommended(vpa: VerticalPodAutoscaler) -> tuple[ContainerRecommendation, ...]:
    given = vpa.status.recommendation if vpa.status is not None else None
    return (given.container_recommendations if given is not None else None) or ()


def _about_bounds(vpa: VerticalPodAutoscaler) -> Iterator[Finding]:
    """Compare what is recommended with what would be without the policy."""
    for one in _recommended(vpa):
        policy = container_policy(vpa.spec.resource_policy, one.container_name)
        if policy is None:
            continue
        for resource, text in (one.uncapped_target or {}).items():
            wanted = amount_of(text) or ZERO
            # A bound of zero is no bound.
            upper, lower = amounts(policy.max_allowed).get(resource), amounts(policy.min_allowed).get(resource)
            if upper and wanted.nanos > upper.nanos * (1 + _CAP_MATTERS):
                verdict, bound, name = "vpa-capped", upper, "maxAllowed"
            elif lower and wanted.nanos < lower.nanos * (1 - _CAP_MATTERS):
                verdict, bound, name = "vpa-floored", lower, "minAllowed"
            else:
                continue
            yield found(
                verdict,
                KIND,
                key_of(vpa),
                container=one.container_name,
                resource=resource,
                wanted=readable(resource, text),
                bound=readable(resource, str(bound)),
                patch=with_bound(vpa, one.container_name, name, resource, rounded(resource, wanted)),
            )


def _about_applying(view: ClusterView, vpa: VerticalPodAutoscaler) -> Iterator[Finding]:
    key, mode, ref = key_of(vpa), update_mode(vpa), vpa.spec.target_ref
    paused = find_condition(vpa.status.conditions if vpa.status is not None else None, UPDATES_PAUSED)
    if paused is not None and paused.is_true:
        yield found("vpa-paused", KIND, key, message=paused.message)
    if not applies(vpa):
        return
    if problem := webhook_problem(view):
        yield found("vpa-not-applied", KIND, key, mode=mode, message=problem.text, restart=problem.remedy)
        return
    policy, target = vpa.spec.update_policy, _target(view, vpa)
    least = (policy.min_replicas if policy is not None else None) or MIN_REPLICAS
    count = len(view.pods_of(ref.kind, key_of(target))) if ref is not None and target is not None else 0
    rolls_out, obstacle = by_rollout(vpa)
    if rolls_out and not obstacle and mode != INITIAL:
        return
    if mode not in (INITIAL, IN_PLACE) and 0 < count < least <= MIN_REPLICAS and ref is not None:
        yield found("vpa-too-few-replicas", KIND, key, target_kind=ref.kind, target=ref.name, count=count)


def _fine(vpa: VerticalPodAutoscaler) -> Finding:
    parts = []
    for one in _recommended(vpa):
        needs = ", ".join(f"{name} {readable(name, text)}" for name, text in sorted((one.target or {}).items()))
        parts.append(f"{one.container_name} needs {needs}" if needs else f"{one.container_name} is left alone")
    mode = update_mode(vpa)
    advice = "; advice only (mode Off)" if mode == OFF else f" (mode {mode})"
    return found("vpa-ok", KIND, key_of(vpa), detail=("; ".join(parts) or "nothing is recommended") + advice)
