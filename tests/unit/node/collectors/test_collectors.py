"""Collectors: two readings for a rate, nothing from counters that went back, nothing from a single bad pod."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.qos.slo_strategies import CgroupPath, HostApplication
from kubetide.api.values.codec import convert
from kubetide.node.collectors.base import Context
from kubetide.node.collectors.best_effort import BestEffortCollector, be_properties
from kubetide.node.collectors.cold_memory import ColdMemoryCollector
from kubetide.node.collectors.gpu import GpuCollector
from kubetide.node.collectors.host_apps import HostApplicationCollector
from kubetide.node.collectors.info import NodeInfoCollector
from kubetide.node.collectors.node import NodeCollector, SystemCollector
from kubetide.node.collectors.page_cache import PageCacheCollector
from kubetide.node.collectors.pods import PodCollector
from kubetide.node.collectors.pressure import PressureCollector
from kubetide.node.collectors.storage import StorageCollector
from kubetide.node.collectors.throttling import ThrottlingCollector
from kubetide.node.core import files
from kubetide.node.core.layout import Layout
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Ring, series_key
from kubetide.node.core.series.store import SeriesStore
from kubetide.node.core.snapshot import PodState, pod_state
from kubetide.node.runtime.nvml import GpuDevice, NvmlError, ProcessUsage
from kubetide.telemetry import Telemetry
from unit.node.idle_pages import HEAD, rows_of
from unit.node.memory_host import ManualClock, MemoryHost

LAYOUT = Layout(version=1, cgroup_root="/cg")
MEMORY_STAT = "total_cache 10\ntotal_rss 20\ntotal_inactive_file 3\ntotal_active_file 4\ntotal_inactive_anon 100\n"
MEMORY_STAT += "total_active_anon 200\ntotal_unevictable 5\n"


def known_pod(uid: str = "a", *, labels: dict[str, str] | None = None, batch: str = "") -> PodState:
    resources = {"requests": {"kubernetes.io/batch-cpu": batch}} if batch else {}
    raw: dict[str, Any] = {
        "metadata": {"name": uid, "namespace": "x", "uid": uid, "labels": labels or {}},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
        "status": {
            "phase": "Running",
            "qosClass": "BestEffort",
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{uid}c", "state": {"running": {}}}],
        },
    }
    return pod_state(convert(raw, Pod), LAYOUT.paths)


@dataclass
class Machine:
    """A machine in memory and the context of collectors on it."""

    pods: list[PodState] = field(default_factory=list)
    applications: list[HostApplication] = field(default_factory=list)
    host: MemoryHost = field(default_factory=MemoryHost)
    clock: ManualClock = field(default_factory=ManualClock)
    counts_page_cache: bool = False

    def __post_init__(self) -> None:
        self.context = Context(
            host=self.host,
            layout=LAYOUT,
            clock=self.clock,
            store=SeriesStore(Ring()),
            telemetry=Telemetry(),
            node_name="here",
            pods=lambda: tuple(self.pods),
            host_applications=lambda: tuple(self.applications),
            counts_page_cache=lambda: self.counts_page_cache,
        )

    def put(self, file: files.CgroupFile, directory: str, text: str) -> None:
        self.host.files[LAYOUT.cgroup_file(file, directory)] = text

    def last(self, kind: str, **properties: str) -> float | None:
        return self.context.store.query(kind, properties, 0, 2**62).aggregate("last")

    def usage(self, directory: str, nanos: int) -> None:
        self.put(files.CPUACCT_USAGE, directory, str(nanos))
        self.put(files.MEMORY_STAT, directory, MEMORY_STAT)


def test_node_cpu_needs_two_readings_and_counts_busy_ticks_only() -> None:
    machine = Machine()
    collector = NodeCollector(machine.context, 1.0, 10_000_000)
    machine.host.files["/proc/meminfo"] = "MemTotal: 1000 kB\nMemAvailable: 400 kB\n"
    machine.host.files["/proc/stat"] = "cpu 100 0 100 5000 700 0 0 900\n"
    assert not collector.collect()
    machine.clock.advance(1)
    machine.host.files["/proc/stat"] = "cpu 200 0 100 5000 9700 0 50 9900\n"
    assert collector.collect()
    assert machine.last(kinds.NODE_CPU) == pytest.approx(1.5)
    assert machine.last(kinds.NODE_MEMORY) == 600 * 1024


def test_ticks_that_went_back_give_no_sample() -> None:
    machine = Machine()
    collector = NodeCollector(machine.context, 1.0, 10_000_000)
    machine.host.files["/proc/meminfo"] = "MemTotal: 1000 kB\nMemAvailable: 4000 kB\n"
    for ticks in (100, 50):
        machine.host.files["/proc/stat"] = f"cpu {ticks} 0 0 0 0 0 0 0\n"
        assert not collector.collect()
        machine.clock.advance(1)


def test_pods_then_containers_and_the_sum_for_the_system() -> None:
    machine = Machine([known_pod()])
    pod = machine.pods[0]
    collector = PodCollector(machine.context, 1.0)
    for step, nanos in enumerate((0, 500_000_000, 1_500_000_000)):
        machine.usage(pod.directory, nanos)
        machine.usage(pod.containers[0].directory, nanos // 2)
        assert collector.collect()
        if step < 2:
            machine.clock.advance(1)
    assert machine.last(kinds.POD_CPU, pod_uid="a") == pytest.approx(1.0)
    assert machine.last(kinds.CONTAINER_CPU, container_id="containerd://ac") == pytest.approx(0.5)
    assert machine.last(kinds.POD_MEMORY, pod_uid="a") == 305
    _, cores, used = machine.context.shared.pods[collector.name]
    assert (cores, used) == pytest.approx((1.0, 305.0))


def test_one_unreadable_pod_does_not_cost_the_others() -> None:
    machine = Machine([known_pod("gone"), known_pod("here")])
    collector = PodCollector(machine.context, 1.0)
    for nanos in (0, 1_000_000_000):
        machine.usage(machine.pods[1].directory, nanos)
        collector.collect()
        machine.clock.advance(1)
    assert machine.last(kinds.POD_CPU, pod_uid="here") is not None
    assert machine.last(kinds.POD_CPU, pod_uid="gone") is None


def test_a_reading_is_forgotten_after_twenty_intervals() -> None:
    machine = Machine([known_pod()])
    collector = PodCollector(machine.context, 1.0)
    machine.usage(machine.pods[0].directory, 0)
    collector.collect()
    machine.clock.advance(21)
    machine.usage(machine.pods[0].directory, 10**12)
    collector.collect()
    assert machine.last(kinds.POD_CPU, pod_uid="a") is None


def test_the_throttled_ratio_is_per_period() -> None:
    machine = Machine([known_pod()])
    collector = ThrottlingCollector(machine.context, 1.0)
    for periods, throttled in ((100, 10), (110, 15)):
        text = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time 5\n"
        machine.put(files.CPU_STAT, machine.pods[0].directory, text)
        collector.collect()
        machine.clock.advance(1)
    assert machine.last(kinds.POD_THROTTLED, pod_uid="a") == pytest.approx(0.5)


def test_the_best_effort_tier_reports_zero_usage_at_first() -> None:
    machine = Machine([known_pod(labels={"koordinator.sh/qosClass": "BE"}, batch="1500")])
    tier = LAYOUT.paths.tier("BestEffort")
    machine.put(files.CPUSET, tier, "0-3")
    machine.put(files.CPU_QUOTA, tier, "150000")
    machine.put(files.CPU_PERIOD, tier, "100000")
    machine.usage(tier, 0)
    collector = BestEffortCollector(machine.context, 1.0)
    assert collector.collect()
    values = {name: machine.last(kinds.NODE_BE, **be_properties(name)) for name in ("usage", "real-limit", "request")}
    assert values == {"usage": 0.0, "real-limit": 1500.0, "request": 1500.0}
    machine.clock.advance(1)
    machine.usage(tier, 700_000_000)
    collector.collect()
    assert machine.last(kinds.NODE_BE, **be_properties("usage")) == 700.0


def test_the_system_is_never_negative_and_never_made_of_old_parts() -> None:
    machine = Machine()
    collector = SystemCollector(machine.context, 1.0, 10.0)
    shared = machine.context.shared
    assert not collector.collect()
    shared.node, shared.host_applications = (0.0, 1.0, 100.0), (0.0, 0.0, 0.0)
    shared.pods["x"] = (0.0, 2.0, 30.0)
    assert collector.collect()
    assert (machine.last(kinds.SYS_CPU), machine.last(kinds.SYS_MEMORY)) == (0.0, 70.0)
    machine.clock.advance(11)
    assert not collector.collect()


def test_host_applications_without_a_place_of_their_own_are_not_read() -> None:
    real = HostApplication(name="nginx", qos="LS")
    rootless = HostApplication(name="everything", cgroup_path=CgroupPath())
    machine = Machine(applications=[real, rootless])
    collector = HostApplicationCollector(machine.context, 1.0)
    for nanos in (0, 250_000_000):
        machine.usage("host-latency-sensitive/nginx", nanos)
        machine.usage("", nanos)
        assert collector.collect()
        machine.clock.advance(1)
    assert machine.last(kinds.HOST_APP_CPU, host_app_name="nginx") == pytest.approx(0.25)
    assert machine.last(kinds.HOST_APP_CPU, host_app_name="everything") is None


@pytest.mark.parametrize(("counts", "usage", "expected"), [(False, "900", 305), (True, "900", 900), (True, None, 305)])
def test_host_applications_count_with_their_page_cache_where_the_node_metric_asks(
    counts: bool, usage: str | None, expected: int
) -> None:
    machine = Machine(applications=[HostApplication(name="nginx", qos="LS")], counts_page_cache=counts)
    collector = HostApplicationCollector(machine.context, 1.0)
    for nanos in (0, 250_000_000):
        machine.usage("host-latency-sensitive/nginx", nanos)
        if usage is not None:
            machine.put(files.MEMORY_USAGE, "host-latency-sensitive/nginx", usage)
        assert collector.collect()
        machine.clock.advance(1)
    cached = machine.last(kinds.HOST_APP_MEMORY_WITH_PAGE_CACHE, host_app_name="nginx")
    assert cached == (None if usage is None else 900)
    assert machine.last(kinds.HOST_APP_MEMORY, host_app_name="nginx") == 305
    assert machine.context.shared.host_applications == (1.0, 0.25, expected)


def test_without_host_applications_the_sum_is_zero_and_known() -> None:
    machine = Machine()
    assert HostApplicationCollector(machine.context, 1.0).collect()
    assert machine.context.shared.host_applications == (0.0, 0.0, 0.0)


def test_page_cache_counts_what_is_not_free() -> None:
    machine = Machine([known_pod()])
    machine.host.files["/proc/meminfo"] = "MemTotal: 1000 kB\nMemFree: 100 kB\n"
    machine.usage(machine.pods[0].directory, 0)
    assert PageCacheCollector(machine.context, 1.0).collect()
    assert machine.last(kinds.NODE_MEMORY_WITH_PAGE_CACHE) == 900 * 1024
    assert machine.last(kinds.POD_MEMORY_WITH_PAGE_CACHE, pod_uid="a") == 312


PRESSURE = "some avg10=1.50 avg60=2.00 avg300=3.00 total=4\n"
FULL = "full avg10=0.50 avg60=0.60 avg300=0.70 total=4\n"


def test_pressure_of_cpu_may_lack_its_full_half() -> None:
    machine = Machine([known_pod()])
    places = (LAYOUT.paths.kube_root, machine.pods[0].directory, machine.pods[0].containers[0].directory)
    for place in places:
        machine.put(files.CPU_PRESSURE, place, PRESSURE)
        machine.put(files.MEMORY_PRESSURE, place, PRESSURE + FULL)
        machine.put(files.IO_PRESSURE, place, PRESSURE + FULL)
    assert PressureCollector(machine.context, 10.0).collect()
    some = machine.last(kinds.POD_PSI, pod_uid="a", psi_resource="cpu", psi_precision="10", psi_degree="some")
    assert some == 1.5
    assert machine.last(kinds.POD_PSI_CPU_FULL, pod_uid="a") == 0.0
    text = machine.context.telemetry.render().decode()
    assert 'psi_resource_type="mem"' in text
    assert not [line for line in text.splitlines() if 'type="cpu"' in line and 'degree="full"' in line]


def test_pressure_without_its_some_half_is_not_stored_as_no_pressure() -> None:
    machine = Machine([known_pod()])
    places = (LAYOUT.paths.kube_root, machine.pods[0].directory, machine.pods[0].containers[0].directory)
    for place in places:
        machine.put(files.CPU_PRESSURE, place, FULL)
        machine.put(files.MEMORY_PRESSURE, place, PRESSURE + FULL)
        machine.put(files.IO_PRESSURE, place, PRESSURE + FULL)
    assert PressureCollector(machine.context, 10.0).collect()
    half = {"pod_uid": "a", "psi_resource": "cpu", "psi_precision": "10"}
    assert machine.last(kinds.POD_PSI, **half, psi_degree="full") == 0.5
    assert machine.last(kinds.POD_PSI, **half, psi_degree="some") is None
    text = machine.context.telemetry.render().decode()
    assert not [line for line in text.splitlines() if 'type="cpu"' in line and 'degree="some"' in line]


def test_a_kernel_without_pressure_files_is_no_problem() -> None:
    assert PressureCollector(Machine([known_pod()]).context, 10.0).collect()


def idle_pages(cold: int) -> str:
    rows = rows_of(lambda kind: f"0 0 0 0 0 {cold if kind == 'cfei' else 0} 0 0")
    return "\n".join((*HEAD, *rows)) + "\n"


def test_cold_memory_switches_the_kernel_on_once_and_never_goes_below_zero() -> None:
    machine = Machine([known_pod()])
    for file in (files.KIDLED_SCAN_PERIOD, files.KIDLED_USE_HIERARCHY):
        machine.host.files[LAYOUT.system_file(file)] = "0"
    machine.host.files["/proc/meminfo"] = "MemTotal: 1000 kB\nMemFree: 100 kB\n"
    machine.put(files.MEMORY_IDLE_PAGES, "", idle_pages(4096))
    machine.put(files.MEMORY_IDLE_PAGES, machine.pods[0].directory, idle_pages(4096))
    machine.usage(machine.pods[0].directory, 0)
    collector = ColdMemoryCollector(machine.context, 5.0)
    collector.start()
    assert collector.collect()
    assert machine.context.shared.cold_memory_started
    assert machine.last(kinds.NODE_MEMORY_COLD) == 4096
    assert machine.last(kinds.POD_MEMORY_HOT, pod_uid="a") == 0.0
    assert len(machine.host.writes) == 2


class Tools:
    """Answers commands."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers

    def run(self, command: Any, *, timeout: float = 5.0) -> str:
        if command[0] not in self.answers:
            raise FileNotFoundError(command[0])
        return self.answers[command[0]]


