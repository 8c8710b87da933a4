"""QoS strategies and hooks on the machine's real cgroups."""

import asyncio
import itertools
import os
from datetime import UTC, datetime
from typing import Any

import pytest

from kernel.tree import BURNER, Tree, cgroup_tree, until
from kubetide.api.objects.core import Node, Pod
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.api.values.cpuset import CpuSet
from kubetide.clock import SystemClock
from kubetide.node.core import files
from kubetide.node.core.formats.storage import LSBLK, StorageFacts, read_lsblk
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.rules import Plugins
from kubetide.node.core.kernel_values import NOTHING, Needs
from kubetide.node.core.plan import Plan
from kubetide.node.core.qos.blkio import BlkIo
from kubetide.node.core.qos.burst_limiter import Limiters
from kubetide.node.core.qos.cpu_burst import CpuBurst
from kubetide.node.core.qos.memory import MemoryQos
from kubetide.node.core.qos.strategy import Observing, Releasing, Remembering, Strategy
from kubetide.node.core.qos.suppress import USING, CpuSuppress
from kubetide.node.core.series import kinds
from kubetide.node.core.snapshot import PodState, Snapshot, pod_state
from kubetide.node.executor.kernel_writer import Executor
from kubetide.node.host.facts import processors_from_sysfs
from kubetide.node.host.linux import LinuxHost
from kubetide.node.host.readers import CgroupReader
from kubetide.node.kernel_reader import KernelReader
from nodeworld import Samples

CPUS = os.cpu_count() or 1
SPIKES = """
import time
while True:
    end = time.process_time() + 0.009
    while time.process_time() < end:
        pass
    time.sleep(0.3)
"""


class Machine:
    """The real machine as the strategies see it, with usage counted by the kernel for the test's own pods."""

    def __init__(self, tree: Tree, spec: dict[str, Any]) -> None:
        tree.tiers()
        self.tree = tree
        self.clock = SystemClock()
        self.executor = Executor(tree.host, tree.layout, self.clock)
        self.executor.start()
        self.reader = KernelReader(tree.host, tree.layout)
        self.metrics = Samples()
        self.slo = convert(spec, NodeSLOSpec)
        self.pods: list[PodState] = []
        self.storage: StorageFacts | None = None
        amounts = {"cpu": str(CPUS), "memory": "8Gi"}
        raw = {"metadata": {"name": "here"}, "status": {"capacity": amounts, "allocatable": amounts}}
        self.node = convert(raw, Node)
        self._before: dict[str, tuple[float, int]] = {}

    def add(self, name: str, *, label: str = "", kube: str = "Burstable", **parts: Any) -> PodState:
        raw = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "labels": {qos.LABEL_QOS: label} if label else {},
                "annotations": parts.get("annotations", {}),
            },
            "spec": {"containers": [{"name": "main", "resources": parts.get("resources", {})}]},
            "status": {
                "phase": "Running",
                "qosClass": kube,
                "containerStatuses": [{"name": "main", "containerID": f"containerd://{name}-main"}],
            },
        }
        pod = pod_state(convert(raw, Pod), self.tree.paths)
        assert self.tree.pod(name, kube, f"{name}-main") == pod.directory
        self.pods.append(pod)
        return pod

    def measure(self) -> dict[str, float]:
        """Return the cores that each pod used since the last call, and tell them to the strategies."""
        used: dict[str, float] = {}
        now = self.clock.monotonic()
        for pod in self.pods:
            nanos = self.tree.usage_nanos(pod.directory)
            began, before = self._before.get(pod.uid, (now, nanos))
            used[pod.name] = (nanos - before) / ((now - began) * 1e9) if now > began else 0.0
            self._before[pod.uid] = (now, nanos)
            self.metrics.set(kinds.POD_CPU, used[pod.name], {kinds.POD_UID: pod.uid})
        self.metrics.set(kinds.NODE_CPU, sum(used.values()))
        return used

    def snapshot(self, needs: Needs = NOTHING) -> Snapshot:
        return Snapshot(
            now=datetime.now(UTC),
            node=self.node,
            pods=tuple(self.pods),
            slo=self.slo,
            metrics=self.metrics,
            layout=self.tree.layout,
            kernel=self.reader.read(needs),
            processors=processors_from_sysfs(self.tree.host, self.tree.layout),
            storage=self.storage,
            topology_annotations={qos.ANNOTATION_CPU_MANAGER: '{"policy":"none"}'},
            gates={"CPUBurst": True},
        )

    def look(self, strategy: object) -> Snapshot:
        """Return the machine as it is, with the kernel values that a strategy needs."""
        return self.snapshot(strategy.needs(self.snapshot()) if isinstance(strategy, Observing) else NOTHING)

    def apply(self, plan: Plan, strategy: object) -> None:
        """Write a plan and tell its strategy what became of it."""
        outcomes = self.executor.apply(plan)
        if isinstance(strategy, Remembering):
            strategy.applied(plan, outcomes)

    def sync(self, strategy: Strategy) -> None:
        """Look, decide, write and tell, as the agent does."""
        self.apply(strategy.decide(self.look(strategy)), strategy)

    def release(self, strategy: Releasing) -> None:
        """Take back what would hurt without the agent."""
        self.apply(strategy.release(self.look(strategy)), strategy)

    def quota(self, directory: str) -> int:
        return CgroupReader(self.tree.host, self.tree.layout).cpu_quota(directory)


