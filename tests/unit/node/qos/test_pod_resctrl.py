"""A resctrl group of a pod's own."""

from typing import Any

from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.node.core.qos.pod_resctrl import own_groups
from kubetide.node.core.qos.resctrl import Resctrl
from nodeworld import World, processors_of

ROOT = "/sys/fs/resctrl"


def machine(annotation: str, *, gate: bool = True) -> World:
    world = World()
    world.gates = {"Resctrl": gate}
    world.processors = processors_of([{"cpu": 0}])
    enabled = {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 100}
    classes = {"lsClass": {"resctrlQOS": enabled}}
    world.slo = convert({"resourceQOSStrategy": classes}, NodeSLOSpec)
    status: dict[str, Any] = {"name": "main", "containerID": "containerd://c1", "state": {"running": {}}}
    raw = {
        "metadata": {
            "name": "web",
            "namespace": "d",
            "uid": "u1",
            "labels": {qos.LABEL_QOS: "LS"},
            "annotations": {qos.ANNOTATION_RESCTRL: annotation},
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [status]},
    }
    pod = world.add_pod(raw)
    world.cgroup("cpu", pod.containers[0].directory, {"tasks": "7\n8\n"})
    world.host.files["/proc/cpuinfo"] = "vendor_id : GenuineIntel\nflags : cat_l3 mba\n"
    full = "L3:0=7ff\nMB:0=100\n"
    world.host.files |= {f"{ROOT}/info/L3/cbm_mask": "7ff", f"{ROOT}/schemata": full}
    for group in ("LSR", "LS", "BE", "koordlet-u1"):
        world.host.files |= {f"{ROOT}/{group}/schemata": full, f"{ROOT}/{group}/tasks": ""}
    return world


def written(world: World) -> list[tuple[str, str]]:
    world.sync(Resctrl())
    return [(path.removeprefix(ROOT + "/"), value) for path, value in world.host.writes]


def test_a_pod_with_an_annotation_is_in_its_own_group_and_in_no_other() -> None:
    world = machine('{"llc":{"schemata":{"range":[0,30]}}}')
    assert list(own_groups(world.snapshot())) == ["koordlet-u1"]
    assert written(world) == [
        ("koordlet-u1/schemata", "L3:0=f;\n"),
        ("koordlet-u1/tasks", "7"),
        ("koordlet-u1/tasks", "8"),
    ]


def test_while_the_gate_is_off_the_class_keeps_the_pod() -> None:
    world = machine('{"llc":{"schemata":{"range":[0,30]}}}', gate=False)
    assert own_groups(world.snapshot()) == {}
    assert written(world) == [("LS/tasks", "7"), ("LS/tasks", "8")]


def test_an_annotation_that_asks_for_nothing_makes_no_group() -> None:
    assert own_groups(machine("{}").snapshot()) == {}


def test_an_unreadable_annotation_is_told() -> None:
    plan = machine("nonsense").sync(Resctrl())
    assert "d/web" in plan.trace["problems"]