def test_a_node_without_lvm_still_knows_its_disks() -> None:
    machine = Machine()
    tools = Tools(
        {
            "lsblk": 'NAME="nvme0n1" TYPE="disk" MAJ:MIN="259:0" PKNAME=""\n'
            'NAME="nvme0n1p3" TYPE="part" MAJ:MIN="259:3" PKNAME="nvme0n1"\n',
            "findmnt": 'TARGET="/" SOURCE="/dev/nvme0n1p3"\n',
        }
    )
    assert StorageCollector(machine.context, 1.0, tools).collect()
    facts = machine.context.store.facts.storage
    assert facts is not None
    assert facts.partition_disk == {"/dev/nvme0n1p3": "/dev/nvme0n1"}
    assert facts.group_disk == {}
    del tools.answers["findmnt"]
    assert not StorageCollector(machine.context, 1.0, tools).collect()


def test_cpu_facts_are_kept_when_numa_facts_fail() -> None:
    machine = Machine()
    text = "CPU NODE SOCKET CORE CACHE ONLINE\n0 0 0 0 0:0:0:0 yes\n"
    collector = NodeInfoCollector(machine.context, 60.0, commands=Tools({"lscpu": text}))
    assert not collector.collect()
    assert len(machine.context.store.facts.processors) == 1
    machine.host.files["/sys/bus/node/devices/node0/meminfo"] = "Node 0 MemTotal: 10 kB\n"
    assert collector.collect()


