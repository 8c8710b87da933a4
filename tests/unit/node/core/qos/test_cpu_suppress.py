"""CPU suppress: what is left for best-effort work, and how a round enforces it."""

from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT, CgroupDriver
from kubetide.api.qos.slo_strategies import NodeSLOSpec, ResourceThresholdStrategy
from kubetide.api.values.codec import convert
from kubetide.api.values.cpuset import CpuSet
from kubetide.node.core.qos import cpu_suppress as rule
from kubetide.node.core.qos.suppress import RECOVERED, USING, CpuSuppress
from kubetide.node.core.series import kinds
from nodeworld import World, processors_of

EIGHT = [{"cpu": cpu, "core": cpu // 2, "socket": 0, "node": 0} for cpu in range(8)]


def slo(**fields: Any) -> NodeSLOSpec:
    return NodeSLOSpec(resource_used_threshold_with_be=ResourceThresholdStrategy(**fields))


def pod(name: str, *, label: str = "", kube: str = "Burstable", annotations: dict[str, str] | None = None) -> Any:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": {qos.LABEL_QOS: label} if label else {},
            "annotations": annotations or {},
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "qosClass": kube,
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{name}-main"}],
        },
    }


def busy_node(policy: str, *, version: int = 1, driver: CgroupDriver = CgroupDriver.SYSTEMD) -> World:
    """A node of 8 CPUs with a latency-sensitive and a best-effort pod."""
    world = World(version=version, driver=driver)
    capacity = {"cpu": "8", "memory": "16Gi"}
    world.node = convert({"metadata": {"name": "n"}, "status": {"capacity": capacity, "allocatable": capacity}}, Node)
    world.processors = processors_of(EIGHT)
    world.topology = {qos.ANNOTATION_CPU_MANAGER: '{"policy":"none"}'}
    world.slo = slo(enable=True, cpu_suppress_policy=policy, cpu_suppress_threshold_percent=65)
    world.add_pod(pod("ls", label="LS"))
    batch = world.add_pod(pod("be", label="BE", kube="BestEffort"))
    tier = world.paths.tier(BEST_EFFORT)
    quota = {"cpu.cfs_quota_us": "-1"} if version == 1 else {"cpu.max": "max 100000"}
    cpus = {"cpuset.cpus": "0-7"} if version == 1 else {"cpuset.cpus": "0-7", "cpuset.cpus.effective": "0-7"}
    for directory in (tier, batch.directory, batch.containers[0].directory, f"{batch.directory}/sandbox.scope"):
        world.cgroup("cpu", directory, quota)
        world.cgroup("cpuset", directory, cpus)
    use(world, node=5.0, ls=3.0, be=1.5)
    return world


def use(world: World, *, node: float, ls: float, be: float) -> None:
    world.metrics.set(kinds.NODE_CPU, node)
    world.metrics.set(kinds.POD_CPU, ls, {kinds.POD_UID: "ls"})
    world.metrics.set(kinds.POD_CPU, be, {kinds.POD_UID: "be"})


def quota_of(world: World) -> int:
    name = "cpu.cfs_quota_us" if world.version == 1 else "cpu.max"
    text = world.text("cpu", world.paths.tier(BEST_EFFORT), name).split()[0]
    return -1 if text == "max" else int(text)


def cpus_of(world: World, directory: str) -> CpuSet:
    return CpuSet.parse(world.text("cpuset", directory, "cpuset.cpus"))


@pytest.mark.parametrize(
    ("left", "current", "expected"),
    [
        pytest.param(4000, 400000, None, id="the-same-value-is-left-alone"),
        pytest.param(4000, 404000, None, id="a-change-below-one-percent-is-ignored"),
        pytest.param(-500, 5000, 2000, id="nothing-left-means-the-minimum"),
        pytest.param(20, 2500, 2000, id="the-minimum-is-written-even-for-a-small-change"),
        pytest.param(8000, 100000, 180000, id="growing-takes-a-tenth-of-the-node-at-most"),
        pytest.param(1000, 800000, 100000, id="shrinking-is-immediate"),
        pytest.param(4000, -1, 400000, id="from-unlimited-there-is-no-step"),
    ],
)
def test_the_quota_shrinks_at_once_and_grows_in_steps(left: int, current: int, expected: int | None) -> None:
    assert rule.quota_target(left, 8, current) == expected


@pytest.mark.parametrize(
    ("left", "current", "expected"),
    [
        pytest.param(-3000, 4, 2, id="never-below-two"),
        pytest.param(3001, 4, 4, id="a-part-of-a-cpu-counts-whole"),
        pytest.param(8000, 2, 3, id="growing-takes-a-tenth-of-all-cpus"),
        pytest.param(2000, 8, 2, id="shrinking-is-immediate"),
    ],
)
def test_the_number_of_cpus_shrinks_at_once_and_grows_in_steps(left: int, current: int, expected: int) -> None:
    assert rule.cpu_count(left, current, 8) == expected


