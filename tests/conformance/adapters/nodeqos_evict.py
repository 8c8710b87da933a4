"""Adapters of CPU evict and memory evict."""

from collections.abc import Iterable
from typing import Any

from conformance.outcome import expect
from conformance.registry import NotApplicable, suite
from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import NodeSLOSpec, ResourceThresholdStrategy
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import parse_quantity, quantity_float
from kubetide.node.core.evictions import features, pods, satisfaction
from kubetide.node.core.evictions.evictors import MemoryEvict, eviction_plan
from kubetide.node.core.evictions.selection import Selection
from kubetide.node.core.plan import Counted, Eviction, EvictionTask
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


def _running(raws: list[Case] | None) -> list[Case]:
    """Give pods of the older suites the phase that every pod of a kubelet has."""
    return [{**raw, "status": {"phase": "Running", **(raw.get("status") or {})}} for raw in raws or ()]


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
    world.add_pods(_running(given["pods"]))
    for uid, used in (given["podCPUUsed"] or {}).items():
        world.metrics.set(kinds.POD_CPU, quantity_float(used), {kinds.POD_UID: uid})
    ordered = [
        {"uid": pod.uid, "milliRequest": pod.request_milli, "milliUsed": pod.used_milli}
        for pod in features.cpu_order(pod for pod in pods.evictable_pods(world.snapshot()) if pod.best_effort)
    ]
    return expect(case, {"order": ordered})


@suite("node-qos/cpuevict_selection")
def selection(case: Case) -> Iterable[str]:
    given = case["input"]
    amounts = {one["uid"]: {"podResourceRequest": {"batch-cpu": one["milliRequest"]}} for one in given["ordered"] or ()}
    task = {"reason": "t", "target": "podResourceRequest", "toRelease": {"batch-cpu": given["milliRelease"]}}
    tasks = [_task({**task, "pods": given["ordered"] or []}, amounts)]
    chosen = Selection(tasks)
    evicted = []
    while (one := chosen.next()) is not None:
        chosen.accepted(one)
        evicted.append(one.uid)
    kept = [uid for uid in amounts if uid not in evicted]
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
    world.add_pods(_running(given["pods"]))
    for uid, used in (given["podMemoryUsed"] or {}).items():
        world.metrics.set(kinds.POD_MEMORY, quantity_float(used), {kinds.POD_UID: uid})
    plan = world.decide(MemoryEvict())
    evicted = [victim.rpartition("/")[2] for victim in plan.trace.get("victims", [])]
    kept = [pod.name for pod in world.pods if pod.name not in evicted]
    return expect(case, {"evicted": evicted, "kept": kept}, sets=("evicted", "kept"))


def _task(raw: Case, amounts: dict[str, Any]) -> EvictionTask:
    return EvictionTask(
        feature=raw["reason"],
        counted=Counted(raw["target"]),
        amounts=raw["toRelease"],
        candidates=tuple(
            Eviction(
                namespace="",
                name=one["uid"],
                uid=one["uid"],
                reason=raw["reason"],
                message="",
                releases={Counted(name): found for name, found in (amounts.get(one["uid"]) or {}).items()},
            )
            for one in raw["pods"]
        ),
    )


def _calls(chosen: Selection, refused: list[str], name: str) -> list[Case]:
    calls: list[Case] = []
    while (one := chosen.next()) is not None:
        accepted = one.uid not in refused
        calls.append({"uid": one.uid, name: one.message.partition(":")[0] or one.reason, "accepted": accepted})
        if accepted:
            chosen.accepted(one)
    return calls


@suite("node-qos/evict_select")
def evict_select(case: Case) -> Iterable[str]:
    given = case["input"]
    gone = set(given.get("alreadyEvicted") or ())
    amounts = given["podRelease"]
    pending: dict[Counted, dict[str, int]] = {}
    for uid in sorted(gone):
        for target, found in amounts.get(uid, {}).items():
            sums = pending.setdefault(Counted(target), {})
            sums.update({name: sums.get(name, 0) + amount for name, amount in found.items()})
    tasks = [
        _task({**one, "pods": [pod for pod in one["pods"] if pod["uid"] not in gone]}, amounts)
        for one in given["tasks"]
    ]
    chosen = Selection(tasks, pending)
    calls = _calls(chosen, given.get("refused") or [], "task")
    released = {
        str(target): kept
        for target, found in chosen.released.items()
        if (kept := {name: amount for name, amount in found.items() if amount})
    }
    missing = [chosen.missing(task) for task in tasks]
    return expect(
        case,
        {
            "calls": calls,
            "released": released,
            "evictedAny": any(call["accepted"] for call in calls),
            "tasks": [{"succeeded": not one, "missing": one} for one in missing],
        },
    )


