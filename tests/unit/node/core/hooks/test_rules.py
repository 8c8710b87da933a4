"""The rules of the hook plugins, one situation each."""

from typing import Any

import pytest

from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT, BURSTABLE, GUARANTEED
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.errors import InvalidInput
from kubetide.node.core.compat import parse_compat
from kubetide.node.core.hooks import batch_resource, core_sched, cpuset, group_identity, normalization
from kubetide.node.core.hooks.batch_resource import BatchRule
from kubetide.node.core.hooks.context import BatchResources, ContainerRequest, HostAppRequest, PodRequest
from kubetide.node.core.hooks.cpuset import CpusetRule, SharePool
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.normalization import NormalizationRule
from kubetide.node.core.hooks.rules import (
    BATCH,
    CPUSET,
    DEFAULT_GATES,
    GPU,
    GROUP_IDENTITY,
    NORMALIZATION,
    RESCTRL,
    Plugins,
    kube_qos_requests,
)
from kubetide.node.core.hooks.stages import Stage
from kubetide.node.core.kernel_values import Needs
from kubetide.node.core.snapshot import sandbox_among, sandbox_id
from nodeworld import World

POOLS = (SharePool(node=0, cpuset="0-2"), SharePool(node=1, cpuset="8,9"), SharePool(node=1, cpuset="8,10"))
SHARED = "0-2,8,9,8,10"
PATHS = {
    GUARANTEED: "kubepods.slice/kubepods-podu.slice/c",
    BURSTABLE: "kubepods.slice/kubepods-burstable.slice/p/c",
    BEST_EFFORT: "kubepods.slice/kubepods-besteffort.slice/p/c",
}


def pod(label: str = "", **annotations: str) -> PodRequest:
    names = {"status": qos.ANNOTATION_RESOURCE_STATUS}
    notes = {names[name]: text for name, text in annotations.items()}
    return PodRequest(labels={qos.LABEL_QOS: label} if label else {}, annotations=notes)


def numa(*entries: str) -> str:
    return f'{{"numaNodeResources":[{",".join(entries)}]}}'


@pytest.mark.parametrize(
    ("request_", "kube", "manager", "expected"),
    [
        pytest.param(
            pod("LS"), BURSTABLE, False, SHARED, id="latency-sensitive-pods-share-all-pools-as-they-are-spelt"
        ),
        pytest.param(pod("LS"), BEST_EFFORT, False, SHARED, id="the-label-comes-before-the-directory"),
        pytest.param(pod(), BEST_EFFORT, False, "", id="unlabeled-best-effort-is-cleared"),
        pytest.param(pod(), BURSTABLE, False, SHARED, id="unlabeled-pods-share"),
        pytest.param(pod("BE"), BEST_EFFORT, False, "", id="best-effort-is-cleared"),
        pytest.param(pod("SYSTEM"), BURSTABLE, False, "14-15", id="system-pods-have-cpus-of-their-own"),
        pytest.param(
            pod(status=numa('{"node":1,"resources":{"cpu":"2"}}')), BURSTABLE, False, "8,9,8,10", id="one-node"
        ),
        pytest.param(
            pod(status=numa('{"node":1,"resources":{"memory":"1Gi"}}')), BURSTABLE, False, SHARED, id="memory-only"
        ),
        pytest.param(
            pod(status=numa('{"node":0,"resources":{"cpu":"0"}}', '{"node":0,"resources":{"cpu":"1"}}')),
            BURSTABLE,
            False,
            "0-2,0-2",
            id="every-entry-counts-once-one-has-cpu",
        ),
        pytest.param(
            pod("BE", status=numa('{"node":1,"resources":{"kubernetes.io/batch-cpu":"500"}}')),
            BEST_EFFORT,
            True,
            "12-13",
            id="best-effort-under-the-cpu-manager",
        ),
        pytest.param(
            pod("BE", status=numa('{"node":1,"resources":{"kubernetes.io/batch-cpu":"500"}}')),
            BEST_EFFORT,
            False,
            "",
            id="best-effort-without-the-cpu-manager",
        ),
        pytest.param(
            pod("BE", status='{"cpuset":"3,2,2"}'), BEST_EFFORT, False, "3,2,2", id="own-cpus-as-they-are-spelt"
        ),
    ],
)
def test_the_first_rule_that_fits_gives_the_cpus(request_: PodRequest, kube: str, manager: bool, expected: str) -> None:
    rule = CpusetRule(share_pools=POOLS, be_share_pools=(SharePool(node=1, cpuset="12-13"),), system_cpuset="14-15")
    assert cpuset.container_cpuset(request_, PATHS[kube], rule, be_cpu_manager=manager) == expected


