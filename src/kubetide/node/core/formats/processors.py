"""The processors of a machine: logical CPUs with their core, socket, NUMA node and caches, and the model as a whole.

The facts come from `lscpu -e=CPU,NODE,SOCKET,CORE,CACHE,ONLINE` or from sysfs; both give the same records, ordered by
(node, socket, core, cpu).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubetide.node.core.formats import memory
from kubetide.node.core.formats.numbers import FormatError, is_index, signed

_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """One logical CPU."""

    cpu: int
    core: int
    socket: int
    node: int
    private_cache: str = ""
    l3: int = 0
    online: str = ""


@dataclass(frozen=True, slots=True)
class ProcessorIndex:
    """Processors by core, NUMA node, socket and shared cache."""

    count: int
    by_core: dict[int, tuple[Processor, ...]]
    by_node: dict[int, tuple[Processor, ...]]
    by_socket: dict[int, tuple[Processor, ...]]
    by_l3: dict[int, tuple[Processor, ...]]


def in_order(processors: Iterable[Processor]) -> tuple[Processor, ...]:
    """Sort processors by (node, socket, core, cpu)."""
    return tuple(sorted(processors, key=lambda p: (p.node, p.socket, p.core, p.cpu)))


def cache_column(text: str, *, arm64: bool = False) -> tuple[str, int]:
    """Parse the CACHE column: id of the private caches and of the shared one."""
    text = text.strip()
    if arm64 and text == "-":
        return "0", 0
    parts = text.split(":")
    if len(parts) < 3:
        raise FormatError(f"cache column {text!r} has fewer than three parts")
    if len(parts) == 3:
        return parts[0], 0
    return parts[0], signed(parts[3].strip(), "L3 id", low=-_INT32 - 1, high=_INT32)


def lscpu(text: str, *, arm64: bool = False) -> tuple[Processor, ...]:
    """Parse the output of lscpu; lines that are not a usable processor (header, offline CPUs) are left out."""
    found: list[Processor] = []
    for line in text.split("\n"):
        words = line.split()
        if len(words) < 6:
            continue
        try:
            private, l3 = cache_column(words[4], arm64=arm64)
            cpu, socket, core = (signed(words[column], high=_INT32) for column in (0, 2, 3))
        except FormatError:
            continue
        try:
            node = signed(words[1], high=_INT32)
        except FormatError:
            node = 0
        found.append(
            Processor(cpu=cpu, core=core, socket=socket, node=node, private_cache=private, l3=l3, online=words[5])
        )
    if not found:
        raise FormatError("lscpu shows no usable processor")
    return in_order(found)


def threads_per_core(summary: str) -> int:
    """Return the threads per core that the summary of lscpu shows; 1 if it does not."""
    for line in summary.split("\n"):
        name, colon, value = line.partition(":")
        if colon and name.strip() == "Thread(s) per core" and is_index(value.strip()):
            return int(value)
    return 1


def index(processors: Iterable[Processor]) -> ProcessorIndex:
    """Group processors by what they share."""
    listed = tuple(processors)

    def group(key: str) -> dict[int, tuple[Processor, ...]]:
        groups: dict[int, list[Processor]] = {}
        for processor in listed:
            groups.setdefault(getattr(processor, key), []).append(processor)
        return {identity: tuple(members) for identity, members in groups.items()}

    return ProcessorIndex(
        count=len({processor.cpu for processor in listed}),
        by_core=group("core"),
        by_node=group("node"),
        by_socket=group("socket"),
        by_l3=group("l3"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuBasicInfo:
    """Facts about the CPU as a whole; what cannot be found out keeps its default."""

    model: str = "unknown"
    vendor: str = "unknown"
    hyper_threads: bool = False
    turbo: bool = False
    cat_l3_mask: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the annotation form: false and empty fields are left out."""
        fields: dict[str, object] = {
            "cpuModel": self.model,
            "hyperThreadEnabled": self.hyper_threads,
            "turboEnabled": self.turbo,
            "catL3CbmMask": self.cat_l3_mask,
            "vendorID": self.vendor,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """Memory of one NUMA node."""

    node: int
    memory: memory.MemInfo
    huge_pages: Mapping[str, int]
    """Size (`1Gi`, `2Mi`) to number of pages."""
