"""Facts about a machine as a whole: its CPU model and the memory of its NUMA nodes."""

from collections.abc import Mapping
from dataclasses import dataclass

from kubetide.node.core.formats import memory


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
