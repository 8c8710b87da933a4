"""Hook plugins: rules, stages, failure policies, and the same pod through every door."""

from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT, CgroupDriver
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.errors import InvalidInput
from kubetide.node.core.hooks.context import ContainerRequest, HookResponse, PodRequest
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.normalization import shares_cpus
from kubetide.node.core.hooks.rules import BATCH, CPUSET, GROUP_IDENTITY, NORMALIZATION, Plugins
from kubetide.node.core.hooks.stages import FailurePolicy, Hooks, Stage, failure_policy
from nodeworld import World

POOLS = '[{"socket":0,"node":0,"cpuset":"0-2"},{"socket":1,"node":1,"cpuset":"4-6"}]'
IDENTITY = {
    "resourceQOSStrategy": {
        "lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}},
        "beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}},
    }
}


def raw_pod(name: str, *, label: str = "", kube: str = "Burstable", **parts: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": name,
            "labels": {qos.LABEL_QOS: label} if label else {},
            "annotations": parts.get("annotations", {}),
        },
        "spec": {"containers": [{"name": "main", "resources": parts.get("resources", {})}]},
        "status": {
            "phase": "Running",
            "qosClass": kube,
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{name}-main"}],
        },
    }


def batch(cpu: str = "500", memory: str = "1Gi") -> dict[str, Any]:
    amounts = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
    return {"requests": amounts, "limits": amounts}


def files_for(world: World, directory: str) -> None:
    """Make all files that hooks may write."""
    if world.version == 1:
        world.cgroup("cpu", directory, {"cpu.shares": "2", "cpu.cfs_quota_us": "-1", "cpu.bvt_warp_ns": "0"})
        world.cgroup("cpuset", directory, {"cpuset.cpus": "0-7"})
        world.cgroup("memory", directory, {"memory.limit_in_bytes": "9223372036854771712"})
    else:
        world.cgroup("cpu", directory, {"cpu.weight": "1", "cpu.max": "max 100000", "cpu.bvt_warp_ns": "0"})
        world.cgroup("cpuset", directory, {"cpuset.cpus": "0-7", "cpuset.cpus.effective": "0-7"})
        world.cgroup("memory", directory, {"memory.max": "max"})


def add(world: World, raw: dict[str, Any]) -> Any:
    pod = world.add_pod(raw)
    for directory in (pod.directory, pod.containers[0].directory):
        files_for(world, directory)
    return pod


def value(world: World, directory: str, v1: str, v2: str) -> str:
    controller = "cpuset" if "cpuset" in v1 else "memory" if v1.startswith("memory") else "cpu"
    return world.text(controller, directory, v1 if world.version == 1 else v2).split()[0]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("driver", list(CgroupDriver))
def test_the_reconciler_repairs_everything_without_a_runtime(version: int, driver: CgroupDriver) -> None:
    world = World(version=version, driver=driver)
    world.slo = convert(IDENTITY, NodeSLOSpec)
    world.topology = {qos.ANNOTATION_LS_SHARE_POOLS: POOLS}
    for tier in world.paths.tiers():
        files_for(world, tier)
    web = add(world, raw_pod("web", label="LS"))
    job = add(world, raw_pod("job", label="BE", kube="BestEffort", resources=batch()))
    own = {qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"2,3"}'}
    db = add(world, raw_pod("db", label="LSR", kube="Guaranteed", annotations=own))
    decider = HookDecider(Plugins())
    assert decider.refresh(world.snapshot()) == {GROUP_IDENTITY, BATCH, CPUSET}
    world.pass_of(decider)

    def bvt(directory: str) -> str:
        return value(world, directory, "cpu.bvt_warp_ns", "cpu.bvt_warp_ns")

    assert [bvt(one) for one in (web.directory, job.directory, db.directory)] == ["2", "-1", "0"]
    assert [bvt(tier) for tier in world.paths.tiers()] == ["0", "2", "-1"]
    inside = [one.containers[0].directory for one in (web, db)]
    assert [value(world, one, "cpuset.cpus", "cpuset.cpus") for one in inside] == ["0-2,4-6", "2,3"]
    for place in (job.directory, job.containers[0].directory):
        assert value(world, place, "cpu.cfs_quota_us", "cpu.max") == "50000"
        assert value(world, place, "memory.limit_in_bytes", "memory.max") == str(2**30)
    before = len(world.host.writes)
    world.pass_of(decider)
    assert len(world.host.writes) == before


