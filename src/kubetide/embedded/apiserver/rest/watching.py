"""A watch: a cursor over the log of one resource, read in batches.

A watch first sends the initial state if it was asked to, then every change that concerns its filter: an object that
starts to match is ADDED, one that stops to match is DELETED. It never holds anybody up: a reader that falls out of
the window of the log gets one 410 error and the end of the stream.

Pauses, bookmarks and the end of a watch are in the time of its reader: for a controller in process that is the time of
the loop, for a client behind a socket real time (`timers`).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.rest.filters import Filter, Render
from kubetide.embedded.apiserver.rest.shard_meter import ShardMeter
from kubetide.embedded.apiserver.rest.status import Raw, StatusError
from kubetide.embedded.apiserver.storage.objects import Change, Entry, EventLog, LogEvent, ObjectStore, watch_line
from kubetide.kube.wire import Timer, Timers, rest

BOOKMARK_SECONDS = 60.0
_CHUNK = 500
_LONGEST_PAUSE = 0.5
_PATIENCE = 4.0
"""How many times the lateness of the loop a busy watch waits."""

Tamper = Callable[[list[bytes]], list[bytes]]


@dataclass(slots=True)
class WatchPlan:
    """Everything a transport needs to stream one watch."""

    store: ObjectStore
    resource: ApiResource
    log: EventLog
    filter: Filter
    render: Render
    position: int
    revision: int
    plain: bool = False
    """Whether objects are shown as they are stored, so that all such watches share their lines."""
    initial: list[Entry] = field(default_factory=list)
    initial_end: bool = False
    bookmarks: bool = False
    timeout: float | None = None
    bookmark_seconds: float = BOOKMARK_SECONDS
    pause: float = 0.0
    """At least this long between two batches, so that a burst is sent in few of them; the first comes at once."""
    timers: Timers | None = None
    """The time of the reader; None is that of the loop."""
    tamper: Tamper | None = None
    frozen: Callable[[], bool] | None = None
    render_bookmark: Callable[[Raw], Raw] | None = None
    prepare: Callable[[list[Entry]], Awaitable[None]] | None = None
    """Makes entries ready to be shown, where a conversion webhook has to."""
    meter: ShardMeter | None = None
    """Counts what a shard is spared."""

    async def batches(self) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines of the stream, as many at once as there are."""
        for start in range(0, len(self.initial), _CHUNK):
            chunk = self.initial[start : start + _CHUNK]
            if self.prepare is not None and (failure := await self._unprepared(chunk)):
                yield failure
                return
            yield [watch_line("ADDED", self.render(entry)) for entry in chunk]
        self.initial = []
        if self.initial_end:
            yield [self._bookmark(self.revision, initial_end=True)]
        timers: Timers = self.timers or asyncio.get_running_loop()
        # Subscribed before the first read: a change between the two wakes us for nothing, the other way round it
        # would be sent only after the next one.
        alarm = _Alarm(timers, self.bookmark_seconds if self.bookmarks else None, self.timeout)
        unsubscribe = self.log.subscribe(alarm.wake)
        pace = _Pace(timers, self.pause)
        meter = self.meter if self.filter.shard is not None else None
        if meter is not None:
            meter.opened(self.resource.group, self.resource.plural)
        try:
            while True:
                frozen = self.frozen is not None and self.frozen()
                try:
                    events = [] if frozen else self.log.read(self.position)
                except StatusError as error:
                    yield [watch_line("ERROR", msgspec.json.encode(error.to_raw()))]
                    return
                if events and self.pause and await pace.waited():
                    continue  # more may have come meanwhile: read again, send it in one batch
                if events:
                    # The cursor moves before the lines are made: `prepare` may give way to writers, whose changes
                    # are appended behind it. What is read is never read again, what is appended never skipped.
                    self.position += len(events)
                    if self.prepare is not None and (
                        failure := await self._unprepared([event.entry for event in events])
                    ):
                        yield failure
                        return
                    lines = self._lines(events)
                    if self.tamper is not None:
                        lines = self.tamper(lines)
                    if lines:
                        yield lines
                    continue
                # From the read that found nothing to here nobody else has run, so the reader has been sent everything
                # up to the store's revision: only therefore may a bookmark vouch for it.
                if alarm.expired:
                    if self.bookmarks:
                        yield [self._bookmark(self.store.revision)]
                    return
                if alarm.bookmark_due and not frozen:
                    alarm.bookmark_due = False
                    yield [self._bookmark(self.store.revision)]
                    continue  # what changed while it was sent has rung an alarm that nobody waited for
                await alarm.wait()
                if self.pause:
                    pace.was_late(alarm.lateness())
        finally:
            unsubscribe()
            alarm.cancel()
            if meter is not None:
                meter.closed(self.resource.group, self.resource.plural)

    async def _unprepared(self, entries: list[Entry]) -> list[bytes]:
        """Make entries ready to be shown; return the line that ends the watch if that fails."""
        try:
            if self.prepare is not None:
                await self.prepare(entries)
        except StatusError as error:
            return [watch_line("ERROR", msgspec.json.encode(error.to_raw()))]
        return []

    def _lines(self, events: list[LogEvent]) -> list[bytes]:
        wanted = self.filter
        if wanted.takes_all:
            namespace = wanted.namespace
            if self.plain:
                return [e.line for e in events if namespace is None or e.entry.key.namespace == namespace]
            return [
                watch_line(event.change, self.render(event.entry))
                for event in events
                if namespace is None or event.entry.key.namespace == namespace
            ]
        lines = []
        for event in events:
            change = self._seen_as(event)
            if change is not None:
                lines.append(watch_line(change, self.render(event.entry)))
            elif self.meter is not None and wanted.shard is not None and not wanted.of_shard(event.entry):
                self.meter.filtered(self.resource.group, self.resource.plural)
        return lines

    def _seen_as(self, event: LogEvent) -> Change | None:
        """Return the change as a filter shows it: what starts to match is ADDED, what stops to match is DELETED."""
        before = event.previous is not None and self.filter.matches(event.previous)
        after = event.change != "DELETED" and self.filter.matches(event.entry)
        if after:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else None

    def _bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        metadata: Raw = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj: Raw = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata}
        if self.render_bookmark is not None:
            obj = self.render_bookmark(obj)
        return watch_line("BOOKMARK", msgspec.json.encode(obj))


