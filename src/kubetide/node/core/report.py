"""The series of a node as the status of its NodeMetric.

    nodeUsage, systemUsage      averages over the aggregate duration
    aggregated…Usages           avg, p50, p90, p95, p99 over each duration of the policy; empty while the samples span
                                less than half of it
    podsMetric                  averages of every pod with data; pods without are left out
    prodReclaimableMetric       what the predictor reports, or an empty map
    prodPeakMetric              the predicted peak of prod pods, left out while there is none
    numaUsages                  averages of every NUMA node; the system's CPU is shared out as CPU usage is

CPU is truncated to milli-cores, memory to bytes. The memory kind follows the collect policy; hot page cache falls
back to plain usage while cold memory is not collected.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from kubetide.api.qos.slo_strategies import HostApplication
from kubetide.api.values.compat import Compat
from kubetide.api.values.quantity import milli_text
from kubetide.durations import format_duration, parse_duration
from kubetide.node.core.compat import AVERAGES_REPORTED, NEWEST, NUMA_USAGE, PROD_PEAK
from kubetide.node.core.prediction.reclaimable import NoPrediction, Predictor, Reclaimable
from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import AVG, PERCENTILES, Points
from kubetide.node.core.snapshot import PodState

MIN_REPORT_INTERVAL = timedelta(seconds=30)

GPU_CORE = "koordinator.sh/gpu-core"
GPU_MEMORY = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"

_POLICY_HOT = "usageWithHotPageCache"
_POLICY_PAGE_CACHE = "usageWithPageCache"


class UsageSeries(Protocol):
    """The store of samples."""

    def query(self, kind: str, properties: Mapping[str, str] | None, start: int, end: int) -> Points:
        """Return samples of matching series within [start, end] milliseconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU of the node."""

    uuid: str
    minor: int
    memory_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The NodeMetric status, and what telemetry needs beside it."""

    body: dict[str, Any]
    reclaimable: Reclaimable | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemoryKinds:
    node: str
    pod: str
    host_application: str


def _memory_kinds(policy: str, *, cold_started: bool) -> _MemoryKinds:
    if policy == _POLICY_HOT and cold_started:
        return _MemoryKinds(
            node=kinds.NODE_MEMORY_HOT, pod=kinds.POD_MEMORY_HOT, host_application=kinds.HOST_APP_MEMORY_HOT
        )
    if policy == _POLICY_PAGE_CACHE:
        return _MemoryKinds(
            node=kinds.NODE_MEMORY_WITH_PAGE_CACHE,
            pod=kinds.POD_MEMORY_WITH_PAGE_CACHE,
            host_application=kinds.HOST_APP_MEMORY_WITH_PAGE_CACHE,
        )
    return _MemoryKinds(node=kinds.NODE_MEMORY, pod=kinds.POD_MEMORY, host_application=kinds.HOST_APP_MEMORY)


def report_interval(spec: Mapping[str, Any]) -> timedelta:
    """Return the time between reports of a completed NodeMetric spec: at least 30 seconds."""
    return max(timedelta(seconds=spec["metricCollectPolicy"]["reportIntervalSeconds"]), MIN_REPORT_INTERVAL)


def counts_page_cache(spec: Mapping[str, Any]) -> bool:
    """Return whether a completed NodeMetric spec asks for memory with page cache."""
    return bool(spec["metricCollectPolicy"]["nodeMemoryCollectPolicy"] == _POLICY_PAGE_CACHE)


