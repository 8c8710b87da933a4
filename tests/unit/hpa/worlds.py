"""Small worlds for tests of the autoscaler: pods, readings, observations, in one line each."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, MetricSpec
from kubetide.api.values.codec import convert
from kubetide.hpa.core.annotations import HeadroomMode
from kubetide.hpa.core.decide import decide
from kubetide.hpa.core.headroom.advice import Advice
from kubetide.hpa.core.headroom.learner import LearnedCount
from kubetide.hpa.core.observation import Memory, Observation, Options, ScaleDecision, ScaleView
from kubetide.hpa.core.samples import PodReading, Reading, Sample, ValueReading
from kubetide.stats.forecast import Forecast
from kubetide.testing.builders import make_hpa, make_pod

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LONG_AGO = "2026-03-01T06:00:00Z"


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def stamp(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def pod(
    name: str,
    *,
    ready: bool | None = True,
    phase: str = "Running",
    started: datetime | None = None,
    changed: datetime | None = None,
    deleting: bool = False,
    cpu: str | None = "100m",
    labels: Mapping[str, str] | None = None,
    owner: str = "rs-1",
) -> Pod:
    raw = make_pod(name, "shop", labels=labels or {"app": "web"}, cpu=cpu, phase=phase, ready=ready, started=LONG_AGO)
    if started is not None:
        raw["status"]["startTime"] = stamp(started)
    if changed is not None and ready is not None:
        raw["status"]["conditions"][0]["lastTransitionTime"] = stamp(changed)
    if deleting:
        raw["metadata"]["deletionTimestamp"] = stamp(NOW)
    raw["metadata"]["ownerReferences"] = [{"uid": owner, "kind": "ReplicaSet", "name": owner, "controller": True}]
    return convert(raw, Pod)


def pods(count: int, **arguments: Any) -> list[Pod]:
    return [pod(f"web-{number}", **arguments) for number in range(count)]


def reading(*values: int, at: datetime = NOW, window: float = 30) -> PodReading:
    samples = {f"web-{n}": Sample(value, at, timedelta(seconds=window)) for n, value in enumerate(values)}
    return PodReading(samples, at)


def value(*values: int) -> ValueReading:
    return ValueReading(values, NOW)


def metric(raw: dict[str, Any]) -> MetricSpec:
    return convert(raw, MetricSpec)


CPU_50 = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
QUEUE_VALUE = {
    "type": "External",
    "external": {"metric": {"name": "depth"}, "target": {"type": "Value", "value": "10"}},
}


def hpa(**arguments: Any) -> HorizontalPodAutoscaler:
    status = arguments.pop("status", None)
    annotations = arguments.pop("annotations", None)
    created = arguments.pop("created", None)
    arguments.setdefault("metrics", [CPU_50])
    raw = make_hpa("web", "shop", **arguments)
    raw["metadata"] |= {"uid": "u-1", "resourceVersion": "7", "generation": 1}
    if annotations:
        raw["metadata"]["annotations"] = annotations
    if created:
        raw["metadata"]["creationTimestamp"] = stamp(created)
    if status:
        raw["status"] = status
    return convert(raw, HorizontalPodAutoscaler)


def observation(
    autoscaler: HorizontalPodAutoscaler,
    replicas: int,
    readings: Sequence[Reading] = (),
    *,
    observed: int | None = None,
    selector: str = "app=web",
    running: Sequence[Pod] | None = None,
    **more: Any,
) -> Observation:
    return Observation(
        hpa=autoscaler,
        scale=ScaleView(replicas, replicas if observed is None else observed, selector),
        pods=pods(replicas) if running is None else running,
        readings=tuple(readings),
        **more,
    )


def turn(
    seen: Observation, memory: Memory | None = None, *, now: datetime = NOW, options: Options | None = None
) -> ScaleDecision:
    return decide(seen, memory or Memory(recommendations=()), options or Options(), now=now)


def learned(replicas: int, *, proven: bool = True, mode: HeadroomMode = HeadroomMode.LEARNED) -> LearnedCount:
    advice = Advice(
        replicas=replicas,
        forecast=Forecast(value=4.2, weights={"last": 1.0}),
        typical_error=0.08,
        level=replicas,
        rule="errors, late work at 8",
        hold_steps=16,
        backlog_seconds=0.0,
        cost=5.5,
        plain_cost=6.5,
        proven=proven,
    )
    return LearnedCount(mode=mode, demand=4.0, advice=advice, step_seconds=15, origin="live")