class _Pace:
    """Keeps batches apart: by the pause asked for, and by more when the loop is so busy that it runs late."""

    def __init__(self, timers: Timers, pause: float) -> None:
        self._timers = timers
        self._shortest = self._pause = pause
        self._next = 0.0

    async def waited(self) -> bool:
        """Wait if the last batch was just sent; return whether it did, because there may be more to send then."""
        now = self._timers.time()
        wait = self._next - now
        if wait > 0:
            await rest(self._timers, wait)
            self.was_late(self._timers.time() - self._next)
            self._next = 0.0
            return True
        self._next = now + self._pause
        return False

    def was_late(self, seconds: float) -> None:
        """Take note of how long after its time something ran."""
        self._pause = min(_LONGEST_PAUSE, max(self._shortest, _PATIENCE * seconds))


class _Alarm:
    """Lets one reader sleep until there is something to look at: a change, a due bookmark, the end."""

    def __init__(self, timers: Timers, bookmark_seconds: float | None, timeout: float | None) -> None:
        self._timers = timers
        self._future: asyncio.Future[None] | None = None
        self._period = bookmark_seconds
        self._bookmark_timer = self._later(bookmark_seconds or None, self._ring)
        self._timeout_timer = self._later(timeout, self._expire)
        self._woken_at = timers.time()
        self.bookmark_due = False
        self.expired = False

    def wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._woken_at = self._timers.time()
            self._future.set_result(None)

    def lateness(self) -> float:
        """Return how long the reader had to wait for its turn after it was woken."""
        return self._timers.time() - self._woken_at

    async def wait(self) -> None:
        self._future = asyncio.get_running_loop().create_future()
        try:
            await self._future
        finally:
            self._future = None

    def cancel(self) -> None:
        for timer in (self._bookmark_timer, self._timeout_timer):
            if timer is not None:
                timer.cancel()

    def _later(self, seconds: float | None, callback: Callable[[], None]) -> Timer | None:
        return self._timers.call_later(seconds, callback) if seconds is not None else None

    def _ring(self) -> None:
        self.bookmark_due = True
        self._bookmark_timer = self._later(self._period, self._ring)
        self.wake()

    def _expire(self) -> None:
        self.expired = True
        self.wake()
