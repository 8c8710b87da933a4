"""Whether a horizontal autoscaler can do its work, from its spec, its target and what its controller wrote.

Causes come before symptoms: a failed metric is told only where nothing better explains it.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from kubetide.api.objects.core import Pod, PodSpec
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, MetricSpec
from kubetide.api.objects.meta import key_of
from kubetide.api.objects.resources import is_sidecar
from kubetide.api.objects.vpa import OFF, update_mode
from kubetide.api.values.conditions import find_condition, is_true
from kubetide.api.values.quantity import plain_number, readable
from kubetide.hpa.core.decide import metrics_of
from kubetide.hpa.core.takeover import BUILT_IN_MANAGER, DRY_RUN, FIELD_MANAGER
from kubetide.hpa.core.zero import minimum_of
from kubetide.verdicts.core.commands import (
    closest,
    measured_request,
    metrics_path,
    restart_metrics,
    without_resource,
    workload_argument,
)
from kubetide.verdicts.core.finding import age, found
from kubetide.verdicts.core.verdict import Finding, Severity
from kubetide.verdicts.core.view import KIND_WORDS, ClusterView, Workload, target_of, template_of
from kubetide.verdicts.core.vpas import contested

KIND = "hpa"
STALE = timedelta(minutes=5)
"""Usage older than this is not of now; the default of `--hpa-max-usage-age`."""

_BOTH_WROTE = timedelta(minutes=5)
_USAGE = "pods.metrics.k8s.io"
Record = Mapping[str, Any]


def judge_hpa(view: ClusterView, hpa: HorizontalPodAutoscaler, record: Record | None = None) -> list[Finding]:
    """Return what there is to say about an autoscaler; `record` is what its controller explains."""
    findings = list(_about_target(view, hpa))
    if not findings:
        findings += _about_rivals(view, hpa)
        findings += _about_requests(view, hpa)
    findings += _about_controller(hpa, record or {})
    if not any(finding.severity is Severity.ERROR for finding in findings):
        findings += _about_metrics(view, hpa)
    findings += _about_bounds(view, hpa, record or {})
    findings += _about_pods(view, hpa)
    if not any(finding.severity is not Severity.NOTE for finding in findings):
        findings.append(_fine(hpa))
    return findings


def _target(view: ClusterView, hpa: HorizontalPodAutoscaler) -> Workload | None:
    ref = hpa.spec.scale_target_ref
    return view.workloads.get((ref.kind, key_of(hpa)._replace(name=ref.name)))


def _about_target(view: ClusterView, hpa: HorizontalPodAutoscaler) -> Iterator[Finding]:
    ref, key = hpa.spec.scale_target_ref, key_of(hpa)
    plural = f"{ref.kind.lower()}s.apps"
    known = ref.kind in ("Deployment", "StatefulSet") and plural not in view.unreadable
    if not known or _target(view, hpa) is not None:
        return
    near = closest(ref.name, view.names_of(ref.kind, key.namespace))
    values = {"target_kind": ref.kind, "target": ref.name}
    if near:
        yield found("hpa-target-misspelt", KIND, key, **values, close=near, kind=KIND, field="scaleTargetRef")
    else:
        yield found("hpa-target-missing", KIND, key, **values)


def _about_rivals(view: ClusterView, hpa: HorizontalPodAutoscaler) -> Iterator[Finding]:
    """Other autoscalers on the same pods, of either kind, and a second controller."""
    key, ref, target = key_of(hpa), hpa.spec.scale_target_ref, _target(view, hpa)
    family = view.family(target_of(hpa))
    for other in family.hpas:
        if other.metadata.name != key.name:
            younger = max((hpa, other), key=lambda one: (str(one.metadata.creation_timestamp), one.metadata.name))
            yield found(
                "hpa-two-on-target",
                KIND,
                key,
                target_kind=ref.kind,
                target=ref.name,
                other=other.metadata.name,
                younger=younger.metadata.name,
            )
    if target is not None:
        selector = view.selectors[ref.kind, key_of(target)]
        owners = dict.fromkeys(view.facts(pod).owner for pod in view.matched(key.namespace, selector))
        for owner in owners:
            if owner is None or owner not in view.workloads or owner == (ref.kind, key_of(target)):
                continue
            for other in view.family(owner).hpas:
                yield found("hpa-overlapping-selectors", KIND, key, selector=selector, other=other.metadata.name)
    for vpa in family.vpas:
        if update_mode(vpa) == OFF:
            continue
        both = contested(vpa, hpa)
        if both:
            patch = without_resource(vpa, both)
            names = " and ".join(both)
            yield found("hpa-vpa-conflict", KIND, key, vpa=vpa.metadata.name, resource=names, patch=patch)
    writers = {
        entry.manager
        for entry in hpa.metadata.managed_fields or ()
        if entry.time is not None and view.now - entry.time < _BOTH_WROTE and entry.subresource == "status"
    }
    if {BUILT_IN_MANAGER, FIELD_MANAGER} <= writers:
        yield found("hpa-two-controllers", KIND, key)


def _about_requests(view: ClusterView, hpa: HorizontalPodAutoscaler) -> Iterator[Finding]:
    """A target in percent needs a request to be a percentage of."""
    key, ref, target = key_of(hpa), hpa.spec.scale_target_ref, _target(view, hpa)
    if target is None:
        return
    pods = view.pods_of(ref.kind, key_of(target))
    workload = workload_argument(ref.kind, ref.name)
    for metric in metrics_of(hpa.spec):
        source = metric.resource or metric.container_resource
        if source is None or source.target.average_utilization is None:
            continue
        only = metric.container_resource.container if metric.container_resource is not None else ""
        bare = _without_request(template_of(target).spec, source.name, only, limits_count=True)
        lacking = [pod for pod in pods if _without_request(pod.spec, source.name, only)]
        values = {"container": bare, "resource": source.name, "workload": workload}
        if bare and (lacking or not pods):
            yield found("hpa-no-request", KIND, key, **values, amount=measured_request(view, pods, bare, source.name))
            return
        if lacking:
            values["container"] = _without_request(lacking[0].spec, source.name, only)
            yield found("hpa-rolling-out", KIND, key, **values, count=len(lacking))
            return


def _without_request(spec: PodSpec, resource: str, only: str, *, limits_count: bool = False) -> str:
    """Return the first container that requests nothing; a limit stands in for a request where a pod is made."""
    if spec.resources is not None and resource in (spec.resources.requests or {}):
        return ""
    sidecars = tuple(one for one in spec.init_containers or () if is_sidecar(one))
    for container in (*(spec.containers or ()), *sidecars):
        if only and container.name != only:
            continue
        given = container.resources
        named = dict(given.requests or {}) if given is not None else {}
        if given is not None and limits_count:
            named |= given.limits or {}
        if resource not in named:
            return container.name
    return ""


def _about_controller(hpa: HorizontalPodAutoscaler, record: Record) -> Iterator[Finding]:
    key, stance = key_of(hpa), str(record.get("stance") or "")
    if record and not record.get("recomputed") and record.get("acts") is False:
        if stance == DRY_RUN:
            yield found("hpa-dry-run", KIND, key)
        else:
            yield found("hpa-not-acting", KIND, key, message=stance or "it was not asked to")


def _about_metrics(view: ClusterView, hpa: HorizontalPodAutoscaler) -> Iterator[Finding]:
    key, conditions = key_of(hpa), hpa.status.conditions
    ref = hpa.spec.scale_target_ref
    on_usage = any(metric.resource or metric.container_resource for metric in metrics_of(hpa.spec))
    if on_usage and _USAGE in view.absent:
        yield found("hpa-metrics-api-missing", KIND, key)
        return
    if not conditions:
        yield found("hpa-not-seen", KIND, key)
        return
    able, active = find_condition(conditions, "AbleToScale"), find_condition(conditions, "ScalingActive")
    if able is not None and able.status == "False":
        resource, verb = f"{ref.kind.lower()}s/scale", "update" if "Update" in able.reason else "get"
        yield found("hpa-scale-failed", KIND, key, message=able.message, resource=resource, verb=verb)
        return
    if on_usage and (stale := _staleness(view, hpa)):
        yield found("hpa-stale-metrics", KIND, key, age=stale, restart=restart_metrics(view))
    elif active is not None and active.status == "False":
        if active.reason == "ScalingDisabled":
            values = {"workload": workload_argument(ref.kind, ref.name), "min": max(1, minimum_of(hpa.spec))}
            yield found("hpa-disabled", KIND, key, **values)
        elif not _starting(view, hpa):
            metric = _failed_metric(hpa, active.reason)
            path = metrics_path(key.namespace, metric.type, _metric_name(metric))
            yield found("hpa-metric-failed", KIND, key, message=active.message, path=path)


def _staleness(view: ClusterView, hpa: HorizontalPodAutoscaler) -> str:
    """Return how old the newest usage of the target's pods is; empty where it is young, or there is none."""
    target = _target(view, hpa)
    pods = view.pods_of(hpa.spec.scale_target_ref.kind, key_of(target)) if target is not None else []
    times = [one.timestamp for pod in pods if (one := view.usage.get(key_of(pod))) is not None and one.timestamp]
    newest = max(times, default=None)
    return age(newest, view.now) if newest is not None and view.now - newest > STALE else ""


