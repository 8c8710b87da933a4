"""`vpa/update_priority`: whose turn it is, and what the eviction requirements let through."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.objects.core import LimitRangeItem, Pod
from kubetide.api.objects.vpa import EvictionRequirement, VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.vpa.admission.core.mutate import fit_pod
from kubetide.vpa.core.limits import NamespaceLimits, effective_item
from kubetide.vpa.core.policy import Recommended, container_policy, is_off
from kubetide.vpa.updater.core.priority import RankRules, admitted, in_order, rank


def _time(millis: int | None) -> datetime | None:
    return None if millis is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)


def _pod(raw: dict[str, Any]) -> Pod:
    terminations = {entry["container"]: entry for entry in raw.get("lastTerminations") or ()}
    statuses = []
    for name in raw.get("containerStatuses") or ():
        status: dict[str, Any] = {"name": name}
        if name in terminations:
            entry = terminations[name]
            status["lastState"] = {
                "terminated": {
                    "reason": entry["reason"],
                    "startedAt": _time(entry.get("startedMs")),
                    "finishedAt": _time(entry.get("finishedMs")),
                }
            }
        statuses.append(status)
    annotations = {}
    if raw.get("vpaObservedContainers") is not None:
        annotations["vpaObservedContainers"] = raw["vpaObservedContainers"]
    containers = [
        {"name": c["name"], "resources": {"requests": c.get("requests"), "limits": c.get("limits")}}
        for c in raw["containers"]
    ]
    return convert(
        {
            "metadata": {"name": raw["name"], "annotations": annotations},
            "spec": {"containers": containers},
            "status": {"startTime": _time(raw.get("startTimeMs")), "containerStatuses": statuses},
        },
        Pod,
    )


def _vpa(case: dict[str, Any]) -> VerticalPodAutoscaler:
    recommendation = case.get("recommendation")
    status = {} if recommendation is None else {"recommendation": {"containerRecommendations": recommendation}}
    return convert({"spec": {"resourcePolicy": case.get("resourcePolicy")}, "status": status}, VerticalPodAutoscaler)


@suite("vpa/update_priority")
def update_priority(case: dict[str, Any]) -> Iterable[str]:
    vpa = _vpa(case)
    now = _time(case["nowMs"])
    assert now is not None
    requirements = None
    if case["hasUpdatePolicy"]:
        requirements = [convert(entry, EvictionRequirement) for entry in case.get("evictionRequirements") or ()]
    items = [convert(item, LimitRangeItem) for listed in case.get("limitRanges") or () for item in listed]
    limits = NamespaceLimits(container=effective_item(items, "Container"), pod=effective_item(items, "Pod"))
    fitted: dict[str, dict[str, Recommended]] = {}
    ranked = []
    for raw in case["pods"]:
        pod = _pod(raw)
        adjusted = fit_pod(pod, vpa, limits).adjusted
        fitting = {one.container: one for one in adjusted.recommendations} if adjusted is not None else {}
        fitted[pod.metadata.name] = fitting
        scaled = lambda name: not is_off(container_policy(vpa.spec.resource_policy, name))  # noqa: E731
        ranked.append(rank(pod, fitting, RankRules(), scaled=scaled, now=now))
    order = in_order(ranked)
    let_go = [e for e in order if admitted(e.pod, fitted[e.pod.metadata.name], requirements)]
    actual = {
        "priorities": {
            entry.pod.metadata.name: {
                "outsideRecommendedRange": entry.priority.outside,
                "scaleUp": entry.priority.scale_up,
                "resourceDiff": float(entry.priority.diff),
            }
            for entry in ranked
        },
        "accepted": [entry.pod.metadata.name for entry in ranked if entry.accepted],
        "sorted": [entry.pod.metadata.name for entry in order],
        "admitted": [entry.pod.metadata.name for entry in let_go],
    }
    yield from differences({key: case[key] for key in actual}, actual, relative=1e-12)