def test_cpus_of_exclusive_pods_are_never_given_away() -> None:
    processors = processors_of(EIGHT)
    owner = {0: "LSE", 1: "LSE", 2: "LSR", 3: "LSR"}
    pools = rule.pools(processors, owner, CpuSet.parse("7"))
    assert [p.cpu for p in pools.shared] == [4, 5, 6]
    assert [p.cpu for p in pools.lsr] == [2, 3]
    assert not set(rule.choose(5, pools)) & {0, 1, 7}


def test_without_any_cpu_to_give_nothing_is_chosen() -> None:
    assert len(rule.choose(2, rule.Pools(shared=(), lsr=()))) == 0


def test_of_two_pods_that_claim_a_cpu_the_later_one_decides() -> None:
    first = ("LSE", {qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"0-1"}'})
    second = ("LSR", {qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"1-2"}'})
    assert rule.owners([first, second]) == {0: "LSE", 1: "LSR", 2: "LSR"}
    assert rule.owners([second, first]) == {0: "LSE", 1: "LSE", 2: "LSR"}


def test_a_pool_too_small_for_its_share_gives_nothing_and_the_other_still_does() -> None:
    processors = processors_of(EIGHT)
    available = rule.Pools(lsr=processors[:3], shared=processors[3:4])
    assert str(rule.choose(4, available)) == "0-3"
    assert str(rule.choose(5, available)) == "0-2"  # three of the lent ones, two of a single shared one


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("driver", list(CgroupDriver))
def test_a_load_step_shrinks_the_quota_and_its_end_lets_it_grow_back(version: int, driver: CgroupDriver) -> None:
    world = busy_node("cfsQuota", version=version, driver=driver)
    strategy = CpuSuppress()
    world.sync(strategy)
    assert quota_of(world) == 170000  # 8 cores x 65 % - 3 of the pod - 0.5 of the system
    use(world, node=6.0, ls=5.0, be=0.5)
    world.sync(strategy)
    assert quota_of(world) == 2000
    use(world, node=1.5, ls=0.5, be=0.5)
    seen = []
    for _ in range(7):
        world.clock.advance(1)
        world.sync(strategy)
        seen.append(quota_of(world))
    assert seen == [82000, 162000, 242000, 322000, 402000, 420000, 420000]


@pytest.mark.parametrize("version", [1, 2])
def test_the_cpuset_policy_moves_every_directory_of_the_tier(version: int) -> None:
    world = busy_node("cpuset", version=version)
    strategy = CpuSuppress()
    world.sync(strategy)
    batch = world.pods[1]
    places = [world.paths.tier(BEST_EFFORT), batch.directory, batch.containers[0].directory]
    assert {str(cpus_of(world, place)) for place in places} == {"0-1"}
    assert strategy.cpuset_status == USING
    assert strategy.quota_status == RECOVERED


def test_switching_the_policy_takes_back_the_other_one_in_the_same_sync() -> None:
    world = busy_node("cfsQuota")
    strategy = CpuSuppress()
    world.sync(strategy)
    assert quota_of(world) == 170000
    world.slo = slo(enable=True, cpu_suppress_policy="cpuset", cpu_suppress_threshold_percent=65)
    world.sync(strategy)
    assert quota_of(world) == -1
    assert str(cpus_of(world, world.paths.tier(BEST_EFFORT))) == "0-1"
    world.slo = slo(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_percent=65)
    world.sync(strategy)
    assert str(cpus_of(world, world.paths.tier(BEST_EFFORT))) == "0-7"
    assert quota_of(world) == 170000


def test_disabling_gives_everything_back_and_a_missing_switch_changes_nothing() -> None:
    world = busy_node("cfsQuota")
    strategy = CpuSuppress()
    world.sync(strategy)
    world.slo = slo()
    world.sync(strategy)
    assert quota_of(world) == 170000
    world.slo = slo(enable=False)
    world.sync(strategy)
    assert quota_of(world) == -1


def test_the_capacity_counts_and_not_what_is_allocatable() -> None:
    world = busy_node("cfsQuota")
    amounts = {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7500m"}}
    world.node = convert({"metadata": {"name": "n"}, "status": amounts}, Node)
    assert world.decide(CpuSuppress()).trace["leftMilli"] == 8000 * 65 // 100 - 3000 - 500


@pytest.mark.parametrize("effective", ["0-7", "0-3"])
def test_on_v2_growth_starts_from_the_cpus_that_are_in_effect(effective: str) -> None:
    world = busy_node("cpuset", version=2)
    tier = world.paths.tier(BEST_EFFORT)
    world.cgroup("cpuset", tier, {"cpuset.cpus": "", "cpuset.cpus.effective": effective})
    use(world, node=0.5, ls=0.0, be=0.5)
    trace = world.decide(CpuSuppress()).trace
    assert (trace["currentCpus"], trace["count"]) == (effective, 6 if effective == "0-7" else 5)


def test_under_a_static_kubelet_only_containers_are_narrowed() -> None:
    world = busy_node("cpuset")
    world.topology = {
        qos.ANNOTATION_CPU_MANAGER: '{"policy":"static"}',
        qos.ANNOTATION_SYSTEM_QOS: '{"cpuset":"7"}',
    }
    tier, batch = world.paths.tier(BEST_EFFORT), world.pods[1]
    for directory in (tier, batch.directory):
        world.cgroup("cpuset", directory, {"cpuset.cpus": "0-3"})
    world.sync(CpuSuppress())
    assert [str(cpus_of(world, place)) for place in (tier, batch.directory)] == ["0-6", "0-6"]
    inside = (batch.containers[0].directory, f"{batch.directory}/sandbox.scope")
    assert [str(cpus_of(world, place)) for place in inside] == ["0-1", "0-1"]


@pytest.mark.parametrize("topology", [{}, {qos.ANNOTATION_CPU_MANAGER: "{"}], ids=["unknown", "unreadable"])
def test_no_cpu_is_taken_while_it_is_not_known_how_the_kubelet_hands_them_out(topology: dict[str, str]) -> None:
    world = busy_node("cpuset")
    world.topology = topology
    plan = world.decide(CpuSuppress())
    assert "skipped" in plan.trace
    assert not [write for batch in plan.batches for level in batch.levels for write in level if write.value == "0-1"]


def test_the_quota_is_lifted_once_and_cpus_are_given_back_every_sync() -> None:
    world = busy_node("cfsQuota")
    strategy = CpuSuppress()
    world.slo = slo(enable=False)
    world.sync(strategy)
    tier, batch = world.paths.tier(BEST_EFFORT), world.pods[1]
    world.cgroup("cpu", tier, {"cpu.cfs_quota_us": "50000"})
    late = f"{batch.directory}/cri-containerd-late.scope"
    world.cgroup("cpuset", late, {"cpuset.cpus": "0-1"})
    world.sync(strategy)
    assert quota_of(world) == 50000
    assert str(cpus_of(world, late)) == "0-7"


@pytest.mark.parametrize("enable", [True, False])
def test_with_the_cpu_manager_nothing_is_suppressed_whatever_the_switch_says(enable: bool) -> None:
    world = busy_node("cfsQuota")
    world.cgroup("cpu", world.paths.tier(BEST_EFFORT), {"cpu.cfs_quota_us": "50000"})
    world.gates = {"BECPUManager": True}
    world.slo = slo(enable=enable, cpu_suppress_policy="cfsQuota")
    plan = world.decide(CpuSuppress())
    world.apply(plan)
    assert "CPU manager" in plan.trace["policy"]
    assert quota_of(world) == -1


def test_without_a_usage_sample_nothing_changes() -> None:
    world = busy_node("cfsQuota")
    world.metrics.set(kinds.NODE_CPU, None)
    plan = world.decide(CpuSuppress())
    assert plan.is_empty
    assert "not known" in plan.trace["skipped"]


def test_a_node_without_a_cpu_capacity_is_not_suppressed() -> None:
    world = busy_node("cfsQuota")
    world.node = convert({"metadata": {"name": "node"}, "status": {"capacity": {"memory": "8Gi"}}}, Node)
    plan = CpuSuppress().decide(world.snapshot())
    assert plan.is_empty
    assert plan.trace["skipped"] == "the node reports no CPU capacity"


def test_a_steady_state_writes_nothing() -> None:
    world = busy_node("cpuset")
    strategy = CpuSuppress()
    world.sync(strategy)
    before = len(world.host.writes)
    for _ in range(30):
        world.clock.advance(1)
        world.sync(strategy)
    assert len(world.host.writes) == before


def test_the_cpu_manager_keeps_its_own_containers() -> None:
    world = busy_node("cpuset")
    world.gates = {"BECPUManager": True}
    status = {qos.ANNOTATION_RESOURCE_STATUS: '{"numaNodeResources":[{"node":0}]}'}
    managed = world.add_pod(pod("managed", label="BE", kube="BestEffort", annotations=status))
    for directory in (managed.directory, managed.containers[0].directory):
        world.cgroup("cpuset", directory, {"cpuset.cpus": "0-3"})
    world.sync(CpuSuppress())
    assert str(cpus_of(world, managed.directory)) == "0-7"
    assert str(cpus_of(world, managed.containers[0].directory)) == "0-3"


def test_stopping_the_agent_lifts_the_limits() -> None:
    world = busy_node("cfsQuota")
    strategy = CpuSuppress()
    world.sync(strategy)
    world.release(strategy)
    assert quota_of(world) == -1
