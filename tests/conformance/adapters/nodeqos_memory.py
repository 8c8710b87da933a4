"""Adapters of memory QoS and of the node's kernel settings."""

from collections.abc import Iterable
from typing import Any

from conformance.outcome import expect
from conformance.registry import suite
from kubetide.api.cgroups import CgroupDriver
from kubetide.api.codec import convert
from kubetide.api.core import Node
from kubetide.api.slo_strategies import (
    NodeSLOSpec,
    PodMemoryQOS,
    ResourceQOS,
    ResourceQOSStrategy,
    SystemStrategy,
)
from kubetide.node.executor.plan import Write
from kubetide.node.host.files import SYSTEM_FILES, CgroupFile, Merge
from kubetide.node.qos.memory import MemoryQos, merged_config
from kubetide.node.qos.memory_values import FILES, memory_high, writes_of
from kubetide.node.qos.system import SystemConfig
from nodeworld import World

Case = dict[str, Any]
MEMORY_FILES = [name for name, _ in FILES]


def _world(given: Case) -> World:
    world = World(
        version=given.get("cgroupVersion", 1), driver=CgroupDriver(given.get("driver") or CgroupDriver.SYSTEMD)
    )
    if given.get("node"):
        world.node = convert(given["node"], Node)
    strategy = given.get("strategy")
    if strategy is not None:
        world.slo = NodeSLOSpec(resource_qos_strategy=convert(strategy, ResourceQOSStrategy))
    for meta in given.get("podMetas") or ():
        world.add_pod(meta["pod"], directory=meta["cgroupDir"])
    return world


def _shown(write: Write) -> Case:
    assert isinstance(write.file, CgroupFile)
    return {
        "dir": write.directory,
        "resource": write.file.name,
        "value": write.value,
        "mergeable": write.file.merge is not Merge.NONE,
    }


@suite("node-qos/cgreconcile_resources")
def resources(case: Case) -> Iterable[str]:
    given = case["input"]
    world = _world(given)
    for name in MEMORY_FILES:
        world.cgroup("memory", world.paths.kube_root, {name: "0"})
    plan = world.decide(MemoryQos(page_size=given.get("pageSize", 4096)))
    levels = plan.batches[0].levels if plan.batches else ((), (), ())
    actual = {
        name: [_shown(write) for write in level]
        for name, level in zip(("qosLevel", "podLevel", "containerLevel"), levels, strict=True)
    }
    return expect(case, actual)


@suite("node-qos/cgreconcile_merged_config")
def config(case: Case) -> Iterable[str]:
    given = case["input"]
    pod = World().add_pod(given["pod"])
    node = None if given["nodeConfig"] is None else convert(given["nodeConfig"], ResourceQOS)
    injected = given["injectedPodConfig"]
    own = None if injected is None else convert(injected, PodMemoryQOS)
    return expect(case, {"config": merged_config(pod, node, own)}, drop_empty=True)


@suite("node-qos/cgreconcile_qos_files")
def qos_files(case: Case) -> Iterable[str]:
    given = case["input"]
    world = _world(given)
    for directory, files in given["initialFiles"].items():
        world.cgroup("memory", directory, files)
    world.sync(MemoryQos())
    files_after = {
        directory: {name: world.text("memory", directory, name) for name in files}
        for directory, files in case["expected"]["files"].items()
    }
    return expect(case, {"files": files_after})


@suite("node-qos/cgreconcile_make")
def make(case: Case) -> Iterable[str]:
    given = case["input"]
    writes = [
        {"dir": one.directory, "resource": one.resource, "value": str(one.value), "mergeable": one.mergeable}
        for one in writes_of(given["dir"], given["values"])
    ]
    return expect(case, {"writes": writes})


@suite("node-qos/memory_high")
def high(case: Case) -> Iterable[str]:
    given = case["input"]
    value = memory_high(given["request"], given["limit"], given["throttlingPercent"], given["pageSize"])
    return expect(case, {"value": value})


@suite("node-qos/sysreconcile")
def system(case: Case) -> Iterable[str]:
    given = case["input"]
    world = World()
    memory = given["nodeMemoryCapacity"]
    if memory is not None:
        raw = {"metadata": {"name": "node"}, "status": {"capacity": {"memory": memory}}}
        world.node = convert(raw, Node)
    if given["strategy"] is not None:
        world.slo = NodeSLOSpec(system_strategy=convert(given["strategy"], SystemStrategy))
    paths = {name: world.layout.system_file(SYSTEM_FILES[name]) for name in given["initialFiles"]}
    world.host.files.update({paths[name]: text for name, text in given["initialFiles"].items()})
    world.sync(SystemConfig())
    return expect(case, {"files": {name: world.host.files[path] for name, path in paths.items()}})
