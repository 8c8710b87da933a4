"""Hooks decide from plain values, and remember only what the kernel took: a refused write is wanted again."""

import errno
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.node.core import files
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.rules import (
    BATCH,
    CORE_SCHED,
    CPUSET,
    DEFAULT_GATES,
    GROUP_IDENTITY,
    NORMALIZATION,
    Plugins,
)
from kubetide.node.core.kernel_values import KernelValues
from kubetide.node.core.layout import Layout
from kubetide.node.core.plan import Plan
from kubetide.node.core.snapshot import Snapshot
from nodeworld import START, Samples, World
from unit.node.hooks.test_plugins import IDENTITY, POOLS, batch, files_for, normalized_node, raw_pod

SWITCH = "/proc/sys/kernel/sched_group_identity_enabled"
CORES = {
    "resourceQOSStrategy": {
        "policies": {"cpuPolicy": "coreSched"},
        "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}},
    }
}
LIMITS = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}


@dataclass(frozen=True)
class Case:
    """A hook, and a node on which it has something to write."""

    hook: str
    pods: tuple[dict[str, Any], ...]
    slo: dict[str, Any] = field(default_factory=dict)
    topology: dict[str, str] = field(default_factory=dict)
    node: Node | None = None

    def world(self, version: int) -> World:
        world = World(version=version)
        world.gates = {"CPUBurst": True}
        world.slo = convert(self.slo, NodeSLOSpec)
        world.topology, world.node = dict(self.topology), self.node
        for place in (world.paths.kube_root, *world.paths.tiers()):
            files_for(world, place)
            world.cgroup("cpu", place, {"cpu.idle": "0"})
        for raw in self.pods:
            pod = world.add_pod(raw)
            box = f"{pod.directory}/{world.paths.container('', 'containerd://box')}"
            for directory in (pod.directory, pod.containers[0].directory, box):
                files_for(world, directory)
            for number, directory in enumerate((pod.containers[0].directory, box)):
                pid = 10 * len(world.pods) + number
                world.cgroup("cpu", directory, {"cgroup.procs": f"{pid}\n"})
                world.cookies.cookies[pid] = 0
        return world

    def decider(self) -> HookDecider:
        return HookDecider(Plugins(gates={name: name == self.hook for name in DEFAULT_GATES}))


CASES = [
    Case(GROUP_IDENTITY, (raw_pod("web", label="LS"), raw_pod("job", label="BE", kube="BestEffort")), slo=IDENTITY),
    Case(
        CPUSET,
        (
            raw_pod("web", label="LS"),
            raw_pod(
                "db", label="LSR", kube="Guaranteed", annotations={qos.ANNOTATION_RESOURCE_STATUS: '{"cpuset":"2,3"}'}
            ),
        ),
        topology={qos.ANNOTATION_LS_SHARE_POOLS: POOLS},
    ),
    Case(BATCH, (raw_pod("job", label="BE", kube="BestEffort", resources=batch()),)),
    Case(NORMALIZATION, (raw_pod("web", label="LS", resources=LIMITS),), node=normalized_node("1.25")),
    Case(
        CORE_SCHED,
        (raw_pod("job", label="BE", kube="BestEffort"), raw_pod("next", label="BE", kube="BestEffort")),
        slo=CORES,
    ),
]
each_case = pytest.mark.parametrize("case", CASES, ids=[case.hook for case in CASES])
each_version = pytest.mark.parametrize("version", [1, 2])


def written(world: World) -> list[str]:
    return list(dict.fromkeys(path for path, _ in world.host.writes))


@each_case
@each_version
def test_every_value_that_the_kernel_refuses_once_is_written_by_the_next_pass(case: Case, version: int) -> None:
    good = case.world(version)
    good.pass_of(case.decider())
    assert written(good)
    for path in written(good):
        world, decider = case.world(version), case.decider()
        world.host.refused[path] = errno.EBUSY
        world.pass_of(decider)
        assert world.host.files[path] != good.host.files[path], path
        del world.host.refused[path]
        world.pass_of(decider)
        assert world.host.files == good.host.files, path
        assert world.cookies.cookies == good.cookies.cookies, path
        before = len(world.host.writes)
        world.pass_of(decider)
        assert len(world.host.writes) == before, path


@each_version
def test_every_cookie_that_the_kernel_refuses_once_is_set_by_the_next_pass(version: int) -> None:
    case = next(one for one in CASES if one.hook == CORE_SCHED)
    good = case.world(version)
    good.pass_of(case.decider())
    assert sorted(good.cookies.changes) == sorted(good.cookies.cookies) == [10, 11, 20, 21]
    for pid in good.cookies.cookies:
        world, decider = case.world(version), case.decider()
        world.cookies.refused.add(pid)
        world.pass_of(decider)
        assert world.cookies.cookies[pid] == 0
        assert pid not in decider.cookies.processes
        world.cookies.refused.clear()
        world.pass_of(decider)
        assert len(set(world.cookies.cookies.values()) - {0}) == 1 == len(set(world.cookies.cookies.values()))
        before = len(world.cookies.changes)
        world.pass_of(decider)
        assert len(world.cookies.changes) == before