def test_before_the_first_nodeslo_group_identity_is_left_alone() -> None:
    world = World()
    add(world, raw_pod("web", label="LS"))
    decider = HookDecider(Plugins())
    world.pass_of(decider)
    assert not [path for path, _ in world.host.writes if "bvt" in path]


def test_a_broken_topology_keeps_the_old_pools() -> None:
    world = World()
    world.topology = {qos.ANNOTATION_LS_SHARE_POOLS: POOLS}
    plugins = Plugins()
    decider = HookDecider(plugins)
    decider.refresh(world.snapshot())
    world.topology = {qos.ANNOTATION_LS_SHARE_POOLS: "["}
    assert decider.refresh(world.snapshot()) == frozenset()
    assert plugins.rules.cpuset is not None
    assert len(plugins.rules.cpuset.share_pools) == 2
    assert "topology" in decider.decide(world.snapshot()).trace["problems"]


def test_a_broken_annotation_of_one_pod_does_not_touch_the_others() -> None:
    world = World()
    world.topology = {qos.ANNOTATION_LS_SHARE_POOLS: POOLS}
    broken = {qos.ANNOTATION_RESOURCE_STATUS: "{"}
    add(world, raw_pod("bad", label="LSR", annotations=broken))
    good = add(world, raw_pod("good", label="LS"))
    decider = HookDecider(Plugins())
    plan = world.pass_of(decider)
    assert value(world, good.containers[0].directory, "cpuset.cpus", "") == "0-2,4-6"
    assert list(plan.trace["problems"]) == ["d/bad"]
    world.pods.clear()
    assert decider.decide(world.snapshot()).trace["problems"] == {}


def test_a_plugin_that_cannot_answer_keeps_no_other_from_its_pod() -> None:
    world = World()
    job = add(
        world,
        raw_pod(
            "job",
            label="BE",
            kube="BestEffort",
            resources=batch(),
            annotations={qos.ANNOTATION_RESOURCE_STATUS: "{"},
        ),
    )
    decider = HookDecider(Plugins())
    plan = world.pass_of(decider)
    assert world.text("cpu", job.containers[0].directory, "cpu.cfs_quota_us") == "50000"
    assert plan.trace["problems"]["d/job"].startswith("CPUSetAllocator: ")


def normalized_node(ratio: str | None) -> Node:
    notes = {qos.ANNOTATION_CPU_NORMALIZATION: ratio} if ratio else {}
    return convert({"metadata": {"name": "n", "annotations": notes}}, Node)


@pytest.mark.parametrize("burst", [False, True])
def test_normalization_scales_quotas_and_restores_them_once(burst: bool) -> None:
    world = World()
    world.gates = {"CPUBurst": burst}
    limits = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    web = add(world, raw_pod("web", label="LS", resources=limits))
    decider = HookDecider(Plugins(gates={NORMALIZATION: True}))

    def quota() -> list[str]:
        world.pass_of(decider)
        return [value(world, place, "cpu.cfs_quota_us", "") for place in (web.directory, web.containers[0].directory)]

    world.node = normalized_node("1.25")
    assert quota() == ["80000", "80000"]
    world.node = normalized_node(None)
    assert quota() == ["100000", "100000"]
    world.cgroup("cpu", web.directory, {"cpu.cfs_quota_us": "120000"})
    assert quota() == ["120000", "100000"]


