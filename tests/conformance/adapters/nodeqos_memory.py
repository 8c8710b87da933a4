"""Adapters of memory QoS and of the node's kernel settings."""

from collections.abc import Iterable
from typing import Any

from conformance.exceptions import NO_SUCH_FEATURE
from conformance.outcome import expect
from conformance.registry import NamedDifference, suite
from kubetide.api.objects.core import Node
from kubetide.api.objects.resources import parse_list
from kubetide.api.qos.cgroups import CgroupDriver
from kubetide.api.qos.slo_strategies import (
    NodeSLOSpec,
    PodMemoryQOS,
    ResourceQOS,
    ResourceQOSStrategy,
    SystemStrategy,
)
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import ZERO
from kubetide.node.core import files
from kubetide.node.core.qos.memory import MemoryQos, memory_values, merged_config
from kubetide.node.core.qos.memory_values import MemoryValue, memory_high, writes_of
from kubetide.node.core.qos.system import SystemConfig
from nodeworld import World

Case = dict[str, Any]
SYSTEM_FILES = {
    file.name: file for file in (files.MIN_FREE_KBYTES, files.WATERMARK_SCALE_FACTOR, files.REAP_BACKGROUND)
}


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


def _shown(value: MemoryValue) -> Case:
    return {
        "dir": value.directory,
        "resource": value.resource,
        "value": str(value.value),
        "mergeable": value.mergeable,
    }


@suite("node-qos/cgreconcile_resources")
def resources(case: Case) -> Iterable[str]:
    given = case["input"]
    world = _world(given)
    snapshot = world.snapshot()
    allocatable = parse_list(snapshot.node.status.allocatable) if snapshot.node else {}
    values = memory_values(
        convert(given["strategy"] or {}, ResourceQOSStrategy),
        [pod for pod in snapshot.pods if pod.is_active],
        snapshot.paths,
        allocatable=allocatable.get("memory", ZERO).value,
        page_size=given.get("pageSize", 4096),
    )
    levels = {"qosLevel": values.tiers, "podLevel": values.pods, "containerLevel": values.containers}
    return expect(case, {name: [_shown(value) for value in level] for name, level in levels.items()})


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
    for directory, initial in given["initialFiles"].items():
        world.cgroup("memory", directory, initial)
    world.sync(MemoryQos())
    files_after = {
        directory: {name: world.text("memory", directory, name) for name in wanted}
        for directory, wanted in case["expected"]["files"].items()
    }
    return expect(case, {"files": files_after})


@suite("node-qos/cgreconcile_make")
def make(case: Case) -> Iterable[str]:
    given = case["input"]
    return expect(case, {"writes": [_shown(one) for one in writes_of(given["dir"], given["values"])]})


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


@suite("node-qos/system_files_18")
def system_files(case: Case) -> Iterable[str]:
    given = case["input"]
    current = given["schedFeatures"]
    known = {word.removeprefix("NO_") for word in current.split()}
    if (given["strategy"].get("schedFeatures") or {}).keys() - known:
        raise NamedDifference(NO_SUCH_FEATURE)
    world = World()
    raw = {"metadata": {"name": "node"}, "status": {"capacity": {"memory": given["nodeMemory"]}}}
    world.node = convert(raw, Node)
    world.slo = NodeSLOSpec(system_strategy=convert(given["strategy"], SystemStrategy))
    world.host.files[world.layout.system_file(files.SCHED_FEATURES)] = current
    plan = world.decide(SystemConfig())
    written = [write for batch in plan.batches for level in batch.levels for write in level]
    words = [write.value for write in written if write.file is files.SCHED_FEATURES]
    others = {write.file.name: write.value for write in written if write.file is not files.SCHED_FEATURES}
    return expect(case, {"writes": others, "schedFeaturesFile": words[-1] if words else current})
