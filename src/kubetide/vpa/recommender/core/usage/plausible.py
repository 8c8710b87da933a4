"""Samples that cannot be true: dated in the future, more than a node has, or of a container that is listed twice.

Each of them would be believed for good. A sample from next year outweighs every sample until then, an impossible amount
stays in the histogram for days, and of two containers with one name nobody knows which is which. They are refused
whole, counted by reason, and one of each kind is named in the log.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

import numpy as np

from kubetide.api.objects.capacity import UNKNOWN, Capacity
from kubetide.api.objects.meta import ObjectKey
from kubetide.stats.buckets import Ints
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.core.entities import PodRecord
from kubetide.vpa.recommender.core.samples import Mask

UNCOUNTABLE = 2**62
"""What amounts beyond 64 bits are cut to: more than any machine has."""


class RefusalReason(StrEnum):
    """Why a sample is refused; the label of the counter."""

    FUTURE = "future"
    ABOVE_NODE = "above_node"
    DUPLICATE_CONTAINER = "duplicate_container"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What samples have to keep within."""

    capacity: Capacity = UNKNOWN
    nodes: Mapping[ObjectKey, str] = field(default_factory=dict)
    """The node of each pod, where it is known."""
    skew: timedelta = timedelta(minutes=5)
    """How far ahead of our clock a sample may be dated."""

    def is_future(self, at: datetime, now: datetime) -> bool:
        """Return whether a sample is dated too far ahead."""
        return at - now > self.skew

    def possible(self, pods: Iterable[PodRecord], rows: Ints, cpu: Ints, memory: Ints) -> Mask:
        """Return which amounts (millicores, bytes) the nodes of their containers can have; looks twice only if needed.

        Nearly all samples are below what the smallest node has.
        """
        least = self.capacity.smallest
        fits: Mask = (cpu <= _whole(least.get(CPU), 1)) & (memory <= _whole(least.get(MEMORY), 1000))
        if fits.all():
            return fits
        suspect = set(rows[~fits].tolist())
        most = {row: self._most(pod.key) for pod in pods for row in pod.containers.values() if row in suspect}
        for place in np.flatnonzero(~fits).tolist():
            most_cpu, most_memory = most[int(rows[place])]
            fits[place] = cpu[place] <= most_cpu and memory[place] <= most_memory
        return fits

    def _most(self, pod: ObjectKey) -> tuple[int, int]:
        node = self.nodes.get(pod, "")
        return _whole(self.capacity.bound(node, CPU), 1), _whole(self.capacity.bound(node, MEMORY), 1000)

    def largest(self, resource: str) -> int:
        """Return the most millicores or bytes that any node has."""
        return _whole(self.capacity.largest.get(resource), 1 if resource == CPU else 1000)


def _whole(thousandths: int | None, scale: int) -> int:
    """Return a bound in the unit of samples, below what amounts beyond 64 bits are cut to."""
    return UNCOUNTABLE - 1 if thousandths is None else min(thousandths // scale, UNCOUNTABLE - 1)
