"""A short story for every strategy that writes: a node, what happens to it, and a kernel that takes what is written.

Each scene is a list of phases; in each something changes, and the strategy then syncs a few times. The values at the
end of every phase are what the strategy stands for, whatever went wrong on the way.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.api.qos.slo_strategies import CPUBurstStrategy, NodeSLOSpec, ResourceThresholdStrategy, SystemStrategy
from kubetide.api.values.codec import convert
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.formats.storage import StorageFacts
from kubetide.node.core.qos.blkio import BlkIo
from kubetide.node.core.qos.burst_limiter import Limiters
from kubetide.node.core.qos.cpu_burst import CpuBurst
from kubetide.node.core.qos.memory import MemoryQos
from kubetide.node.core.qos.memory_values import FILES
from kubetide.node.core.qos.resctrl import Resctrl
from kubetide.node.core.qos.strategy import Strategy
from kubetide.node.core.qos.suppress import CpuSuppress
from kubetide.node.core.qos.system import SystemConfig
from kubetide.node.core.series import kinds
from nodeworld import MemoryHost, World

Phase = Callable[[World], None]
BLKIO = tuple(f"blkio.throttle.{kind}_device" for kind in ("read_bps", "write_bps", "read_iops", "write_iops"))


class KernelHost(MemoryHost):
    """Files that merge what is written, as the kernel's do: device lines, schemata, one task at a time."""

    def write(self, path: str, value: str) -> None:
        before = self.files.get(path, "")
        super().write(path, value)
        if path.endswith("/schemata"):
            kept = [line for line in before.splitlines() if not line.strip().startswith(value.partition(":")[0])]
            self.files[path] = "\n".join([*kept, value.strip().rstrip(";")])
        elif path.endswith("/tasks"):
            self.files[path] = "\n".join([*before.split(), value])
        elif re.search(r"/blkio\.[\w.]+$", path):
            device, _, limit = value.partition(" ")
            kept = [line for line in before.splitlines() if line.split(" ")[0] != device]
            self.files[path] = "\n".join(kept if limit == "0" else [*kept, value])


@dataclass
class Scene:
    """A node, a strategy, and what happens."""

    world: World
    strategy: Strategy
    phases: list[Phase]
    syncs: int = 4
    """How often the strategy syncs in each phase."""


def pod(name: str, label: str, kube: str, **resources: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "d", "uid": name, "labels": {qos.LABEL_QOS: label}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": resources, "limits": resources}}]},
        "status": {
            "phase": "Running",
            "qosClass": kube,
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{name}-main"}],
        },
    }


