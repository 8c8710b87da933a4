"""Facts about CPU and memory that do not change while the agent runs, read from sysfs and procfs.

Processors come out exactly as `lscpu` would list them. NUMA facts are all or nothing: a part of them would make the
scheduler believe in a smaller machine. Nodes that are devices (generic initiators) have neither CPUs nor memory and are
no part of them.
"""

import re
from dataclasses import replace

from kubetide.api.values.cpuset import CpuSet, CpuSetError
from kubetide.log import get_logger
from kubetide.node.core import files
from kubetide.node.core.formats import cpu, memory
from kubetide.node.core.formats.numbers import FormatError, is_index, unsigned
from kubetide.node.core.formats.processors import CpuBasicInfo, NumaNode, Processor, in_order
from kubetide.node.core.layout import Layout
from kubetide.node.host.protocol import Host

log = get_logger("node.host")

HUGE_PAGE_SIZES = {1048576: "1Gi", 2048: "2Mi"}
_NUMA_NODE = re.compile(r"node(0|[1-9][0-9]*)")


def processors_from_sysfs(host: Host, layout: Layout) -> tuple[Processor, ...]:
    """Read the online processors; raise FormatError if there is none."""
    root = layout.sys("devices/system/cpu")
    node_of: dict[int, int] = {}
    nodes = layout.sys("devices/system/node")
    for name in _directories(host, nodes):
        if name.startswith("node") and is_index(name[4:]):
            try:
                cpus = CpuSet.parse(host.read(f"{nodes}/{name}/cpulist").strip())
            except (OSError, CpuSetError):
                continue
            node_of.update(dict.fromkeys(cpus, int(name[4:])))
    found: list[Processor] = []
    for name in _directories(host, root):
        if not name.startswith("cpu") or not is_index(name[3:]):
            continue
        number = int(name[3:])
        try:
            core = int(host.read(f"{root}/{name}/topology/core_id"))
            socket = int(host.read(f"{root}/{name}/topology/physical_package_id"))
        except (OSError, ValueError):
            continue  # an offline CPU has no topology
        private, shared = _cache_ids(host, f"{root}/{name}/cache")
        found.append(
            Processor(
                cpu=number,
                core=core,
                socket=max(socket, 0),
                node=node_of.get(number, 0),
                private_cache=private,
                l3=shared,
                online="yes",
            )
        )
    if not found:
        raise FormatError("no usable processor in sysfs")
    return in_order(_global_cores(found))


def _global_cores(found: list[Processor]) -> list[Processor]:
    """Number cores over the whole machine, in the order of their first CPU, as lscpu does."""
    numbers: dict[tuple[int, int], int] = {}
    for one in sorted(found, key=lambda p: p.cpu):
        numbers.setdefault((one.socket, one.core), len(numbers))
    return [replace(one, core=numbers[one.socket, one.core]) for one in found]


def _directories(host: Host, path: str) -> list[str]:
    try:
        return host.list_dirs(path)
    except OSError:
        return []


def _cache_ids(host: Host, path: str) -> tuple[str, int]:
    private, shared = "0", 0
    for name in _directories(host, path):
        try:
            level = host.read(f"{path}/{name}/level").strip()
            identity = host.read(f"{path}/{name}/id").strip()
        except OSError:
            continue
        if level == "1":
            private = identity
        elif level == "3" and is_index(identity):
            shared = int(identity)
    return private, shared


def cpu_basic_info(host: Host, layout: Layout) -> CpuBasicInfo:
    """Read what is known about the CPU."""

    def text(path: str, default: str = "") -> str:
        try:
            return host.read(path).strip()
        except OSError:
            return default

    model = cpu.cpu_model(text(layout.proc("cpuinfo")))
    return CpuBasicInfo(
        model=model.model,
        vendor=model.vendor,
        hyper_threads=text(layout.sys("devices/system/cpu/smt/active")) == "1",
        turbo=text(layout.sys("devices/system/cpu/intel_pstate/no_turbo")) == "0",
        cat_l3_mask=text(layout.system_file(files.RESCTRL_CBM_MASK)),
    )


def numa_facts(host: Host, layout: Layout, *, huge_pages: bool = True) -> tuple[NumaNode, ...]:
    """Read the NUMA nodes: all of them or, by raising, none; ids must be 0 to n-1."""
    root = layout.sys("bus/node/devices")
    others = _generic_initiators(host, layout)
    found: dict[int, memory.MemInfo] = {}
    for name in host.list_dirs(root):
        match = _NUMA_NODE.fullmatch(name)
        if match is not None and int(match[1]) in others:
            continue
        try:
            if match is None:
                raise FormatError(f"{name!r} is not a NUMA node")
            found[int(match[1])] = memory.meminfo(host.read(f"{root}/{name}/meminfo"), numa=True)
        except (OSError, FormatError) as error:
            log.warning("NUMA node passed over", directory=f"{root}/{name}", error=str(error))
    if sorted(found) != list(range(len(found))) or not found:
        raise FormatError(f"NUMA nodes {sorted(found)} are not numbered from 0")
    pages = _huge_pages(host, root, len(found)) if huge_pages else {}
    zero = dict.fromkeys(HUGE_PAGE_SIZES.values(), 0)
    return tuple(NumaNode(node=node, memory=found[node], huge_pages=pages.get(node, zero)) for node in sorted(found))


def _generic_initiators(host: Host, layout: Layout) -> CpuSet:
    """Return the NUMA nodes that are devices without CPUs or memory of their own; none where nobody says."""
    try:
        return CpuSet.parse(host.read(layout.sys("devices/system/node/has_generic_initiator")).strip())
    except (OSError, CpuSetError):
        return CpuSet()


def _huge_pages(host: Host, root: str, count: int) -> dict[int, dict[str, int]]:
    pages: dict[int, dict[str, int]] = {}
    for node in range(count):
        path = f"{root}/node{node}/hugepages"
        try:
            names = host.list_dirs(path)
        except OSError:
            return {}  # not readable somewhere: no numbers at all rather than a part of them
        pages[node] = dict.fromkeys(HUGE_PAGE_SIZES.values(), 0)
        for name in names:
            size = name.removeprefix("hugepages-").removesuffix("kB")
            label = HUGE_PAGE_SIZES.get(int(size)) if is_index(size) else None
            if label is None:
                continue
            try:
                pages[node][label] = unsigned(host.read(f"{path}/{name}/nr_hugepages").strip())
            except (OSError, FormatError):
                continue
    return pages