@pytest.mark.parametrize(("machine_type", "count"), [("aarch64", 1), ("x86_64", 0)])
def test_arm_processors_need_not_say_which_caches_they_have(
    monkeypatch: pytest.MonkeyPatch, machine_type: str, count: int
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine_type)
    machine = Machine()
    text = "CPU NODE SOCKET CORE CACHE ONLINE\n0 0 0 0 - yes\n"
    NodeInfoCollector(machine.context, 60.0, commands=Tools({"lscpu": text})).collect()
    assert len(machine.context.store.facts.processors) == count


class Gpus:
    """Two GPUs, one of them broken."""

    def devices(self) -> tuple[GpuDevice, ...]:
        return tuple(
            GpuDevice(uuid=f"GPU-{minor}", minor=minor, memory_total=1000, bus_id="", name="x") for minor in (0, 1)
        )

    def processes(self, minor: int) -> tuple[ProcessUsage, ...]:
        if minor == 1:
            raise NvmlError("broken")
        return (ProcessUsage(7, 30, 100), ProcessUsage(8, 20, 200))

    def driver_version(self) -> str:
        return "1"

    def unhealthy(self) -> frozenset[str]:
        return frozenset()


def test_gpu_usage_goes_to_the_pods_whose_processes_compute() -> None:
    machine = Machine([known_pod(), known_pod("idle")])
    machine.put(files.PROCS, machine.pods[0].containers[0].directory, "7\n999\n")
    machine.put(files.PROCS, machine.pods[1].containers[0].directory, "\n")
    assert GpuCollector(machine.context, 1.0, Gpus()).collect()
    where = {kinds.GPU_MINOR: "0", kinds.GPU_UUID: "GPU-0"}
    assert machine.last(kinds.NODE_GPU_CORE, **where) == 50.0
    assert machine.last(kinds.POD_GPU_MEMORY, pod_uid="a", **where) == 100.0
    assert machine.last(kinds.POD_GPU_CORE, pod_uid="idle", **where) is None
    assert machine.last(kinds.NODE_GPU_CORE, **{kinds.GPU_MINOR: "1", kinds.GPU_UUID: "GPU-1"}) is None


def test_bad_samples_are_dropped_and_the_rest_of_the_batch_kept() -> None:
    machine = Machine()
    store = machine.context.store
    batch = [(series_key(kinds.NODE_CPU), float("nan")), (series_key(kinds.SYS_CPU), 1.0)]
    stored = store.append("t", 1.0, machine.clock.now(), batch)
    assert (stored, store.dropped) == (1, 1)
    assert machine.last(kinds.SYS_CPU) == 1.0
