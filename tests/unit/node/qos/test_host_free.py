"""Strategies are functions of values: each decides from a snapshot that was typed in, with no host anywhere."""

import ast
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import kubetide.node.core.qos
from kubetide.api.objects.core import Node, Pod
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.api.values.cpuset import CpuSet
from kubetide.node.agent import NodeAgent
from kubetide.node.core.features import parse_gates
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.formats.storage import StorageFacts
from kubetide.node.core.kernel_values import KernelValues
from kubetide.node.core.layout import Layout
from kubetide.node.core.plan import Plan
from kubetide.node.core.qos.extensions import Extensions
from kubetide.node.core.qos.strategy import Observing, Releasing, Remembering, Strategy
from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import EMPTY, Points
from kubetide.node.core.snapshot import Snapshot, pod_state
from kubetide.node.enforcement import make_strategies
from kubetide.node.settings import NodeSettings
from nodeworld import START, Samples, TestClock

TIER = "kubepods/besteffort"
WEB, JOB = "kubepods/burstable/podweb", "kubepods/besteffort/podjob"
MAIN = f"{WEB}/web-main"
QUOTA, BURST = "cpu.cfs_quota_us", "cpu.cfs_burst_us"


class NoSamples:
    """A node that was just started."""

    def query(self, kind: str, properties: Mapping[str, str] | None = None, *, seconds: float) -> Points:
        return EMPTY

    def last(self, kind: str, properties: Mapping[str, str] | None = None) -> float | None:
        return None

    def averages(self, kind: str, by: str, *, seconds: float) -> Mapping[str, float]:
        return {}

    def latest(self, kind: str, by: str) -> Mapping[str, float]:
        return {}


def samples() -> Samples:
    made = Samples()
    made.set(kinds.NODE_CPU, 3.0)
    made.set(kinds.NODE_MEMORY, 15 * 2.0**30)
    made.set(kinds.POD_CPU, 2.0, {kinds.POD_UID: "web"})
    made.set(kinds.POD_CPU, 0.5, {kinds.POD_UID: "job"})
    made.set(kinds.POD_MEMORY, 2.0**30, {kinds.POD_UID: "job"})
    made.set(kinds.CONTAINER_THROTTLED, 0.5, {kinds.CONTAINER_ID: "containerd://web-main"})
    for allocation, milli in (("usage", 1900.0), ("request", 10000.0), ("real-limit", 2000.0)):
        made.set(kinds.NODE_BE, [milli] * 3, {"be_resource": "cpu", "be_allocation": allocation})
    return made


def pod(name: str, label: str, kube: str, requests: dict[str, str], **annotations: str) -> Pod:
    raw = {
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": name,
            "labels": {qos.LABEL_QOS: label},
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}]},
        "status": {
            "phase": "Running",
            "qosClass": kube,
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{name}-main"}],
        },
    }
    return convert(raw, Pod)


def node() -> Node:
    amounts = {"cpu": "8", "memory": "16Gi"}
    return convert({"metadata": {"name": "n"}, "status": {"capacity": amounts, "allocatable": amounts}}, Node)


