"""What requests cost: a price per core and GiB, for all nodes or by the labels of the nodes that pods run on."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubetide.recommend.core.workloads import Workload

HOURS = 730
"""In a month."""


@dataclass(frozen=True, slots=True)
class Price:
    """Money per hour, in any currency."""

    core: float
    gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of nodes; a workload costs what the nodes of its pods cost on average."""

    default: Price
    by_node: Mapping[tuple[str, str], Price] = field(default_factory=dict)
    """Cluster and node."""

    def of(self, workload: Workload) -> Price:
        """Return the price that holds for a workload."""
        if not self.by_node or not workload.nodes:
            return self.default
        each = [self.by_node.get((workload.cluster, node), self.default) for node in sorted(workload.nodes)]
        return Price(sum(one.core for one in each) / len(each), sum(one.gib for one in each) / len(each))


def monthly(price: Price, cpu_millis: int, memory_bytes: int) -> float:
    """Return what amounts cost per month."""
    return HOURS * (price.core * cpu_millis / 1000 + price.gib * memory_bytes / 2**30)