def _evict_world(given: Case) -> World:
    world = World()
    world.node = convert(given["node"], Node) if given["node"] is not None else None
    if given["threshold"] is not None:
        threshold = convert(given["threshold"], ResourceThresholdStrategy)
        world.slo = NodeSLOSpec(resource_used_threshold_with_be=threshold)
    cpu = given["resource"] == "cpu"
    world.metrics.set(kinds.NODE_CPU if cpu else kinds.NODE_MEMORY, given.get("nodeUsed"))
    world.add_pods(given["pods"] or [])
    for uid, used in (given.get("podUsed") or {}).items():
        world.metrics.set(kinds.POD_CPU if cpu else kinds.POD_MEMORY, used, {kinds.POD_UID: uid})
    for name, value in (given.get("be") or {}).items():
        allocation = {"usage": "usage", "request": "request", "realLimit": "real-limit"}[name]
        world.metrics.set(kinds.NODE_BE, value, {"be_resource": "cpu", "be_allocation": allocation})
    world.evicted = dict.fromkeys(given.get("alreadyEvicted") or (), world.clock.now())
    return world


@suite("node-qos/evict_task", "node-qos/evict_task_main")
def evict_task(case: Case) -> Iterable[str]:
    given = case["input"]
    snapshot = _evict_world(given).snapshot()
    try:
        features.limits_of(given["gate"], snapshot.slo.resource_used_threshold_with_be if snapshot.slo else None)
    except features.Unusable:
        return expect(case, {"error": True})
    if case["expected"].get("error"):
        return ["accepted"]
    plan = eviction_plan(snapshot, [given["gate"]], given["resource"])
    task: Case | None = None
    for one in plan.tasks:
        order = [
            {"uid": pod.uid, "release": {name: amount for name, amount in pod.releases[one.counted].items() if amount}}
            for pod in one.candidates
        ]
        task = {"target": str(one.counted), "toRelease": dict(one.amounts), "order": order}
    return expect(case, {"error": False, "task": task})


@suite("node-qos/evict_round", "node-qos/evict_round_main")
def evict_round(case: Case) -> Iterable[str]:
    given = case["input"]
    every = features.CPU_FEATURES if given["resource"] == "cpu" else features.MEMORY_FEATURES
    asked = [feature for feature in every if feature in given["gates"]]
    plan = eviction_plan(_evict_world(given).snapshot(), asked, given["resource"])
    calls = _calls(Selection(plan.tasks, plan.pending), given.get("refused") or [], "feature")
    return expect(case, {"calls": calls})


@suite("node-qos/evict_config_valid")
def evict_config_valid(case: Case) -> Iterable[str]:
    raw = case["input"]["threshold"]
    try:
        features.limits_of(case["input"]["gate"], None if raw is None else convert(raw, ResourceThresholdStrategy))
    except features.Unusable:
        return expect(case, {"valid": False})
    return expect(case, {"valid": True})


@suite("node-qos/evict_policy_allowed")
def evict_policy_allowed(case: Case) -> Iterable[str]:
    pod = _one_pod(case)
    return expect(case, {"allowed": pod.allows(case["input"]["gate"]), "evictionEnabled": pod.opted_in})


@suite("node-qos/evict_pod_values", "node-qos/evict_pod_values_main")
def evict_pod_values(case: Case) -> Iterable[str]:
    pod = _one_pod(case)
    state = _world_of(case).pods[0]
    requests = qos.pod_request(state.pod)
    cpu = ("cpu", requests["cpu"].milli if "cpu" in requests else 0)
    memory = ("memory", requests["memory"].value if "memory" in requests else 0)
    if pod.class_requests is not None:
        cpu, memory = pod.class_requests.items()
    return expect(
        case,
        {
            "priority": pod.priority_value,
            "labelPriority": pod.sub_priority,
            "cpuResource": cpu[0],
            "cpuRequest": cpu[1],
            "memoryResource": memory[0],
            "memoryRequest": memory[1],
        },
    )


@suite("node-qos/eviction_priority")
def eviction_priority(case: Case) -> Iterable[str]:
    value = pods.eviction_priority(case["input"]["pod"]["metadata"].get("annotations") or {})
    return expect({**case, "expected": {"value": case["expected"].get("value", 0)}}, {"value": value})


@suite("node-qos/evict_switch")
def evict_switch(case: Case) -> Iterable[str]:
    gate, raw = case["input"]["gate"], case["input"]["nodeSLO"]
    if gate not in (*features.CPU_FEATURES, *features.MEMORY_FEATURES, "BECPUSuppress"):
        raise NotApplicable("only features of best-effort work are asked for their switch")
    spec = convert((raw or {}).get("spec") or {}, NodeSLOSpec)
    try:
        on = features.switched_on(spec.resource_used_threshold_with_be)
    except features.Unusable:
        return expect(case, {"disabled": True, "error": True})
    return expect(case, {"disabled": not on, "error": False})


def _world_of(case: Case) -> World:
    world = World()
    raw = case["input"]["pod"]
    world.add_pod({**raw, "status": {**(raw.get("status") or {}), "phase": "Running"}})
    return world


def _one_pod(case: Case) -> pods.EvictablePod:
    return pods.evictable_pods(_world_of(case).snapshot())[0]