def test_burst_keeps_what_it_raised_above_a_scaled_quota() -> None:
    world = World()
    world.gates = {"CPUBurst": True}
    web = add(world, raw_pod("web", label="LS", resources={"limits": {"cpu": "1"}}))
    decider = HookDecider(Plugins(gates={NORMALIZATION: True}))
    world.node = normalized_node("1.25")
    world.pass_of(decider)
    raised = web.containers[0].directory
    world.cgroup("cpu", raised, {"cpu.cfs_quota_us": "96000"})
    world.clock.advance(120)
    world.pass_of(decider)
    assert value(world, raised, "cpu.cfs_quota_us", "") == "96000"


def test_a_pod_that_was_known_before_its_cgroup_is_scaled_once_it_is_there() -> None:
    world = World()
    world.gates = {"CPUBurst": True}
    web = world.add_pod(raw_pod("web", label="LS", resources={"limits": {"cpu": "1"}}))
    decider = HookDecider(Plugins(gates={NORMALIZATION: True}))
    world.node = normalized_node("1.25")
    world.pass_of(decider)
    places = (web.directory, web.containers[0].directory)
    for place in places:
        world.cgroup("cpu", place, {"cpu.cfs_quota_us": "100000"})
    world.pass_of(decider)
    assert [value(world, place, "cpu.cfs_quota_us", "") for place in places] == ["80000", "80000"]


def test_suppression_by_quota_removes_the_quotas_of_batch_pods() -> None:
    world = World()
    job = add(world, raw_pod("job", label="BE", kube="BestEffort", resources=batch()))
    decider = HookDecider(Plugins())
    turns = (
        (True, "cpuset", "50000"),
        (True, "cfsQuota", "-1"),
        (None, "cfsQuota", "-1"),  # a forgotten switch leaves suppression as it is
        (True, "cpuset", "50000"),
        (None, "cfsQuota", "50000"),
        (True, "cfsQuota", "-1"),
        (False, "cfsQuota", "50000"),
    )
    for enable, policy, expected in turns:
        spec = {"resourceUsedThresholdWithBE": {"enable": enable, "cpuSuppressPolicy": policy}}
        world.slo = convert(spec, NodeSLOSpec)
        world.pass_of(decider)
        assert value(world, job.directory, "cpu.cfs_quota_us", "") == expected


def test_a_host_application_without_a_place_is_refused_not_written() -> None:
    world = World()
    world.topology = {qos.ANNOTATION_LS_SHARE_POOLS: POOLS}
    world.slo = convert({"hostApplications": [{"name": "app", "qos": "LS", "cgroupPath": {}}]}, NodeSLOSpec)
    files_for(world, "")
    decider = HookDecider(Plugins())
    world.pass_of(decider)
    assert world.executor.counts.refused == 2
    assert not world.host.writes


def failing(_: PodRequest) -> HookResponse:
    raise InvalidInput("no")


def test_with_policy_ignore_the_next_hook_runs() -> None:
    hooks = Hooks()
    hooks.add_pod(Stage.PRE_RUN_POD_SANDBOX, "bad", failing)
    hooks.add_pod(Stage.PRE_RUN_POD_SANDBOX, "good", lambda _: HookResponse(cpu_shares=5))
    result = hooks.run_pod(Stage.PRE_RUN_POD_SANDBOX, PodRequest())
    assert (result.failed, result.response.cpu_shares, result.error) == (False, 5, "bad: no")


