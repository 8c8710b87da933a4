"""Single functions, by the tables of Kubernetes' own tests."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from conformance.adapters.hpa_normalize import recommendations, scale_events
from conformance.adapters.hpa_releases import compat_of
from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import Behavior, ScalingRules
from kubetide.api.values.codec import convert
from kubetide.hpa.core.behavior import Rules, limit_by_rules, limit_plain
from kubetide.hpa.core.observation import Memory
from kubetide.hpa.core.pods import ReadinessRules, group_pods, pod_requests
from kubetide.hpa.core.samples import ZERO_TIME, MetricFailure, Sample
from kubetide.hpa.core.stabilization import stabilize, stabilize_both_ways


@suite("hpa/upstream_units")
def upstream_units(case: dict[str, Any]) -> Iterable[str]:
    now = convert(case["now"], datetime)
    yield from differences(_expected(case["out"]), _CHECKS[case["fn"]](case["in"], now))


def _expected(out: dict[str, Any]) -> dict[str, Any]:
    wanted = {name: value for name, value in out.items() if name not in ("message", "error")}
    if out.get("error") is not None:
        wanted = {"failed": True}
    for name in wanted.keys() & {"unready", "missing", "ignored"}:
        wanted[name] = sorted(wanted[name])
    return wanted


def _group_pods(given: dict[str, Any], now: datetime) -> dict[str, Any]:
    rules = ReadinessRules(
        cpu_initialization_period=timedelta(seconds=given["cpuInitializationPeriodSeconds"]),
        initial_readiness_delay=timedelta(seconds=given["initialReadinessDelaySeconds"]),
    )
    samples = {
        name: Sample(one.get("value", 0), _moment(one.get("timestamp")), timedelta(seconds=one.get("windowSeconds", 0)))
        for name, one in (given.get("podMetrics") or {}).items()
    }
    pods = [convert(pod, Pod) for pod in given.get("pods") or ()]
    groups = group_pods(pods, samples, given["resource"], rules, now=now)
    return {
        "readyPodCount": groups.ready,
        "unready": sorted(groups.unready),
        "missing": sorted(groups.missing),
        "ignored": sorted(groups.ignored),
    }


def _pod_requests(given: dict[str, Any], now: datetime) -> dict[str, Any]:
    try:
        pods = [convert(pod, Pod) for pod in given.get("pods") or ()]
        return {"requests": pod_requests(pods, given["resource"], compat_of(""), given.get("container", ""))}
    except MetricFailure:
        return {"failed": True}


def _convert_no_behavior(given: dict[str, Any], now: datetime) -> dict[str, Any]:
    limited = limit_plain(
        given["desiredReplicas"],
        given["currentReplicas"],
        minimum=given["minReplicas"],
        maximum=given["maxReplicas"],
    )
    return {"replicas": limited.replicas, "reason": limited.reason}


def _stabilize_no_behavior(given: dict[str, Any], now: datetime) -> dict[str, Any]:
    window = timedelta(seconds=given["downscaleStabilizationSeconds"])
    stable = stabilize(given["desiredReplicas"], recommendations(given.get("recommendations")), window, now=now)
    return {"replicas": stable.replicas, "recommendationsAfter": _shown(stable.recommendations)}


def _convert_behavior(given: dict[str, Any], now: datetime) -> dict[str, Any]:
    limited = limit_by_rules(
        given["desiredReplicas"],
        given["currentReplicas"],
        _rules(given),
        scale_events(given.get("scaleUpEvents")),
        scale_events(given.get("scaleDownEvents")),
        minimum=given["minReplicas"],
        maximum=given["maxReplicas"],
        now=now,
    )
    return {"replicas": limited.replicas, "reason": limited.reason}


def _stabilize_behavior(given: dict[str, Any], now: datetime) -> dict[str, Any]:
    stable = stabilize_both_ways(
        given["desiredReplicas"],
        given["currentReplicas"],
        recommendations(given.get("recommendations")),
        up_window=timedelta(seconds=given["scaleUpWindowSeconds"]),
        down_window=timedelta(seconds=given["scaleDownWindowSeconds"]),
        now=now,
    )
    reason = stable.reason
    if stable.replicas == given["desiredReplicas"]:
        # Recorded is the reason of the direction, also where the window changed nothing and nobody asks for it.
        reason = "ScaleUpStabilized" if given["desiredReplicas"] >= given["currentReplicas"] else "ScaleDownStabilized"
    return {"replicas": stable.replicas, "reason": reason, "recommendationsAfter": _shown(stable.recommendations)}


def _store_scale_event(given: dict[str, Any], now: datetime) -> dict[str, Any]:
    memory = Memory(ups=scale_events(given.get("scaleUpEvents")), downs=scale_events(given.get("scaleDownEvents")))
    behavior = convert(given["behavior"], Behavior) if given.get("behavior") else None
    rules = None
    if behavior is not None:
        rules = Rules(up=behavior.scale_up or ScalingRules(), down=behavior.scale_down or ScalingRules())
    after = memory.rescaled(given["previousReplicas"], given["newReplicas"], rules, now)
    return {"scaleUpEventsAfter": _events(after.ups), "scaleDownEventsAfter": _events(after.downs)}


def _rules(given: dict[str, Any]) -> Rules:
    return Rules(
        up=convert(given.get("scaleUp") or {}, ScalingRules), down=convert(given.get("scaleDown") or {}, ScalingRules)
    )


def _shown(past: Iterable[Any]) -> list[dict[str, Any]]:
    return [{"replicas": one.replicas, "time": _time(one.at)} for one in past]


def _events(events: Iterable[Any]) -> list[dict[str, Any]]:
    return [{"change": one.change, "time": _time(one.at), "outdated": one.outdated} for one in events]


def _moment(text: str | None) -> datetime:
    return convert(text, datetime) if text else ZERO_TIME


def _time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


_CHECKS = {
    "group_pods": _group_pods,
    "pod_requests": _pod_requests,
    "convert_no_behavior": _convert_no_behavior,
    "stabilize_no_behavior": _stabilize_no_behavior,
    "convert_behavior": _convert_behavior,
    "stabilize_behavior": _stabilize_behavior,
    "store_scale_event": _store_scale_event,
}