@each_version
def test_a_quota_scaled_by_a_ratio_that_is_gone_is_put_back_until_the_kernel_takes_it(version: int) -> None:
    case = CASES[3]
    world, decider = case.world(version), case.decider()
    before = dict(world.host.files)
    (web,) = world.pods
    path = world.layout.cgroup_file(files.CPU_QUOTA, web.containers[0].directory)
    world.pass_of(decider)
    assert world.host.files[path].split()[0] == "80000"
    world.node = normalized_node(None)
    world.host.refused[path] = errno.EBUSY
    for _ in range(3):
        world.pass_of(decider)
        assert world.host.files[path].split()[0] == "80000"
    # What was put back already belongs to others again, such as CPU burst.
    pod = world.layout.cgroup_file(files.CPU_QUOTA, web.directory)
    assert world.host.files[pod].split()[0] == "100000"
    world.host.files[pod] = before[pod].replace("max", "120000").replace("-1", "120000")
    del world.host.refused[path]
    world.pass_of(decider)
    assert world.host.files[path].split()[0] == "100000"
    assert world.host.files[pod].split()[0] == "120000"


@each_version
def test_a_new_group_identity_stays_the_reason_until_all_of_it_is_in_force(version: int) -> None:
    world, decider = CASES[0].world(version), CASES[0].decider()
    path = world.layout.cgroup_file(files.CPU_BVT, world.pods[0].directory)
    world.host.refused[path] = errno.EBUSY

    def reasons() -> set[str]:
        plan = world.pass_of(decider)
        return {write.reason for batch in plan.batches for level in batch.levels for write in level}

    assert reasons() == {"GroupIdentity"}
    assert reasons() == {"GroupIdentity"}
    del world.host.refused[path]
    assert reasons() == {"GroupIdentity"}
    assert reasons() == {"runtime-hooks"}


def without_host(case: Case, version: int, kernel: KernelValues) -> Snapshot:
    world = case.world(version)
    return Snapshot(
        now=START,
        node=case.node,
        pods=tuple(world.pods),
        slo=world.slo,
        metrics=Samples(),
        layout=Layout(version=version),
        kernel=kernel,
        topology_annotations=case.topology,
        gates=world.gates,
    )


def values(plan: Plan) -> list[tuple[str, str, str]]:
    writes = [write for batch in plan.batches for level in batch.levels for write in level]
    return sorted((write.file.name, write.directory, write.value) for write in writes)


@each_case
@each_version
def test_every_hook_decides_from_values_alone(case: Case, version: int) -> None:
    world = case.world(version)
    cookies = dict(world.cookies.cookies)
    seen = world.snapshot(case.decider().needs(world.snapshot()))
    plan = case.decider().decide(replace(seen, kernel=replace(seen.kernel, cookies=cookies)))
    found = values(plan)
    boxes = {pod.directory: tuple(one.rpartition("/")[2] for one in _below(world, pod.directory)) for pod in world.pods}
    processes = {
        ("cgroup.procs", f"{pod.directory}/{name}"): seen.kernel.texts.get(
            ("cgroup.procs", f"{pod.directory}/{name}"), ""
        )
        for pod in world.pods
        for name in boxes[pod.directory]
    }
    kernel = KernelValues(children=boxes, texts=processes, cookies=cookies)
    alone = case.decider().decide(without_host(case, version, kernel))
    assert found
    assert values(alone) == found
    assert (alone.cookies and alone.cookies.operations) == (plan.cookies and plan.cookies.operations)
    assert bool(plan.cookies and plan.cookies.operations) is (case.hook == CORE_SCHED)


def _below(world: World, directory: str) -> list[str]:
    return [f"{directory}/{name}" for name in world.host.list_dirs(world.layout.cgroup_dir("cpuset", directory))]


@pytest.mark.parametrize(
    ("switch", "has_file", "planned", "ready"),
    [
        pytest.param(None, None, False, False, id="kube-root-not-there-yet"),
        pytest.param(None, False, False, False, id="kernel-without"),
        pytest.param(None, True, False, True, id="kernel-without-a-switch"),
        pytest.param("1", True, False, True, id="switched-on"),
        pytest.param("0", True, True, False, id="switched-off"),
    ],
)
def test_group_identity_is_switched_on_before_it_is_used(
    switch: str | None, has_file: bool | None, planned: bool, ready: bool
) -> None:
    case = CASES[0]
    root = Layout().paths.kube_root
    kernel = KernelValues(
        settings={} if switch is None else {files.SCHED_GROUP_IDENTITY.path: switch},
        present={} if has_file is None else {(files.CPU_BVT.name, root): has_file},
    )
    decider = case.decider()
    plan = decider.switch(without_host(case, 1, kernel))
    assert (not plan.is_empty, decider.plugins.bvt_ready) == (planned, ready)


@pytest.mark.parametrize("take", [True, False], ids=["taken", "refused"])
def test_the_switch_counts_once_the_kernel_took_it(take: bool) -> None:
    world, decider = CASES[0].world(1), CASES[0].decider()
    world.host.files[SWITCH] = "0"
    if not take:
        world.host.refused[SWITCH] = errno.EACCES
    plan = decider.switch(world.snapshot(decider.needs(world.snapshot())))
    decider.switched(world.executor.apply(plan))
    assert decider.plugins.bvt_ready is take
