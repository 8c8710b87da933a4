"""Adapters for the NodeResourceTopology and the best-effort tier's limit (set node)."""

from collections.abc import Iterable
from typing import Any

from conformance.adapters.node_formats import fallible
from conformance.adapters.nodeqos_cgroups import FilesOnly
from conformance.adapters.nodeqos_protocol import processor_of
from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.api.values.cpuset import CpuSet
from kubetide.node.collectors.best_effort import real_limit_millis
from kubetide.node.core import files
from kubetide.node.core.formats.memory import MemInfo
from kubetide.node.core.formats.processors import NumaNode
from kubetide.node.core.layout import Layout
from kubetide.node.core.topology import kubelet, pools, zones
from kubetide.node.core.topology.take import take
from kubetide.node.host.readers import CgroupReader

Case = dict[str, Any]


@suite("node/be_real_limit")
def be_real_limit(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        layout = Layout(version=1, cgroup_root="/cg")
        tier = layout.paths.tier("BestEffort")
        contents = {
            layout.cgroup_file(files.CPUSET, tier): given["beCPUSet"],
            layout.cgroup_file(files.CPU_QUOTA, tier): given["cfsQuota"],
            layout.cgroup_file(files.CPU_PERIOD, tier): given["cfsPeriod"],
        }
        for directory, cpus in given["containerCPUSets"].items():
            contents[layout.cgroup_file(files.CPUSET, f"{tier}/{directory}")] = cpus
        return {"milli": real_limit_millis(CgroupReader(FilesOnly(contents), layout))}

    yield from fallible(case, compute)


@suite("node/topology_policy")
def topology_policy(case: Case) -> Iterable[str]:
    given = case["input"]
    yield from differences(case["expected"]["result"], kubelet.topology_policy(given["policy"], given["scope"]))


def numa_of(raw: Case) -> NumaNode:
    return NumaNode(
        node=raw["node"],
        memory=MemInfo({"MemTotal": raw.get("memTotalKB", 0)}),
        huge_pages={"1Gi": raw.get("hugePages1Gi", 0), "2Mi": raw.get("hugePages2Mi", 0)},
    )


@suite("node/topology_zones")
def topology_zones(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        processors = [processor_of(raw) for raw in given["processors"] or ()]
        numa = [numa_of(raw) for raw in given["numa"] or ()]
        return {"zones": zones.zones(processors, numa, huge_pages=given["hugePageReport"])}

    yield from fallible(case, compute, quantities=True)


@suite("node/cpu_share_pools")
def cpu_share_pools(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        processors = [processor_of(raw) for raw in given["processors"] or ()]
        pods = [convert(raw, Pod) for raw in given["pods"] or ()]
        allocations = kubelet.kubelet_allocations(given["kubeletCPUManagerState"], pods)
        found = pools.share_pools(
            processors, pods, allocations, CpuSet.parse(given["nodeReservedCPUs"] or ""), given["annotations"]
        )
        return {
            "topology": pools.cpu_topology(processors),
            "podCPUAllocs": [one.to_json() for one in allocations],
            "lsSharePools": [pool.to_json() for pool in found.latency_sensitive],
            "beSharePools": [pool.to_json() for pool in found.best_effort],
        }

    yield from fallible(case, compute)


@suite("node/node_reserved_cpus")
def node_reserved_cpus(case: Case) -> Iterable[str]:
    given = case["input"]
    reserved = pools.node_reserved(given["annotations"], [processor_of(raw) for raw in given["processors"] or ()])
    actual = {"reservedCPUs": str(reserved)} if len(reserved) else {}
    yield from differences(case["expected"]["reserved"], actual, drop_empty=True)


@suite("node/nrt_changed")
def nrt_changed(case: Case) -> Iterable[str]:
    given = case["input"]
    actual = zones.changed(given["old"], given["annotations"] or {}, given["policy"], given["zones"] or ())
    yield from differences(case["expected"]["changed"], actual)


@suite("node/take_by_topology")
def take_by_topology(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        processors = [processor_of(raw) for raw in given["cpus"] or ()]
        return {"cpus": str(take(processors, CpuSet.parse(given["available"]), given["count"]))}

    yield from fallible(case, compute)


@suite("node/kubelet_reserved_cpus")
def kubelet_reserved_cpus(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        config = kubelet.KubeletConfig(
            cpu_manager_policy=given["cpuManagerPolicy"],
            reserved_system_cpus=given["reservedSystemCPUs"],
            kube_reserved=given["kubeReserved"] or {},
            system_reserved=given["systemReserved"] or {},
        )
        return {"cpus": str(kubelet.reserved_cpus(config, [processor_of(raw) for raw in given["cpus"] or ()]))}

    yield from fallible(case, compute)