@pytest.mark.parametrize(
    ("label", "kube", "touched"), [("", GUARANTEED, False), ("", BURSTABLE, False), ("LS", BURSTABLE, True)]
)
def test_a_static_kubelet_keeps_its_hands_on_pods_without_a_class(label: str, kube: str, touched: bool) -> None:
    rule = CpusetRule(kubelet_policy="static", share_pools=POOLS)
    found = cpuset.container_cpuset(pod(label), PATHS[kube], rule, be_cpu_manager=False)
    assert found == (SHARED if touched else None)


def test_without_a_rule_own_cpus_still_work_and_nothing_else_is_touched() -> None:
    assert cpuset.container_cpuset(pod("LS"), PATHS[BURSTABLE], None, be_cpu_manager=False) is None
    own = pod("LSR", status='{"cpuset":"4"}')
    assert cpuset.container_cpuset(own, PATHS[GUARANTEED], None, be_cpu_manager=False) == "4"
    assert (cpuset.unset_quota(own), cpuset.unset_quota(pod("LSR"))) == (-1, None)
    with pytest.raises(InvalidInput):
        cpuset.unset_quota(pod("LSR", status="{"))


@pytest.mark.parametrize(("keep", "quota"), [(False, -1), (True, None)])
def test_a_pod_with_cpus_of_its_own_keeps_its_quota_only_when_asked_for(keep: bool, quota: int | None) -> None:
    plugins = Plugins(keep_quota=keep)
    own = pod("LSR", status='{"cpuset":"4"}')
    assert plugins.hooks.run_pod(Stage.PRE_RUN_POD_SANDBOX, own).response.cfs_quota == quota
    of_container = plugins.hooks.run_container(Stage.PRE_CREATE_CONTAINER, ContainerRequest(pod=own, name="main"))
    assert (of_container.response.cpuset, of_container.response.cfs_quota) == ("4", quota)


def test_only_latency_sensitive_host_applications_have_cpus() -> None:
    rule = CpusetRule(share_pools=POOLS)
    assert cpuset.host_app_cpuset(HostAppRequest(name="a", qos="LS", cgroup_parent="a"), rule) == SHARED
    for other in ("LSR", "BE", ""):
        with pytest.raises(InvalidInput):
            cpuset.host_app_cpuset(HostAppRequest(name="a", qos=other, cgroup_parent="a"), rule)


def identity(**values: int | None) -> group_identity.BvtRule:
    """Return the rule of a NodeSLO; None switches a class off."""
    classes = {
        f"{name}Class": {"cpuQOS": {"enable": value is not None, "groupIdentity": value or 0}}
        for name, value in values.items()
    }
    return group_identity.rule_from(convert({"resourceQOSStrategy": classes}, NodeSLOSpec))


@pytest.mark.parametrize(
    ("label", "kube", "expected"),
    [
        ("LSE", GUARANTEED, 2),
        ("LS", BEST_EFFORT, 1),
        ("BE", BURSTABLE, -1),
        ("SYSTEM", BURSTABLE, 1),
        ("SYSTEM", BEST_EFFORT, -1),
        ("", GUARANTEED, 2),
        ("", BURSTABLE, 1),
        ("", BEST_EFFORT, -1),
    ],
)
def test_identity_follows_the_class_and_else_the_kubernetes_qos(label: str, kube: str, expected: int) -> None:
    assert group_identity.pod_bvt(identity(lsr=2, ls=1, be=-1), label, kube) == expected


