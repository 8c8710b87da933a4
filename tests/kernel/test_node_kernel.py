"""The node agent on real cgroups: what it measures is what the kernel counts, what it writes is legal."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kernel.tree import BURNER, EATER, ROOT, Tree, cgroup_tree, until
from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.clock import SystemClock
from kubetide.node.collectors.base import Collector, Context
from kubetide.node.collectors.best_effort import BestEffortCollector, be_properties
from kubetide.node.collectors.cpi import CpiCollector
from kubetide.node.collectors.pods import PodCollector
from kubetide.node.collectors.pressure import PressureCollector
from kubetide.node.collectors.throttling import ThrottlingCollector
from kubetide.node.core import files
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.plan import Batch, Plan, Target, Write
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Ring
from kubetide.node.core.series.store import SeriesStore
from kubetide.node.core.snapshot import PodState, pod_state
from kubetide.node.executor.kernel_writer import Executor
from kubetide.node.host.detect import has_pressure, kernel_features
from kubetide.node.host.readers import CgroupReader
from kubetide.node.runtime.perf import PerfEvent
from kubetide.node.state.lifecycle import Change, InotifyWatch
from kubetide.telemetry import Telemetry

ENOUGH_NANOS = 3_000_000_000 if "KUBETIDE_IN_VM" in os.environ else 400_000_000
"""CPU time after which a measurement means something: the emulated machine is ten times slower around it."""


@pytest.fixture
def tree() -> Iterator[Tree]:
    with cgroup_tree() as made:
        made.tiers()
        yield made


def known_pod(tree: Tree, uid: str, *containers: str, kube_qos: str = "Burstable") -> PodState:
    raw = {
        "metadata": {"name": uid, "namespace": "test", "uid": uid},
        "spec": {"containers": [{"name": name} for name in containers]},
        "status": {
            "phase": "Running",
            "qosClass": kube_qos,
            "containerStatuses": [
                {"name": name, "containerID": f"containerd://{name}", "state": {"running": {}}} for name in containers
            ],
        },
    }
    return pod_state(convert(raw, Pod), tree.paths)


def context(tree: Tree, *pods: PodState) -> Context:
    return Context(
        host=tree.host,
        layout=tree.layout,
        clock=SystemClock(),
        store=SeriesStore(Ring()),
        telemetry=Telemetry(),
        node_name="here",
        pods=lambda: pods,
        host_applications=lambda: (),
    )


async def burnt(tree: Tree, directory: str, nanos: int = ENOUGH_NANOS) -> None:
    """Wait until a cgroup has used more CPU time; the machine may be busy, so no time is promised."""
    begin = tree.usage_nanos(directory)
    await until(lambda: tree.usage_nanos(directory) - begin >= nanos)


def newest(collector_context: Context, kind: str, properties: dict[str, str]) -> float:
    points = collector_context.store.query(kind, properties, 0, 2**62)
    value = points.aggregate("last")
    assert value is not None, f"no samples of {kind}"
    return value


async def test_cpu_usage_and_throttling_are_what_the_kernel_counts(tree: Tree) -> None:
    directory = tree.pod("burner", "Burstable", "main")
    tree.limit_cpu(f"{directory}/main", 30_000)
    tree.run(f"{directory}/main", BURNER)
    await burnt(tree, directory, 50_000_000)
    inner = context(tree, known_pod(tree, "burner", "main"))
    collectors: tuple[Collector, ...] = (PodCollector(inner, 1.0), ThrottlingCollector(inner, 1.0))
    clock = SystemClock()
    # A pod that is read for the first time skips its containers, so two rounds come before the measured one.
    for _ in range(2):
        for collector in collectors:
            collector.collect()
        await asyncio.sleep(0.05)
    for collector in collectors:
        collector.collect()
    began, before, periods = clock.monotonic(), tree.usage_nanos(directory), tree.periods(f"{directory}/main")
    await burnt(tree, directory)
    for collector in collectors:
        collector.collect()
    elapsed = clock.monotonic() - began
    kernel = (tree.usage_nanos(directory) - before) / (elapsed * 1e9)
    after = tree.periods(f"{directory}/main")
    throttled = (after[1] - periods[1]) / max(after[0] - periods[0], 1)
    container = {kinds.CONTAINER_ID: "containerd://main"}
    assert newest(inner, kinds.POD_CPU, {kinds.POD_UID: "burner"}) == pytest.approx(kernel, rel=0.1)
    assert newest(inner, kinds.CONTAINER_CPU, container) == pytest.approx(kernel, rel=0.1)
    assert newest(inner, kinds.CONTAINER_THROTTLED, container) == pytest.approx(throttled, abs=0.1)


async def test_memory_is_what_the_kernel_counts(tree: Tree) -> None:
    directory = tree.pod("eater", "Burstable", "main")
    size = 64 * 2**20
    process = tree.run(f"{directory}/main", EATER, str(size))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    inner = context(tree, known_pod(tree, "eater", "main"))
    collector = PodCollector(inner, 1.0)
    collector.collect()
    await asyncio.sleep(0.2)
    collector.collect()
    name = "total_rss" if tree.version == 1 else "anon"
    stat = dict(line.split() for line in tree.read("memory", directory, "memory.stat").splitlines())
    measured = newest(inner, kinds.POD_MEMORY, {kinds.POD_UID: "eater"})
    assert measured == pytest.approx(int(stat[name]), rel=0.05)
    assert measured == pytest.approx(size, rel=0.05)


async def test_the_best_effort_tier_is_measured_as_a_whole(tree: Tree) -> None:
    directory = tree.pod("batch", "BestEffort", "main")
    tier = tree.paths.tier("BestEffort")
    inner = context(tree, known_pod(tree, "batch", "main", kube_qos="BestEffort"))
    collector = BestEffortCollector(inner, 1.0)
    tree.run(f"{directory}/main", BURNER)
    await burnt(tree, tier, 50_000_000)
    collector.collect()
    clock = SystemClock()
    began, before = clock.monotonic(), tree.usage_nanos(tier)
    await burnt(tree, tier)
    collector.collect()
    kernel = (tree.usage_nanos(tier) - before) / ((clock.monotonic() - began) * 1e6)
    used = inner.store.query(kinds.NODE_BE, be_properties("usage"), 0, 2**62).aggregate("last")
    assert used == pytest.approx(kernel, rel=0.1)
    assert newest(inner, kinds.NODE_BE, be_properties("real-limit")) == (os.cpu_count() or 1) * 1000


@asynccontextmanager
async def unified_tree() -> AsyncIterator[Tree]:
    """A tree with pressure and perf events: the machine's own on v2, else the bare unified mount beside v1."""
    unified = ROOT / "unified"
    options: dict[str, Any] = {}
    with cgroup_tree() as probe:
        if probe.version == 1:
            if not (unified / "cpu.pressure").exists():
                pytest.skip("needs a cgroup v2 mount with pressure stall information")
            options = {"root": unified, "version": 2, "bare": True}
    with cgroup_tree(**options) as tree:
        tree.tiers()
        yield tree


