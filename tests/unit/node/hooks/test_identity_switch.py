"""Group identity and core scheduling exclude each other, and an unused group identity is set back everywhere."""

import errno
from typing import Any

import pytest

from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.node.core.compat import parse_compat
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.rules import CORE_SCHED, Plugins
from nodeworld import World
from unit.node.hooks.test_plugins import IDENTITY, add, files_for, raw_pod

IDENTITY_SWITCH, CORE_SWITCH = "/proc/sys/kernel/sched_group_identity_enabled", "/proc/sys/kernel/sched_core"
CORES = {
    "resourceQOSStrategy": {
        "policies": {"cpuPolicy": "coreSched"},
        "lsClass": {"cpuQOS": {"enable": True, "coreExpeller": True}},
        "beClass": {"cpuQOS": {"enable": True}},
    }
}
NEITHER: dict[str, Any] = {"resourceQOSStrategy": {}}


def node(spec: dict[str, Any], *, identity: str, core: str = "", compat: str = "1.8") -> World:
    world = World(compat=parse_compat(compat))
    world.slo = convert(spec, NodeSLOSpec)
    world.host.files[IDENTITY_SWITCH] = identity
    if core:
        world.host.files[CORE_SWITCH] = core
    for tier in world.paths.tiers():
        world.cgroup("cpu", tier, {"cpu.bvt_warp_ns": "2", "cpu.idle": "0"})
        world.cgroup("cpuset", tier, {"cpuset.cpus": "0-7"})
    pod = add(world, raw_pod("job", label="BE", kube="BestEffort"))
    for directory in (pod.directory, pod.containers[0].directory):
        world.cgroup("cpu", directory, {"cpu.bvt_warp_ns": "2"})
    return world


def passes(world: World, decider: HookDecider, count: int = 3) -> None:
    """Make passes as the reconciler does, with the switches first."""
    for _ in range(count):
        snapshot = world.snapshot(decider.needs(world.snapshot()))
        decider.switched(world.executor.apply(decider.switch(snapshot)))
        plan = decider.decide(snapshot)
        decider.applied(plan, world.executor.apply(plan))


def made(*, compat: str = "1.8") -> HookDecider:
    return HookDecider(Plugins(gates={CORE_SCHED: True}, bvt_ready=False, compat=parse_compat(compat)))


def switches(world: World) -> tuple[str, str]:
    return world.host.files[IDENTITY_SWITCH], world.host.files.get(CORE_SWITCH, "")


def bvt(world: World, directory: str) -> str:
    return world.text("cpu", directory, "cpu.bvt_warp_ns")


def test_group_identity_switches_core_scheduling_off_first() -> None:
    world = node(IDENTITY, identity="0", core="1")
    passes(world, made())
    assert switches(world) == ("1", "0")
    assert [path for path, _ in world.host.writes if "/proc/sys" in path] == [CORE_SWITCH, IDENTITY_SWITCH]
    assert bvt(world, world.pods[0].directory) == "-1"


def test_while_core_scheduling_stays_on_no_group_identity_is_written() -> None:
    world = node(IDENTITY, identity="1", core="1")
    world.host.refused[CORE_SWITCH] = errno.EACCES
    passes(world, made())
    assert bvt(world, world.pods[0].directory) == "2"
    del world.host.refused[CORE_SWITCH]
    passes(world, made())
    assert bvt(world, world.pods[0].directory) == "-1"


def test_core_scheduling_switches_group_identity_off_and_leaves_its_files_alone() -> None:
    world = node(CORES, identity="1", core="0")
    passes(world, made())
    assert switches(world) == ("0", "1")
    assert bvt(world, world.pods[0].directory) == "2"


def test_unused_and_off_means_that_nothing_is_touched() -> None:
    world = node(NEITHER, identity="0", core="0")
    passes(world, made())
    assert switches(world) == ("0", "0")
    assert not any("bvt" in path for path, _ in world.host.writes)


def test_unused_but_on_is_set_back_once_in_every_directory_from_the_top() -> None:
    world = node(NEITHER, identity="1")
    tier = world.paths.tiers()[-1]
    stranger = f"{tier}/pod-nobody-knows"
    for directory in (stranger, f"{stranger}/c1"):
        files_for(world, directory)
        world.cgroup("cpu", directory, {"cpu.bvt_warp_ns": "2"})
    decider = made()
    passes(world, decider)
    places = [tier, stranger, f"{stranger}/c1", world.pods[0].directory, world.pods[0].containers[0].directory]
    assert [bvt(world, place) for place in places] == ["0"] * 5
    wrote = [path for path, _ in world.host.writes if "bvt" in path]
    depths = [path.count("/") for path in wrote if "nobody" in path]
    assert depths == sorted(depths)
    world.cgroup("cpu", stranger, {"cpu.bvt_warp_ns": "1"})  # somebody else's from now on
    passes(world, decider)
    assert bvt(world, stranger) == "1"


def test_what_could_not_be_set_back_is_tried_again() -> None:
    world = node(NEITHER, identity="1")
    stuck = world.layout.cgroup_dir("cpu", world.pods[0].containers[0].directory) + "/cpu.bvt_warp_ns"
    world.host.refused[stuck] = errno.EBUSY
    decider = made()
    passes(world, decider)
    del world.host.refused[stuck]
    passes(world, decider)
    assert world.host.files[stuck] == "0"


@pytest.mark.parametrize("spec", [IDENTITY, NEITHER, CORES])
def test_before_1_5_the_hook_just_switches_on(spec: dict[str, Any]) -> None:
    world = node(spec, identity="0", core="1", compat="1.4")
    passes(world, made(compat="1.4"))
    assert switches(world) == ("1", "1")
