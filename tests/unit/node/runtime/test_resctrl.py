"""Resctrl groups of single pods on a layout made of files: made with the sandbox, gone with it, told when not made."""

import errno
from pathlib import Path
from typing import Any

import pytest

from kubetide.api.qos import qos
from kubetide.node.collectors.base import Context
from kubetide.node.collectors.registry import make_collectors
from kubetide.node.collectors.resctrl import ResctrlCollector, has_monitoring
from kubetide.node.core.features import parse_gates
from kubetide.node.core.hooks.context import ContainerRequest, PodRequest
from kubetide.node.core.hooks.rules import RESCTRL, Plugins
from kubetide.node.core.hooks.stages import Stage
from kubetide.node.core.layout import Layout
from kubetide.node.core.qos.resctrl import GROUP_FAILED, Resctrl
from kubetide.node.core.series.ring import Ring
from kubetide.node.core.series.store import SeriesStore
from kubetide.node.host.linux import LinuxHost
from kubetide.node.runtime.hook_service import HookService
from kubetide.node.runtime.resctrl import UNKNOWN_SECONDS, ResctrlFilesystem
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry
from nodeworld import TestClock, World
from unit.node.qos.test_pod_resctrl import machine

ASKS = '{"llc":{"schemata":{"range":[0,30]}}}'
FLAGS = "cat_l3 mba cqm_llc cqm_mbm_total"


def layout(root: Path, *, flags: str = FLAGS, vendor: str = "GenuineIntel") -> Layout:
    """A machine of two caches with the file systems of resctrl and proc below a directory."""
    resctrl = root / "fs/resctrl"
    (resctrl / "info/L3").mkdir(parents=True)
    (resctrl / "info/L3/cbm_mask").write_text("7ff\n")
    (resctrl / "schemata").write_text("MB:0=100;1=100\nL3:0=7ff;1=7ff\n")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(f"vendor_id\t: {vendor}\nflags\t\t: fpu {flags}\n")
    return Layout(proc_root=str(root / "proc"), sys_fs_root=str(root / "fs"))


def pod(uid: str = "u1", annotation: str = ASKS) -> PodRequest:
    return PodRequest(namespace="d", name="web", uid=uid, annotations={qos.ANNOTATION_RESCTRL: annotation})


def own(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "fs/resctrl").glob("koordlet-*"))


def empty_world() -> World:
    world = World()
    world.gates = {"Resctrl": True}
    return world


def test_a_group_is_made_with_the_sandbox_and_its_containers_are_born_into_it(tmp_path: Path) -> None:
    groups = ResctrlFilesystem(layout(tmp_path), TestClock())
    plugins = Plugins(gates={RESCTRL: True})
    telemetry = Telemetry()
    service = HookService(plugins, World().executor, Layout(), resctrl=groups, telemetry=telemetry)
    container = ContainerRequest(pod=pod(), name="main")
    assert service.run_container(Stage.PRE_CREATE_CONTAINER, container).response.resctrl_group is None
    service.run_pod(Stage.PRE_RUN_POD_SANDBOX, pod())
    assert (tmp_path / "fs/resctrl/koordlet-u1/schemata").read_text() == "L3:0=f;1=f;\n"
    assert service.run_container(Stage.PRE_CREATE_CONTAINER, container).response.resctrl_group == "koordlet-u1"
    (tmp_path / "fs/resctrl/koordlet-u1/schemata").unlink()  # the kernel's own files do not keep a group
    service.run_pod(Stage.PRE_REMOVE_POD_SANDBOX, pod())
    assert own(tmp_path) == []
    assert service.run_container(Stage.PRE_CREATE_CONTAINER, container).response.resctrl_group is None
    samples = (sample for family in telemetry.registry.collect() for sample in family.samples)
    counted = "koordlet_runtime_hook_invoked_duration_milliseconds_count"
    assert {(one.labels["stage"], one.labels["status"]): one.value for one in samples if one.name == counted} == {
        ("PreCreateContainer", "success"): 3,
        ("PreRunPodSandbox", "success"): 1,
        ("PreRemoveRunPodSandbox", "success"): 1,
    }


@pytest.mark.parametrize(
    "annotation",
    [
        "{}",
        "nonsense",
        '{"llc":{"schemataPerCache":[{"cacheID":9,"range":[0,30]}]}}',
        '{"mb":{"schemata":{"percent":0}}}',
    ],
)
def test_an_annotation_without_a_line_takes_no_group(tmp_path: Path, annotation: str) -> None:
    groups = ResctrlFilesystem(layout(tmp_path), TestClock())
    groups.add_pod(pod(annotation=annotation))
    world = machine(annotation)
    groups.prepare(world.snapshot())
    assert own(tmp_path) == []


def test_the_gate_off_and_a_cpu_without_allocation_make_nothing(tmp_path: Path) -> None:
    assert Stage.PRE_REMOVE_POD_SANDBOX not in Plugins().hooks.stages
    groups = ResctrlFilesystem(layout(tmp_path, flags="sse"), TestClock())
    groups.add_pod(pod())
    assert groups.prepare(machine(ASKS).snapshot()) == {}
    assert own(tmp_path) == []