@dataclass(frozen=True, slots=True)
class _Window:
    """Samples between two moments, turned into usage."""

    series: UsageSeries
    start: int
    end: int

    def points(self, kind: str, properties: Mapping[str, str] | None = None) -> Points:
        return self.series.query(kind, properties, self.start, self.end)

    def usage(
        self, aggregate: str, cpu: str, memory: str, properties: Mapping[str, str] | None = None
    ) -> dict[str, Any] | None:
        """Return the resource map, or None if CPU or memory has no samples."""
        cores = self.points(cpu, properties).aggregate(aggregate)
        size = self.points(memory, properties).aggregate(aggregate)
        if cores is None or size is None:
            return None
        return _usage(cores, size)

    def devices(
        self, aggregate: str, gpus: Iterable[Gpu], core: str, memory: str, properties: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Return the usage of every GPU that has samples."""
        found: list[dict[str, Any]] = []
        for gpu in gpus:
            wanted = {**(properties or {}), kinds.GPU_MINOR: str(gpu.minor), kinds.GPU_UUID: gpu.uuid}
            busy = self.points(core, wanted).aggregate(aggregate)
            size = self.points(memory, wanted).aggregate(aggregate)
            if busy is None or size is None:
                continue
            ratio = int(100 * size / gpu.memory_total) if gpu.memory_total else 0
            found.append(
                {
                    "type": "gpu",
                    "id": gpu.uuid,
                    "minor": gpu.minor,
                    "health": False,
                    "resources": {GPU_CORE: str(int(busy)), GPU_MEMORY: str(int(size)), GPU_MEMORY_RATIO: str(ratio)},
                }
            )
        return found


def _with_devices(usage: dict[str, Any] | None, devices: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the resource map with its devices; without CPU or memory it is empty, devices included."""
    if usage is None:
        return {}
    return {**usage, "devices": devices} if devices else usage


def _aggregated(
    series: UsageSeries,
    end: int,
    duration: timedelta,
    cpu: str,
    memory: str,
    gpus: tuple[Gpu, ...],
    aggregates: Iterable[str],
) -> dict[str, Any]:
    length = int(duration.total_seconds() * 1000)
    window = _Window(series, end - length, end)
    points = window.points(cpu)
    usage: dict[str, Any] = {name: {} for name in aggregates}
    if len(points) and points.span_millis * 2 >= length:
        for name in usage:
            devices = window.devices(name, gpus, kinds.NODE_GPU_CORE, kinds.NODE_GPU_MEMORY)
            usage[name] = _with_devices(window.usage(name, cpu, memory), devices)
    return {"usage": usage, "duration": format_duration(duration)}


def status(
    series: UsageSeries,
    spec: Mapping[str, Any],
    *,
    now: datetime,
    pods: Iterable[PodState],
    host_applications: Iterable[HostApplication] = (),
    gpus: Iterable[Gpu] = (),
    cold_started: bool = False,
    predictor: Predictor,
    numa: Iterable[int] = (),
    compat: Compat = NEWEST,
) -> Status:
    """Build the status of a NodeMetric from its completed spec and the samples up to now."""
    policy = spec["metricCollectPolicy"]
    end = int(now.timestamp() * 1000)
    window = _Window(series, end - int(policy["aggregateDurationSeconds"]) * 1000, end)
    memory = _memory_kinds(policy["nodeMemoryCollectPolicy"], cold_started=cold_started)
    durations = [parse_duration(text) for text in policy["nodeAggregatePolicy"]["durations"]]
    known_gpus = tuple(gpus)
    aggregates = (AVG, *PERCENTILES) if compat.has(AVERAGES_REPORTED) else tuple(PERCENTILES)

    node_devices = window.devices(AVG, known_gpus, kinds.NODE_GPU_CORE, kinds.NODE_GPU_MEMORY)
    node_metric: dict[str, Any] = {
        "nodeUsage": _with_devices(window.usage(AVG, kinds.NODE_CPU, memory.node), node_devices),
        "aggregatedNodeUsages": [
            _aggregated(series, end, duration, kinds.NODE_CPU, memory.node, known_gpus, aggregates)
            for duration in durations
        ],
        "systemUsage": window.usage(AVG, kinds.SYS_CPU, kinds.SYS_MEMORY) or {},
        "aggregatedSystemUsages": [
            _aggregated(series, end, duration, kinds.SYS_CPU, kinds.SYS_MEMORY, (), aggregates)
            for duration in durations
        ],
    }

    if compat.has(NUMA_USAGE) and (usages := _numa_usages(window, numa)):
        node_metric["numaUsages"] = usages

    pods_metric: list[dict[str, Any]] = []
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        properties = {kinds.POD_UID: pod.uid}
        usage = window.usage(AVG, kinds.POD_CPU, memory.pod, properties)
        if usage is None:
            continue
        devices = window.devices(AVG, known_gpus, kinds.POD_GPU_CORE, kinds.POD_GPU_MEMORY, properties)
        pods_metric.append(
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "podUsage": _with_devices(usage, devices),
                "priority": pod.priority,
                "qos": pod.qos,
            }
        )
        # A pod that the predictor cannot judge is left out of the sum; the others still count.
        try:
            predictor.add_pod(pod.pod)
        except NoPrediction:
            continue

    applications: list[dict[str, Any]] = []
    for application in sorted(host_applications, key=lambda application: application.name):
        properties = {kinds.HOST_APP_NAME: application.name}
        usage = window.usage(AVG, kinds.HOST_APP_CPU, memory.host_application, properties)
        if usage is not None:
            applications.append(
                {
                    "name": application.name,
                    "usage": usage,
                    "priority": application.priority,
                    "qos": application.qos,
                }
            )

    resource: dict[str, Any] = {}
    peak: dict[str, Any] = {}
    reclaimable: Reclaimable | None = None
    with suppress(NoPrediction):
        reclaimable = predictor.result()
        resource = _resources(reclaimable)
    if compat.has(PROD_PEAK):
        with suppress(NoPrediction):
            peak = {"prodPeakMetric": {"resource": _resources(predictor.peak())}}
    body = {
        "updateTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "nodeMetric": node_metric,
        "podsMetric": pods_metric,
        "hostApplicationMetric": applications,
        "prodReclaimableMetric": {"resource": resource},
        **peak,
    }
    return Status(body=body, reclaimable=reclaimable)


def _numa_usages(window: _Window, numa: Iterable[int]) -> list[dict[str, Any]]:
    """Return the usage of every NUMA node that has samples, of all that is on it and of the system."""
    system = window.points(kinds.SYS_CPU).aggregate(AVG)
    found: list[tuple[int, float, float, float | None]] = []
    for node in sorted(numa):
        place = {kinds.NUMA_NODE: str(node)}
        cores = window.points(kinds.NUMA_CPU, place).aggregate(AVG)
        size = window.points(kinds.NUMA_MEMORY, place).aggregate(AVG)
        if cores is not None and size is not None:
            found.append((node, cores, size, window.points(kinds.NUMA_SYS_MEMORY, place).aggregate(AVG)))
    busy = sum(cores for _, cores, _, _ in found)
    usages: list[dict[str, Any]] = []
    for node, cores, size, system_size in found:
        usage: dict[str, Any] = {"numaNodeID": node, "nodeUsage": _usage(cores, size)}
        if system is not None and system_size is not None:
            share = cores / busy if busy else 1 / len(found)
            usage["systemUsage"] = _usage(system * share, system_size)
        usages.append(usage)
    return usages


def _usage(cores: float, size: float) -> dict[str, Any]:
    return {"resources": {"cpu": milli_text(int(cores * 1000)), "memory": str(int(size))}}


def _resources(found: Reclaimable) -> dict[str, Any]:
    return {"resources": {"cpu": milli_text(found.cpu_millis), "memory": str(found.memory_bytes)}}
