"""Memory that never shrinks: heaps that keep what they took (JVM, Go without a limit, caches).

The usage of such a container says how large its heap has become, not what it needs, and a higher limit is taken as an
invitation. A container counts as one when for a day its memory never fell by more than 3 % below its highest, and has
grown by a fifth: the condition `MemoryNeverShrinks` names it. It is gone once memory falls. After a restart nothing is
known for a day, and what was reported stays.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from kubetide.api.values.quantity import readable_bytes
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.recommender.core.entities import VpaState

NEVER_SHRINKS: Final = "MemoryNeverShrinks"
REASON: Final = "KeepsItsHeap"
_DAY: Final = 86_400_000_000
_FALLS: Final = 0.97
_GROWS: Final = 1.2


class HeapWatch:
    """Follows the memory of every container, by row of the container table."""

    def __init__(self) -> None:
        self._since: Ints = np.zeros(0, dtype=np.int64)
        self._last: Ints = np.zeros(0, dtype=np.int64)
        self._first: Floats = np.zeros(0)
        self._high: Floats = np.zeros(0)
        self._lowest: Floats = np.zeros(0)
        """The smallest share of its highest that a container used after it."""

    def add(self, rows: Ints, times: Ints, amounts: Ints) -> None:
        """Add samples, at most one per container."""
        if rows.size == 0:
            return
        self._grow(int(rows.max()) + 1)
        used = amounts.astype(np.float64)
        # A row that was silent for a day, or lost half of what it had, is another container by now, or began anew.
        fresh = (times - self._last[rows] > _DAY) | (used < 0.5 * self._high[rows])
        new = rows[fresh]
        self._since[new], self._first[new], self._high[new] = times[fresh], used[fresh], used[fresh]
        self._lowest[new] = 1.0
        self._last[rows] = times
        self._high[rows] = np.maximum(self._high[rows], used)
        self._lowest[rows] = np.minimum(self._lowest[rows], used / np.maximum(self._high[rows], 1.0))

    def report(self, vpa: VpaState) -> str | None:
        """Return which containers never give memory back, in words; empty when none does; None while unknown."""
        rows: dict[str, list[int]] = {}
        for labels in vpa.label_sets.values():
            for pod in labels.pods.values():
                for name, row in pod.containers.items():
                    rows.setdefault(name, []).append(row)
        known, said = False, []
        for name, listed in sorted(rows.items()):
            at = np.array([row for row in listed if row < self._since.size], dtype=np.int64)
            day = at[self._old(at)]
            known = known or day.size > 0 or bool((self._lowest[at] < _FALLS).any())
            if day.size and (self._lowest[at] >= _FALLS).all() and (self._high[day] >= _GROWS * self._first[day]).any():
                high = readable_bytes(int(self._high[at].max()))
                said.append(f"container {name} has taken {high} and given nothing back for a day")
        if not known:
            return None
        return "; ".join(said) + (": its usage is the size of its heap, not what it needs" if said else "")

    def _old(self, at: Ints) -> npt.NDArray[np.bool_]:
        old: npt.NDArray[np.bool_] = self._last[at] - self._since[at] >= _DAY
        return old

    def _grow(self, size: int) -> None:
        more = size - self._since.size
        if more <= 0:
            return
        more = max(more, self._since.size // 2)
        self._since = np.concatenate([self._since, np.zeros(more, dtype=np.int64)])
        self._last = np.concatenate([self._last, np.full(more, -_DAY * 2, dtype=np.int64)])
        self._first = np.concatenate([self._first, np.zeros(more)])
        self._high = np.concatenate([self._high, np.zeros(more)])
        self._lowest = np.concatenate([self._lowest, np.ones(more)])


def never_shrinking(watch: HeapWatch, vpas: Iterable[VpaState]) -> None:
    """Note with every VPA which of its containers never give memory back; unknown leaves it as it was."""
    for vpa in vpas:
        found = watch.report(vpa)
        if found is not None:
            vpa.heaps = found