def _starting(view: ClusterView, hpa: HorizontalPodAutoscaler) -> bool:
    """Return whether the target has pods and none is ready: reported instead of the metric that has no sample."""
    return any(finding.verdict.id == "hpa-no-ready-pods" for finding in _about_pods(view, hpa))


def _failed_metric(hpa: HorizontalPodAutoscaler, reason: str) -> MetricSpec:
    """Return the metric that a reason such as `FailedGetExternalMetric` is about."""
    metrics = metrics_of(hpa.spec)
    return next((metric for metric in metrics if f"Get{metric.type}Metric" in reason), metrics[0])


def _metric_name(metric: MetricSpec) -> str:
    for source in (metric.pods, metric.object, metric.external):
        if source is not None:
            return source.metric.name
    return ""


def _about_bounds(view: ClusterView, hpa: HorizontalPodAutoscaler, record: Record) -> Iterator[Finding]:
    key, most = key_of(hpa), hpa.spec.max_replicas
    limited = find_condition(hpa.status.conditions, "ScalingLimited")
    if minimum_of(hpa.spec) == most:
        yield found("hpa-pinned", KIND, key, max=most, double=2 * most)
    elif (
        limited is not None
        and limited.is_true
        and limited.reason == "TooManyReplicas"
        and hpa.status.current_replicas >= most
    ):
        yield found("hpa-at-max", KIND, key, max=most, wanted=_wanted(hpa, record))


