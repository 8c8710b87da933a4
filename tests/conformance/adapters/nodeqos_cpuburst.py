"""Adapters of CPU burst."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from conformance.outcome import expect
from conformance.registry import suite
from kubetide.api.qos.slo_strategies import CPUBurstConfig
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import quantity_float
from kubetide.node.core.formats.cpu import milli_to_quota
from kubetide.node.core.kernel_values import Needs
from kubetide.node.core.plan import Batch, Plan
from kubetide.node.core.qos.burst_limiter import Bucket, Limiters, capacity_of
from kubetide.node.core.qos.burst_quota import (
    Operation,
    PoolState,
    ceiling_us,
    static_burst_us,
    target_us,
    under_pool,
)
from kubetide.node.core.qos.burst_writes import burst_writes, quota_batch, quota_writes
from kubetide.node.core.qos.cpu_burst import CpuBurst, pod_config, share_pool_state
from kubetide.node.core.series import kinds
from nodeworld import START, World

Case = dict[str, Any]


def _pod_of(world: World, containers: list[Case]) -> Any:
    return world.add_pod(
        {
            "metadata": {"name": "pod", "namespace": "default", "uid": "pod"},
            "spec": {"containers": containers},
            "status": {
                "phase": "Running",
                "qosClass": "Burstable",
                "containerStatuses": [
                    {"name": one["name"], "containerID": f"containerd://{one['name']}"} for one in containers
                ],
            },
        }
    )


@suite("node-qos/cpuburst_node_state")
def node_state(case: Case) -> Iterable[str]:
    given = case["input"]
    world = World()
    world.add_pods(given["pods"] or [])
    state = share_pool_state(
        node_used=None if given["nodeCPUUsed"] is None else quantity_float(given["nodeCPUUsed"]),
        cpus=given["nodeCPUs"],
        pods=world.pods,
        pod_used={uid: quantity_float(used) for uid, used in (given["podCPUUsed"] or {}).items()},
        threshold_percent=given["sharePoolThresholdPercent"],
    )
    return expect(case, {"state": str(state)})


@suite("node-qos/cpuburst_pod_config")
def merged_config(case: Case) -> Iterable[str]:
    given = case["input"]
    annotations = None if given["podAnnotation"] is None else {"koordinator.sh/cpuBurst": given["podAnnotation"]}
    node = None if given["nodeConfig"] is None else convert(given["nodeConfig"], CPUBurstConfig)
    return expect(case, {"config": pod_config(annotations, node)}, drop_empty=True)


@suite("node-qos/cpuburst_static")
def static(case: Case) -> Iterable[str]:
    given = case["input"]
    world = World()
    pod = _pod_of(world, given["containers"])
    for directory in (pod.directory, *(one.directory for one in pod.containers)):
        # Without a quota nothing bounds the burst: the data has the computed values.
        world.cgroup("cpu", directory, {"cpu.cfs_burst_us": "0", "cpu.cfs_quota_us": "-1"})
    world.apply(Plan(batches=(Batch.flat(*burst_writes(pod, convert(given["config"], CPUBurstConfig))),)))

    def burst(directory: str) -> int:
        return int(world.text("cpu", directory, "cpu.cfs_burst_us"))

    actual = {
        "podBurst": burst(pod.directory),
        "containerBurst": {one.name: burst(one.directory) for one in pod.containers},
    }
    return expect(case, actual)


@suite("node-qos/cpuburst_static_raw")
def static_raw(case: Case) -> Iterable[str]:
    value = static_burst_us(case["input"]["milliCPULimit"], case["input"]["cpuBurstPercent"])
    return expect(case, {"burst": value})


@suite("node-qos/cpuburst_quota")
def quota(case: Case) -> Iterable[str]:
    given = case["input"]
    world = World()
    pod = _pod_of(world, given["containers"])
    world.cgroup("cpu", pod.directory, {"cpu.cfs_quota_us": str(given["podQuota"])})
    for container in pod.containers:
        if container.name in given["containerQuota"]:
            text = str(given["containerQuota"][container.name])
            world.cgroup("cpu", container.directory, {"cpu.cfs_quota_us": text})
        who = {kinds.CONTAINER_ID: container.id}
        used = (given["containerCPUUsed"] or {}).get(container.name)
        throttled = (given["containerThrottledLast"] or {}).get(container.name)
        world.metrics.set(kinds.CONTAINER_CPU, None if used is None else quantity_float(used), who)
        world.metrics.set(kinds.CONTAINER_THROTTLED, throttled, who)
    # A bucket is filled by chance; the data shows what an ordinary filling leads to, not an empty one.
    strategy = CpuBurst(Limiters(lambda: 0.5))
    config = convert(given["config"], CPUBurstConfig)
    snapshot = world.snapshot(Needs(quotas=[pod.directory, *(one.directory for one in pod.containers)]))
    steps = strategy.quota_steps(snapshot, pod, config, PoolState(given["nodeState"]))
    world.apply(Plan(batches=(quota_batch(*quota_writes(snapshot, pod, steps)),)))
    actual = {
        "podQuota": int(world.text("cpu", pod.directory, "cpu.cfs_quota_us")),
        "containerQuota": {
            one.name: int(world.text("cpu", one.directory, "cpu.cfs_quota_us"))
            for one in pod.containers
            if one.name in given["containerQuota"]
        },
    }
    return expect(case, actual)


@suite("node-qos/cpuburst_limiter")
def limiter(case: Case) -> Iterable[str]:
    given = case["input"]
    period, percent = given["burstPeriodSeconds"], given["maxScalePercent"]
    bucket = Bucket(period, percent, int(capacity_of(period, percent) * given["initialTokenRatio"]), START)
    allow = bucket.step(given["usageScalePercent"], START + timedelta(seconds=given["secondsSinceLastUpdate"]))
    return expect(case, {"allow": allow, "tokens": bucket.tokens})


@suite("node-qos/cpuburst_limiter_capacity")
def limiter_capacity(case: Case) -> Iterable[str]:
    new = case["input"]["new"]
    bucket = Bucket(new["burstPeriodSeconds"], new["maxScalePercent"], 0, START)
    return expect(case, {"capacity": bucket.capacity})


@suite("node-qos/cpuburst_quota_step")
def quota_step(case: Case) -> Iterable[str]:
    given = case["input"]
    base = milli_to_quota(given["milliCPULimit"])
    ceiling = ceiling_us(base, given["cfsQuotaBurstPercent"])
    target = target_us(given["currentQuota"], base, ceiling, Operation(given["operation"]))
    return expect(case, {"base": base, "ceil": ceiling, "target": target})


@suite("node-qos/cpuburst_operation")
def operation(case: Case) -> Iterable[str]:
    given = case["input"]
    result = under_pool(Operation(given["operation"]), PoolState(given["nodeState"]))
    return expect(case, {"operation": str(result)})