@pytest.mark.parametrize(("lsr", "ls", "expected"), [(0, 1, 0), (None, 1, 1), (None, None, 0)])
def test_guaranteed_pods_follow_the_first_class_that_is_on(lsr: int | None, ls: int | None, expected: int) -> None:
    rule = identity(lsr=lsr, ls=ls)
    assert group_identity.pod_bvt(rule, "", GUARANTEED) == expected
    assert group_identity.directory_bvt(rule, GUARANTEED) == 0


def test_before_any_word_batch_pods_have_a_quota_and_no_ratio() -> None:
    rule = BatchRule()
    assert (rule.effective_quota_enabled, rule.effective_ratio) == (True, -1.0)


def test_without_quotas_there_is_nothing_for_a_ratio_to_divide() -> None:
    rule = BatchRule(quota_enabled=False, ratio=1.1)
    assert (rule.effective_quota_enabled, rule.effective_ratio) == (False, -1.0)


def test_a_container_without_batch_resources_makes_no_batch_pod_unlimited() -> None:
    limits = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"}
    raw = {
        "metadata": {"name": "job", "uid": "job", "labels": {qos.LABEL_QOS: "BE"}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}, {"name": "sidecar"}]},
    }
    from kubetide.node.core.hooks.requests import pod_request

    values = batch_resource.pod_values(pod_request(World().add_pod(raw)), BatchRule())
    assert (values.cpu_shares, values.cfs_quota, values.memory_limit) == (2, 100000, 2**30)


@pytest.mark.parametrize(("ratio", "expected"), [(-1.0, 50000), (0.5, 50000), (1.0, 50000), (1.2, 41667), (2.0, 25000)])
def test_a_ratio_shrinks_quotas_and_never_grows_them(ratio: float, expected: int) -> None:
    request = ContainerRequest(pod=pod("BE"), batch=BatchResources(cpu_limit=500))
    assert batch_resource.container_values(request, BatchRule(ratio=ratio)).cfs_quota == expected
    scaled = normalization.normalized_quota(pod("LS"), 50000, NormalizationRule(enable=True, ratio=ratio))
    assert scaled == expected


def test_small_changes_of_the_ratio_add_up_against_the_one_that_is_applied() -> None:
    rule, updated = batch_resource.with_ratio(BatchRule(), -1.0)
    assert updated, "the first word counts, also when it says that there is none"
    rule, _ = batch_resource.with_ratio(rule, 1.2)
    for ratio, expected in ((1.205, False), (1.209, False), (1.211, True)):
        rule, updated = batch_resource.with_ratio(rule, ratio)
        assert updated is expected
    assert rule.ratio == 1.211


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, (True, "-expeller"), id="without-an-id-all-share-a-group"),
        pytest.param({"group": "g"}, (True, "g-expeller"), id="named"),
        pytest.param({"group": "0"}, (True, "0-expeller"), id="zero-is-a-name"),
        pytest.param({"group": "g", "policy": "exclusive"}, (True, "uid-expeller"), id="exclusive"),
        pytest.param({"group": "g", "policy": "none"}, (False, "g-expeller"), id="none"),
        pytest.param({"group": "g", "policy": "other"}, (True, "g-expeller"), id="unknown-policy"),
        pytest.param({"class": "BE", "group": "g"}, (False, "g"), id="class-off"),
    ],
)
def test_the_policy_label_decides_about_core_scheduling(labels: dict[str, str], expected: tuple[bool, str]) -> None:
    names = {qos.LABEL_CORE_SCHED_GROUP: labels["group"]} if "group" in labels else {}
    names |= {qos.LABEL_CORE_SCHED_POLICY: labels["policy"]} if "policy" in labels else {}
    assert core_group(names, labels.get("class", "LS"), "1.8") == expected


