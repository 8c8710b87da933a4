"""Adapters for kernel texts, cgroup directories and pod classes (set node)."""

from collections.abc import Callable, Iterable
from typing import Any

from conformance.adapters.nodeqos_cgroups import FilesOnly
from conformance.adapters.nodeqos_protocol import processor, texts
from conformance.compare import differences
from conformance.registry import suite
from kubetide.api.objects.core import Node, Pod
from kubetide.api.qos import qos, reservation
from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths, ContainerIdError
from kubetide.api.qos.slo_strategies import HostApplication
from kubetide.api.values.codec import convert
from kubetide.errors import KubetideError
from kubetide.node.core.formats import cpu, memory, processors, psi, storage
from kubetide.node.core.formats.numbers import FormatError, key_values
from kubetide.node.core.formats.storage import pcie_root
from kubetide.node.core.layout import Layout
from kubetide.node.core.snapshot import host_application_directory
from kubetide.node.host.facts import numa_facts

Case = dict[str, Any]


def fallible(case: Case, compute: Callable[[Case], dict[str, Any]], **options: Any) -> Iterable[str]:
    """Compare a computation with `{"error": bool, …fields}`; fields beside an error mean nothing."""
    expected = dict(case["expected"])
    must_fail = expected.pop("error", False)
    try:
        actual = compute(case["input"])
    except (KubetideError, OSError) as error:
        if not must_fail:
            yield f"failed: {error}"
        return
    if must_fail:
        yield f"expected an error, got {actual!r}"
        return
    yield from differences(expected, actual, drop_empty=True, **options)


