"""What all collectors share: the context they read from, previous readings, and the loop around a sync.

Any rate needs two readings. The previous one is kept per id for twenty intervals and then forgotten; a counter that
went backwards gives no rate. A collector counts as started after its first sync that stored its data.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from kubetide.api.qos.slo_strategies import HostApplication
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.log import get_logger
from kubetide.node.core.layout import Layout
from kubetide.node.core.series.ring import Key
from kubetide.node.core.series.store import SeriesStore
from kubetide.node.core.snapshot import PodState
from kubetide.node.host.protocol import Host, is_gone
from kubetide.node.host.readers import CgroupReader
from kubetide.node.host.worker import Inline, Worker
from kubetide.node.supervisor import Pace
from kubetide.telemetry import Telemetry

log = get_logger("node.collect")

KEPT_INTERVALS = 20
T = TypeVar("T")


@dataclass(slots=True)
class Shared:
    """Sums that one collector leaves for another: (seconds, cores, bytes)."""

    node: tuple[float, float, float] | None = None
    pods: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    host_applications: tuple[float, float, float] | None = None
    cold_memory_started: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything a collector may use. A sync runs on a worker: `pods` and `host_applications` may be asked there."""

    host: Host
    layout: Layout
    clock: Clock
    store: SeriesStore
    telemetry: Telemetry
    node_name: str
    pods: Callable[[], tuple[PodState, ...]]
    host_applications: Callable[[], tuple[HostApplication, ...]]
    counts_page_cache: Callable[[], bool] = lambda: False
    """Whether the NodeMetric wants memory with page cache."""
    shared: Shared = field(default_factory=Shared)
    worker: Worker = field(default_factory=Inline)

    @property
    def reader(self) -> CgroupReader:
        return CgroupReader(self.host, self.layout)


class Collector(Protocol):
    """Reads one kind of thing at its own interval."""

    name: str
    interval: float
    started: bool

    def collect(self) -> bool:
        """Sync once, on a worker; return whether its data was stored."""
        ...


class Previous(Generic[T]):
    """The last reading of each id."""

    def __init__(self, clock: Clock, interval: float) -> None:
        self._clock = clock
        self._kept = KEPT_INTERVALS * interval
        self._readings: dict[str, tuple[float, T]] = {}

    def swap(self, identity: str, reading: T) -> tuple[float, T] | None:
        """Remember a reading; return (seconds since the previous one, the previous one) if there is one."""
        now = self._clock.monotonic()
        before = self._readings.get(identity)
        self._readings[identity] = (now, reading)
        if before is None or now - before[0] > self._kept or now <= before[0]:
            return None
        return now - before[0], before[1]

    def forget_old(self) -> None:
        """Drop readings that no rate may use any more."""
        oldest = self._clock.monotonic() - self._kept
        for key in [key for key, entry in self._readings.items() if entry[0] < oldest]:
            del self._readings[key]

    def __len__(self) -> int:
        return len(self._readings)


class BaseCollector:
    """Base of the collectors: name, interval, and storing a batch."""

    name = ""

    def __init__(self, context: Context, interval: float) -> None:
        self.context = context
        self.interval = interval
        self.started = False

    def store(self, samples: Iterable[tuple[Key, float]], of: str = "") -> None:
        """Have the loop append one batch under the collector's name, or under a name below it."""
        context = self.context
        name = f"{self.name}/{of}" if of else self.name
        context.worker.hand_back(context.store.append, name, self.interval, context.clock.now(), samples)


def skips(pod: PodState, error: Exception) -> None:
    """Note that a pod could not be read; quiet for pods that are not expected to have a cgroup."""
    if pod.is_active and not (isinstance(error, OSError) and is_gone(error)):
        log.debug("pod not read", pod=pod.key, error=str(error))


READ_ERRORS = (OSError, KubetideError)
"""What reading a cgroup may raise."""


def close_all(collectors: Iterable[Collector]) -> None:
    """Close those that keep something open."""
    for collector in collectors:
        close = getattr(collector, "close", None)
        if close is not None:
            close()


# The loop around a collector: at once, then at every interval of the clock; one that was missed is not made up for.


class Shows(Protocol):
    """Where the last problem of a collector can be seen."""

    error: str


async def collect_forever(collector: Collector, state: Shows, worker: Worker, refresh: Callable[[], object]) -> None:
    """Run a collector until cancelled; `refresh` is called on the loop before each sync."""
    problem = ""
    pace = Pace(collector.interval)
    while True:
        try:
            refresh()
            if await worker.call(collector.collect, collector.name):
                collector.started = True
            problem = ""
        except READ_ERRORS as error:
            if str(error) != problem:
                problem = str(error)
                log.warning("collector sync failed", collector=collector.name, error=problem)
        state.error = problem
        rest = getattr(collector, "pause", None)
        await asyncio.sleep(pace.rest() if rest is None else rest())
