"""Every workload of a cluster as one row: replicas, usage, requests, recommendation, verdict.

All rows are made in one pass over the view: what a workload owns is found through maps, never by searching, so that
thousands of workloads cost what their pods cost. What could not be read is None, never zero.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from kubetide.api.objects.apps import DaemonSet
from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import key_of
from kubetide.api.objects.resources import CPU, MEMORY
from kubetide.api.objects.vpa import VerticalPodAutoscaler, update_mode
from kubetide.api.values.conditions import is_true
from kubetide.dashboard.core.model import Amounts, Judgement, Tone, Workload
from kubetide.verdicts.core.verdict import Finding, Severity
from kubetide.verdicts.core.view import (
    ClusterView,
    WorkloadKey,
    amount_of,
    template_of,
)

TONES: Mapping[Severity, Tone] = {
    Severity.ERROR: "bad",
    Severity.UNKNOWN: "warn",
    Severity.WARNING: "warn",
    Severity.NOTE: "plain",
    Severity.OK: "good",
}
_OOM_WINDOW = timedelta(hours=1)
_PODS = "pods"
_USAGE = "pods.metrics.k8s.io"


def concerning_budgets(view: ClusterView, findings: Iterable[Finding]) -> dict[WorkloadKey, list[Finding]]:
    """Return what was found about disruption budgets, by the workloads whose pods they select."""
    by_key = {finding.key: finding for finding in findings if finding.kind == "pdb"}
    found: dict[WorkloadKey, list[Finding]] = {}
    for key, workload in view.workloads.items() if by_key else ():
        for pdb in view.near(key[1].namespace).selecting_pdbs.those(template_of(workload).metadata.labels):
            if key_of(pdb) in by_key:
                found.setdefault(key, []).append(by_key[key_of(pdb)])
    return found


def workload_row(
    view: ClusterView, key: WorkloadKey, findings: Sequence[Finding], trend: tuple[float, ...] = ()
) -> Workload:
    """Return the row of one workload; `findings` concern it, `trend` is what it used lately."""
    family = view.family(key)
    hpa = family.hpas[-1] if family.hpas else None
    vpa = family.vpas[-1] if family.vpas else None
    kind, name = key
    workload, pods = view.workloads[key], view.pods_of(kind, name)
    if isinstance(workload, DaemonSet):
        wanted, ready = workload.status.desired_number_scheduled, workload.status.number_ready
    else:
        wanted = 1 if workload.spec.replicas is None else workload.spec.replicas
        ready = workload.status.ready_replicas
    best = recommended(vpa)
    sizes = [view.facts(pod).requests for pod in pods]
    used = {resource: _used(view, pods, resource) for resource in (CPU, MEMORY)}
    asked = {
        resource: float(sum(size[resource].nanos for size in sizes if resource in size) / 1e9)
        for resource in (CPU, MEMORY)
    }
    amounts = {
        resource: Amounts(
            used=used[resource],
            asked=asked[resource],
            recommended=best[resource] * len(pods) if resource in best and pods else None,
        )
        for resource in (CPU, MEMORY)
    }
    if _PODS not in view.unreadable:
        ready = sum(is_true(pod.status.conditions, "Ready") for pod in pods)
    statuses = [one for pod in pods for one in pod.status.container_statuses or ()]
    return Workload(
        namespace=name.namespace,
        name=name.name,
        kind=kind,
        ready=ready,
        pods=wanted,
        bounds=None if hpa is None else (hpa.spec.min_replicas or 1, hpa.spec.max_replicas),
        usage="" if hpa is None else scaled_by(hpa),
        load=None if hpa is None else load_of(hpa),
        cpu=amounts[CPU],
        memory=amounts[MEMORY],
        trend=trend,
        restarts=sum(one.restart_count for one in statuses),
        oom_kills=sum(_was_killed(pod, view) for pod in pods),
        verdict=_judged(view, findings, ready, wanted),
        hpa="" if hpa is None else hpa.metadata.name,
        vpa="" if vpa is None else vpa.metadata.name,
        mode="" if vpa is None else update_mode(vpa),
    )


def _judged(view: ClusterView, findings: Sequence[Finding], ready: int, wanted: int) -> Judgement:
    """Return the worst that was found; a workload of which something could not be read is never fine."""
    if findings:
        worst = min(findings, key=lambda one: one.severity.rank)
        if worst.severity.is_problem or not view.unreadable:
            return Judgement(tone=TONES[worst.severity], text=worst.line, remedy=worst.remedy)
    needed = (_PODS, "nodes", "horizontalpodautoscalers.autoscaling", "verticalpodautoscalers.autoscaling.k8s.io")
    if missing := [resource for resource in needed if resource in view.unreadable]:
        return Judgement(tone="warn", text=f"UNKNOWN: {missing[0]} cannot be read")
    return Judgement(tone="good", text=f"OK: {ready} of {wanted} pods ready")


def _used(view: ClusterView, pods: Sequence[Pod], resource: str) -> float | None:
    """Return what all pods use; None where none of them was measured."""
    measured = [used[resource] for pod in pods if (used := view.used.get(key_of(pod))) is not None]
    return sum(measured) if measured or not pods else None


def recommended(vpa: VerticalPodAutoscaler | None) -> dict[str, float]:
    """Return what a VPA recommends for one pod, in cores and bytes."""
    status = vpa.status if vpa is not None else None
    given = status.recommendation if status is not None else None
    total: dict[str, float] = {}
    for one in (given.container_recommendations if given is not None else None) or ():
        for resource, text in (one.target or {}).items():
            if (amount := amount_of(text)) is not None:
                total[resource] = total.get(resource, 0.0) + amount.nanos / 1e9
    return total


def scaled_by(hpa: HorizontalPodAutoscaler) -> str:
    """Return the first metric of an autoscaler, its value and its target: `cpu 68/70 %`."""
    if not hpa.spec.metrics:
        return ""
    spec = hpa.spec.metrics[0]
    source = spec.resource or spec.container_resource
    named = spec.pods or spec.object or spec.external
    name = source.name if source is not None else named.metric.name if named is not None else "load"
    load = load_of(hpa)
    percent = source is not None and source.target.average_utilization is not None
    target = _number(load[1]) if load is not None else _number(_target_of(hpa) or 0.0)
    return f"{name} {'?' if load is None else _number(load[0])}/{target}{' %' if percent else ''}"


def load_of(hpa: HorizontalPodAutoscaler) -> tuple[float, float] | None:
    """Return value and target of an autoscaler's first metric; None while it has not been measured."""
    target = _target_of(hpa)
    if target is None or not hpa.status.current_metrics:
        return None
    status = hpa.status.current_metrics[0]
    kind = str(status.get("type", ""))
    part = status.get(kind[:1].lower() + kind[1:])
    current = part.get("current") if isinstance(part, dict) else None
    if not isinstance(current, dict):
        return None
    for name in ("averageUtilization", "averageValue", "value"):
        if current.get(name) is not None and (amount := amount_of(current[name])) is not None:
            return amount.nanos / 1e9, target
    return None


def _target_of(hpa: HorizontalPodAutoscaler) -> float | None:
    for spec in (hpa.spec.metrics or ())[:1]:
        source = spec.resource or spec.container_resource or spec.pods or spec.object or spec.external
        if source is None:
            return None
        target = source.target
        if target.average_utilization is not None:
            return float(target.average_utilization)
        text = target.average_value if target.average_value is not None else target.value
        amount = amount_of(text) if text is not None else None
        return None if amount is None else amount.nanos / 1e9
    return None


def _number(value: float) -> str:
    return f"{value:.2f}" if 0 < value < 1 else f"{value:.0f}"


def _was_killed(pod: Pod, view: ClusterView) -> bool:
    """Whether a container of a pod was OOM-killed within the hour."""
    for status in pod.status.container_statuses or ():
        for state in (status.state, status.last_state):
            ended = state.terminated if state is not None else None
            if ended is not None and ended.reason == "OOMKilled":
                at = ended.finished_at
                return at is None or view.now - at <= _OOM_WINDOW
    return False
