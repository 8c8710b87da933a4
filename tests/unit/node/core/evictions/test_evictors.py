"""Evictions: when, how much, whom, and what already leaves by itself."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import NodeSLOSpec, ResourceThresholdStrategy
from kubetide.api.values.codec import convert
from kubetide.node.core.evictions.evictors import SHORT, STUCK, CpuEvict, MemoryEvict
from kubetide.node.core.evictions.features import (
    BE_MEMORY,
    CPU_FEATURES,
    CPU_USAGE,
    MEMORY_ALLOCATABLE,
    MEMORY_FEATURES,
    MEMORY_USAGE,
    cpu_order,
    memory_order,
)
from kubetide.node.core.evictions.pods import EvictablePod
from kubetide.node.core.evictions.satisfaction import release_milli, usage_is_high
from kubetide.node.core.evictions.selection import Selection
from kubetide.node.core.plan import Plan
from kubetide.node.core.series import kinds
from nodeworld import START, World

GB = 10**9


def be(name: str, **fields: Any) -> EvictablePod:
    return EvictablePod(uid=name, namespace="d", name=name, **fields)


def raw(name: str, *, priority: int | None = 5000, batch: int = 1000, deleted_ago: float | None = None) -> Any:
    meta: dict[str, Any] = {"name": name, "namespace": "d", "uid": name, "labels": {qos.LABEL_QOS: "BE"}}
    if deleted_ago is not None:
        meta["deletionTimestamp"] = (START + timedelta(seconds=30 - deleted_ago)).isoformat()
        meta["deletionGracePeriodSeconds"] = 30
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "resources": {"requests": {"kubernetes.io/batch-cpu": str(batch)}}}]
    }
    if priority is not None:
        spec["priority"] = priority
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", "qosClass": "BestEffort"}}


def full_node(used_gb: float, **pods_gb: float) -> World:
    """A node of 100 GB with best-effort pods that use memory."""
    world = World()
    capacity = {"cpu": "10", "memory": "100G", "kubernetes.io/batch-cpu": "10000"}
    world.node = convert({"metadata": {"name": "n"}, "status": {"capacity": capacity, "allocatable": capacity}}, Node)
    threshold = ResourceThresholdStrategy(
        enable=True,
        memory_evict_threshold_percent=70,
        cpu_evict_be_satisfaction_lower_percent=30,
        cpu_evict_be_satisfaction_upper_percent=40,
    )
    world.slo = NodeSLOSpec(resource_used_threshold_with_be=threshold)
    world.metrics.set(kinds.NODE_MEMORY, used_gb * GB)
    for name, used in pods_gb.items():
        world.metrics.set(kinds.POD_MEMORY, used * GB, {kinds.POD_UID: name})
    return world


def names(plan: Plan) -> list[str]:
    return [one.name for task in plan.tasks for one in task.candidates]


def need(plan: Plan) -> int:
    """What the first task still has to release when what leaves anyway is gone."""
    return sum(Selection(plan.tasks, plan.pending).missing(plan.tasks[0]).values())


def victims(plan: Any) -> list[str]:
    return [name.partition("/")[2] for name in plan.trace.get("victims", [])]


def test_the_larger_pod_of_the_lower_priority_goes_first() -> None:
    pods = [
        be("big", priority=5500, memory_used=9),
        be("small", priority=5000, memory_used=1),
        be("medium", priority=5000, memory_used=5),
        be("unknown", priority=5000),
    ]
    assert [pod.name for pod in memory_order(pods)] == ["medium", "small", "big"]


def test_the_cpu_order_is_total_also_without_priorities() -> None:
    pods = [
        be("a", priority=None, request_milli=1000, used_milli=100),
        be("b", priority=5000, request_milli=1000, used_milli=900),
        be("c", priority=None, request_milli=1000, used_milli=900),
        be("d", priority=5000, request_milli=0, used_milli=900),
    ]
    assert [pod.name for pod in cpu_order(pods)] == ["c", "a", "b", "d"]
    assert cpu_order(reversed(pods)) == cpu_order(pods)


def test_memory_is_freed_down_to_the_lower_bound() -> None:
    world = full_node(75, a=4, b=5, c=6)
    world.add_pods([raw("a"), raw("b"), raw("c")])
    plan = world.decide(MemoryEvict())
    assert need(plan) == 7 * GB  # 75 % down to 68 %
    assert victims(plan) == ["c", "b"]
    assert all(one.stop_containers for task in plan.tasks for one in task.candidates)
    first = plan.tasks[0].candidates[0]
    assert (first.reason, first.message.partition(":")[0]) == ("EvictPodByNodeMemoryUsage", "BEMemoryEvict")


def test_a_pod_that_already_leaves_counts_as_freed() -> None:
    world = full_node(75, leaving=5, a=4, b=5)
    world.add_pods([raw("leaving", deleted_ago=10), raw("a"), raw("b")])
    plan = world.decide(MemoryEvict())
    assert need(plan) == 2 * GB
    assert victims(plan) == ["b"]


def test_a_pod_that_this_agent_just_evicted_counts_as_freed() -> None:
    world = full_node(75, a=7, b=5)
    world.add_pods([raw("a"), raw("b")])
    world.evicted = {"a": START - timedelta(seconds=5)}
    plan = world.decide(MemoryEvict())
    assert need(plan) == 0
    assert victims(plan) == []


def test_a_pod_that_hangs_a_minute_beyond_its_grace_period_is_stuck_and_counts_no_more() -> None:
    world = full_node(75, hanging=50, a=7)
    world.add_pods([raw("hanging", deleted_ago=91), raw("a")])
    plan = world.decide(MemoryEvict())
    assert victims(plan) == ["a"]
    assert [(notice.reason, notice.name) for notice in plan.notices] == [(STUCK, "hanging")]


def test_pods_of_unknown_usage_are_never_chosen_and_the_shortage_is_told() -> None:
    world = full_node(75, a=1)
    world.add_pods([raw("a"), raw("silent", priority=1)])
    plan = world.decide(MemoryEvict())
    assert names(plan) == ["a"]
    assert [notice.reason for notice in plan.notices] == [SHORT]
    assert str(6 * GB) in plan.notices[0].message


def test_memory_evict_rests_only_after_an_accepted_eviction() -> None:
    world = full_node(75, a=9)
    world.add_pod(raw("a"))
    strategy = MemoryEvict(cool=timedelta(seconds=4))
    assert names(world.decide(strategy)) == ["a"]
    assert names(world.decide(strategy)) == ["a"]
    strategy.evicted(world.clock.now())
    world.clock.advance(3)
    assert world.decide(strategy).is_empty
    world.clock.advance(1)
    assert names(world.decide(strategy)) == ["a"]


@pytest.mark.parametrize(
    ("fields", "used"),
    [
        pytest.param({"memory_evict_threshold_percent": None}, 99, id="no-threshold"),
        pytest.param({"memory_evict_threshold_percent": -1}, 99, id="negative-threshold"),
        pytest.param({"memory_evict_lower_percent": 70}, 99, id="lower-not-below-threshold"),
        pytest.param({"enable": False}, 99, id="disabled"),
        pytest.param({}, 69.99, id="below-the-threshold"),
    ],
)
def test_memory_evict_stays_quiet(fields: dict[str, Any], used: float) -> None:
    world = full_node(used, a=50)
    world.add_pod(raw("a"))
    settings = {"enable": True, "memory_evict_threshold_percent": 70} | fields
    world.slo = NodeSLOSpec(resource_used_threshold_with_be=ResourceThresholdStrategy(**settings))
    assert world.decide(MemoryEvict()).is_empty


def test_a_memory_threshold_of_zero_is_always_reached() -> None:
    world = full_node(1, a=50)
    world.add_pod(raw("a"))
    settings = ResourceThresholdStrategy(enable=True, memory_evict_threshold_percent=0)
    world.slo = NodeSLOSpec(resource_used_threshold_with_be=settings)
    plan = world.decide(MemoryEvict())
    assert need(plan) == 3 * GB  # from 1 % down to 2 % below nothing
    assert victims(plan) == ["a"]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        pytest.param(15000, 5000, id="exactly-the-lower-bound-is-too-little"),
        pytest.param(15001, 0, id="above-the-lower-bound-is-enough"),
        pytest.param(0, 20000, id="nothing-at-all"),
    ],
)
def test_satisfaction_is_measured_against_its_lower_bound(limit: int, expected: int) -> None:
    assert release_milli(50000, limit, lower_percent=30, upper_percent=40) == expected


@pytest.mark.parametrize(
    ("used", "limit", "expected"),
    [
        pytest.param(0, 999, True, id="below-one-core-usage-does-not-matter"),
        pytest.param(899, 1000, False, id="from-one-core-on-it-does"),
        pytest.param(900, 1000, True, id="ninety-percent-are-high"),
        pytest.param(5000, -1, False, id="without-a-limit-nothing-is-high"),
    ],
)
def test_usage_is_high_near_its_limit_or_when_there_is_hardly_any(used: int, limit: int, expected: bool) -> None:
    assert usage_is_high(used, limit, None) is expected


def starve(world: World, *, request: float = 10000, limit: float = 2000, used: float = 1900) -> None:
    for allocation, value in (("usage", used), ("request", request), ("real-limit", limit)):
        who = {"be_resource": "cpu", "be_allocation": allocation}
        world.metrics.set(kinds.NODE_BE, [value] * 3, who)


def test_starved_pods_are_relieved_by_requests() -> None:
    world = full_node(10)
    world.add_pods([raw("a", priority=5001, batch=1500), raw("b", batch=1500), raw("c", batch=1500)])
    world.metrics.set(kinds.POD_CPU, 1.0, {kinds.POD_UID: "c"})
    starve(world)
    world.clock.advance(21)
    plan = world.decide(CpuEvict(START))
    assert need(plan) == 2000  # 10 cores requested, 20 % satisfied, 40 % wanted
    assert victims(plan) == ["c", "b"]
    assert not any(one.stop_containers for task in plan.tasks for one in task.candidates)


def test_cpu_evict_rests_after_the_agents_start() -> None:
    world = full_node(10)
    world.add_pod(raw("a"))
    starve(world)
    strategy = CpuEvict(START)
    world.clock.advance(19)
    assert world.decide(strategy).is_empty
    world.clock.advance(1)
    assert names(world.decide(strategy)) == ["a"]
    strategy.evicted(world.clock.now())
    world.clock.advance(19)
    assert world.decide(strategy).is_empty


def test_requests_that_leave_anyway_are_subtracted() -> None:
    world = full_node(10)
    world.add_pods([raw("leaving", batch=1500, deleted_ago=1), raw("a", batch=1500), raw("b", batch=1500)])
    starve(world)
    world.clock.advance(21)
    plan = world.decide(CpuEvict(START))
    assert need(plan) == 500
    assert len(victims(plan)) == 1


def test_one_missing_sample_series_evicts_nobody() -> None:
    world = full_node(10)
    world.add_pod(raw("a"))
    starve(world)
    world.metrics.set(kinds.NODE_BE, None, {"be_resource": "cpu", "be_allocation": "real-limit"})
    world.clock.advance(21)
    assert world.decide(CpuEvict(START)).is_empty


def by_priority(name: str, priority: int, used_gb: float, *, opted_in: str | None = "true", **annotations: str) -> Any:
    """A pod that the features by priority may take: batch up to 5999, mid up to 7999."""
    pod = raw(name, priority=priority)
    kind = "mid" if priority >= 7000 else "batch"
    amount = str(int(used_gb * GB))
    pod["spec"]["containers"][0]["resources"] = {"requests": {f"kubernetes.io/{kind}-memory": amount}}
    pod["metadata"]["labels"][qos.LABEL_EVICTION_ENABLED] = opted_in
    pod["metadata"]["annotations"] = {
        f"koordinator.sh/{key.replace('_', '-')}": text for key, text in annotations.items()
    }
    return pod


def overcommitted(*pods: Any, batch: str | None = "10G", mid: str | None = "10G", **fields: Any) -> World:
    """A node whose batch and mid pods use what they requested, and allow eviction by allocatable."""
    world = full_node(10)
    settings = {
        "enable": True,
        "memory_allocatable_evict_threshold_percent": 110,
        "memory_allocatable_evict_lower_percent": 100,
        "allocatable_evict_priority_threshold": 7999,
    } | fields
    world.slo = NodeSLOSpec(resource_used_threshold_with_be=ResourceThresholdStrategy(**settings))
    allocatable = {"kubernetes.io/batch-memory": batch, "kubernetes.io/mid-memory": mid}
    status = {
        "capacity": {"cpu": "10", "memory": "100G"},
        "allocatable": {name: text for name, text in allocatable.items() if text is not None},
    }
    world.node = convert({"metadata": {"name": "n"}, "status": status}, Node)
    world.add_pods(pods)
    for pod in world.pods:
        world.metrics.set(kinds.POD_MEMORY, GB, {kinds.POD_UID: pod.uid})
    return world


BY_ALLOCATABLE = MemoryEvict(features=(MEMORY_ALLOCATABLE,))


def test_overcommitted_batch_pods_go_by_priority_and_then_by_size() -> None:
    pods = [by_priority("late", 5900, 4), by_priority("small", 5500, 3), by_priority("large", 5500, 6)]
    plan = overcommitted(*pods).decide(BY_ALLOCATABLE)
    assert names(plan) == ["large", "small", "late"]
    assert victims(plan) == ["large"]  # 13 GB requested of 10: 3 GB are due
    assert not plan.tasks[0].candidates[0].stop_containers


def test_eviction_priority_comes_before_priority() -> None:
    pods = [by_priority("a", 5000, 8, eviction_priority="1"), by_priority("b", 5999, 8, eviction_priority="-1")]
    assert victims(overcommitted(*pods).decide(BY_ALLOCATABLE)) == ["b"]


def test_a_class_that_is_not_short_keeps_its_pods() -> None:
    pods = [by_priority("batch", 5000, 2), by_priority("mid", 7500, 12)]
    assert names(overcommitted(*pods).decide(BY_ALLOCATABLE)) == ["mid"]


@pytest.mark.parametrize(
    ("batch", "gone"),
    [pytest.param(None, [], id="unknown-is-no-reason"), pytest.param("0", ["a", "b"], id="nothing-left-is")],
)
def test_a_batch_resource_that_the_node_does_not_report_is_unknown(batch: str | None, gone: list[str]) -> None:
    pods = [by_priority("a", 5000, 2), by_priority("b", 5500, 2)]
    assert victims(overcommitted(*pods, batch=batch).decide(BY_ALLOCATABLE)) == gone


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(by_priority("p", 5000, 12, opted_in="yes"), id="not-opted-in"),
        pytest.param(by_priority("p", 5000, 12, eviction_policy="[]"), id="no-feature-allowed"),
        pytest.param(by_priority("p", 5000, 12, eviction_policy="nonsense"), id="unreadable-policy"),
        pytest.param(by_priority("p", 5000, 12, eviction_policy='["MemoryEvict"]'), id="another-feature-allowed"),
    ],
)
def test_a_pod_that_did_not_agree_stays_and_the_shortage_is_told(pod: Any) -> None:
    plan = overcommitted(pod).decide(BY_ALLOCATABLE)
    assert names(plan) == []
    assert [notice.reason for notice in plan.notices] == [SHORT]


def test_a_priority_above_the_threshold_is_neither_counted_nor_taken() -> None:
    pods = [by_priority("mid", 7500, 20), by_priority("batch", 5500, 2)]
    world = overcommitted(*pods, allocatable_evict_priority_threshold=5999)
    assert world.decide(BY_ALLOCATABLE).is_empty


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"memory_allocatable_evict_lower_percent": None}, id="no-lower-bound"),
        pytest.param({"memory_allocatable_evict_lower_percent": 110}, id="lower-not-below-threshold"),
        pytest.param({"allocatable_evict_priority_threshold": 8000}, id="beyond-mid"),
        pytest.param({"allocatable_evict_priority_threshold": None}, id="no-priority"),
        pytest.param({"enable": None}, id="switch-missing"),
    ],
)
def test_allocatable_evict_stays_quiet_without_a_usable_configuration(fields: dict[str, Any]) -> None:
    assert overcommitted(by_priority("a", 5000, 20), **fields).decide(BY_ALLOCATABLE).is_empty


def test_usage_evict_takes_opted_in_pods_up_to_a_priority() -> None:
    world = full_node(80, prod=20, batch=4, mid=9)
    fields: dict[str, Any] = {"memory_evict_threshold_percent": 70, "evict_enabled_priority_threshold": 7999}
    world.slo = NodeSLOSpec(resource_used_threshold_with_be=ResourceThresholdStrategy(enable=True, **fields))
    world.add_pods([by_priority("prod", 9500, 1), by_priority("mid", 7500, 1), by_priority("batch", 5500, 1)])
    plan = world.decide(MemoryEvict(features=(MEMORY_USAGE,)))
    assert need(plan) == 12 * GB  # 80 % down to 68 %
    assert victims(plan) == ["batch", "mid"]


def test_what_one_feature_releases_counts_for_the_next() -> None:
    world = full_node(80, a=12)
    fields: dict[str, Any] = {
        "memory_evict_threshold_percent": 70,
        "evict_enabled_priority_threshold": 5999,
        "memory_allocatable_evict_threshold_percent": 110,
        "memory_allocatable_evict_lower_percent": 100,
        "allocatable_evict_priority_threshold": 5999,
    }
    world.slo = NodeSLOSpec(resource_used_threshold_with_be=ResourceThresholdStrategy(enable=True, **fields))
    world.add_pods([by_priority("a", 5000, 1), by_priority("b", 5500, 1)])
    world.metrics.set(kinds.POD_MEMORY, 5 * GB, {kinds.POD_UID: "b"})
    plan = world.decide(MemoryEvict(features=MEMORY_FEATURES))
    assert [task.feature for task in plan.tasks] == [BE_MEMORY, MEMORY_USAGE]
    assert victims(plan) == ["a"]


def test_one_feature_that_cannot_act_does_not_stop_the_others() -> None:
    world = full_node(10)
    fields: dict[str, Any] = {"cpu_evict_threshold_percent": 50, "evict_enabled_priority_threshold": 5999}
    world.slo = NodeSLOSpec(resource_used_threshold_with_be=ResourceThresholdStrategy(enable=True, **fields))
    world.add_pod(by_priority("a", 5000, 1))
    world.metrics.set(kinds.NODE_CPU, 6.0)
    world.metrics.set(kinds.POD_CPU, 2.0, {kinds.POD_UID: "a"})
    world.clock.advance(21)
    plan = world.decide(CpuEvict(START, features=CPU_FEATURES))
    assert [task.feature for task in plan.tasks] == [CPU_USAGE]
    assert plan.tasks[0].amounts == {"cpu": 1200}
    assert set(plan.trace["features"]) == set(CPU_FEATURES)
