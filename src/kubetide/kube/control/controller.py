"""The frame of every controller: caches, leadership, loops, health, start and stop.

    caches     run from the start, on a standby too, so that a new leader acts on what it already knows
    leadership is asked for once the caches are synced: a process that knows nothing must not hold the Lease
    loops      run only while leading, keyed (a queue, a reconcile per object) or periodic (an iteration per interval)
    background runs from start to stop whoever leads: a webhook server, the expiry of metrics
    ranges     replicas that share the work (`kube.control.shards`) all work, each on the namespaces, or nodes, it owns:
               its caches are filled for them before it starts owning them, and its work on them ends before it stops

A component derives from `Controller`, hands its caches and loops to the constructor and says in `started_leading`
what a new term begins with. Everything is level-based: a term starts from what the caches show, never from what an
earlier term remembered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kubetide import tracing
from kubetide.api.values.shard_selector import NAMESPACE
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.cache.view import Cache, Selectable
from kubetide.kube.control.core.ranges import NO_RANGES, RANGES, WHOLE_NAMESPACES
from kubetide.kube.control.instruments import Reconciles
from kubetide.kube.control.leader_election import Leadership
from kubetide.kube.control.reconcile import STOP_GRACE, Reconciled, Result, Workers
from kubetide.kube.control.shards import ShardMembership
from kubetide.kube.control.workqueue import WorkQueue
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry

K = TypeVar("K", bound=Hashable)

log = get_logger("controller")

STALLED_INTERVALS = 5
"""Intervals that may pass without the end of an iteration before a restart is the better choice."""


class Loop(Protocol):
    """Work that is done while leading."""

    @property
    def name(self) -> str:
        """What logs and metrics call it."""
        ...

    def healthy(self) -> bool:
        """Whether it makes progress, or need not."""
        ...

    async def run(self) -> None:
        """Work until cancelled; called again for each term."""
        ...


class KeyedLoop(Generic[K]):
    """A work queue and the workers that reconcile one key after the other.

    A key that fails comes back with a growing delay and holds up nobody else. Keys may be added at any time; those
    left when a term ends are dropped, for the next one enqueues what it finds.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result]],
        *,
        clock: Clock,
        workers: int = 1,
        stop_grace: timedelta = STOP_GRACE,
        retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[K] = WorkQueue(clock=clock, name=name)
        self.add = self.queue.add
        self.add_after = self.queue.add_after
        self._workers: Workers[K] = Workers(
            self.queue,
            reconcile,
            workers=workers,
            stop_grace=stop_grace,
            retry_on=retry_on,
            observe=None if telemetry is None else partial(Reconciles(telemetry).outcome, name),
        )
        self.behind = self._workers.behind

    def healthy(self) -> bool:
        """Return True: the loop outlives the failure of any object, and a restart would cure none."""
        return True

    async def run(self) -> None:
        """Reconcile until cancelled; work in flight then gets the stop grace to finish."""
        try:
            await self._workers.run()
        finally:
            self.queue.clear()


