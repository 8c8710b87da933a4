"""Memory of simulated nodes: how much page cache stays, and whom the kernel OOM kills.

Page cache is what is left over: each group keeps what it has read up to its limit minus its anonymous memory, and
when a node runs short all caches on it shrink by the same factor, before anybody is OOM killed.

OOM kills, in the kernel's order: a group above its own limit loses its largest member; a node whose anonymous memory
exceeds what it has loses the process with the highest badness, `share of the node × 1000 + oom_score_adj`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from kubetide.embedded.sim.node.kernel import Machine

Column = npt.NDArray[np.float64]


class MemoryView(msgspec.Struct):
    """The memory columns of all processes; row numbers are positions."""

    node: npt.NDArray[np.intp]
    """The machine of each; -1 where there is no process."""
    bins: npt.NDArray[np.intp]
    """The same, with the rows that hold nothing under the first machine."""
    anon: Column
    file: Column
    goal: Column
    limit: Column
    adjust: Column


@dataclass(frozen=True, slots=True)
class OomKill:
    """One process that the kernel OOM kills, and why."""

    row: int
    scope: str
    """`container`, `group` or `node`: whose memory ran out."""


def squeeze_cache(view: MemoryView, capacity: Column) -> None:
    """Set each process's page cache to what its limit and its node leave of what it would like to keep."""
    kept = view.file
    np.subtract(view.limit, view.anon, out=kept)
    np.minimum(kept, view.goal, out=kept)
    np.maximum(kept, 0.0, out=kept)
    anon = np.bincount(view.bins, weights=view.anon, minlength=len(capacity))
    file = np.bincount(view.bins, weights=kept, minlength=len(capacity))
    room = np.maximum(capacity - anon, 0.0)
    short = file > room
    if np.count_nonzero(short):
        kept *= np.divide(room, file, out=np.ones_like(room), where=short)[view.bins]


def find_kills(view: MemoryView, machines: Sequence["Machine"]) -> list[OomKill]:
    """Return at most one OOM kill per container, bounded group and node."""
    kills = [OomKill(row, "container") for row in (view.anon > view.limit).nonzero()[0].tolist()]
    doomed = {kill.row for kill in kills}
    total = np.bincount(view.bins, weights=view.anon, minlength=len(machines)).tolist()
    for machine in machines:
        for group in machine.memory_groups:
            rows = [leaf.row for leaf in group.leaves() if leaf.row is not None and leaf.row not in doomed]
            if rows and group.memory_limit is not None and float(view.anon[rows].sum()) > group.memory_limit:
                victim = max(rows, key=lambda row: (float(view.anon[row]), -row))
                doomed.add(victim)
                kills.append(OomKill(victim, "group"))
        if total[machine.index] + machine.kernel_memory <= machine.memory_bytes:
            continue
        rows = [row for row in np.flatnonzero(view.node == machine.index).tolist() if row not in doomed]
        held = float(view.anon[rows].sum()) if rows else 0.0
        if held + machine.kernel_memory > machine.memory_bytes:
            killable = [row for row in rows if view.adjust[row] > -1000]
            if killable:
                size = machine.memory_bytes
                victim = max(
                    killable, key=lambda row: (1000 * float(view.anon[row]) / size + float(view.adjust[row]), -row)
                )
                kills.append(OomKill(victim, "node"))
    return kills