def test_a_hook_with_a_mistake_in_it_fails_by_its_policy_too() -> None:
    hooks = Hooks()
    hooks.add_pod(Stage.PRE_RUN_POD_SANDBOX, "bad", lambda _: HookResponse(cpu_shares=1 // 0))
    hooks.add_pod(Stage.PRE_RUN_POD_SANDBOX, "good", lambda _: HookResponse(cpu_shares=5))
    result = hooks.run_pod(Stage.PRE_RUN_POD_SANDBOX, PodRequest())
    assert (result.failed, result.response.cpu_shares) == (False, 5)
    assert result.error.startswith("bad: ZeroDivisionError: ")


def test_with_policy_fail_the_run_stops() -> None:
    hooks = Hooks(policy=FailurePolicy.FAIL)
    hooks.add_pod(Stage.PRE_RUN_POD_SANDBOX, "bad", failing)
    hooks.add_pod(Stage.PRE_RUN_POD_SANDBOX, "good", lambda _: HookResponse(cpu_shares=5))
    result = hooks.run_pod(Stage.PRE_RUN_POD_SANDBOX, PodRequest())
    assert (result.failed, result.response.cpu_shares) == (True, None)


def test_names_of_hooks_are_unique_and_policies_are_two() -> None:
    hooks = Hooks()
    hooks.add_pod(Stage.PRE_RUN_POD_SANDBOX, "one", lambda _: HookResponse())
    with pytest.raises(InvalidInput):
        hooks.add_pod(Stage.PRE_RUN_POD_SANDBOX, "one", lambda _: HookResponse())
    assert failure_policy("Fail") is FailurePolicy.FAIL
    with pytest.raises(InvalidInput):
        failure_policy("fail")


def test_a_disabled_stage_runs_no_hook_and_is_not_registered() -> None:
    plugins = Plugins(disabled=frozenset({Stage.PRE_CREATE_CONTAINER}))
    assert [str(stage) for stage in plugins.hooks.stages] == ["PreRunPodSandbox", "PreUpdateContainerResources"]
    pod = PodRequest(annotations={qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"1"}'})
    request = ContainerRequest(pod=pod, cgroup_parent="kubepods/x")
    assert plugins.hooks.run_container(Stage.PRE_CREATE_CONTAINER, request).response.empty
    assert plugins.hooks.run_container(Stage.PRE_UPDATE_CONTAINER_RESOURCES, request).response.cpuset == "1"


def test_a_best_effort_pod_with_cpus_of_its_own_gets_the_quota_of_its_batch_resources() -> None:
    plugins = Plugins()
    notes = {
        qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"1"}',
        qos.ANNOTATION_EXTENDED_RESOURCES: '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"1000"}}}}',
    }
    world = World()
    job = world.add_pod(raw_pod("job", label="BE", kube="BestEffort", annotations=notes))
    from kubetide.node.core.hooks.requests import container_request, pod_request

    pod = pod_request(job)
    result = plugins.hooks.run_container(Stage.PRE_CREATE_CONTAINER, container_request(pod, job.containers[0]))
    assert (result.response.cpuset, result.response.cfs_quota) == ("1", 100000)
    assert plugins.hooks.run_pod(Stage.PRE_RUN_POD_SANDBOX, pod).response.cfs_quota == 100000


def test_a_best_effort_container_of_unknown_place_gets_no_pool() -> None:
    plugins = Plugins()
    plugins.update_topology({qos.ANNOTATION_LS_SHARE_POOLS: POOLS})
    lost = ContainerRequest(pod=PodRequest(labels={qos.LABEL_QOS: "BE"}), cgroup_parent="")
    assert plugins.hooks.run_container(Stage.PRE_UPDATE_CONTAINER_RESOURCES, lost).response.cpuset is None
    known = ContainerRequest(pod=lost.pod, cgroup_parent=f"{World().paths.tier(BEST_EFFORT)}/p/c")
    assert plugins.hooks.run_container(Stage.PRE_UPDATE_CONTAINER_RESOURCES, known).response.cpuset == ""


def test_a_batch_pod_without_containers_is_not_limited_to_no_memory() -> None:
    notes = {qos.ANNOTATION_EXTENDED_RESOURCES: '{"containers":{}}'}
    world = World()
    job = world.add_pod(raw_pod("job", label="BE", kube="BestEffort", annotations=notes))
    from kubetide.node.core.hooks.requests import pod_request

    response = Plugins().hooks.run_pod(Stage.PRE_RUN_POD_SANDBOX, pod_request(job)).response
    assert (response.cpu_shares, response.cfs_quota, response.memory_limit) == (2, -1, -1)


def test_a_pod_whose_scheduling_cannot_be_read_stays_in_the_shared_pool() -> None:
    broken = PodRequest(labels={}, annotations={qos.ANNOTATION_RESOURCE_STATUS: "{"})
    owning = PodRequest(labels={}, annotations={qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"0-1"}'})
    assert shares_cpus(broken)
    assert not shares_cpus(owning)