@suite("node/cache_info")
def cache_info(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        private, shared = processors.cache_column(given["text"])
        return {"l1l2": private, "l3": shared}

    yield from fallible(case, compute)


@suite("node/cgroup_dirs")
def cgroup_dirs(case: Case) -> Iterable[str]:
    given = case["input"]
    paths = CgroupPaths(CgroupDriver(given["driver"]))
    pod = paths.pod(given["kubeQoS"], given["uid"])
    actual: dict[str, Any] = {
        "qosDir": paths.tier(given["kubeQoS"]),
        "podDir": pod,
        "parsedPodID": paths.pod_id(pod.split("/")[-1]),
        "containerDir": None,
    }
    try:
        actual["containerDir"] = container = paths.container(pod, given["containerID"])
        actual["parsedContainerID"] = paths.container_hash(container.split("/")[-1])
    except ContainerIdError:
        pass
    yield from differences(case["expected"], actual, drop_empty=True)


@suite("node/host_app_cgroup")
def host_app_cgroup(case: Case) -> Iterable[str]:
    paths = CgroupPaths(CgroupDriver(case["input"]["driver"]))
    app = convert(case["input"]["app"], HostApplication)
    yield from differences(case["expected"]["path"], host_application_directory(app, paths))


@suite("node/cpu_max_v2")
def cpu_max_v2(case: Case) -> Iterable[str]:
    actual: dict[str, Any] = {"quota": -1, "quotaError": False, "period": -1, "periodError": False}
    for name, read in (("quota", cpu.quota_v2), ("period", cpu.period_v2)):
        try:
            actual[name] = read(case["input"]["text"])
        except FormatError:
            actual[f"{name}Error"] = True
    yield from differences(case["expected"], actual)


@suite("node/cpu_model")
def cpu_model(case: Case) -> Iterable[str]:
    found = cpu.cpu_model(case["input"]["text"])
    actual = {"model": found.model, "vendorID": found.vendor, "error": found.model == "unknown"}
    yield from differences(case["expected"], actual)


@suite("node/cpu_stat")
def cpu_stat(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        found = cpu.throttling(given["text"], given["cgroupVersion"])
        return {
            "nrPeriods": found.periods,
            "nrThrottled": found.throttled,
            "throttledNanoSeconds": found.throttled_nanos,
        }

    yield from fallible(case, compute)


@suite("node/cpu_usage_v2")
def cpu_usage_v2(case: Case) -> Iterable[str]:
    yield from fallible(case, lambda i: {"nanoSeconds": cpu.usage_nanos_v2(i["text"])})


@suite("node/disk_number")
def disk_number(case: Case) -> Iterable[str]:
    yield from differences(case["expected"]["disk"], storage.disk_number(case["input"]["number"]))


@suite("node/idle_page_stats")
def idle_page_stats(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        found = memory.idle_page_stats(given["text"])
        return {
            "coldBytes": found.cold_bytes(given["coldBoundary"]),
            "version": found.version,
            "pageScans": found.page_scans,
            "scanPeriod": found.scan_period_seconds,
            "useHierarchy": found.use_hierarchy,
            "buckets": list(found.buckets),
            "cfei": list(found.rows["cfei"]),
            "slab": list(found.rows["slab"]),
        }

    yield from fallible(case, compute)


@suite("node/kv_map")
def kv_map(case: Case) -> Iterable[str]:
    yield from differences(case["expected"]["map"], key_values(case["input"]["text"]), drop_empty=True)


@suite("node/lscpu_processors")
def lscpu_processors(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        found = processors.lscpu(given["text"])
        total = processors.index(found)

        def group(groups: dict[int, tuple[processors.Processor, ...]]) -> dict[str, Any]:
            return {str(key): [processor(one) for one in members] for key, members in groups.items()}

        return {
            "processors": [processor(one) for one in found],
            "total": {
                "numberCPUs": total.count,
                "coreToCPU": group(total.by_core),
                "nodeToCPU": group(total.by_node),
                "socketToCPU": group(total.by_socket),
                "l3ToCPU": group(total.by_l3),
            },
        }

    yield from fallible(case, compute)


@suite("node/meminfo")
def meminfo(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        found = memory.meminfo(given["text"], numa=given.get("isNUMA", False))
        return {
            "memTotal": found["MemTotal"],
            "memFree": found["MemFree"],
            "memAvailable": found["MemAvailable"],
            "buffers": found["Buffers"],
            "cached": found["Cached"],
            "activeAnon": found["Active(anon)"],
            "inactiveFile": found["Inactive(file)"],
            "hugePagesTotal": found["HugePages_Total"],
            "totalBytes": found.total_bytes,
            "usageBytes": found.usage_bytes,
            "usageWithPageCacheBytes": found.usage_with_page_cache_bytes,
        }

    yield from fallible(case, compute)


@suite("node/memory_stat")
def memory_stat(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        found = memory.memory_stat(given["text"], given["cgroupVersion"])
        return {
            "usage": found.usage,
            "usageWithPageCache": found.usage_with_page_cache,
            "cache": found.cache,
            "rss": found.rss,
        }

    yield from fallible(case, compute)


@suite("node/numa_dir")
def numa_dir(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        root = "/sys/bus/node/devices"
        contents: dict[str, str] = {}
        for name, text in given["nodes"].items():
            contents[f"{root}/{name}/uevent"] = ""
            if text:
                contents[f"{root}/{name}/meminfo"] = text
        for name, sizes in given["hugepages"].items():
            for size, count in sizes.items():
                contents[f"{root}/{name}/hugepages/{size}/nr_hugepages"] = count
        found = numa_facts(Unlisted(contents), Layout())
        return {
            "numa": [
                {
                    "node": one.node,
                    "memTotalKB": one.memory["MemTotal"],
                    "memFreeKB": one.memory["MemFree"],
                    "hugePages": dict(one.huge_pages),
                }
                for one in found
            ]
        }

    yield from fallible(case, compute)


class Unlisted(FilesOnly):
    """A host whose missing directories cannot be listed."""

    def list_dirs(self, path: str) -> list[str]:
        found = super().list_dirs(path)
        if not found and not self.exists(path):
            raise FileNotFoundError(path)
        return found


@suite("node/pcie_id")
def pcie_id(case: Case) -> Iterable[str]:
    yield from differences(case["expected"]["pcie"], pcie_root(case["input"]["path"]))


@suite("node/proc_stat_ticks")
def proc_stat_ticks(case: Case) -> Iterable[str]:
    yield from fallible(case, lambda i: {"ticks": cpu.busy_ticks(i["text"])})


@suite("node/psi")
def psi_suite(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        found = psi.pressure(given["text"])
        return {"some": found.some, "full": found.full, "fullSupported": found.full_supported}

    yield from fallible(case, compute)


@suite("node/storage_scan")
def storage_scan(case: Case) -> Iterable[str]:
    given = case["input"]
    facts = storage.StorageFacts()
    failed: list[str] = []
    for name, read in (
        ("lsblk", storage.read_lsblk),
        ("vgs", storage.read_vgs),
        ("lvs", storage.read_lvs),
        ("findmnt", storage.read_findmnt),
    ):
        try:
            facts = read(given[name], facts)
        except FormatError:
            failed.append(name)
    actual = {
        "failedStages": failed,
        "diskNumber": facts.disk_number,
        "numberDisk": facts.number_disk,
        "partitionDisk": facts.partition_disk,
        "vgDisk": facts.group_disk,
        "lvMapperVG": facts.mapper_group,
        "mountPointDisk": facts.mount_source,
    }
    yield from differences(case["expected"], actual, drop_empty=True)


@suite("node/throttled_ratio")
def throttled_ratio(case: Case) -> Iterable[str]:
    current, previous = (
        cpu.Throttling(case["input"][name][0], case["input"][name][1], 0) for name in ("current", "previous")
    )
    yield from differences(case["expected"]["ratio"], cpu.throttled_ratio(current, previous))


@suite("node/pod_priority_qos")
def pod_priority_qos(case: Case) -> Iterable[str]:
    pod = convert(case["input"]["pod"], Pod)
    actual = {
        "priorityRaw": qos.raw_priority(pod),
        "priority": qos.defaulted_priority(pod),
        "qosRaw": qos.raw_qos(pod.metadata.labels),
        "qos": qos.defaulted_qos(pod),
        "kubeQoS": qos.kube_qos(pod),
    }
    yield from differences(case["expected"], actual, drop_empty=True)


@suite("node/pod_request")
def pod_request(case: Case) -> Iterable[str]:
    pod = convert(case["input"]["pod"], Pod)
    actual = {
        "request": texts(qos.pod_request(pod)),
        "beMilliCPURequest": qos.extended_request(pod, qos.BATCH_CPU),
        "beMilliCPULimit": qos.extended_limit(pod, qos.BATCH_CPU),
        "beMemoryRequest": qos.extended_request(pod, qos.BATCH_MEMORY),
        "beMemoryLimit": qos.extended_limit(pod, qos.BATCH_MEMORY),
        "milliCPULimit": qos.pod_cpu_limit_millis(pod),
    }
    yield from differences(case["expected"], actual, drop_empty=True, quantities=True)


@suite("node/node_reservation")
def node_reservation(case: Case) -> Iterable[str]:
    node = convert(case["input"]["node"], Node)
    actual = {
        "kubelet": texts(reservation.kubelet_reserved(node)),
        "annotation": texts(reservation.annotation_reserved(node.metadata.annotations)),
    }
    yield from differences(case["expected"], actual, drop_empty=True, quantities=True)


@suite("node/reserved_cpus")
def reserved_cpus(case: Case) -> Iterable[str]:
    text, count = reservation.reserved_cpus(case["input"]["annotations"])
    yield from differences(case["expected"], {"reservedCPUs": text, "number": count}, drop_empty=True)