def _wanted(hpa: HorizontalPodAutoscaler, record: Record) -> int:
    """Return what the metrics ask for: as the controller reports, else from the figures in the status."""
    proposal = record.get("proposal")
    if isinstance(proposal, int) and proposal > hpa.spec.max_replicas:
        return proposal
    most = hpa.spec.max_replicas + 1
    for metric in metrics_of(hpa.spec):
        source = metric.resource or metric.container_resource
        used = _utilization(hpa, metric)
        if source is not None and source.target.average_utilization and used is not None:
            asked = hpa.status.current_replicas * used
            most = max(most, -(-asked // source.target.average_utilization))
    return most


def _about_pods(view: ClusterView, hpa: HorizontalPodAutoscaler) -> Iterator[Finding]:
    ref, target = hpa.spec.scale_target_ref, _target(view, hpa)
    if target is None:
        return
    pods = view.pods_of(ref.kind, key_of(target))
    if pods and not any(_is_ready(pod) for pod in pods):
        word = KIND_WORDS.get(ref.kind, ref.kind.lower())
        yield found("hpa-no-ready-pods", KIND, key_of(hpa), count=len(pods), workload_kind=word, target=ref.name)


def _is_ready(pod: Pod) -> bool:
    return is_true(pod.status.conditions, "Ready")


def _fine(hpa: HorizontalPodAutoscaler) -> Finding:
    parts = [text for metric in metrics_of(hpa.spec) if (text := _figure(hpa, metric))]
    able = find_condition(hpa.status.conditions, "AbleToScale")
    if able is not None and able.reason == "ScaleDownStabilized":
        parts.append("holding for the scale-down window")
    return found(
        "hpa-ok",
        KIND,
        key_of(hpa),
        replicas=hpa.status.current_replicas,
        min=minimum_of(hpa.spec),
        max=hpa.spec.max_replicas,
        detail=", ".join(parts) or "no metric has been read yet",
    )


def _figure(hpa: HorizontalPodAutoscaler, metric: MetricSpec) -> str:
    """Return a metric against its target in a few words: `cpu 54% of 60%`."""
    source = metric.resource or metric.container_resource
    if source is not None:
        used = _utilization(hpa, metric)
        if source.target.average_utilization is not None:
            return "" if used is None else f"{source.name} at {used}%, target {source.target.average_utilization}%"
        average = _current(hpa, metric).get("averageValue")
        if average is None or source.target.average_value is None:
            return ""
        target = readable(source.name, source.target.average_value)
        return f"{source.name} at {readable(source.name, average)}, target {target}"
    other = metric.pods or metric.object or metric.external
    current = _current(hpa, metric)
    value = current.get("averageValue") or current.get("value")
    if other is None or value is None:
        return ""
    wanted = other.target.average_value if other.target.average_value is not None else other.target.value
    return f"{other.metric.name} at {plain_number(value)}, target {wanted}"


def _utilization(hpa: HorizontalPodAutoscaler, metric: MetricSpec) -> int | None:
    value = _current(hpa, metric).get("averageUtilization")
    return value if isinstance(value, int) else None


def _current(hpa: HorizontalPodAutoscaler, metric: MetricSpec) -> Mapping[str, Any]:
    """Return the figures of a metric in the status; empty where there are none."""
    position = metrics_of(hpa.spec).index(metric)
    statuses = hpa.status.current_metrics or ()
    status = statuses[position] if position < len(statuses) else None
    if not isinstance(status, dict) or status.get("type") != metric.type:
        return {}
    for value in status.values():
        if isinstance(value, dict) and isinstance(value.get("current"), dict):
            current: dict[str, Any] = value["current"]
            return current
    return {}