def test_groups_of_before_are_read_back_and_go_with_their_pods(tmp_path: Path) -> None:
    there = layout(tmp_path)
    for uid in ("u1", "gone"):
        (tmp_path / f"fs/resctrl/koordlet-{uid}").mkdir()
    groups = ResctrlFilesystem(there, TestClock())
    groups.prepare(machine(ASKS).snapshot())
    assert own(tmp_path) == ["koordlet-u1"]
    assert groups.groups == {"koordlet-u1"}


def test_a_group_of_a_pod_that_nobody_heard_of_yet_is_kept_for_a_while(tmp_path: Path) -> None:
    clock = TestClock()
    groups = ResctrlFilesystem(layout(tmp_path), clock)
    groups.add_pod(pod("new"))
    (tmp_path / "fs/resctrl/koordlet-new/schemata").unlink()
    groups.prepare(empty_world().snapshot())
    assert own(tmp_path) == ["koordlet-new"]
    clock.advance(UNKNOWN_SECONDS)
    groups.prepare(empty_world().snapshot())
    assert own(tmp_path) == []


def test_a_machine_without_a_group_left_tells_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = ResctrlFilesystem(layout(tmp_path), TestClock())
    mkdir = Path.mkdir

    def full(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name.startswith("koordlet-"):
            raise OSError(errno.ENOSPC, "No space left on device")
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    groups.add_pod(pod())
    assert groups.groups == frozenset()
    world = machine(ASKS)
    problems = groups.prepare(world.snapshot())
    assert problems == {"resctrl/koordlet-u1/schemata": "No space left on device, making koordlet-u1"}
    for name in ("schemata", "tasks"):
        del world.host.files[f"/sys/fs/resctrl/koordlet-u1/{name}"]
    notice = world.sync(Resctrl()).notices[0]
    assert (notice.reason, notice.namespace, notice.name) == (GROUP_FAILED, "d", "web")


def test_an_unreadable_annotation_is_told_to_the_pod_and_the_others_go_on() -> None:
    world = machine("nonsense")
    plan = world.sync(Resctrl())
    assert [(one.reason, one.name) for one in plan.notices] == [(GROUP_FAILED, "web")]
    assert world.sync(Resctrl()).notices == plan.notices


# ---- the collector


def counters(root: Path, group: str, cache: str, **values: str) -> None:
    place = root / f"fs/resctrl/{group}/mon_data/mon_L3_{cache}"
    place.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (place / name).write_text(f"{value}\n")


def shown(telemetry: Telemetry, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(value for label, value in sorted(sample.labels.items()) if label != "node"): sample.value
        for metric in telemetry.registry.collect()
        if metric.name == name
        for sample in metric.samples
    }


def context(there: Layout) -> Context:
    return Context(
        host=LinuxHost(),
        layout=there,
        clock=TestClock(),
        store=SeriesStore(Ring()),
        telemetry=Telemetry(),
        node_name="n",
        pods=tuple,
        host_applications=tuple,
    )


def test_counters_are_shown_by_class_and_cache_as_they_are(tmp_path: Path) -> None:
    there = context(layout(tmp_path))
    counters(tmp_path, "LS", "00", llc_occupancy="4096", mbm_local_bytes="10", mbm_total_bytes="30")
    counters(tmp_path, "BE", "01", llc_occupancy="Unavailable", mbm_total_bytes="7")
    counters(tmp_path, "koordlet-u1", "00", llc_occupancy="1")
    collector = ResctrlCollector(there, 10.0)
    assert collector.collect()
    assert shown(there.telemetry, "koordlet_resctrl_llc_occupancy") == {("0", "LS"): 4096}
    bandwidth = {("0", "LS", "local"): 10, ("0", "LS", "total"): 30, ("1", "BE", "total"): 7}
    assert shown(there.telemetry, "koordlet_resctrl_memory_bandwidth") == bandwidth
    for name in ("llc_occupancy", "mbm_local_bytes", "mbm_total_bytes"):
        (tmp_path / f"fs/resctrl/LS/mon_data/mon_L3_00/{name}").unlink()
    assert collector.collect()
    assert shown(there.telemetry, "koordlet_resctrl_llc_occupancy") == {}


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("vendor_id : GenuineIntel\nflags : cqm_llc cqm_mbm_local\n", True),
        ("vendor_id : AuthenticAMD\nflags : cqm_llc cqm_mbm_total\n", True),
        ("vendor_id : GenuineIntel\nflags : cqm_llc\n", False),
        ("vendor_id : HygonGenuine\nflags : cqm_llc cqm_mbm_total\n", False),
        ("", False),
    ],
)
def test_which_cpus_count(cpuinfo: str, expected: bool) -> None:
    assert has_monitoring(cpuinfo) is expected


@pytest.mark.parametrize(
    ("gate", "flag", "flags", "runs"),
    [
        pytest.param(True, True, FLAGS, True, id="both-switches"),
        pytest.param(False, True, FLAGS, False, id="without-the-gate"),
        pytest.param(True, False, FLAGS, False, id="without-the-flag"),
        pytest.param(True, True, "fpu", False, id="a-cpu-that-does-not-count"),
    ],
)
def test_the_collector_needs_gate_flag_and_cpu(tmp_path: Path, gate: bool, flag: bool, flags: str, runs: bool) -> None:
    settings = NodeSettings(enable_resctrl_collector=flag)
    made = make_collectors(
        context(layout(tmp_path, flags=flags)), settings, parse_gates(f"ResctrlCollector={str(gate).lower()}")
    )
    assert any(isinstance(one, ResctrlCollector) for one in made) is runs
