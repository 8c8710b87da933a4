"""What components request, by the size of the cluster: measured, not guessed.

    CPU     1.5  × (base + so much per 1,000 pods), in steps of 10m; never limited, so that a loop is never late
    memory  1.25 × (base + so much per 1,000 pods), in steps of 16 MiB; the limit is three times that, 512 MiB at least

Measured by `python -m benchmarks.footprint` on a cluster with an HPA and a VPA for every ten pods and a node for every
twenty (docs/reference/measured.md, "Sizes of components"). Where VPAs run, those of the chart take over from here.
"""

import math
from dataclasses import dataclass
from typing import Any

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a component takes: alone, and on top for every 1,000 pods of the cluster."""

    cpu_millis: float
    memory_mib: float
    cpu_millis_per_1000: float = 0.0
    memory_mib_per_1000: float = 0.0


MEASURED = {
    "hpa": Footprint(1, 64, 4.6, 8.5),
    "recommender": Footprint(1, 74, 4.8, 8.3),
    "updater": Footprint(1, 64, 2.8, 8.3),
    # Webhooks work when pods are created, not by how many there are: ten a second.
    "admission": Footprint(20, 65, 0.2, 1.0),
    "policy": Footprint(1, 54, 0.8, 0.6),
    # Taken for as large as the policy controller, which it resembles.
    "plan": Footprint(1, 54, 0.8, 0.6),
    # With a report a minute from every node.
    "slo": Footprint(2, 64, 3.4, 8.3),
    "colocation": Footprint(20, 64, 0.2, 0.5),
    # By the pods of its node: 250 of two containers, with suppression, burst and memory QoS.
    "node": Footprint(50, 108),
    # Scraping kubelets; streams of agents take half of it.
    "metrics": Footprint(10, 76, 5.4, 8.5),
    # While somebody looks at it.
    "dashboard": Footprint(10, 82, 2.0, 18.6),
}
PODS = {"small": 1_000, "medium": 10_000, "large": 50_000}
"""Pods of the cluster up to which a size is meant to be enough."""
DEFAULT = "medium"


def resources(component: str, size: str = DEFAULT) -> Raw:
    """Return the requests and the memory limit of a component."""
    found, thousands = MEASURED[component], PODS[size] / 1000
    cpu = 1.5 * (found.cpu_millis + found.cpu_millis_per_1000 * thousands)
    memory = _up(1.25 * (found.memory_mib + found.memory_mib_per_1000 * thousands), 16)
    return {
        "requests": {"cpu": f"{_up(cpu, 10)}m", "memory": f"{memory}Mi"},
        "limits": {"memory": f"{max(512, 3 * memory)}Mi"},
    }


def _up(amount: float, step: int) -> int:
    return math.ceil(amount / step) * step
