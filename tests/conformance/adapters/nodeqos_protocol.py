"""Adapters for QoS classes, priorities, reservations and the small parsers (set node-qos)."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from conformance.adapters.nodeqos_cgroups import outcome
from conformance.compare import differences
from conformance.outcome import expect
from conformance.registry import NotApplicable, suite
from kubetide.api.objects.core import Node, Pod
from kubetide.api.qos import cpu_normalization, qos, reservation
from kubetide.api.qos.slo_strategies import HostApplication
from kubetide.api.values.codec import convert
from kubetide.node.core import usage
from kubetide.node.core.formats import processors, storage

Case = dict[str, Any]


def pod_of(case: Case) -> Pod:
    return convert(case["input"]["pod"] or {}, Pod)


def class_of(case: Case, choose: Callable[[Pod], str]) -> str:
    """Return a class of the pod; no pod (null) has none."""
    return choose(pod_of(case)) if case["input"]["pod"] is not None else qos.NONE


def texts(resources: Any) -> Any:
    return None if resources is None else {name: str(quantity) for name, quantity in resources.items()}


@suite("node-qos/qos_class")
def qos_class(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda _: class_of(case, lambda pod: qos.raw_qos(pod.metadata.labels)), key="qosClass")


@suite("node-qos/priority_class")
def priority_class(case: Case) -> Iterable[str]:
    choose = qos.defaulted_priority if case["input"]["defaulting"] else qos.raw_priority
    yield from outcome(case, lambda _: class_of(case, choose), key="priorityClass")


@suite("node-qos/kube_qos_class")
def kube_qos_class(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda _: class_of(case, qos.kube_qos), key="kubeQosClass")


@suite("node-qos/node_reserved_cpus")
def node_reserved_cpus(case: Case) -> Iterable[str]:
    text, count = reservation.reserved_cpus(case["input"]["annotations"])
    yield from expect(case, {"reservedCPUs": text, "numReservedCPUs": count})


@suite("node-qos/node_reserved_kubelet")
def node_reserved_kubelet(case: Case) -> Iterable[str]:
    raw = case["input"]["node"]
    reserved = {} if raw is None else texts(reservation.kubelet_reserved(convert(raw, Node)))
    yield from differences(case["expected"]["reserved"], reserved, quantities=True)


@suite("node-qos/node_reserved_annotation")
def node_reserved_annotation(case: Case) -> Iterable[str]:
    reserved = texts(reservation.annotation_reserved(case["input"]["annotations"]))
    yield from differences(case["expected"]["reserved"], reserved, quantities=True)


@suite("node-qos/system_qos_resource")
def system_qos_resource(case: Case) -> Iterable[str]:
    def compute(given: Case) -> Any:
        found = reservation.system_qos(given["annotations"])
        if found is None:
            return None
        fields = {"cpuset": found.cpuset, "cpusetExclusive": found.cpuset_exclusive}
        return {name: value for name, value in fields.items() if value not in (None, "")}

    yield from outcome(case, compute)


@suite("node-qos/system_qos_exclusive")
def system_qos_exclusive(case: Case) -> Iterable[str]:
    found = reservation.SystemQos(cpuset_exclusive=case["input"]["cpusetExclusive"])
    yield from differences(case["expected"]["exclusive"], found.exclusive)


@suite("node-qos/cpu_normalization_ratio")
def cpu_normalization_ratio(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: cpu_normalization.node_ratio(i["annotations"]))


@suite("node-qos/cpu_normalization_enabled_label")
def cpu_normalization_enabled_label(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: cpu_normalization.node_switch(i["labels"]))


@suite("node-qos/cpu_normalization_ratio_format")
def cpu_normalization_ratio_format(case: Case) -> Iterable[str]:
    before = case["input"]["annotations"] or {}
    text = cpu_normalization.ratio_text(case["input"]["ratio"])
    changed = before.get(qos.ANNOTATION_CPU_NORMALIZATION) != text
    after = {**before, qos.ANNOTATION_CPU_NORMALIZATION: text}
    yield from expect(case, {"changed": changed, "annotations": after})


@suite("node-qos/cpu_normalization_ratio_diff")
def cpu_normalization_ratio_diff(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: cpu_normalization.ratios_differ(i["old"], i["new"]), key="different")


@suite("node-qos/device_allocations")
def device_allocations(case: Case) -> Iterable[str]:
    def compute(given: Case) -> Any:
        found = qos.device_allocations(given["annotations"])
        if found is None:
            return None
        return {
            kind: [{"minor": one.minor, **({"resources": one.resources} if one.resources else {})} for one in items]
            for kind, items in found.items()
        }

    yield from outcome(case, compute, quantities=True)


@suite("node-qos/pod_request")
def pod_request(case: Case) -> Iterable[str]:
    yield from differences(case["expected"]["requests"], texts(qos.pod_request(pod_of(case))), quantities=True)


@suite("node-qos/pod_batch_cpu")
def pod_batch_cpu(case: Case) -> Iterable[str]:
    pod = pod_of(case)
    actual = {
        "request": qos.extended_request(pod, qos.BATCH_CPU),
        "limit": qos.extended_limit(pod, qos.BATCH_CPU),
    }
    yield from expect(case, actual)


@suite("node-qos/pod_batch_memory")
def pod_batch_memory(case: Case) -> Iterable[str]:
    pod = pod_of(case)
    actual = {
        "request": qos.extended_request(pod, qos.BATCH_MEMORY),
        "limit": qos.extended_limit(pod, qos.BATCH_MEMORY),
    }
    yield from expect(case, actual)


@suite("node-qos/filter_pods_used")
def filter_pods_used(case: Case) -> Iterable[str]:
    given = case["input"]
    pod_filters = {
        "NonePodHighPriority": lambda _: False,
        "NonBEPodFilter": usage.is_not_best_effort,
    }
    if given["podFilterFn"] not in pod_filters:
        raise NotApplicable("usage is split by best effort alone: no strategy asks for pods above batch priority")
    application_filters = {
        "NoneHostAppHighPriority": lambda _: False,
        "NonBEHostAppFilter": usage.is_not_best_effort_application,
    }
    split = usage.split_usage(
        given["nodeUsed"],
        given["nodeReserved"],
        [convert(meta["pod"], Pod) for meta in given["podMetas"] or ()],
        given["podUsedMap"] or {},
        [convert(app, HostApplication) for app in given["hostApps"] or ()],
        given["hostAppMetrics"] or {},
        counts_pod=pod_filters[given["podFilterFn"]],
        counts_application=application_filters[given["hostAppFilterFn"]],
    )
    actual = {"podsFiltered": split.pods, "hostAppsFiltered": split.host_applications, "system": split.system}
    yield from expect(case, actual)


@suite("node-qos/lscpu_cache")
def lscpu_cache(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, Any]:
        private, shared = processors.cache_column(given["content"], arm64=given["arch"] == "arm64")
        return {"l1l2": private, "l3": shared}

    yield from outcome(case, compute)


def processor(record: processors.Processor) -> dict[str, Any]:
    return {
        "cpu": record.cpu,
        "core": record.core,
        "socket": record.socket,
        "node": record.node,
        "l1dl1il2": record.private_cache,
        "l3": record.l3,
        "online": record.online,
    }


def processor_of(raw: Case) -> processors.Processor:
    return processors.Processor(
        cpu=raw.get("cpu", 0),
        core=raw.get("core", 0),
        socket=raw.get("socket", 0),
        node=raw.get("node", 0),
        private_cache=raw.get("l1dl1il2", ""),
        l3=raw.get("l3", 0),
        online=raw.get("online", ""),
    )


@suite("node-qos/lscpu_processors")
def lscpu_processors(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: [processor(one) for one in processors.lscpu(i["lscpu"])])


@suite("node-qos/cpu_total_info")
def cpu_total_info(case: Case) -> Iterable[str]:
    given = case["input"]["processors"]
    total = processors.index(processor_of(raw) for raw in given)

    def group(groups: dict[int, tuple[processors.Processor, ...]]) -> dict[str, list[Case]]:
        keys = given[0].keys() if given else ()
        return {
            str(key): [{name: value for name, value in processor(one).items() if name in keys} for one in members]
            for key, members in groups.items()
        }

    actual = {
        "numberCPUs": total.count,
        "coreToCPU": group(total.by_core),
        "nodeToCPU": group(total.by_node),
        "socketToCPU": group(total.by_socket),
        "l3ToCPU": group(total.by_l3),
    }
    yield from differences(case["expected"]["value"], actual)


@suite("node-qos/storage_info_parse")
def storage_info_parse(case: Case) -> Iterable[str]:
    names = {
        "DiskNumberMap": "disk_number",
        "NumberDiskMap": "number_disk",
        "PartitionDiskMap": "partition_disk",
        "VGDiskMap": "group_disk",
        "LVMapperVGMap": "mapper_group",
        "MPDiskMap": "mount_source",
    }
    given = case["input"]
    known = replace(
        storage.StorageFacts(), **{names[key]: value for key, value in given["known"].items() if value is not None}
    )
    read = {
        "lsblk": storage.read_lsblk,
        "vgs": storage.read_vgs,
        "lvs": storage.read_lvs,
        "findmnt": storage.read_findmnt,
    }[given["command"]]

    def compute(_: Case) -> dict[str, Any]:
        facts = read(given["output"], known)
        return {key: getattr(facts, names[key]) for key in case["expected"]["value"]}

    yield from outcome(case, compute)


@suite("node-qos/disk_number_of_partition")
def disk_number_of_partition(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: storage.disk_number(i["number"]))
