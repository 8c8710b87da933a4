"""Adapters for cgroup paths, cgroup values and the executor's pure rules (set node-qos)."""

from collections.abc import Callable, Iterable
from typing import Any

from conformance.compare import differences
from conformance.exceptions import NO_NUMA_PAGES, ONE_FIELD
from conformance.outcome import expect
from conformance.registry import NamedDifference, NotApplicable, suite
from kubetide.api.objects.core import Container, Pod
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import CgroupDriver, CgroupPaths, hook_container_id, kube_qos_of_path
from kubetide.api.qos.slo_strategies import HostApplication
from kubetide.api.values.codec import convert
from kubetide.api.values.cpuset import CpuSet
from kubetide.errors import KubetideError
from kubetide.node.core import files
from kubetide.node.core.formats import cpu, memory
from kubetide.node.core.formats.numbers import INT64_MAX, key_values
from kubetide.node.core.hooks.context import container_origin, pod_origin
from kubetide.node.core.layout import Layout
from kubetide.node.core.plan import merge_if_larger, merge_if_looser
from kubetide.node.core.snapshot import host_application_directory
from kubetide.node.host.readers import CgroupPressure, CgroupReader

Case = dict[str, Any]


def outcome(case: Case, compute: Callable[[Case], Any], *, key: str = "value", **options: Any) -> Iterable[str]:
    """Compare a computation that may fail with `{"error": true}` or `{key: …}`."""
    expected = case["expected"]
    try:
        actual = compute(case["input"])
    except (KubetideError, OSError) as error:
        if not expected.get("error"):
            yield f"failed: {error}"
        return
    if expected.get("error"):
        yield f"expected an error, got {actual!r}"
        return
    yield from differences(expected[key], actual, **options)


def paths(given: Case) -> CgroupPaths:
    return CgroupPaths(CgroupDriver(given["driver"]))


def layout(given: Case) -> Layout:
    return Layout(version=given["cgroupVersion"], paths=paths(given), cgroup_root=given["cgroupRoot"])


class Refused(KubetideError):
    """A name that is not recognised."""


def recognised(value: str | None) -> str:
    if value is None:
        raise Refused("not recognised")
    return value


@suite("node-qos/cgroup_pod_dir")
def cgroup_pod_dir(case: Case) -> Iterable[str]:
    pod = convert(case["input"]["pod"], Pod)
    yield from outcome(case, lambda i: paths(i).pod(qos.kube_qos(pod), pod.metadata.uid), key="path")


@suite("node-qos/cgroup_container_dir")
def cgroup_container_dir(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: {"path": paths(i).container(i["podDir"], i["containerID"])})


@suite("node-qos/cgroup_container_name")
def cgroup_container_name(case: Case) -> Iterable[str]:
    def compute(given: Case) -> dict[str, str]:
        name = paths(given).container_name(given["containerID"])
        return {"runtime": name.runtime, "dirName": name.directory}

    yield from outcome(case, compute)


@suite("node-qos/cgroup_parse_pod_id")
def cgroup_parse_pod_id(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: recognised(paths(i).pod_id(i["basename"])))


@suite("node-qos/cgroup_parse_container_id")
def cgroup_parse_container_id(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: recognised(paths(i).container_hash(i["basename"])))


@suite("node-qos/cgroup_kube_qos_from_path")
def cgroup_kube_qos_from_path(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: kube_qos_of_path(i["path"]), key="kubeQosClass")


@suite("node-qos/cgroup_resource_path")
def cgroup_resource_path(case: Case) -> Iterable[str]:
    def compute(given: Case) -> str:
        where = layout(given)
        directory = where.paths.container(given["podDir"], given["containerID"])
        if given["resource"] == "__perf__":
            return where.cgroup_dir("perf_event", directory)
        file = files.CGROUP_FILES.get(given["resource"])
        if file is None:
            raise Refused(f"{given['resource']} is not in the table of kernel files")
        return where.cgroup_file(file, directory)

    yield from outcome(case, compute)


@suite("node-qos/cgroup_qos_cpuset_dir")
def cgroup_qos_cpuset_dir(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: layout(i).cgroup_dir("cpuset", paths(i).tier(i["kubeQosClass"])), key="path")


@suite("node-qos/cgroup_host_app_path")
def cgroup_host_app_path(case: Case) -> Iterable[str]:
    def compute(given: Case) -> str:
        if given["hostApp"] is None:
            return host_application_directory(HostApplication(), paths(given))
        return host_application_directory(convert(given["hostApp"], HostApplication), paths(given))

    yield from outcome(case, compute, key="path")


