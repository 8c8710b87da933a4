"""CPU burst: token buckets, quota steps, and the order that kernels insist on."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import CPUBurstStrategy, NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.node.core.kernel_values import Needs
from kubetide.node.core.qos.burst_limiter import Bucket, Limiters
from kubetide.node.core.qos.burst_quota import Operation, ceiling_us, target_us
from kubetide.node.core.qos.cpu_burst import CpuBurst, pod_config
from kubetide.node.core.series import kinds
from nodeworld import START, World, processors_of


def bursting_pod(
    world: World,
    *,
    label: str = "LS",
    kube: str = "Burstable",
    annotations: dict[str, str] | None = None,
    state: dict[str, Any] | None = None,
) -> Any:
    pod = world.add_pod(
        {
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "uid": "web",
                "labels": {qos.LABEL_QOS: label} if label else {},
                "annotations": annotations or {},
            },
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}]},
            "status": {
                "phase": "Running",
                "qosClass": kube,
                "containerStatuses": [{"name": "main", "containerID": "containerd://main", "state": state}],
            },
        }
    )
    for directory in (pod.directory, pod.containers[0].directory):
        if world.version == 1:
            world.cgroup("cpu", directory, {"cpu.cfs_quota_us": "100000", "cpu.cfs_burst_us": "0"})
        else:
            world.cgroup("cpu", directory, {"cpu.max": "100000 100000", "cpu.max.burst": "0"})
    world.cgroup("cpu", world.paths.kube_root, {"cpu.max.burst": "0"} if world.version == 2 else {})
    return pod


def node(version: int = 1, **strategy: Any) -> World:
    world = World(version=version)
    world.processors = processors_of([{"cpu": cpu} for cpu in range(8)])
    fields: dict[str, Any] = {"policy": "auto", "cpu_burst_percent": 1000, "cfs_quota_burst_percent": 300} | strategy
    world.slo = NodeSLOSpec(cpu_burst_strategy=CPUBurstStrategy(share_pool_threshold_percent=50, **fields))
    world.metrics.set(kinds.NODE_CPU, 1.0)
    return world


def throttled(world: World, ratio: float | None) -> None:
    world.metrics.set(kinds.CONTAINER_THROTTLED, ratio, {kinds.CONTAINER_ID: "containerd://main"})
    world.metrics.set(kinds.CONTAINER_CPU, 0.9, {kinds.CONTAINER_ID: "containerd://main"})


def quota(world: World, directory: str) -> int:
    return world.snapshot(Needs(quotas=[directory])).kernel.quotas[directory]


def burst(world: World, directory: str) -> int:
    return int(world.text("cpu", directory, "cpu.cfs_burst_us" if world.version == 1 else "cpu.max.burst"))


@pytest.mark.parametrize("version", [1, 2])
def test_a_throttled_container_grows_to_its_ceiling_and_back_when_the_pool_is_full(version: int) -> None:
    world = node(version)
    pod = bursting_pod(world)
    strategy = CpuBurst(Limiters(lambda: 0.5))
    throttled(world, 0.4)
    seen = []
    for _ in range(8):
        world.clock.advance(1)
        world.sync(strategy)
        seen.append(quota(world, pod.containers[0].directory))
    assert seen == [120000, 144000, 172800, 207360, 248832, 298598, 300000, 300000]
    assert quota(world, pod.directory) == 300000
    world.metrics.set(kinds.NODE_CPU, 6.0)
    for _ in range(8):
        world.clock.advance(1)
        world.sync(strategy)
    assert quota(world, pod.containers[0].directory) == 100000
    assert quota(world, pod.directory) == 100000


@pytest.mark.parametrize("version", [1, 2])
def test_the_kernel_burst_never_exceeds_the_quota_of_its_cgroup(version: int) -> None:
    world = node(version)
    pod = bursting_pod(world)
    strategy = CpuBurst(Limiters(lambda: 0.5))
    throttled(world, 0.4)
    for load in (1.0, 1.0, 6.0, 6.0, 6.0, 1.0):
        world.metrics.set(kinds.NODE_CPU, load)
        world.clock.advance(61)
        world.sync(strategy)
        for directory in (pod.directory, pod.containers[0].directory):
            assert burst(world, directory) <= quota(world, directory)
    assert burst(world, pod.containers[0].directory) > 0


def test_a_quota_falls_only_after_its_burst() -> None:
    world = node()
    pod = bursting_pod(world)
    place = pod.containers[0].directory
    world.cgroup("cpu", place, {"cpu.cfs_quota_us": "300000", "cpu.cfs_burst_us": "300000"})
    world.slo = NodeSLOSpec(cpu_burst_strategy=CPUBurstStrategy(policy="none"))
    world.sync(CpuBurst(Limiters(lambda: 0.5)))
    written = [path.rpartition("/")[2] for path, _ in world.host.writes if f"/{place}/" in path]
    assert written.index("cpu.cfs_burst_us") < written.index("cpu.cfs_quota_us")


def test_a_pod_with_cpus_of_its_own_is_left_alone() -> None:
    world = node()
    own = {qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"0-1"}'}
    bursting_pod(world, label="", annotations=own)
    throttled(world, 0.4)
    assert world.decide(CpuBurst(Limiters(lambda: 0.5))).is_empty


@pytest.mark.parametrize(
    ("label", "kube", "bursts"),
    [
        ("", "Burstable", True),
        ("", "Guaranteed", True),
        ("", "BestEffort", True),
        ("SYSTEM", "Burstable", True),
        ("LSR", "Guaranteed", False),
        ("LSE", "Guaranteed", False),
        ("BE", "Burstable", False),
    ],
)
def test_only_the_label_says_who_may_burst(label: str, kube: str, bursts: bool) -> None:
    world = node()
    bursting_pod(world, label=label, kube=kube)
    throttled(world, 0.4)
    assert world.decide(CpuBurst(Limiters(lambda: 0.5))).is_empty is not bursts


@pytest.mark.parametrize(
    ("current", "operation", "expected"),
    [
        pytest.param(700_000, "remain", 600_000, id="remaining-does-not-mean-above-the-ceiling"),
        pytest.param(50_000, "remain", 200_000, id="nor-below-the-base"),
        pytest.param(-1, "remain", 200_000, id="nor-unlimited"),
        pytest.param(-1, "up", 200_000, id="unlimited-is-below-the-base-for-growth-too"),
        pytest.param(550_000, "up", 600_000, id="growing-ends-at-the-ceiling"),
        pytest.param(210_000, "down", 200_000, id="shrinking-ends-at-the-base"),
        pytest.param(300_000, "reset", 200_000, id="a-reset-is-the-base"),
    ],
)
def test_every_operation_stays_between_base_and_ceiling(current: int, operation: str, expected: int) -> None:
    assert target_us(current, 200_000, ceiling_us(200_000, 300), Operation(operation)) == expected


@pytest.mark.parametrize(("percent", "expected"), [(99, 200_000), (100, 200_000), (101, 202_000)])
def test_up_to_a_hundred_percent_the_ceiling_is_the_base(percent: int, expected: int) -> None:
    assert ceiling_us(200_000, percent) == expected


@pytest.mark.parametrize("version", [1, 2])
def test_a_pod_without_a_quota_is_left_alone_while_its_container_bursts(version: int) -> None:
    world = node(version)
    pod = bursting_pod(world)
    unlimited = {"cpu.cfs_quota_us": "-1"} if version == 1 else {"cpu.max": "max 100000"}
    world.cgroup("cpu", pod.directory, unlimited)
    throttled(world, 0.4)
    world.sync(CpuBurst(Limiters(lambda: 0.5)))
    assert (quota(world, pod.directory), quota(world, pod.containers[0].directory)) == (-1, 120000)


def test_a_pod_grows_before_its_container_and_shrinks_after_it() -> None:
    world = node()
    pod = bursting_pod(world)
    order = [pod.directory, pod.containers[0].directory]
    strategy = CpuBurst(Limiters(lambda: 0.5))
    throttled(world, 0.4)

    def moved() -> list[str]:
        world.host.writes.clear()
        world.sync(strategy)
        root = world.layout.cgroup_dir("cpu", "")
        return [
            path.removeprefix(root).strip("/").rpartition("/")[0]
            for path, _ in world.host.writes
            if path.endswith("cpu.cfs_quota_us")
        ]

    assert moved() == order
    world.metrics.set(kinds.NODE_CPU, 6.0)
    assert moved() == order[::-1]


def test_a_normalized_node_bursts_from_the_scaled_base() -> None:
    world = node(policy="none")
    pod = bursting_pod(world)
    notes = {qos.ANNOTATION_CPU_NORMALIZATION: "1.25"}
    world.node = convert({"metadata": {"name": "n", "annotations": notes}}, Node)
    world.gates = {"CPUNormalization": True}
    world.sync(CpuBurst(Limiters(lambda: 0.5)))
    assert quota(world, pod.containers[0].directory) == 80000


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_that_starts_anew_takes_nothing_from_its_pod(version: int) -> None:
    world = node(version, policy="none")
    pod = bursting_pod(world)
    notes = {qos.ANNOTATION_CPU_NORMALIZATION: "1.25"}
    world.node = convert({"metadata": {"name": "n", "annotations": notes}}, Node)
    world.gates = {"CPUNormalization": True}
    scaled = {"cpu.cfs_quota_us": "80000"} if version == 1 else {"cpu.max": "80000 100000"}
    world.cgroup("cpu", pod.directory, scaled)  # the kubelet gave the new container 100000
    world.sync(CpuBurst(Limiters(lambda: 0.5)))
    assert (quota(world, pod.directory), quota(world, pod.containers[0].directory)) == (80000, 80000)


def test_a_bucket_keeps_the_fractions_of_seconds() -> None:
    slow = Bucket(100, 200, 0, START)
    fast = Bucket(100, 200, 0, START)
    slow.step(0, START + timedelta(seconds=3))
    for step in range(1, 13):
        fast.step(0, START + timedelta(seconds=0.25 * step))
    assert fast.tokens == slow.tokens == 300


def test_a_bucket_that_nobody_asks_is_forgotten_after_two_periods() -> None:
    limiters = Limiters(lambda: 0.5)
    ask: dict[str, Any] = {"period_seconds": 10, "percent": 200, "usage_percent": 50}
    limiters.allow("a", now=START, **ask)
    limiters.drop_expired(START + timedelta(seconds=20))
    assert len(limiters) == 1
    limiters.drop_expired(START + timedelta(seconds=21))
    assert len(limiters) == 0


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [(0, 200), (59, 141), (60, 100), (99, 100), (100, 100), (101, 99), (200, 0), (1000, -800)],
)
def test_tokens_are_earned_below_sixty_percent_and_spent_above_a_hundred(usage: int, tokens: int) -> None:
    bucket = Bucket(10, 300, 100, START)
    assert bucket.step(usage, START + timedelta(seconds=1)) is (tokens > 0)
    assert bucket.tokens == tokens


@pytest.mark.parametrize(("chance", "allowed"), [(0.0, False), (0.5, True), (0.999, True)])
def test_a_fresh_bucket_is_filled_by_chance_to_less_than_half(chance: float, allowed: bool) -> None:
    limiters = Limiters(lambda: chance)
    ask: dict[str, Any] = {"period_seconds": 10, "percent": 200, "now": START}
    assert limiters.allow("c", usage_percent=70, **ask) is allowed
    spent = int(1000 * chance * 0.5)
    assert spent < 500
    ask["now"] = START + timedelta(seconds=1)
    assert not limiters.allow("c", usage_percent=100 + spent, **ask)


@pytest.mark.parametrize(
    ("period", "percent", "expected"),
    [
        pytest.param(None, 300, True, id="no-period-no-limit"),
        pytest.param(-1, 300, True, id="negative-period-no-limit"),
        pytest.param(10, None, False, id="no-percent-never"),
        pytest.param(10, 99, False, id="percent-below-100-never"),
        pytest.param(0, 300, False, id="period-zero-never"),
    ],
)
def test_the_limiter_has_hard_edges(period: int | None, percent: int | None, expected: bool) -> None:
    allowed = Limiters(lambda: 0.9).allow("c", period_seconds=period, percent=percent, usage_percent=70, now=START)
    assert allowed is expected


def test_a_broken_annotation_counts_as_none_and_keys_may_have_any_case() -> None:
    base = CPUBurstStrategy(policy="auto", cpu_burst_percent=1000)
    broken = pod_config({qos.ANNOTATION_CPU_BURST: "{"}, base)
    assert broken is base
    folded = pod_config({qos.ANNOTATION_CPU_BURST: '{"CPUBURSTPERCENT": 10, "Policy": "none"}'}, base)
    assert folded is not None
    assert (folded.policy, folded.cpu_burst_percent) == ("none", 10)


def test_null_inherits_and_zero_is_a_value() -> None:
    base = CPUBurstStrategy(policy="auto", cpu_burst_percent=1000, cfs_quota_burst_percent=300)
    text = '{"cpuBurstPercent": 0, "cfsQuotaBurstPercent": null}'
    merged = pod_config({qos.ANNOTATION_CPU_BURST: text}, base)
    assert merged is not None
    assert (merged.policy, merged.cpu_burst_percent, merged.cfs_quota_burst_percent) == ("auto", 0, 300)


def test_stopping_the_agent_brings_raised_quotas_back() -> None:
    world = node()
    pod = bursting_pod(world)
    strategy = CpuBurst(Limiters(lambda: 0.5))
    throttled(world, 0.4)
    for _ in range(3):
        world.clock.advance(1)
        world.sync(strategy)
    assert quota(world, pod.directory) == 172800
    world.release(strategy)
    assert quota(world, pod.directory) == quota(world, pod.containers[0].directory) == 100000
    assert burst(world, pod.directory) <= 100000


@pytest.mark.parametrize(
    ("state", "quota_after"),
    [
        pytest.param({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, 120000, id="running"),
        pytest.param(None, 120000, id="nothing-known"),
        pytest.param({"terminated": {"exitCode": 1}}, 100000, id="ended"),
        pytest.param({"waiting": {"reason": "CrashLoopBackOff"}}, 100000, id="waits-for-its-restart"),
    ],
)
def test_only_a_container_that_may_run_gets_more_quota(state: dict[str, Any] | None, quota_after: int) -> None:
    world = node()
    pod = bursting_pod(world, state=state)
    throttled(world, 0.4)
    world.clock.advance(1)
    world.sync(CpuBurst(Limiters(lambda: 0.5)))
    assert quota(world, pod.containers[0].directory) == quota_after
    assert quota(world, pod.directory) == quota_after
