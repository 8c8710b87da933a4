"""Init containers, pods in virtual machines, and quotas that are scaled when a container is made."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.values.codec import convert
from kubetide.node.core.compat import parse_compat
from kubetide.node.core.formats.cpu import milli_to_quota
from kubetide.node.core.hooks.batch_resource import batch_from_spec
from kubetide.node.core.hooks.context import ContainerRequest, OriginResources, PodRequest
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.normalization import NormalizationRule, normalized_quota
from kubetide.node.core.hooks.rules import NORMALIZATION, Plugins
from kubetide.node.core.hooks.stages import Stage
from kubetide.node.core.snapshot import sandbox_among
from nodeworld import World

POOLS = '[{"socket":0,"node":0,"cpuset":"0-2"}]'
RATIO = {"node.koordinator.sh/cpu-normalization-ratio": "1.25"}


def raw_pod(*, label: str = "LS", kube: str = "Burstable", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "d", "uid": "web", "labels": {qos.LABEL_QOS: label}},
        "spec": {"containers": [{"name": "main"}], "initContainers": [{"name": "first"}], **spec},
        "status": {
            "phase": "Pending",
            "qosClass": kube,
            "containerStatuses": [{"name": "main", "containerID": ""}],
            "initContainerStatuses": [{"name": "first", "containerID": "containerd://first"}],
        },
    }


def world_with(raw: dict[str, Any], compat: str = "1.8") -> World:
    world = World(compat=parse_compat(compat))
    world.topology = {qos.ANNOTATION_LS_SHARE_POOLS: POOLS}
    pod = world.add_pod(raw)
    for directory in (pod.directory, *(one.directory for one in pod.init_containers)):
        world.cgroup("cpu", directory, {"cpu.shares": "2", "cpu.cfs_quota_us": "-1"})
        world.cgroup("cpuset", directory, {"cpuset.cpus": "0-7"})
        world.cgroup("memory", directory, {"memory.limit_in_bytes": "9223372036854771712"})
    return world


def cpus_of_first(world: World) -> str:
    world.pass_of(HookDecider(Plugins(compat=world.compat)))
    return world.text("cpuset", world.pods[0].init_containers[0].directory, "cpuset.cpus")


@pytest.mark.parametrize(("compat", "cpus"), [("1.8", "0-2"), ("1.7", "0-2"), ("1.6", "0-7")])
def test_an_init_container_gets_cpus_from_1_7_on(compat: str, cpus: str) -> None:
    assert cpus_of_first(world_with(raw_pod(), compat)) == cpus


def test_containers_of_a_pod_in_a_virtual_machine_are_left_alone() -> None:
    assert cpus_of_first(world_with(raw_pod(runtimeClassName="kata"))) == "0-7"
    assert cpus_of_first(world_with(raw_pod(runtimeClassName="kata"), "1.6")) == "0-7"
    assert cpus_of_first(world_with(raw_pod(runtimeClassName="gvisor"))) == "0-2"


def test_an_init_container_gets_its_own_batch_values_and_adds_nothing_to_its_pod() -> None:
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
    larger = {"kubernetes.io/batch-cpu": "900", "kubernetes.io/batch-memory": "2Gi"}
    raw = raw_pod(label="BE", kube="BestEffort")
    raw["spec"] = {
        "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
        "initContainers": [{"name": "first", "resources": {"requests": larger, "limits": larger}}],
    }
    world = world_with(raw)
    world.pass_of(HookDecider(Plugins()))
    pod = world.pods[0]
    assert world.text("cpu", pod.init_containers[0].directory, "cpu.cfs_quota_us") == "90000"
    assert world.text("memory", pod.init_containers[0].directory, "memory.limit_in_bytes") == str(2 << 30)
    assert world.text("cpu", pod.directory, "cpu.cfs_quota_us") == "50000"
    sidecar = {**raw["spec"]["initContainers"][0], "restartPolicy": "Always"}
    world.add_pod({**raw, "spec": {**raw["spec"], "initContainers": [sidecar]}})
    assert set(batch_from_spec(world.pods[1].pod) or ()) == {"main", "first"}


def test_the_sandbox_is_found_beside_an_init_container_and_a_scope_of_crio_is_none() -> None:
    pod = world_with(raw_pod()).pods[0]
    first = pod.init_containers[0].directory.rpartition("/")[2]
    assert sandbox_among(pod, [first, "cri-containerd-box.scope"]) == f"{pod.directory}/cri-containerd-box.scope"
    assert sandbox_among(pod, [first, "crio-conmon-1.scope"]) is None
    assert sandbox_among(pod, [first, "crio-conmon-1.scope", "box"]) == f"{pod.directory}/box"


def created(compat: str, *, label: str = "LS", quota: int | None = 100_000) -> int | None:
    plugins = Plugins(gates={NORMALIZATION: True}, compat=parse_compat(compat))
    plugins.update_node(convert({"metadata": {"annotations": RATIO}}, Node).metadata.annotations)
    origin = None if quota is None else OriginResources(shares=0, quota=quota, memory_limit=0)
    pod = PodRequest(uid="u", labels={qos.LABEL_QOS: label}, cgroup_parent="kubepods.slice/kubepods-podu.slice")
    request = ContainerRequest(pod=pod, name="main", resources=origin)
    return plugins.hooks.run_container(Stage.PRE_CREATE_CONTAINER, request).response.cfs_quota


def test_a_container_is_created_with_the_scaled_quota_from_1_8_on() -> None:
    assert created("1.8") == 80_000
    assert created("1.7") is None
    assert created("1.8", quota=None) is None
    assert created("1.8", quota=-1) is None
    assert created("1.8", label="LSR") is None


@given(st.lists(st.integers(10, 64_000), min_size=1, max_size=6), st.floats(1.01, 5.0))
def test_a_scaled_pod_holds_every_scaled_container(millis: list[int], ratio: float) -> None:
    rule = NormalizationRule(enable=True, ratio=ratio)
    pod = PodRequest(labels={qos.LABEL_QOS: "LS"})
    whole = normalized_quota(pod, milli_to_quota(sum(millis)), rule)
    parts = [normalized_quota(pod, milli_to_quota(one), rule) for one in millis]
    assert whole is not None
    assert all(part is not None and part <= whole for part in parts)