async def test_best_effort_quota_makes_room_for_a_load_step_and_comes_back_in_steps() -> None:
    with cgroup_tree() as tree:
        threshold = {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 65}
        machine = Machine(tree, {"resourceUsedThresholdWithBE": threshold})
        web = machine.add("web", label="LS")
        job = machine.add("job", label="BE", kube="BestEffort")
        tier = tree.paths.tier(BEST_EFFORT)
        strategy = CpuSuppress()
        for _ in range(CPUS):
            tree.run(job.containers[0].directory, BURNER)

        async def interval() -> dict[str, float]:
            await asyncio.sleep(0.5)
            used = machine.measure()
            machine.sync(strategy)
            return used

        machine.measure()
        await interval()
        calm = machine.quota(tier)
        assert calm == CPUS * 65_000
        burner = tree.run(web.containers[0].directory, BURNER)
        started = tree.usage_nanos(web.directory) + 500_000_000
        await until(lambda: tree.usage_nanos(web.directory) > started)
        await interval()
        used = await interval()
        assert used["web"] > 0
        busy = machine.quota(tier)
        expected = max((CPUS * 650 - int(used["web"] * 1000)) * 100, 2000)
        assert busy < calm
        assert busy <= expected + CPUS * 1000, "never more than the rule leaves, but growth may lag behind it"
        periods, throttled = tree.periods(tier)
        before = {pod.name: tree.usage_nanos(pod.directory) for pod in (web, job)}
        await asyncio.sleep(1.0)
        spent = {pod.name: tree.usage_nanos(pod.directory) - before[pod.name] for pod in (web, job)}
        passed = tree.periods(tier)[0] - periods
        assert spent["job"] <= (passed + 2) * busy * 1000 * 1.25
        assert tree.periods(web.directory)[1] == 0
        assert tree.periods(tier)[1] >= throttled
        burner.kill()
        burner.wait()
        await interval()
        seen = [machine.quota(tier)]
        for _ in range(12):
            await interval()
            seen.append(machine.quota(tier))
        assert seen == sorted(seen)
        assert max(after - before for before, after in itertools.pairwise(seen)) <= CPUS * 10_000
        assert calm - CPUS * 1000 < seen[-1] <= calm, "a change below one percent of the machine is not worth a write"
        machine.release(strategy)
        assert machine.quota(tier) == -1


async def test_a_burst_within_the_quota_is_used_by_spikes() -> None:
    with cgroup_tree() as tree:
        machine = Machine(tree, {"cpuBurstStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": 1000}})
        limits = {"limits": {"cpu": "50m"}, "requests": {"cpu": "50m"}}
        web = machine.add("web", label="LS", resources=limits)
        place = web.containers[0].directory
        name = "cpu.cfs_burst_us" if tree.version == 1 else "cpu.max.burst"
        if not (tree.places(place)[0] / name).exists():
            pytest.skip("needs a kernel with cfs burst (5.14 or newer)")
        for directory in (web.directory, place):
            tree.limit_cpu(directory, 5_000)
        strategy = CpuBurst(Limiters(lambda: 0.5))
        machine.sync(strategy)
        assert int(tree.read("cpu", place, name)) == 5_000
        assert int(tree.read("cpu", web.directory, name)) == 5_000
        assert machine.executor.counts.failed == 0
        tree.run(place, SPIKES)
        await until(lambda: _stat(tree, place).get("nr_bursts", 0) > 0)
        machine.slo = convert({"cpuBurstStrategy": {"policy": "none"}}, NodeSLOSpec)
        machine.sync(strategy)
        assert int(tree.read("cpu", place, name)) == 0