def snapshot(kernel: KernelValues, slo: dict[str, Any], *, version: int = 1, **parts: Any) -> Snapshot:
    """Return a snapshot made of values alone."""
    paths = CgroupPaths(CgroupDriver.CGROUPFS)
    pods = (
        pod("web", "LS", "Burstable", {"cpu": "1", "memory": "1Gi"}),
        pod("job", "BE", "BestEffort", {"kubernetes.io/batch-cpu": "3000"}),
    )
    fields: dict[str, Any] = {
        "now": START,
        "node": node(),
        "pods": tuple(pod_state(one, paths) for one in pods),
        "slo": convert(slo, NodeSLOSpec),
        "metrics": samples(),
        "layout": Layout(version=version, paths=paths),
        "kernel": kernel,
        "topology_annotations": {qos.ANNOTATION_CPU_MANAGER: '{"policy":"none"}'},
        "processors": tuple(Processor(cpu=n, core=n // 2, socket=0, node=0, l3=n // 4) for n in range(8)),
        "storage": StorageFacts(disk_number={"/dev/vdb": "253:16"}),
    }
    return Snapshot(**(fields | parts))


def threshold(**fields: Any) -> dict[str, Any]:
    bounds = {"cpuEvictBESatisfactionLowerPercent": 30, "cpuEvictBESatisfactionUpperPercent": 40}
    return {
        "resourceUsedThresholdWithBE": {"enable": True, "memoryEvictThresholdPercent": 70, **bounds, **fields},
    }


def classes(**blocks: Any) -> dict[str, Any]:
    return {"resourceQOSStrategy": blocks}


@dataclass(frozen=True)
class Given:
    """Plain values, and what a strategy makes of them: writes as (directory, file, value), pods that should leave."""

    kernel: KernelValues
    slo: dict[str, Any]
    writes: AbstractSet[tuple[str, str, str]] = frozenset()
    leaving: tuple[str, ...] = ()
    after: float = 60.0


SCHEMATA = "L3:0=fff;1=fff\nMB:0=100;1=100"
RDT = {
    "cpuinfo": "vendor_id : GenuineIntel\nflags : fpu cat_l3 mba",
    "resctrl/info/L3/cbm_mask": "fff",
    "resctrl/schemata": SCHEMATA,
    **{f"resctrl/{group}/{name}": text for group in ("LSR", "LS", "BE") for name, text in (("schemata", SCHEMATA),)},
    "resctrl/BE/tasks": "7",
}

BEST_EFFORT_TREE = KernelValues(
    quotas={TIER: -1}, cpus={TIER: CpuSet.parse("0-7")}, children={TIER: ("podjob",), JOB: ("job-main",)}
)

GIVEN = {
    "cpu-suppress": [
        Given(
            BEST_EFFORT_TREE,
            threshold(cpuSuppressPolicy="cfsQuota"),
            {(TIER, QUOTA, "270000")} | {(place, "cpuset.cpus", "0-7") for place in (TIER, JOB, f"{JOB}/job-main")},
        ),
        Given(
            BEST_EFFORT_TREE,
            threshold(cpuSuppressPolicy="cpuset"),
            {(TIER, QUOTA, "-1")} | {(place, "cpuset.cpus", "0-2") for place in (TIER, JOB, f"{JOB}/job-main")},
        ),
    ],
    "cpu-burst": [
        Given(
            KernelValues(quotas={WEB: 100000, MAIN: 100000}),
            {"cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 50, "cfsQuotaBurstPercent": 300}},
            {
                (WEB, QUOTA, "120000"),
                (MAIN, QUOTA, "120000"),
                (WEB, BURST, "50000"),
                (MAIN, BURST, "50000"),
            },
        )
    ],
    "cgroup-reconcile": [
        Given(
            KernelValues(present={("memory.min", "kubepods"): True, ("memory.oom.group", "kubepods"): False}),
            classes(lsClass={"memoryQOS": {"enable": True, "minLimitPercent": 50, "oomKillGroup": 1}}),
            {(place, "memory.min", str(2**29)) for place in ("kubepods", "kubepods/burstable", WEB, MAIN)},
        )
    ],
    "blkio": [
        Given(
            KernelValues(texts={("blkio.throttle.read_bps_device", TIER): "253:0 9"}),
            classes(
                beClass={
                    "blkioQOS": {
                        "enable": True,
                        "blocks": [{"name": "/dev/vdb", "type": "device", "ioCfg": {"readBPS": 1024}}],
                    }
                }
            ),
            {(TIER, "blkio.throttle.read_bps_device", line) for line in ("253:16 1024", "253:0 0")},
        )
    ],
    "resctrl": [
        Given(
            KernelValues(
                settings=RDT,
                children={JOB: ("job-main", "sandbox")},
                texts={("tasks", f"{JOB}/job-main"): "7\n9", ("tasks", f"{JOB}/sandbox"): "3"},
            ),
            classes(beClass={"resctrlQOS": {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 50}}),
            {("", "schemata", "L3:0=3f;1=3f;\n"), ("", "tasks", "9"), ("", "tasks", "3")},
        )
    ],
    "system-config": [
        Given(
            KernelValues(),
            {"systemStrategy": {"minFreeKbytesFactor": 100}},
            {("", "min_free_kbytes", str(16 * 2**20 // 100))},
        )
    ],
    "cpu-evict": [Given(KernelValues(), threshold(), leaving=("job",))],
    "memory-evict": [Given(KernelValues(), threshold(), leaving=("job",))],
}


def all_strategies() -> dict[str, Strategy]:
    agent = cast(
        "NodeAgent", SimpleNamespace(clock=TestClock(), gates=parse_gates("BECPUEvict=true,BEMemoryEvict=true"))
    )
    rng = cast("Any", SimpleNamespace(random=lambda: 0.5))
    return {one.name: one for one in make_strategies(NodeSettings(), agent, rng, Extensions())}


def written(plan: Plan) -> set[tuple[str, str, str]]:
    return {
        (write.directory, write.file.name, write.value)
        for batch in plan.batches
        for level in batch.levels
        for write in level
    }


def test_there_are_values_for_every_strategy() -> None:
    assert GIVEN.keys() == all_strategies().keys()


@pytest.mark.parametrize(("name", "given"), [(name, given) for name, cases in GIVEN.items() for given in cases])
def test_a_strategy_decides_from_values_alone(name: str, given: Given) -> None:
    strategy = all_strategies()[name]
    clock = TestClock()
    clock.advance(given.after)
    plan = strategy.decide(snapshot(given.kernel, given.slo, now=clock.now()))
    assert written(plan) == set(given.writes)
    assert tuple(one.name for task in plan.tasks for one in task.candidates) == given.leaving


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", sorted(GIVEN))
def test_a_strategy_survives_a_kernel_of_which_nothing_could_be_read(name: str, version: int) -> None:
    strategy = all_strategies()[name]
    nothing = snapshot(KernelValues(), GIVEN[name][0].slo, version=version, metrics=NoSamples())
    if isinstance(strategy, Observing):
        strategy.needs(nothing)
    assert not strategy.decide(nothing).tasks
    if isinstance(strategy, Releasing):
        assert strategy.release(nothing).is_empty


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_deciding_twice_from_the_same_values_gives_the_same_plan(name: str) -> None:
    """What was not written was not done: a plan that nobody applied leaves no trace in the next one."""
    strategy, given = all_strategies()[name], GIVEN[name][0]
    clock = TestClock()
    clock.advance(given.after)
    values = snapshot(given.kernel, given.slo, now=clock.now())
    assert strategy.decide(values) == strategy.decide(values)


def test_memory_of_what_is_in_force_has_one_way_in() -> None:
    remembering = {name for name, one in all_strategies().items() if isinstance(one, Remembering)}
    assert remembering == {"cpu-suppress", "cpu-burst", "cgroup-reconcile"}


SHELLS = {"controller.py", "observe.py"}
HOST = ("kubetide.node.host.protocol", "kubetide.node.host.readers", "kubetide.node.host.linux")


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(Path(kubetide.node.core.qos.__path__[0]).glob("*.py")) if path.name not in SHELLS],
    ids=lambda path: path.name,
)
def test_no_strategy_has_a_way_to_the_host(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {one.module or "" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
    imported |= {name.name for one in ast.walk(tree) if isinstance(one, ast.Import) for name in one.names}
    reached = {one.attr for one in ast.walk(tree) if isinstance(one, ast.Attribute)}
    assert not [name for name in imported if name.startswith((*HOST, "kubetide.node.kernel_reader"))]
    assert not reached & {"cgroups", "reader", "host"}
