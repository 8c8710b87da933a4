"""Adapters of CPU evict and memory evict."""

from collections.abc import Iterable
from typing import Any

from conformance.outcome import expect
from conformance.registry import suite
from kubetide.api.objects.core import Node
from kubetide.api.qos.slo_strategies import NodeSLOSpec, ResourceThresholdStrategy
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import parse_quantity, quantity_float
from kubetide.node.core.qos import satisfaction
from kubetide.node.core.qos.evictions import MemoryEvict, best_effort_pods
from kubetide.node.core.qos.victims import BestEffortPod, cpu_order, take
from kubetide.node.core.series import kinds
from nodeworld import World

Case = dict[str, Any]


def _policy(raw: Case | None) -> satisfaction.SatisfactionPolicy:
    threshold = convert(raw or {}, ResourceThresholdStrategy)
    return satisfaction.SatisfactionPolicy(
        lower_percent=threshold.cpu_evict_be_satisfaction_lower_percent,
        upper_percent=threshold.cpu_evict_be_satisfaction_upper_percent,
        usage_threshold_percent=threshold.cpu_evict_be_usage_threshold_percent,
    )


def _numbers(raw: Case | None) -> satisfaction.BestEffortCpu:
    count, used, request, limit = (
        (raw or {}).get(name) or 0 for name in ("count", "cpuUsed", "cpuRequest", "cpuRealLimit")
    )
    return satisfaction.BestEffortCpu(count=count, used=used, request=request, real_limit=limit)


@suite("node-qos/cpuevict_release")
def release(case: Case) -> Iterable[str]:
    given = case["input"]
    batch = given["nodeBatchCPUAllocatable"]
    amount, _ = satisfaction.release_amount(
        _numbers(given["avg"]),
        _numbers(given["current"]),
        _policy(given["threshold"]),
        window_seconds=given["windowSeconds"],
        collect_interval_seconds=given["collectIntervalSeconds"],
        allocatable_batch_milli=None if batch is None else parse_quantity(batch).value,
        by_allocatable=(given["threshold"] or {}).get("cpuEvictPolicy") == "evictByAllocatable",
    )
    return expect(case, {"milliRelease": amount})


@suite("node-qos/cpuevict_config_valid")
def config_valid(case: Case) -> Iterable[str]:
    return expect(case, {"valid": _policy(case["input"]["threshold"]).valid})


@suite("node-qos/cpuevict_satisfaction")
def release_by_satisfaction(case: Case) -> Iterable[str]:
    given = case["input"]
    amount = satisfaction.release_milli(
        given["milliRequest"],
        given["milliLimit"],
        lower_percent=given["lowerPercent"],
        upper_percent=given["upperPercent"],
    )
    return expect(case, {"milliRelease": amount})


@suite("node-qos/cpuevict_usage_high")
def usage_high(case: Case) -> Iterable[str]:
    given = case["input"]
    high = satisfaction.usage_is_high(given["milliUsage"], given["milliLimit"], given["thresholdPercent"])
    return expect(case, {"high": high})


@suite("node-qos/cpuevict_window_valid")
def window_valid(case: Case) -> Iterable[str]:
    given = case["input"]
    valid = satisfaction.enough_samples(
        window_seconds=given["windowSeconds"],
        collect_interval_seconds=given["collectIntervalSeconds"],
        count=given["count"],
    )
    return expect(case, {"valid": valid})


@suite("node-qos/cpuevict_order")
def order(case: Case) -> Iterable[str]:
    given = case["input"]
    world = World()
    world.add_pods(given["pods"] or [])
    for uid, used in (given["podCPUUsed"] or {}).items():
        world.metrics.set(kinds.POD_CPU, quantity_float(used), {kinds.POD_UID: uid})
    ordered = [
        {"uid": pod.uid, "milliRequest": pod.request_milli, "milliUsed": pod.used_milli}
        for pod in cpu_order(best_effort_pods(world.snapshot()))
    ]
    return expect(case, {"order": ordered})


@suite("node-qos/cpuevict_selection")
def selection(case: Case) -> Iterable[str]:
    given = case["input"]
    ordered = [
        (BestEffortPod(uid=one["uid"], namespace="", name=one["uid"]), one["milliRequest"])
        for one in given["ordered"] or ()
    ]
    evicted = [pod.uid for pod in take(ordered, given["milliRelease"])]
    kept = [pod.uid for pod, _ in ordered if pod.uid not in evicted]
    return expect(case, {"evicted": evicted, "kept": kept}, sets=("evicted", "kept"))


@suite("node-qos/memoryevict_round")
def memory_round(case: Case) -> Iterable[str]:
    given = case["input"]
    world = World()
    if given["node"] is not None:
        world.node = convert(given["node"], Node)
    if given["threshold"] is not None:
        threshold = convert(given["threshold"], ResourceThresholdStrategy)
        world.slo = NodeSLOSpec(resource_used_threshold_with_be=threshold)
    if given["nodeMemoryUsed"] is not None:
        world.metrics.set(kinds.NODE_MEMORY, quantity_float(given["nodeMemoryUsed"]))
    world.add_pods(given["pods"] or [])
    for uid, used in (given["podMemoryUsed"] or {}).items():
        world.metrics.set(kinds.POD_MEMORY, quantity_float(used), {kinds.POD_UID: uid})
    plan = world.decide(MemoryEvict())
    evicted = [victim.rpartition("/")[2] for victim in plan.trace.get("victims", [])]
    kept = [pod.name for pod in world.pods if pod.name not in evicted]
    return expect(case, {"evicted": evicted, "kept": kept}, sets=("evicted", "kept"))