async def test_pressure_is_read_where_the_kernel_has_it() -> None:
    async with unified_tree() as tree:
        directory = tree.pod("stalled", "Burstable", "main")
        pin = "import os; os.sched_setaffinity(0, {0})\n"
        for _ in range(3):
            tree.run(f"{directory}/main", pin + BURNER)
        inner = context(tree, known_pod(tree, "stalled", "main"))
        assert has_pressure(tree.host, tree.layout)
        reader = CgroupReader(tree.host, tree.layout)
        await until(lambda: reader.pressure(directory).cpu.some.avg10 >= 1.0)
        collector = PressureCollector(inner, 10.0)
        assert collector.collect()
        kernel = tree.read("", directory, "cpu.pressure").split("avg10=")[1].split()[0]
        properties = {
            kinds.POD_UID: "stalled",
            "psi_resource": "cpu",
            "psi_precision": "10",
            "psi_degree": "some",
        }
        assert newest(inner, kinds.POD_PSI, properties) == pytest.approx(float(kernel), rel=0.5)


async def test_software_counters_per_cgroup_agree_with_its_cpu_time() -> None:
    async with unified_tree() as tree:
        directory = tree.pod("counted", "Burstable", "main")
        tree.run(f"{directory}/main", BURNER)
        await burnt(tree, directory, 50_000_000)
        inner = context(tree, known_pod(tree, "counted", "main"))
        inner.store.facts.processors = tuple(
            Processor(cpu=cpu, core=cpu, socket=0, node=0) for cpu in range(os.cpu_count() or 1)
        )
        # Software counters, which every machine has: the CPU time and the context switches of tasks.
        events = {"cycle": PerfEvent(1, 1), "instruction": PerfEvent(1, 3)}
        collector = CpiCollector(inner, 60.0, window=10.0, events=events)
        earliest = tree.usage_nanos(directory)
        if collector.collect():
            pytest.skip("needs perf events: kernel.perf_event_paranoid forbids them here")
        latest = tree.usage_nanos(directory)
        await burnt(tree, directory)
        assert collector.pause() == 10.0
        least = tree.usage_nanos(directory) - latest
        assert collector.collect()
        most = tree.usage_nanos(directory) - earliest
        who = {kinds.POD_UID: "counted", kinds.CONTAINER_ID: "containerd://main", "cpi_resource": "cycle"}
        # The counters were switched on and off somewhere within the two readings around each step.
        assert 0.9 * least <= newest(inner, kinds.CONTAINER_CPI, who) <= 1.1 * most
        assert collector.pause() == 60.0


