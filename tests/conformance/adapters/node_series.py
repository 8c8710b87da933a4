"""Adapters for samples, aggregates, prediction and the NodeMetric report (set node)."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.objects.core import Node, Pod
from kubetide.api.qos.cgroups import CgroupPaths
from kubetide.api.qos.slo_strategies import HostApplication
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import cpu_millis, memory_bytes
from kubetide.errors import KubetideError
from kubetide.node.core import report, slo
from kubetide.node.core.compat import parse_compat
from kubetide.node.core.prediction import reclaimable
from kubetide.node.core.prediction.peak import Peak, PeakModels, PodUsage
from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import AVG, COUNT, LAST, PERCENTILES, Points
from kubetide.node.core.series.ring import Ring, series_key
from kubetide.node.core.snapshot import pod_state

Case = dict[str, Any]
NOW = datetime(2026, 6, 11, 8, 0, 0, tzinfo=UTC)


@suite("node/aggregate")
def aggregate(case: Case) -> Iterable[str]:
    given = case["input"]["points"] or []
    points = Points(
        np.array([point["unixMillis"] for point in given], dtype=np.int64),
        np.array([point["value"] for point in given], dtype=np.float64),
    )
    actual = {kind: points.aggregate(kind) for kind in (AVG, LAST, COUNT, *PERCENTILES)}
    yield from differences(case["expected"], actual, drop_empty=True)


def accepted(check: Any, *arguments: Any) -> bool:
    try:
        check(*arguments)
    except KubetideError:
        return False
    return True


@suite("node/metric_sample")
def metric_sample(case: Case) -> Iterable[str]:
    given = case["input"]["metric"], case["input"]["properties"] or {}
    actual = {"sampleOK": accepted(kinds.check_sample, *given), "queryOK": accepted(kinds.check_query, *given)}
    yield from differences(case["expected"], actual)


@suite("node/predict_training")
def predict_training(case: Case) -> Iterable[str]:
    given = case["input"]
    models = PeakModels(timedelta(hours=given["cpuHalfLifeHours"]), timedelta(hours=given["memoryHalfLifeHours"]))
    now = NOW
    for step in given["steps"]:
        now = datetime.fromtimestamp(step["unixSeconds"], UTC)
        pods = [
            PodUsage(pod["uid"], pod["priorityClass"] or "koord-batch", pod["cpu"], pod["memory"])
            for pod in step["pods"] or ()
        ]
        models.train(now, pods, step["nodeCPU"], step["nodeMemory"])
    if given.get("gcAtEnd"):
        models.expire(now, timedelta(minutes=30))
    actual = {
        model: {name: {"cpuMilli": peak.cpu_millis, "memory": peak.memory_bytes} for name, peak in peaks.items()}
        for model, peaks in models.predict_many(models.ids()).items()
    }
    yield from differences(case["expected"]["predictions"], actual, drop_empty=True)


class Given:
    """Predictions as the case gives them."""

    def __init__(self, raw: Case) -> None:
        self._peaks = {
            model: {
                name: Peak(cpu_millis(peak.get("cpu", 0)), memory_bytes(peak.get("memory", 0)))
                for name, peak in percentiles.items()
            }
            for model, percentiles in raw.items()
        }

    def predict(self, identity: str) -> dict[str, Peak] | None:
        return self._peaks.get(identity)


@suite("node/prod_reclaimable")
def prod_reclaimable(case: Case) -> Iterable[str]:
    added, by_pod, by_priority, smallest = _predict(case["input"], None)
    actual = {
        "addPodOK": added,
        "podReclaimable": _answer(by_pod.result),
        "priorityReclaimable": _answer(by_priority.result),
        "min": _answer(smallest.result),
    }
    yield from differences(case["expected"], actual, drop_empty=True)


@suite("node/prod_reclaimable_18", "node/prod_peak_main")
def prod_reclaimable_18(case: Case) -> Iterable[str]:
    raw = case["input"]["node"]
    limit = reclaimable.node_limit(None if raw is None else convert(raw, Node))
    added, _, _, smallest = _predict(case["input"], limit)
    actual = {"addPodOK": added, "min": _answer(smallest.result)}
    if "peak" in case["expected"]:
        actual["peak"] = _answer(smallest.peak)
    yield from differences(case["expected"], actual, drop_empty=True)


_Predicted = tuple[list[bool], reclaimable.PodPredictor, reclaimable.PriorityPredictor, reclaimable.MinPredictor]


def _predict(given: Case, limit: reclaimable.NodeLimit | None) -> _Predicted:
    predictions = Given(given["predictions"])
    margin, cold = given["safetyMarginPercent"], timedelta(seconds=given["coldStartSeconds"])
    by_pod = reclaimable.PodPredictor(predictions, NOW, margin, cold, limit)
    by_priority = reclaimable.PriorityPredictor(predictions, margin, limit)
    smallest = reclaimable.MinPredictor(by_pod, by_priority)
    added: list[bool] = []
    for one in given["pods"]:
        raw = {**one["pod"], "metadata": dict(one["pod"]["metadata"])}
        raw["metadata"]["creationTimestamp"] = (NOW - timedelta(seconds=one["ageSeconds"])).isoformat()
        if one["terminating"]:
            raw["metadata"]["deletionTimestamp"] = NOW.isoformat()
        added.append(accepted(smallest.add_pod, convert(raw, Pod)))
    return added, by_pod, by_priority, smallest


def _answer(ask: Callable[[], reclaimable.Reclaimable]) -> Case:
    try:
        found = ask()
    except KubetideError:
        return {"error": True}
    return {"cpuMilli": found.cpu_millis, "memory": found.memory_bytes}


@suite("node/collect_metric")
def collect_metric(case: Case) -> Iterable[str]:
    given = case["input"]
    ring = Ring(retention_seconds=8 * 3600)
    end = int(NOW.timestamp() * 1000)

    def fill(name: str, kind: str, properties: dict[str, str], samples: list[Case]) -> None:
        key = series_key(kind, properties)
        for sample in sorted(samples, key=lambda one: -one["secondsAgo"]):
            ring.append(name, 1.0, end - round(sample["secondsAgo"] * 1000), [(key, sample["value"])])

    for kind, samples in (given["node"] or {}).items():
        fill(kind, kind, {}, samples)
    pods = []
    for one in given["pods"] or ():
        pod = convert(one["pod"], Pod)
        pods.append(pod_state(pod, CgroupPaths()))
        for kind, samples in (one["series"] or {}).items():
            fill(f"{kind}-{pod.metadata.uid}", kind, {kinds.POD_UID: pod.metadata.uid}, samples)
    applications = []
    for one in given["hostApps"] or ():
        application = convert(one["app"], HostApplication)
        applications.append(application)
        for kind, samples in (one["series"] or {}).items():
            fill(f"{kind}-{application.name}", kind, {kinds.HOST_APP_NAME: application.name}, samples)
    gpus = []
    for one in given["gpus"] or ():
        gpus.append(report.Gpu(uuid=one["uuid"], minor=one["minor"], memory_total=one["memoryTotal"]))
        properties = {kinds.GPU_UUID: one["uuid"], kinds.GPU_MINOR: str(one["minor"])}
        for kind, samples in (one["series"] or {}).items():
            fill(f"{kind}-{one['uuid']}", kind, properties, samples)
    built = report.status(
        ring,
        slo.complete_collect_policy(given["spec"]),
        now=NOW,
        pods=pods,
        host_applications=applications,
        gpus=gpus,
        cold_started=given.get("coldMemoryStarted", False),
        predictor=reclaimable.EmptyPredictor(),
        compat=parse_compat("1.4"),
    )
    actual = {name: value for name, value in built.body.items() if name != "updateTime"}
    yield from differences(case["expected"], actual, drop_empty=True, quantities=True, sets=("podsMetric",))