def node(version: int) -> World:
    """A node of 8 CPUs with a latency-sensitive and a best-effort pod, and a kernel with every file."""
    world = World(version=version, host=KernelHost())
    amounts = {"cpu": "8", "memory": "16Gi"}
    raw = {"metadata": {"name": "n"}, "status": {"capacity": amounts, "allocatable": amounts}}
    world.node = convert(raw, Node)
    world.processors = tuple(Processor(cpu=n, core=n // 2, socket=0, node=0, l3=n // 4) for n in range(8))
    world.topology = {qos.ANNOTATION_CPU_MANAGER: '{"policy":"none"}'}
    web = world.add_pod(pod("web", "LS", "Burstable", cpu="1", memory="1Gi"))
    job = world.add_pod(pod("job", "BE", "BestEffort"))
    inside = [path for one in (web, job) for path in (one.directory, one.containers[0].directory)]
    for place in (*world.paths.tiers(), *inside, f"{job.directory}/sandbox.scope"):
        limited = "100000" if place.startswith(web.directory) else "-1"
        if version == 1:
            world.cgroup("cpu", place, {"cpu.cfs_quota_us": limited, "cpu.cfs_burst_us": "0"})
            world.cgroup("blkio", place, dict.fromkeys(BLKIO, ""))
            world.cgroup("cpuset", place, {"cpuset.cpus": "0-7"})
        else:
            quota = f"{limited.replace('-1', 'max')} 100000"
            world.cgroup("cpu", place, {"cpu.max": quota, "cpu.max.burst": "0"})
            world.cgroup("cpuset", place, {"cpuset.cpus": "0-7", "cpuset.cpus.effective": "0-7"})
        world.cgroup("memory", place, {name: "1" if "scale" in name else "0" for name, _ in FILES})
    return world


def use(*, total: float, web: float) -> Phase:
    def happens(world: World) -> None:
        world.metrics.set(kinds.NODE_CPU, total)
        world.metrics.set(kinds.POD_CPU, web, {kinds.POD_UID: "web"})
        world.metrics.set(kinds.POD_CPU, 0.5, {kinds.POD_UID: "job"})

    return happens


def says(**blocks: Any) -> Phase:
    def happens(world: World) -> None:
        world.slo = NodeSLOSpec(**blocks)

    return happens


def threshold(**fields: Any) -> Phase:
    return says(resource_used_threshold_with_be=ResourceThresholdStrategy(cpu_suppress_threshold_percent=65, **fields))


def classes(**blocks: Any) -> Phase:
    return lambda world: setattr(world, "slo", convert({"resourceQOSStrategy": blocks}, NodeSLOSpec))


def suppress(version: int) -> Scene:
    world = node(version)
    use(total=5.0, web=3.0)(world)
    return Scene(
        world,
        CpuSuppress(),
        [
            threshold(enable=True, cpu_suppress_policy="cfsQuota"),
            use(total=6.0, web=4.0),
            threshold(enable=True, cpu_suppress_policy="cpuset"),
            threshold(enable=True, cpu_suppress_policy="cfsQuota"),
            threshold(enable=False),
        ],
    )


def burst(version: int) -> Scene:
    world = node(version)
    use(total=1.0, web=0.9)(world)
    who = {kinds.CONTAINER_ID: "containerd://web-main"}
    world.metrics.set(kinds.CONTAINER_CPU, 0.9, who)
    world.metrics.set(kinds.CONTAINER_THROTTLED, 0.4, who)
    strategy = CPUBurstStrategy(
        policy="auto", cpu_burst_percent=100, cfs_quota_burst_percent=300, share_pool_threshold_percent=50
    )
    phases = [says(cpu_burst_strategy=strategy), use(total=7.0, web=0.9)]
    return Scene(world, CpuBurst(Limiters(lambda: 0.5)), phases, syncs=10)


def memory(version: int) -> Scene:
    wanted = {
        "enable": True,
        "minLimitPercent": 50,
        "lowLimitPercent": 60,
        "throttlingPercent": 80,
        "wmarkRatio": 95,
        "oomKillGroup": 1,
    }
    phases: list[Phase] = [
        classes(lsClass={"memoryQOS": wanted}),
        classes(lsClass={"memoryQOS": wanted | {"minLimitPercent": 30}}),
        lambda world: world.pods.clear(),
    ]
    return Scene(node(version), MemoryQos(), phases)


def blkio(version: int) -> Scene:
    world = node(version)
    world.storage = StorageFacts(disk_number={"/dev/vdb": "253:16"})

    def limits(**io: int) -> Phase:
        blocks = [{"name": "/dev/vdb", "type": "device", "ioCfg": io}]
        return classes(beClass={"blkioQOS": {"enable": True, "blocks": blocks}})

    phases = [limits(readBPS=1048576, writeIOPS=100), limits(readBPS=4096), classes(beClass={})]
    return Scene(world, BlkIo(), phases)


def resctrl(version: int) -> Scene:
    world = node(version)
    world.host.files["/proc/cpuinfo"] = "vendor_id : GenuineIntel\nflags : fpu cat_l3 mba\n"
    world.host.files["/sys/fs/resctrl/info/L3/cbm_mask"] = "fff\n"
    for group in ("", "LSR/", "LS/", "BE/"):
        world.host.files[f"/sys/fs/resctrl/{group}schemata"] = "    MB:0=100;1=100\n    L3:0=fff;1=fff\n"
        world.host.files[f"/sys/fs/resctrl/{group}tasks"] = ""
    for place, text in ((world.pods[1].containers[0].directory, "8\n9\n"), (f"{world.pods[1].directory}/s.scope", "7")):
        world.cgroup("cpu", place, {"tasks" if version == 1 else "cgroup.threads": text})

    def ways(end: int) -> Phase:
        return classes(
            beClass={"resctrlQOS": {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": end}},
            lsClass={"resctrlQOS": {"enable": True, "mbaPercent": end}},
        )

    return Scene(world, Resctrl(), [ways(30), ways(60)])


def system(version: int) -> Scene:
    world = node(version)
    world.host.files["/proc/sys/vm/min_free_kbytes"] = "67584"
    world.host.files["/proc/sys/vm/watermark_scale_factor"] = "10"

    def settings(factor: int, scale: int) -> Phase:
        return says(system_strategy=SystemStrategy(min_free_kbytes_factor=factor, watermark_scale_factor=scale))

    return Scene(world, SystemConfig(), [settings(100, 150), settings(200, 50)])


SCENES: dict[str, Callable[[int], Scene]] = {
    "cpu-suppress": suppress,
    "cpu-burst": burst,
    "cgroup-reconcile": memory,
    "blkio": blkio,
    "resctrl": resctrl,
    "system-config": system,
}


def quota_of_tier(world: World) -> int:
    """Return the quota of the best-effort tier."""
    name = "cpu.cfs_quota_us" if world.version == 1 else "cpu.max"
    text = world.text("cpu", world.paths.tier(BEST_EFFORT), name).split()[0]
    return -1 if text == "max" else int(text)
