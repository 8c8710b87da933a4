"""One decision round of every QoS strategy and of the hooks, and writes in a steady state.

    python benchmarks/qos_round.py [--pods 250] [--rounds 20]

A node in memory: half the pods latency-sensitive with a CPU limit, half best effort with batch resources, two
containers each. CPU is the process's own. The round of a strategy is decide plus apply; a steady state writes nothing.
"""

import argparse
import resource
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.api.qos.slo_strategies import NodeSLOSpec
from kubetide.api.values.codec import convert
from kubetide.node.core.evictions.evictors import CpuEvict, MemoryEvict
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.formats.storage import StorageFacts
from kubetide.node.core.hooks.decide import HookDecider
from kubetide.node.core.hooks.rules import Plugins
from kubetide.node.core.qos.blkio import BlkIo
from kubetide.node.core.qos.burst_limiter import Limiters
from kubetide.node.core.qos.cpu_burst import CpuBurst
from kubetide.node.core.qos.memory import MemoryQos
from kubetide.node.core.qos.suppress import CpuSuppress
from kubetide.node.core.qos.system import SystemConfig
from kubetide.node.core.series import kinds
from kubetide.node.core.slo import complete
from nodeworld import START, World

CONTAINERS = ("main", "side")


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def raw_pod(number: int) -> dict[str, Any]:
    best_effort = number % 2 == 1
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
    if not best_effort:
        amounts = {"cpu": "500m", "memory": "1Gi"}
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "default",
            "uid": f"uid-{number}",
            "labels": {qos.LABEL_QOS: "BE" if best_effort else "LS"},
        },
        "spec": {
            "priority": 5500 if best_effort else 9500,
            "containers": [
                {"name": name, "resources": {"requests": amounts, "limits": amounts}} for name in CONTAINERS
            ],
        },
        "status": {
            "phase": "Running",
            "qosClass": "BestEffort" if best_effort else "Burstable",
            "containerStatuses": [
                {"name": name, "containerID": f"containerd://{number}-{name}", "state": {"running": {}}}
                for name in CONTAINERS
            ],
        },
    }


def make_node(count: int) -> World:
    world = World()
    amounts = {"cpu": "128", "memory": "512Gi", "kubernetes.io/batch-cpu": "60000"}
    raw = {"metadata": {"name": "n"}, "status": {"capacity": amounts, "allocatable": amounts}}
    world.node = convert(raw, Node)
    world.processors = tuple(Processor(cpu=n, core=n // 2, socket=n // 64, node=n // 64) for n in range(128))
    world.topology = {qos.ANNOTATION_CPU_MANAGER: '{"policy":"none"}'}
    world.storage = StorageFacts(disk_number={"/dev/vda": "253:0"})
    world.slo = convert(
        complete(
            {
                "resourceUsedThresholdWithBE": {
                    "enable": True,
                    "cpuEvictBESatisfactionLowerPercent": 20,
                    "cpuEvictBESatisfactionUpperPercent": 40,
                },
                "cpuBurstStrategy": {"policy": "auto"},
                "resourceQOSStrategy": {
                    "lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50}, "cpuQOS": {"enable": True}}
                },
            }
        ),
        NodeSLOSpec,
    )
    world.gates = {"CPUBurst": True}
    for number in range(count):
        world.add_pod(raw_pod(number))
    quota = {"cpu.shares": "2", "cpu.cfs_quota_us": "50000", "cpu.cfs_burst_us": "0", "cpu.bvt_warp_ns": "0"}
    memory = {"memory.min": "0", "memory.low": "0", "memory.high": "0", "memory.limit_in_bytes": "1"}
    tiers = world.paths.tiers()
    places = [*tiers, *(p for pod in world.pods for p in (pod.directory, *(c.directory for c in pod.containers)))]
    for place in places:
        world.cgroup("cpu", place, quota)
        world.cgroup("memory", place, memory)
        world.cgroup("cpuset", place, {"cpuset.cpus": "0-127"})
    world.cgroup("blkio", world.paths.tier(BEST_EFFORT), {"blkio.throttle.read_bps_device": ""})
    world.host.files["/proc/sys/vm/min_free_kbytes"] = "0"
    world.host.files["/proc/sys/vm/watermark_scale_factor"] = "0"
    world.metrics.set(kinds.NODE_CPU, 60.0)
    world.metrics.set(kinds.NODE_MEMORY, 100.0 * 2**30)
    for pod in world.pods:
        world.metrics.set(kinds.POD_CPU, 0.2, {kinds.POD_UID: pod.uid})
        world.metrics.set(kinds.POD_MEMORY, float(2**28), {kinds.POD_UID: pod.uid})
        for container in pod.containers:
            world.metrics.set(kinds.CONTAINER_CPU, 0.1, {kinds.CONTAINER_ID: container.id})
            world.metrics.set(kinds.CONTAINER_THROTTLED, 0.0, {kinds.CONTAINER_ID: container.id})
    return world


class IndexedHost:
    """Directories of the node by parent, so that the benchmark measures strategies and not its own host."""

    def __init__(self, world: World) -> None:
        children: dict[str, set[str]] = {}
        for path in world.host.files:
            parts = path.split("/")
            for depth in range(2, len(parts) - 1):
                children.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
        self.children = {path: sorted(names) for path, names in children.items()}
        self.files = world.host.files

    def list_dirs(self, path: str) -> list[str]:
        return list(self.children.get(path, ()))

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.children


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    world = make_node(options.pods)
    indexed = IndexedHost(world)
    world.host.list_dirs = indexed.list_dirs  # type: ignore[method-assign]
    world.host.exists = indexed.exists  # type: ignore[method-assign]
    hooks = HookDecider(Plugins())
    strategies: list[Any] = [
        CpuSuppress(),
        CpuBurst(Limiters(lambda: 0.5)),
        CpuEvict(START),
        MemoryEvict(),
        MemoryQos(),
        BlkIo(),
        SystemConfig(),
    ]

    def run(strategy: Any) -> None:
        if strategy is not hooks:
            world.sync(strategy)
            return
        world.pass_of(hooks)

    print(f"{options.pods} pods, {options.pods * len(CONTAINERS)} containers, {options.rounds} rounds")
    print(f"{'strategy':20} {'first ms':>9} {'median ms':>10} {'worst ms':>9}")
    total = 0.0
    for strategy in [*strategies, hooks]:
        name = "hooks" if strategy is hooks else strategy.name
        spent = []
        for _ in range(options.rounds + 1):
            world.clock.advance(1)
            began = cpu_seconds()
            run(strategy)
            spent.append((cpu_seconds() - began) * 1000)
        total += statistics.median(spent[1:])
        print(f"{name:20} {spent[0]:9.1f} {statistics.median(spent[1:]):10.2f} {max(spent[1:]):9.2f}")
    print(f"{'all':20} {'':9} {total:10.2f}")
    for _ in range(30):
        for strategy in [*strategies, hooks]:
            run(strategy)
        world.clock.advance(1)
    before = len(world.host.writes)
    for _ in range(60):
        for strategy in [*strategies, hooks]:
            run(strategy)
        world.clock.advance(1)
    print(f"writes per minute in a steady state: {len(world.host.writes) - before}")


if __name__ == "__main__":
    main()