class PeriodicLoop:
    """One iteration per interval, counted by the clock and not from the end of the last one.

    An iteration that takes longer than the interval is followed by the next one at once; those that were missed
    meanwhile are skipped, and the rhythm stays. One that fails is logged and the next one comes at its time; an error
    that is not kubetide's own is a bug and ends the process.
    """

    def __init__(
        self,
        name: str,
        run_once: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        interval: timedelta,
        first_after: timedelta | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.name = name
        self.last_run: datetime | None = None
        """When the last iteration of this term ended."""
        self._run_once = run_once
        self._clock = clock
        self._interval = interval.total_seconds()
        self._first_after = self._interval if first_after is None else first_after.total_seconds()
        self._reconciles = None if telemetry is None else Reconciles(telemetry)
        self._progress_at: float | None = None

    def healthy(self) -> bool:
        """Return whether an iteration ended lately; a loop that is not running has nothing to answer for."""
        if self._progress_at is None:
            return True
        return self._clock.monotonic() - self._progress_at <= self._first_after + STALLED_INTERVALS * self._interval

    async def run(self) -> None:
        """Run once per interval until cancelled."""
        self._progress_at = self._clock.monotonic()
        due = self._progress_at + self._first_after
        try:
            while True:
                await asyncio.sleep(max(0.0, due - self._clock.monotonic()))
                with tracing.span(self.name):
                    await self._attempt()
                self.last_run = self._clock.now()
                self._progress_at = self._clock.monotonic()
                due = next_due(due, self._interval, now=self._progress_at)
        finally:
            self.last_run = self._progress_at = None

    async def _attempt(self) -> None:
        started = self._clock.monotonic()
        failure: Exception | None = None
        try:
            await self._run_once()
        except* KubetideError as errors:
            failure = errors
            tracing.failed(errors)
            for error in _flat(errors):
                log.warning("loop failed", loop=self.name, error=str(error), kind=type(error).__name__)
        if self._reconciles is not None:
            seconds = self._clock.monotonic() - started
            self._reconciles.outcome(self.name, Reconciled(seconds=seconds, error=failure))


def next_due(due: float, interval: float, *, now: float) -> float:
    """Return when the iteration after the one due at `due` is due: the latest time by now, or else the next one."""
    due += interval
    return due if now < due else due + (now - due) // interval * interval


class Controller:
    """A component that keeps caches and works while it leads. Without `leadership` it always leads."""

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        caches: Sequence[Cache] = (),
        loops: Sequence[Loop] = (),
        leadership: Leadership | ShardMembership | None = None,
        sharded: Sequence[Selectable] = (),
        shard_by: str = NAMESPACE,
        background: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        """`sharded` are the caches that hold only what this replica owns, where replicas share the work `shard_by`."""
        self.name = name
        self.leading_since: datetime | None = None
        """When this process started leading; None while it does not, or while a new term is being prepared."""
        self._frame_clock = clock
        self._caches = tuple(caches)
        self._loops = tuple(loops)
        self._leadership = leadership
        self._background = tuple(background)
        self._sharded = tuple(sharded)
        self._shards = leadership if isinstance(leadership, ShardMembership) else None
        self._division = replace(self._shards.division if self._shards else WHOLE_NAMESPACES, field=shard_by)
        self._owned: dict[int, datetime] = {}  # ranges, and since when
        if self._shards is not None:
            self._shards.owner = self
            self._select()

    @property
    def leading(self) -> bool:
        """Whether this process acts: it started leading, and the Lease is still in force."""
        return self.leading_since is not None and (self._leadership is None or self._leadership.is_leader)

    def ready(self) -> bool:
        """Return whether all caches are synced; a standby is ready too."""
        return all(cache.has_synced for cache in self._caches)

    def healthy(self) -> bool:
        """Return whether all loops make progress."""
        return all(loop.healthy() for loop in self._loops)

    def notes(self) -> Sequence[str]:
        """Return what people should know though all is healthy: that it stands by, if it does."""
        if self._shards is not None:
            of = "namespaces" if self._division.field == NAMESPACE else "nodes"
            split = f" (split: {', '.join(sorted(self._division.split))})" if self._division.split else ""
            return (f"owns {len(self._owned)} of {RANGES} ranges of {of}{split}, with {self._shards.live} members",)
        if self._leadership is None or self._leadership.is_leader:
            return ()
        return (f"stands by: does not hold the lease {self._leadership.lease}",)

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return the last decision about an object with its trace, or None for what it does not decide."""
        return None

    async def started_leading(self) -> None:
        """Prepare a term: forget what an earlier one remembered, and enqueue everything. Nothing by default."""

    def stopped_leading(self) -> None:
        """Tidy up after a term, also one that was cut off. Nothing by default."""

    # Where replicas share the work.

    def acting_since(self, name: str, uid: str = "") -> datetime | None:
        """Return since when this process acts on an object in a namespace, or on a node; None while it does not."""
        return self.leading_since if self._shards is None else self._owned.get(self._division.range_of(name, uid))

    def owns(self, name: str, uid: str = "") -> bool:
        """Return whether an object in a namespace, or a node, is this replica's; without shards all are."""
        return self._shards is None or self._division.range_of(name, uid) in self._owned

    async def started_owning(self, ranges: frozenset[int]) -> None:
        """Begin with ranges, whose objects are in the caches. Nothing by default."""

    async def stops_owning(self, ranges: frozenset[int]) -> None:
        """End what is under way for ranges, and write what is to be written. Nothing by default."""

    async def take_ranges(self, ranges: frozenset[int]) -> None:
        """Fill the caches for ranges, then start owning them."""
        self._select(ranges)
        for cache in self._sharded:
            await cache.wait_synced()
        self._owned.update(dict.fromkeys(ranges, self._frame_clock.now()))
        await self.started_owning(ranges)

    async def give_up_ranges(self, ranges: frozenset[int]) -> None:
        """Begin nothing new on ranges, end what is under way, then forget them."""
        for number in ranges:
            self._owned.pop(number, None)
        await self.stops_owning(ranges)
        self._select()

    def _select(self, more: frozenset[int] = NO_RANGES) -> None:
        selector = self._division.selector(self._owned.keys() | more)
        for cache in self._sharded:
            cache.select(selector)

    async def run(self) -> None:
        """Follow the cluster, and work whenever this process leads, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number, cache in enumerate(self._caches):
                group.create_task(cache.run(), name=getattr(cache, "name", f"{self.name}/cache-{number}"))
            for number, work in enumerate(self._background):
                group.create_task(_as_coroutine(work), name=f"{self.name}/background-{number}")
            await self.wait_synced()
            if self._leadership is None:
                await self._lead()
            else:
                await self._leadership.run(self._lead)

    async def wait_synced(self) -> None:
        """Wait until all caches are synced; somebody has to run them."""
        for cache in self._caches:
            await cache.wait_synced()

    async def _lead(self) -> None:
        await self.started_leading()
        self.leading_since = self._frame_clock.now()
        if self._leadership is not None:
            log.info("started leading", controller=self.name)
        try:
            async with asyncio.TaskGroup() as group:
                for loop in self._loops:
                    group.create_task(loop.run(), name=f"{self.name}/{loop.name}")
        finally:
            self.leading_since = None
            self._owned.clear()
            self.stopped_leading()


async def _as_coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def _flat(errors: BaseExceptionGroup[KubetideError]) -> Iterator[KubetideError]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flat(error)
        else:
            yield error
