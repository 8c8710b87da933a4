"""Adapters of CPU suppress."""

from collections.abc import Iterable
from typing import Any

from conformance.compare import differences
from conformance.outcome import expect
from conformance.registry import suite
from kubetide.api.objects.core import Node
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import BEST_EFFORT
from kubetide.api.qos.slo_strategies import HostApplication, NodeSLOSpec, ResourceThresholdStrategy
from kubetide.api.values.codec import convert, encode
from kubetide.api.values.cpuset import CpuSet
from kubetide.api.values.quantity import parse_quantity, quantity_float
from kubetide.node.core.kernel_values import Needs
from kubetide.node.core.qos import cpu_suppress
from kubetide.node.core.qos.cpu_pick import pick
from kubetide.node.core.qos.suppress import CpuSuppress
from kubetide.node.core.series import kinds
from nodeworld import World, processors_of

Case = dict[str, Any]
SANDBOX = "containerd://sandbox-of-"


def _world(given: Case) -> World:
    world = World()
    if given.get("node") is not None:
        world.node = convert(given["node"], Node)
    world.add_pods(given.get("pods") or [])
    world.processors = processors_of(given.get("processors") or [])
    world.topology = dict(given.get("nodeTopoAnnotations") or {})
    if given.get("kubeletCPUPolicy") or qos.ANNOTATION_CPU_MANAGER not in world.topology:
        # The topology is known in all of the data; a kubelet without a policy says so with an empty one.
        policy = {"policy": given.get("kubeletCPUPolicy") or ""}
        world.topology[qos.ANNOTATION_CPU_MANAGER] = encode(policy).decode()
    if given.get("nodeUsedCPU") is not None:
        world.metrics.set(kinds.NODE_CPU, quantity_float(given["nodeUsedCPU"]))
    for uid, used in (given.get("podCPUUsed") or {}).items():
        world.metrics.set(kinds.POD_CPU, quantity_float(used), {kinds.POD_UID: uid})
    return world


def _tree(world: World, cpuset: str, quota: int = -1) -> str:
    """Make the best-effort tier with a pod and its container, and the directories of the known pods."""
    tier = world.paths.tier(BEST_EFFORT)
    world.cgroup("cpu", tier, {"cpu.cfs_quota_us": str(quota)})
    world.cgroup("cpuset", tier, {"cpuset.cpus": cpuset})
    for pod in world.pods:
        if pod.directory.startswith(tier + "/"):
            world.cgroup("cpuset", pod.directory, {"cpuset.cpus": cpuset})
            sandbox = world.paths.container(pod.directory, SANDBOX + pod.name)
            world.cgroup("cpuset", sandbox, {"cpuset.cpus": cpuset})
            for container in pod.containers:
                if container.directory:
                    world.cgroup("cpuset", container.directory, {"cpuset.cpus": cpuset})
    return tier


@suite("node-qos/cpusuppress_quantity", "node-qos/cpusuppress_quantity_18")
def quantity(case: Case) -> Iterable[str]:
    given = case["input"]
    world = _world(given)
    threshold = ResourceThresholdStrategy(
        enable=True,
        cpu_suppress_threshold_percent=given["thresholdPercent"],
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_min_percent=given.get("minPercent"),
    )
    world.slo = NodeSLOSpec(
        resource_used_threshold_with_be=threshold,
        host_applications=convert(given["hostApps"] or [], tuple[HostApplication, ...]),
    )
    for name, used in (given["hostAppCPUUsed"] or {}).items():
        world.metrics.set(kinds.HOST_APP_CPU, quantity_float(used), {kinds.HOST_APP_NAME: name})
    if not world.pods:
        world.add_pod({"metadata": {"name": "idle", "uid": "idle"}, "status": {"qosClass": "Burstable"}})
    plan = world.decide(CpuSuppress())
    found = case["expected"]
    expected = found["beMilli"] if "beMilli" in found else parse_quantity(found["beCPU"]).milli
    return differences({"milli": expected}, {"milli": plan.trace.get("leftMilli")})


@suite("node-qos/cpusuppress_quantity_raw")
def quantity_raw(case: Case) -> Iterable[str]:
    given = case["input"]
    milli = cpu_suppress.left_milli(
        capacity_milli=given["capacityMilli"],
        threshold_percent=given["thresholdPercent"],
        pods=given["nonBEPodCores"],
        host_applications=given["nonBEHostAppCores"],
        system=given["systemCores"],
    )
    return expect(case, {"milli": milli})


@suite("node-qos/cpusuppress_cpuset_pick")
def cpuset_pick(case: Case) -> Iterable[str]:
    picked = pick(case["input"]["cpus"], processors_of(case["input"]["processors"]))
    return expect(case, {"picked": picked})


@suite("node-qos/cpusuppress_adjust_cpuset")
def adjust_cpuset(case: Case) -> Iterable[str]:
    given = case["input"]
    world = _world(given)
    # A node on which just the given CPU is left: one core more than that, and one in use by the system.
    resources = {"cpu": f"{parse_quantity(given['beCPU']).milli + 1000}m"}
    raw = {"metadata": {"name": "node"}, "status": {"capacity": resources, "allocatable": resources}}
    world.node = convert(raw, Node)
    world.metrics.set(kinds.NODE_CPU, 1.0)
    threshold = ResourceThresholdStrategy(enable=True, cpu_suppress_threshold_percent=100)
    world.slo = NodeSLOSpec(resource_used_threshold_with_be=threshold)
    if not world.pods:
        world.add_pod({"metadata": {"name": "idle", "uid": "idle"}, "status": {"qosClass": "Burstable"}})
    tier = _tree(world, given["currentBECPUSet"])
    world.sync(CpuSuppress())
    return _same_cpus(case["expected"]["beCPUSetFile"], world.text("cpuset", tier, "cpuset.cpus"))