def core_group(names: dict[str, str], qos_class: str, version: str) -> tuple[bool, str]:
    spec: dict[str, Any] = {
        "policies": {"cpuPolicy": "coreSched"},
        "lsClass": {"cpuQOS": {"enable": True, "coreExpeller": True}},
        "beClass": {"cpuQOS": {"enable": False}},
    }
    rule = core_sched.rule_from(convert({"resourceQOSStrategy": spec}, NodeSLOSpec))
    return core_sched.group_of(
        rule, labels=names, qos=qos_class, kube_qos=BURSTABLE, uid="uid", compat=parse_compat(version)
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, (True, "uid-expeller"), id="by-class"),
        pytest.param({"group": "g"}, (True, "g-expeller"), id="named"),
        pytest.param({"group": ""}, (True, "uid-expeller"), id="empty-is-on-with-the-pod-alone"),
        pytest.param({"group": "0"}, (False, "0"), id="zero-is-off"),
        pytest.param({"class": "BE"}, (False, "uid"), id="class-off"),
        pytest.param({"class": "BE", "group": "g"}, (True, "g"), id="named-in-a-class-that-is-off"),
    ],
)
def test_before_the_policy_label_the_group_label_decides(labels: dict[str, str], expected: tuple[bool, str]) -> None:
    names = {qos.LABEL_CORE_SCHED_GROUP: labels["group"]} if "group" in labels else {}
    assert core_group(names, labels.get("class", "LS"), "1.4") == expected


def test_plugins_register_in_a_fixed_order() -> None:
    plugins = Plugins(gates=dict.fromkeys(DEFAULT_GATES, True))
    assert list(plugins.hooks._pods[Stage.PRE_RUN_POD_SANDBOX]) == [GROUP_IDENTITY, CPUSET, BATCH, RESCTRL]
    assert list(plugins.hooks._containers[Stage.PRE_CREATE_CONTAINER]) == [CPUSET, GPU, BATCH, RESCTRL, NORMALIZATION]
    directories = {GUARANTEED: "g", BURSTABLE: "u", BEST_EFFORT: "b"}
    assert [one.kube_qos for one in kube_qos_requests(directories)] == [GUARANTEED, BURSTABLE, BEST_EFFORT]


def placed(world: World, name: str, *, label: str, kube: str, status: str = "") -> Any:
    notes = {qos.ANNOTATION_RESOURCE_STATUS: status} if status else {}
    raw = {
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": name,
            "labels": {qos.LABEL_QOS: label} if label else {},
            "annotations": notes,
        },
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]},
        "status": {
            "phase": "Running",
            "qosClass": kube,
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{name}-main"}],
        },
    }
    added = world.add_pod(raw)
    for place in (added.directory, added.containers[0].directory):
        world.cgroup("cpu", place, {"cpu.cfs_quota_us": "100000"})
        world.cgroup("cpuset", place, {"cpuset.cpus": "0-3"})
    return added


def test_an_unlabeled_pod_with_cpus_of_its_own_is_reconciled_as_lsr() -> None:
    world = World()
    owner = placed(world, "db", label="", kube=GUARANTEED, status='{"cpuset":"1-2"}')
    plugins = Plugins(gates={NORMALIZATION: True})
    plugins.rules.normalization = NormalizationRule(enable=True, ratio=2.0)
    world.pass_of(HookDecider(plugins))
    for place in (owner.directory, owner.containers[0].directory):
        assert world.text("cpu", place, "cpu.cfs_quota_us") == "-1"
    assert world.text("cpuset", owner.containers[0].directory, "cpuset.cpus") == "1-2"


def test_the_reconciler_never_writes_an_empty_cpuset() -> None:
    world = World()
    world.topology = {qos.ANNOTATION_LS_SHARE_POOLS: '[{"node":0,"cpuset":"0-1"}]'}
    job = placed(world, "job", label="BE", kube=BEST_EFFORT)
    decider = HookDecider(Plugins())
    world.pass_of(decider)
    assert world.text("cpuset", job.containers[0].directory, "cpuset.cpus") == "0-3"


def test_a_sandbox_is_the_only_directory_that_no_container_has() -> None:
    world = World()
    web = placed(world, "web", label="LS", kube=BURSTABLE)

    def found() -> str | None:
        children = world.snapshot(Needs(children=[web.directory])).kernel.children
        return sandbox_among(web, children[web.directory])

    assert found() is None
    sandbox = f"{web.directory}/cri-containerd-box.scope"
    world.cgroup("cpuset", sandbox, {"cpuset.cpus": ""})
    assert found() == sandbox
    assert sandbox_id(world.paths, web, sandbox) == "containerd://box"
    world.cgroup("cpuset", f"{web.directory}/cri-containerd-old.scope", {"cpuset.cpus": ""})
    assert found() is None