@suite("node-qos/pleg_watch_path")
def pleg_watch_path(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: layout(i).watched_dir(i["kubeQosClass"]), key="path")


@suite("node-qos/hook_container_id")
def container_id_in_hooks(case: Case) -> Iterable[str]:
    yield from outcome(
        case,
        lambda i: hook_container_id(i["podAnnotations"], i["containerUID"], i["defaultRuntime"]),
        key="containerID",
    )


def throttling(value: cpu.Throttling) -> dict[str, int]:
    return {"nrPeriods": value.periods, "nrThrottled": value.throttled, "throttledNs": value.throttled_nanos}


def memory_stat(value: memory.MemoryStat) -> dict[str, int]:
    return {
        "cache": value.cache,
        "rss": value.rss,
        "inactiveFile": value.inactive_file,
        "activeFile": value.active_file,
        "inactiveAnon": value.inactive_anon,
        "activeAnon": value.active_anon,
        "unevictable": value.unevictable,
    }


@suite("node-qos/parse_cpu_stat_v1")
def parse_cpu_stat_v1(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: throttling(cpu.throttling(i["content"], 1)))


@suite("node-qos/parse_cpu_stat_v2")
def parse_cpu_stat_v2(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: throttling(cpu.throttling(i["content"], 2)))


@suite("node-qos/parse_cpuacct_usage_v2")
def parse_cpuacct_usage_v2(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: cpu.usage_nanos_v2(i["content"]))


@suite("node-qos/parse_cpu_max")
def parse_cpu_max(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: cpu.quota_v2(i["content"]))


@suite("node-qos/parse_memory_stat_v1")
def parse_memory_stat_v1(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: memory_stat(memory.memory_stat(i["content"], 1)))


@suite("node-qos/parse_memory_stat_v2")
def parse_memory_stat_v2(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: memory_stat(memory.memory_stat(i["content"], 2)))


@suite("node-qos/parse_kv")
def parse_kv(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: key_values(i["content"]))


@suite("node-qos/shares_to_weight")
def shares_to_weight(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: cpu.shares_to_weight(str(i["shares"])))


@suite("node-qos/weight_to_shares")
def weight_to_shares(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: cpu.weight_to_shares(int(i["weight"])))


@suite("node-qos/milli_to_shares")
def milli_to_shares(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: cpu.milli_to_shares(i["milliCPU"]), key="shares")


@suite("node-qos/milli_to_quota")
def milli_to_quota(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: cpu.milli_to_quota(i["milliCPU"]), key="quota")


@suite("node-qos/throttled_ratio")
def throttled_ratio(case: Case) -> Iterable[str]:
    def point(value: Case) -> cpu.Throttling:
        return cpu.Throttling(value["nrPeriods"], value["nrThrottled"], value["throttledNs"])

    yield from outcome(case, lambda i: cpu.throttled_ratio(point(i["current"]), point(i["previous"])), key="ratio")


@suite("node-qos/range_validator")
def range_validator(case: Case) -> Iterable[str]:
    # The largest bound went through a double on its way into the data.
    high = case["input"]["max"]
    high = INT64_MAX if high >= 2**63 - 1024 else high
    yield from outcome(case, lambda i: files.in_range(i["value"], i["min"], high), key="valid")


