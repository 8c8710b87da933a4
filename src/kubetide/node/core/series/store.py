"""Where collectors put samples and everybody else finds them: the ring, and what the agent knows as facts.

A sample that does not fit its kind or is not a number is dropped and counted; the rest of its batch is kept.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Protocol

from kubetide.node.core.formats.processors import CpuBasicInfo, NumaNode, Processor
from kubetide.node.core.formats.storage import StorageFacts
from kubetide.node.core.report import Gpu
from kubetide.node.core.series.query import LAST, Points
from kubetide.node.core.series.ring import Key, Ring, series_key


class SeriesJournal(Protocol):
    """Keeps batches beyond the life of the process."""

    def append(self, producer: str, interval: float, at: int, samples: Iterable[tuple[Key, float]]) -> None:
        """Store one batch."""
        ...


@dataclass(slots=True)
class Facts:
    """What does not change by the second: processors, NUMA nodes, disks, GPUs. None: not known yet."""

    processors: tuple[Processor, ...] = ()
    basic: CpuBasicInfo | None = None
    numa: tuple[NumaNode, ...] = ()
    storage: StorageFacts | None = None
    gpus: tuple[Gpu, ...] = ()


@lru_cache(maxsize=32768)
def key_of(kind: str, *pairs: tuple[str, str]) -> Key:
    """Return the identity of a series, remembered because it is asked for every second until `expire` forgets it."""
    return series_key(kind, dict(pairs))


@dataclass(slots=True)
class SeriesStore:
    """Samples in, windows out."""

    ring: Ring
    journal: SeriesJournal | None = None
    facts: Facts = field(default_factory=Facts)
    dropped: int = 0

    def append(self, producer: str, interval: float, now: datetime, samples: Iterable[tuple[Key, float]]) -> int:
        """Store one batch; return how many samples were good."""
        good: list[tuple[Key, float]] = []
        for key, value in samples:
            if math.isfinite(value):
                good.append((key, value))
            else:
                self.dropped += 1
        at = int(now.timestamp() * 1000)
        self.ring.append(producer, interval, at, good)
        if self.journal is not None:
            self.journal.append(producer, interval, at, good)
        return len(good)

    def expire(self) -> None:
        """Forget series without recent samples; the identities of those that are left are made anew when asked for."""
        if self.ring.expire():
            key_of.cache_clear()

    def query(self, kind: str, properties: Mapping[str, str] | None, start: int, end: int) -> Points:
        """Return samples within [start, end] milliseconds."""
        return self.ring.query(kind, properties, start, end)

    def view(self, now: Callable[[], datetime], collect_interval: float) -> "RecentMetrics":
        """Return a view of the samples up to a moment that moves."""
        return RecentMetrics(self.ring, now, collect_interval)


@dataclass(frozen=True, slots=True)
class RecentMetrics:
    """The samples up to now, as strategies read them."""

    ring: Ring
    now: Callable[[], datetime]
    collect_interval: float

    def query(self, kind: str, properties: Mapping[str, str] | None = None, *, seconds: float) -> Points:
        """Return the samples of the last `seconds`."""
        end = int(self.now().timestamp() * 1000)
        return self.ring.query(kind, properties, end - int(seconds * 1000), end)

    def last(self, kind: str, properties: Mapping[str, str] | None = None) -> float | None:
        """Return the newest value within twice the collect interval."""
        return self.query(kind, properties, seconds=2 * self.collect_interval).aggregate(LAST)

    def averages(self, kind: str, by: str, *, seconds: float) -> dict[str, float]:
        """Return the average of every series of a kind over the last `seconds`, by one property."""
        end = int(self.now().timestamp() * 1000)
        return self.ring.averages_each(kind, by, end - int(seconds * 1000), end)

    def latest(self, kind: str, by: str) -> dict[str, float]:
        """Return the newest value of every series of a kind within twice the collect interval, by one property."""
        end = int(self.now().timestamp() * 1000)
        start = end - int(2 * self.collect_interval * 1000)
        return self.ring.latest_each(kind, by, start, end)