def _stat(tree: Tree, directory: str) -> dict[str, int]:
    return {
        key: int(value)
        for key, value in (line.split() for line in tree.read("cpu", directory, "cpu.stat").splitlines())
    }


async def test_a_quota_that_falls_takes_its_burst_along() -> None:
    with cgroup_tree() as tree:
        machine = Machine(tree, {"cpuBurstStrategy": {"policy": "auto", "cfsQuotaBurstPercent": 300}})
        web = machine.add("web", label="LS", resources={"limits": {"cpu": "200m"}, "requests": {"cpu": "100m"}})
        place = web.containers[0].directory
        name = "cpu.cfs_burst_us" if tree.version == 1 else "cpu.max.burst"
        if not (tree.places(place)[0] / name).exists():
            pytest.skip("needs a kernel with cfs burst (5.14 or newer)")
        for directory in (web.directory, place):
            tree.limit_cpu(directory, 20_000)
        strategy = CpuBurst(Limiters(lambda: 0.5))
        machine.metrics.set(kinds.NODE_CPU, 0.1)
        machine.metrics.set(kinds.CONTAINER_THROTTLED, 0.5, {kinds.CONTAINER_ID: web.containers[0].id})
        for _ in range(4):
            machine.sync(strategy)
        assert machine.quota(place) > 20_000
        machine.metrics.set(kinds.NODE_CPU, float(CPUS))
        for _ in range(12):
            machine.sync(strategy)
            assert int(tree.read("cpu", place, name)) <= machine.quota(place)
        assert machine.quota(place) == 20_000
        assert machine.executor.counts.failed == 0


def test_a_limit_of_a_real_disk_is_written_and_removed() -> None:
    with cgroup_tree() as tree:
        if tree.version != 1:
            pytest.skip("block I/O limits are written on cgroup v1")
        try:
            facts = read_lsblk(LinuxHost().run(LSBLK), StorageFacts())
        except OSError as error:
            pytest.skip(f"lsblk does not work here: {error}")
        if not facts.disk_number:
            pytest.skip("this machine has no disk")
        disk, number = next(iter(facts.disk_number.items()))

        def spec(enable: bool) -> dict[str, Any]:
            block = {"name": disk, "type": "device", "ioCfg": {"readBPS": 4194304, "writeIOPS": 500}}
            return {"resourceQOSStrategy": {"beClass": {"blkioQOS": {"enable": enable, "blocks": [block]}}}}

        machine = Machine(tree, spec(True))
        machine.storage = facts
        tier = tree.paths.tier(BEST_EFFORT)

        def lines(name: str) -> str:
            return tree.read("blkio", tier, f"blkio.throttle.{name}_device").strip()

        machine.sync(BlkIo())
        assert (lines("read_bps"), lines("write_iops")) == (f"{number} 4194304", f"{number} 500")
        assert BlkIo().decide(machine.look(BlkIo())).is_empty
        machine.slo = convert(spec(False), NodeSLOSpec)
        machine.sync(BlkIo())
        assert (lines("read_bps"), lines("write_iops")) == ("", "")


