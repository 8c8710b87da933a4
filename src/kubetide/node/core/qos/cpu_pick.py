"""Which logical CPUs best-effort work gets: spread over NUMA nodes and sockets, whole cores first.

Buckets are the (node, socket) pairs, the largest first. A first walk takes both threads of one core per bucket
and turn, a second walk fills up with single threads, going on at the bucket where the first one stopped.
Two threads of one core share its caches and its execution units: giving both to best-effort work keeps it away
from the cores that latency-sensitive pods use.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol


class LogicalCpu(Protocol):
    """One hardware thread and where it sits."""

    @property
    def cpu(self) -> int:
        """The id the kernel gives it."""

    @property
    def core(self) -> int:
        """The physical core."""

    @property
    def socket(self) -> int:
        """The package."""

    @property
    def node(self) -> int:
        """The NUMA node."""


def pick(count: int, processors: Iterable[LogicalCpu]) -> list[int]:
    """Return `count` CPU ids in pick order, or nothing when there are fewer."""
    available = list(processors)
    if count <= 0 or len(available) < count:
        return []
    buckets = _buckets(available)
    picked: list[int] = []
    position = _take_pairs(buckets, count, picked)
    _take_singles(buckets, count, picked, position)
    return picked


def _buckets(processors: Iterable[LogicalCpu]) -> list[list[LogicalCpu]]:
    by_place: dict[tuple[int, int], list[LogicalCpu]] = defaultdict(list)
    for processor in processors:
        by_place[processor.node, processor.socket].append(processor)
    buckets = [sorted(bucket, key=lambda p: (p.core, p.cpu)) for bucket in by_place.values()]
    return sorted(buckets, key=lambda bucket: (-len(bucket), bucket[0].cpu))


def _take_pairs(buckets: list[list[LogicalCpu]], count: int, picked: list[int]) -> int:
    """Take one pair of siblings per bucket and cycle; return the bucket at which the walk stopped."""
    used: set[int] = set()
    position, before_cycle = 0, -1
    while count - len(picked) > 1:
        if position == 0:
            if before_cycle == len(picked):
                break
            before_cycle = len(picked)
        bucket = buckets[position]
        for first, second in itertools.pairwise(bucket):
            if first.cpu not in used and first.core == second.core:
                used.update((first.cpu, second.cpu))
                picked += [first.cpu, second.cpu]
                break
        position = (position + 1) % len(buckets)
    return position


def _take_singles(buckets: list[list[LogicalCpu]], count: int, picked: list[int], position: int) -> None:
    used = set(picked)
    before_cycle = -1
    while len(picked) < count:
        if position == 0:
            if before_cycle == len(picked):
                break
            before_cycle = len(picked)
        free = next((p.cpu for p in buckets[position] if p.cpu not in used), None)
        if free is not None:
            used.add(free)
            picked.append(free)
        position = (position + 1) % len(buckets)