def leveled(file: files.CgroupFile, places: list[str], value: str) -> Plan:
    targets = (Target.TIER, Target.POD, Target.CONTAINER)
    levels = tuple(
        (Write(file=file, value=value, directory=place, target=target),)
        for place, target in zip(places, targets, strict=True)
    )
    return Plan(batches=(Batch(levels=levels, leveled=True),))


def executor(tree: Tree) -> Executor:
    made = Executor(tree.host, tree.layout, SystemClock(), force_after=timedelta(0))
    made.start()
    return made


def test_a_whole_tree_of_cpusets_moves_through_states_the_kernel_accepts(tree: Tree) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    directory = tree.pod("moved", "BestEffort", "main")
    tree.run(f"{directory}/main", EATER, "4096")
    places = [tree.paths.tier("BestEffort"), directory, f"{directory}/main"]
    made = executor(tree)
    for cpus in ("0", "1", "0-1", "0"):
        made.apply(leveled(files.CPUSET, places, cpus))
        assert made.counts.failed == 0
        assert [tree.read("cpuset", place, "cpuset.cpus").strip() for place in places] == [cpus] * 3


def test_quotas_of_a_tree_grow_from_the_top_and_shrink_from_the_bottom(tree: Tree) -> None:
    directory = tree.pod("moved", "BestEffort", "main")
    places = [tree.paths.tier("BestEffort"), directory, f"{directory}/main"]
    made = executor(tree)
    reader = CgroupReader(tree.host, tree.layout)
    for quota in (50_000, 20_000, 80_000, -1, 10_000):
        made.apply(leveled(files.CPU_QUOTA, places, str(quota)))
        assert made.counts.failed == 0
        assert [reader.cpu_quota(place) for place in places] == [quota] * 3