def test_cpus_are_taken_and_given_back_in_an_order_that_the_kernel_accepts() -> None:
    with cgroup_tree() as tree:
        if CPUS < 2:
            pytest.skip("needs two CPUs")
        machine = Machine(tree, {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cpuset"}})
        job = machine.add("job", label="BE", kube="BestEffort")
        places = [tree.paths.tier(BEST_EFFORT), job.directory, job.containers[0].directory]
        strategy = CpuSuppress()
        for cpus in ("0", "1", f"0-{CPUS - 1}", "1", "0"):
            machine.apply(strategy.cpus_plan(machine.look(strategy), CpuSet.parse(cpus)), strategy)
            assert {CpuSet.parse(tree.read("cpuset", place, "cpuset.cpus").strip()) for place in places} == {
                CpuSet.parse(cpus)
            }
        assert strategy.cpuset_status == USING
        machine.release(strategy)
        assert {len(CpuSet.parse(tree.read("cpuset", place, "cpuset.cpus").strip())) for place in places} == {CPUS}
        assert machine.executor.counts.failed == 0


async def test_best_effort_work_is_moved_to_the_cpus_that_a_load_step_leaves() -> None:
    with cgroup_tree() as tree:
        if CPUS < 4:
            pytest.skip("needs four CPUs: the fewest of which the policy can take some away")
        machine = Machine(tree, {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cpuset"}})
        web = machine.add("web", label="LS")
        job = machine.add("job", label="BE", kube="BestEffort")
        places = [tree.paths.tier(BEST_EFFORT), job.directory, job.containers[0].directory]
        for place in places:
            machine.executor.host.write(tree.layout.cgroup_file(files.CPUSET, place), f"0-{CPUS - 1}")
        burner = tree.run(places[-1], BURNER)
        await until(lambda: tree.usage_nanos(job.directory) > 0)
        strategy = CpuSuppress()
        topology = {one.cpu: one.core for one in machine.snapshot().processors}

        def round_with(cores: float) -> set[int]:
            """Let a round see this much usage of the latency-sensitive pod; return where the kernel runs the other."""
            machine.metrics.set(kinds.POD_CPU, cores, {kinds.POD_UID: web.uid})
            machine.metrics.set(kinds.POD_CPU, 0.0, {kinds.POD_UID: job.uid})
            machine.metrics.set(kinds.NODE_CPU, cores)
            machine.sync(strategy)
            allowed = os.sched_getaffinity(burner.pid)
            for place in places:
                assert set(CpuSet.parse(tree.read("cpuset", place, "cpuset.cpus").strip())) == allowed
            return allowed

        calm = -(-CPUS * 65 // 100)
        assert len(round_with(0.0)) == calm
        few = round_with(CPUS * 0.65)
        assert len(few) == 2
        if len(set(topology.values())) * 2 == len(topology):
            assert len({topology[cpu] for cpu in few}) == 1, "both threads of one core"
        step = -(-CPUS // 10)
        assert len(round_with(0.0)) == min(2 + step, calm)
        machine.release(strategy)
        assert len(os.sched_getaffinity(burner.pid)) == CPUS
        assert machine.executor.counts.failed == 0


def test_memory_protection_is_accepted_at_every_level() -> None:
    with cgroup_tree() as tree:
        if tree.version != 2:
            pytest.skip("memory.min, low and high need cgroup v2 on this kernel")
        values = {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 80, "throttlingPercent": 80}
        machine = Machine(tree, {"resourceQOSStrategy": {"lsClass": {"memoryQOS": values}}})
        resources = {"requests": {"memory": "64Mi"}, "limits": {"memory": "128Mi"}}
        web = machine.add("web", label="LS", resources=resources)
        strategy = MemoryQos()
        machine.sync(strategy)
        for place in (tree.paths.kube_root, web.directory, web.containers[0].directory):
            assert int(tree.read("memory", place, "memory.min")) == 32 * 2**20
        high = int(tree.read("memory", web.containers[0].directory, "memory.high"))
        assert 64 * 2**20 < high < 128 * 2**20
        machine.pods.clear()
        machine.sync(strategy)
        assert int(tree.read("memory", tree.paths.kube_root, "memory.min")) == 0


def test_the_hook_reconciler_sets_batch_resources_on_real_cgroups() -> None:
    with cgroup_tree() as tree:
        machine = Machine(tree, {})
        amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
        job = machine.add("job", label="BE", kube="BestEffort", resources={"requests": amounts, "limits": amounts})
        decider = HookDecider(Plugins(bvt_ready=False))
        plan = decider.decide(machine.snapshot())
        decider.applied(plan, machine.executor.apply(plan))
        reader = CgroupReader(tree.host, tree.layout)
        for place in (job.directory, job.containers[0].directory):
            assert reader.cpu_quota(place) == 50_000
            assert reader.memory_limit(place) == 64 * 2**20
        written = machine.executor.counts.written
        machine.executor.apply(decider.decide(machine.snapshot()))
        assert machine.executor.counts.written == written
        assert machine.executor.counts.failed == 0
