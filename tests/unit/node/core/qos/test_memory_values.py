"""Memory QoS value by value: whose configuration counts, what is written, and what is left alone."""

from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.node.core.qos.memory import MemoryQos
from kubetide.node.core.qos.memory_values import FILES, UNLIMITED
from kubetide.node.core.slo import complete
from nodeworld import World

MI = 2**20


def pod(name: str = "web", *, label: str = "LS", kube: str = "Burstable", **parts: Any) -> dict[str, Any]:
    resources = {"requests": parts.get("requests", {"memory": "100Mi"}), "limits": parts.get("limits", {})}
    return {
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": name,
            "labels": {qos.LABEL_QOS: label} if label else {},
            "annotations": {qos.ANNOTATION_MEMORY_QOS: parts["annotation"]} if "annotation" in parts else {},
        },
        "spec": {"containers": [{"name": "main", "resources": resources}], **parts.get("spec", {})},
        "status": {
            "phase": "Running",
            "qosClass": kube,
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{name}"}],
        },
    }


def world_of(*pods: dict[str, Any], kernel: bool = True, **classes: Any) -> World:
    world = World()
    raw = {"metadata": {"name": "n"}, "status": {"allocatable": {"memory": "1000Mi"}}}
    world.node = convert(raw, Node)
    strategy = {name: {"memoryQOS": fields} for name, fields in classes.items()}
    world.slo = convert({"resourceQOSStrategy": strategy}, NodeSLOSpec)
    if kernel:
        world.cgroup("memory", world.paths.kube_root, {name: "0" for name, _ in FILES})
    world.add_pods(pods)
    return world


def values(world: World, *, level: int) -> dict[str, int]:
    """Return what is wanted for the first directory of a level (0 tiers, 1 pods, 2 containers)."""
    batches = world.decide(MemoryQos()).batches
    writes = batches[0].levels[level] if batches else ()
    return {write.file.name: int(write.value) for write in writes if write.directory == writes[0].directory}


@pytest.mark.parametrize(
    ("low", "expected"),
    [
        pytest.param(30, 50 * MI, id="a-low-below-min-is-raised-to-it"),
        pytest.param(0, 0, id="no-low-stays-none"),
        pytest.param(80, 80 * MI, id="a-larger-low-stays"),
    ],
)
@pytest.mark.parametrize("level", [1, 2])
def test_low_never_lies_between_nothing_and_min(low: int, expected: int, level: int) -> None:
    found = values(world_of(pod(), lsClass={"minLimitPercent": 50, "lowLimitPercent": low}), level=level)
    assert (found["memory.min"], found["memory.low"]) == (50 * MI, expected)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"throttlingPercent": 50}, 150 * MI, id="half-way-from-request-to-limit"),
        pytest.param({"throttlingPercent": 1, "minLimitPercent": 150}, 150 * MI, id="never-below-min"),
        pytest.param({"throttlingPercent": 0, "minLimitPercent": 50}, UNLIMITED, id="zero-means-no-throttling"),
        pytest.param({"minLimitPercent": 50}, None, id="not-said-is-left-alone"),
    ],
)
def test_throttling_begins_above_min_or_not_at_all(fields: dict[str, int], expected: int | None) -> None:
    world = world_of(pod(limits={"memory": "200Mi"}), lsClass=fields)
    assert values(world, level=2).get("memory.high") == expected
    assert "memory.high" not in values(world, level=1)


def test_the_request_counts_init_containers_and_overhead() -> None:
    init = {"name": "init", "resources": {"requests": {"memory": "300Mi"}}}
    raw = pod(spec={"initContainers": [init], "overhead": {"memory": "10Mi"}})
    assert values(world_of(raw, lsClass={"minLimitPercent": 100}), level=1)["memory.min"] == 310 * MI


def test_an_unlabeled_pod_has_the_class_of_its_kubernetes_qos_and_an_ordinary_request() -> None:
    both = {"memory": "100Mi", "kubernetes.io/batch-memory": "40Mi"}
    unlabeled = pod(label="", kube="BestEffort", requests=both)
    labeled = pod(label="BE", kube="BestEffort", requests=both)
    classes: dict[str, Any] = {"beClass": {"minLimitPercent": 50}, "lsClass": {"minLimitPercent": 10}}
    assert values(world_of(unlabeled, **classes), level=1)["memory.min"] == 50 * MI
    assert values(world_of(labeled, **classes), level=1)["memory.min"] == 20 * MI


def test_a_class_that_the_strategy_does_not_mention_leaves_its_pods_alone() -> None:
    world = world_of(pod(label="BE", kube="BestEffort"), lsClass={"minLimitPercent": 50})
    assert values(world, level=1) == {}
    own = pod(label="BE", kube="BestEffort", annotation='{"wmarkRatio":80}')
    assert values(world_of(own, lsClass={}), level=1) == {"memory.wmark_ratio": 80}


def test_auto_takes_the_template_although_the_node_switched_it_off() -> None:
    world = world_of(pod(annotation='{"policy":"auto","minLimitPercent":100}'))
    off = {"resourceQOSStrategy": {"lsClass": {"memoryQOS": {"enable": False, "wmarkRatio": 70}}}}
    world.slo = convert(complete(off), NodeSLOSpec)
    found = values(world, level=1)
    assert (found["memory.wmark_ratio"], found["memory.wmark_min_adj"]) == (95, -25)
    assert found["memory.min"] == 100 * MI


def test_only_pods_that_run_or_will_run_count() -> None:
    over = pod("over")
    over["status"]["phase"] = "Succeeded"
    assert values(world_of(over, lsClass={"minLimitPercent": 50}), level=0) == {}


def test_a_kernel_is_judged_once_the_kubelet_made_its_root() -> None:
    world = world_of(kernel=False, beClass={"priority": 5})
    decider = MemoryQos()
    assert world.decide(decider).is_empty
    for place in world.paths.tiers():
        world.cgroup("memory", place, {"memory.priority": "0"})
    world.clock.advance(10)
    world.sync(decider)
    assert world.text("memory", world.paths.tier(BEST_EFFORT), "memory.priority") == "5"


def test_a_value_that_the_kernel_does_not_know_is_left_out_and_the_others_are_written() -> None:
    world = world_of(pod(), lsClass={"wmarkRatio": 101, "wmarkScalePermill": 20})
    place = world.pods[0].directory
    world.cgroup("memory", place, {"memory.wmark_ratio": "95", "memory.wmark_scale_factor": "50"})
    world.sync(MemoryQos())
    assert world.text("memory", place, "memory.wmark_ratio") == "95"
    assert world.text("memory", place, "memory.wmark_scale_factor") == "20"