def test_values_reach_the_kernel_and_come_back(tree: Tree) -> None:
    directory = tree.pod("written", "Burstable", "main")
    made = executor(tree)
    reader = CgroupReader(tree.host, tree.layout)
    writes = [
        Write(file=files.CPU_SHARES, value="512", directory=directory, target=Target.POD),
        Write(file=files.CPU_QUOTA, value="25000", directory=directory, target=Target.POD),
        Write(file=files.MEMORY_LIMIT, value=str(64 * 2**20), directory=directory, target=Target.POD),
    ]
    made.apply(Plan(batches=(Batch.flat(*writes),)))
    assert made.counts.written == 3
    assert abs(reader.cpu_shares(directory) - 512) <= 30, "a weight is coarser than shares"
    assert (reader.cpu_quota(directory), reader.memory_limit(directory)) == (25_000, 64 * 2**20)
    made.apply(Plan(batches=(Batch.flat(*writes),)))
    assert made.counts.written == 3, "what is there is not written again"
    unlimited = Write(file=files.MEMORY_LIMIT, value="-1", directory=directory, target=Target.POD)
    made.apply(Plan(batches=(Batch.flat(unlimited),)))
    assert reader.memory_limit(directory) == -1


def test_hostile_names_are_refused_and_touch_nothing(tree: Tree) -> None:
    tree.pod("real", "Burstable", "main")
    made = executor(tree)
    shares = Write(file=files.CPU_SHARES, value="3", directory="", target=Target.POD)
    root = tree.paths.kube_root
    before = [tree.read("cpu", place, _shares(tree)) for place in (root, tree.paths.tier("Burstable"))]
    hostile = (
        "",
        "/",
        root,
        tree.paths.tier("Burstable"),
        f"{root}/../..",
        f"{root}/../../../../etc",
        "../../../tmp",
        "a\0b",
    )
    for place in hostile:
        made.apply(Plan(batches=(Batch.flat(_at(shares, place)),)))
    assert made.counts.refused == len(hostile)
    assert made.counts.written == 0
    assert [tree.read("cpu", place, _shares(tree)) for place in (root, tree.paths.tier("Burstable"))] == before


def _shares(tree: Tree) -> str:
    return "cpu.shares" if tree.version == 1 else "cpu.weight"


def _at(write: Write, place: str) -> Write:
    return Write(file=write.file, value=write.value, directory=place, target=write.target)


def test_a_cgroup_that_vanishes_closes_its_descriptor(tree: Tree) -> None:
    directory = tree.pod("short", "Burstable")
    path = tree.layout.cgroup_file(files.CPU_STAT, directory)
    tree.host.read(path)
    assert len(tree.host._open) == 1
    for place in tree.places(directory):
        place.rmdir()
    with pytest.raises(FileNotFoundError):
        tree.host.read(path)
    assert len(tree.host._open) == 0


async def test_pods_and_containers_are_seen_as_their_directories_appear(tree: Tree) -> None:
    tree.pod("before", "Burstable", "old")
    watch = InotifyWatch(tree.host, tree.layout)
    seen: list[Change] = []
    watch.lifecycle.add_handler(seen.append)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch.run())
        await asyncio.sleep(0.05)
        tree.pod("after", "BestEffort", "new")
        tree.make(f"{tree.paths.pod('Burstable', 'before')}/second")
        await until(lambda: len(seen) >= 3)
        for place in tree.places(f"{tree.paths.pod('BestEffort', 'after')}/new"):
            place.rmdir()
        for place in tree.places(tree.paths.pod("BestEffort", "after")):
            place.rmdir()
        await until(lambda: Change(False, "after") in seen)
        task.cancel()
    assert {Change(True, "after"), Change(True, "after", "new"), Change(True, "before", "second")} <= set(seen)
    assert Change(True, "before") not in seen


def test_what_the_kernel_lacks_is_said_in_one_line_each(tree: Tree) -> None:
    features = kernel_features(tree.host, tree.layout, Path("/proc/cpuinfo").read_text())
    assert len({feature.name for feature in features}) == len(features)
    burst = next(feature for feature in features if feature.name == "CFS burst")
    name = "cpu.cfs_burst_us" if tree.version == 1 else "cpu.max.burst"
    assert burst.present == Path(tree.layout.cgroup_dir("cpu", tree.paths.kube_root), name).exists()