def _same_cpus(expected: str, actual: str, what: str = "beCPUSetFile") -> Iterable[str]:
    return differences({what: list(CpuSet.parse(expected))}, {what: list(CpuSet.parse(actual))})


@suite("node-qos/cpusuppress_cfs_quota", "node-qos/cpusuppress_cfs_quota_raw", "node-qos/cpusuppress_cfs_quota_18")
def cfs_quota(case: Case) -> Iterable[str]:
    given = case["input"]
    milli = given["milliCPU"] if "milliCPU" in given else parse_quantity(given["beCPU"]).milli
    cpus = given["nodeCPUs"] if "nodeCPUs" in given else parse_quantity(given["nodeCPUCapacity"]).value
    target = cpu_suppress.quota_target(milli, cpus, given["currentQuota"])
    return expect(case, {"quotaFile": given["currentQuota"] if target is None else target})


@suite("node-qos/cpusuppress_recover_cpuset")
def recover_cpuset(case: Case) -> Iterable[str]:
    given = case["input"]
    world = _world(given)
    tier = _tree(world, given["currentBECPUSet"])
    world.slo = NodeSLOSpec(resource_used_threshold_with_be=ResourceThresholdStrategy(enable=False))
    strategy = CpuSuppress(cpuset_status=given["policyStatus"])
    world.sync(strategy)
    yield from _same_cpus(case["expected"]["beCPUSetFile"], world.text("cpuset", tier, "cpuset.cpus"))
    yield from differences(case["expected"]["policyStatus"], strategy.cpuset_status)


@suite("node-qos/cpusuppress_recover_quota")
def recover_quota(case: Case) -> Iterable[str]:
    given = case["input"]
    world = _world(given)
    tier = _tree(world, "0", given["currentQuota"])
    world.slo = NodeSLOSpec(resource_used_threshold_with_be=ResourceThresholdStrategy(enable=False))
    strategy = CpuSuppress(quota_status=given["policyStatus"])
    world.sync(strategy)
    quota = int(world.text("cpu", tier, "cpu.cfs_quota_us"))
    return expect(case, {"quotaFile": quota, "policyStatus": strategy.quota_status})


@suite("node-qos/cpusuppress_round")
def suppress_round(case: Case) -> Iterable[str]:
    given, expected = case["input"], case["expected"]
    world = _world(given)
    world.gates = {"BECPUManager": given["beCPUManager"], "BECPUSuppress": True}
    if given["threshold"] is not None:
        threshold = convert(given["threshold"], ResourceThresholdStrategy)
        world.slo = NodeSLOSpec(resource_used_threshold_with_be=threshold)
    tier = _tree(world, given["currentBECPUSet"], given["currentQuota"])
    strategy = CpuSuppress()
    world.sync(strategy)
    yield from differences(
        {key: expected[key] for key in ("quotaFile", "quotaPolicyStatus", "cpusetPolicyStatus")},
        {
            "quotaFile": int(world.text("cpu", tier, "cpu.cfs_quota_us")),
            "quotaPolicyStatus": strategy.quota_status,
            "cpusetPolicyStatus": strategy.cpuset_status,
        },
    )
    everywhere = expected["beCPUSetFile"]
    yield from _same_cpus(everywhere, world.text("cpuset", tier, "cpuset.cpus"))
    for pod in world.pods:
        if not pod.directory.startswith(tier + "/"):
            continue
        sandbox = world.paths.container(pod.directory, SANDBOX + pod.name)
        wanted = expected["sandboxCPUSetOverrides"].get(pod.name, everywhere)
        yield from _same_cpus(wanted, world.text("cpuset", sandbox, "cpuset.cpus"), f"sandbox of {pod.name}")
        for container in pod.containers:
            if container.directory:
                overrides = expected["containerCPUSetOverrides"]
                short = container.id.partition("://")[2]
                wanted = overrides.get(container.id, overrides.get(short, everywhere))
                actual = world.text("cpuset", container.directory, "cpuset.cpus")
                yield from _same_cpus(wanted, actual, container.id)


@suite("node-qos/cpusuppress_static_policy")
def static_policy(case: Case) -> Iterable[str]:
    given, expected = case["input"], case["expected"]
    world = World()
    world.processors = processors_of([{"cpu": cpu} for cpu in given["nodeCPUs"]])
    world.topology = {qos.ANNOTATION_CPU_MANAGER: encode({"policy": given["kubeletCPUPolicy"]}).decode()}
    pod = world.add_pod(
        {
            "metadata": {"name": "be", "uid": "be"},
            "spec": {"containers": [{"name": "main"}]},
            "status": {
                "qosClass": "BestEffort",
                "containerStatuses": [{"name": "main", "containerID": "containerd://main"}],
            },
        }
    )
    tier = _tree(world, given["currentBECPUSet"])
    snapshot = world.snapshot(Needs(trees=[tier]))
    world.apply(CpuSuppress().cpus_plan(snapshot, CpuSet.of(given["beCPUSet"])))
    places = {
        "beDirCPUSet": tier,
        "podDirCPUSet": pod.directory,
        "containerDirCPUSet": pod.containers[0].directory,
    }
    for name, directory in places.items():
        yield from _same_cpus(expected[name], world.text("cpuset", directory, "cpuset.cpus"), name)