class FilesOnly:
    """A host that has exactly the given files."""

    def __init__(self, contents: dict[str, str]) -> None:
        self.contents = contents

    def read(self, path: str) -> str:
        if path not in self.contents:
            raise FileNotFoundError(path)
        return self.contents[path]

    def write(self, path: str, value: str) -> None:
        self.read(path)
        self.contents[path] = value

    def list_dirs(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted(
            {
                rest.split("/")[0]
                for name in self.contents
                if name.startswith(prefix) and "/" in (rest := name[len(prefix) :])
            }
        )

    def exists(self, path: str) -> bool:
        return path in self.contents or any(name.startswith(path.rstrip("/") + "/") for name in self.contents)


def psi_as(wanted: Any, pressure: CgroupPressure, path: str = "") -> Any:
    """Return pressure in the shape of the data: members are told by resource, degree and average in their path."""
    if isinstance(wanted, dict):
        return {name: psi_as(inner, pressure, f"{path} {name.lower()}") for name, inner in wanted.items()}
    one = pressure.cpu if "cpu" in path else pressure.memory if "mem" in path else pressure.io
    if "supported" in path:
        return one.full_supported
    line = one.full if "full" in path else one.some
    return next(getattr(line, name) for name in ("avg300", "avg60", "avg10", "total") if name in path)


@suite("node-qos/cgroup_reader")
def cgroup_reader(case: Case) -> Iterable[str]:
    given = case["input"]
    version = given["cgroupVersion"]
    where = Layout(version=version, cgroup_root="/cg")
    contents: dict[str, str] = {}
    for name, text in given["files"].items():
        for file in files.CGROUP_FILES.values():
            if (file.name if version == 1 else file.v2) == name and not (version == 1 and file.only_v2):
                contents[where.cgroup_file(file, "d")] = text
    reader = CgroupReader(FilesOnly(contents), where)

    def compute(_: Case) -> Any:
        match given["op"]:
            case "quota":
                return reader.cpu_quota("d")
            case "period":
                return reader.cpu_period("d")
            case "usage_ns":
                return reader.cpu_usage_nanos("d")
            case "cpu_stat":
                return throttling(reader.throttling("d"))
            case "shares":
                return reader.cpu_shares("d")
            case "cpuset":
                return str(reader.cpuset("d"))
            case "memory_limit":
                return reader.memory_limit("d")
            case "memory_stat":
                return memory_stat(reader.memory_stat("d"))
            case "numa_stat":
                raise NotApplicable(NO_NUMA_PAGES)
            case "psi":
                return reader.pressure("d")
            case "cold_page_bytes":
                return reader.cold_bytes("d")
        raise AssertionError(given["op"])

    expected = case["expected"]
    if given["op"] == "psi" and not expected.get("error"):
        yield from differences(expected["value"], psi_as(expected["value"], reader.pressure("d")))
        return
    yield from outcome(case, compute)


@suite("node-qos/cpuset_parse")
def cpuset_parse(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: list(CpuSet.parse(i["text"])))


@suite("node-qos/cpuset_format")
def cpuset_format(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: str(CpuSet.of(i["cpus"])), key="text")


@suite("node-qos/cpuset_ops")
def cpuset_ops(case: Case) -> Iterable[str]:
    def compute(given: Case) -> list[int]:
        left, right = CpuSet.of(given["a"]), CpuSet.of(given["b"])
        match given["op"]:
            case "union":
                return list(left | right)
            case "intersection":
                return list(left & right)
            case "difference":
                return list(left - right)
        raise AssertionError(given["op"])

    yield from outcome(case, compute)


@suite("node-qos/origin_resources")
def origin_resources(case: Case) -> Iterable[str]:
    given = case["input"]
    if given.get("pod") is not None:
        origin = pod_origin(convert(given["pod"], Pod))
    else:
        origin = container_origin(convert(given.get("container") or {}, Container))
    actual = {"cpuShares": origin.shares, "cfsQuota": origin.quota, "memoryLimit": origin.memory_limit}
    yield from expect(case, actual)


@suite("node-qos/normalized_quota")
def normalized_quota(case: Case) -> Iterable[str]:
    yield from outcome(case, lambda i: cpu.normalized_quota(i["quota"], i["ratio"]), key="quota")


@suite("node-qos/merge_if_larger")
def larger(case: Case) -> Iterable[str]:
    given, expected = case["input"], case["expected"]
    try:
        merged = merge_if_larger(files.CGROUP_FILES[given["resource"]], given["old"], given["new"])
    except KubetideError as error:
        if not expected.get("error"):
            yield f"failed: {error}"
        return
    if expected.get("error"):
        yield "expected an error"
        return
    yield from differences(expected, {"merge": merged.grows, "value": merged.value})


@suite("node-qos/merge_if_quota_larger_18")
def quota_larger(case: Case) -> Iterable[str]:
    given = case["input"]
    if given["cgroupVersion"] == 2 and len(given["current"].split()) == 1 and case["expected"].get("error"):
        raise NamedDifference(ONE_FIELD)
    file = files.CPU_QUOTA

    def merge(given: Case) -> bool:
        return merge_if_larger(file, file.current(given["cgroupVersion"], given["current"]), given["target"]).grows

    return outcome({**case, "input": given}, merge, key="merge")


@suite("node-qos/merge_if_cpuset_looser")
def looser(case: Case) -> Iterable[str]:
    given, expected = case["input"], case["expected"]
    try:
        merged = merge_if_looser(given["old"], given["new"])
    except KubetideError as error:
        if not expected.get("error"):
            yield f"failed: {error}"
        return
    if expected.get("error"):
        yield "expected an error"
        return
    yield from differences(expected, {"merge": merged.grows, "value": merged.value})
