"""Publishes events without ever making anyone wait.

`publish` puts the event into a bounded queue and returns; a task writes them one after the other. When the server is
away the queue fills and the oldest wait; what does not fit is counted and dropped: an event is a courtesy, the
decision it reports is not held up for it. What is written is decided by `Correlator`.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from kubetide.api.objects.events import Event
from kubetide.api.objects.scheme import EVENTS
from kubetide.api.values.patch import MergePatch
from kubetide.clock import Clock
from kubetide.errors import KubetideError, Unavailable
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError, NotFound
from kubetide.kube.control.lease import micro_time
from kubetide.kube.pacing import Backoff, TokenBucket
from kubetide.log import get_logger

# Which events are worth writing: repeats become a count, floods a summary, the rest silence.

V = TypeVar("V")

CAPACITY = 4096
SIMILAR_LIMIT = 10
SIMILAR_WINDOW_SECONDS = 600.0
SPAM_BURST = 25
SPAM_QPS = 1 / 300
COMBINED = "(combined from similar events): "


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSeries:
    """An event to write and how often it happened; `name` is set once it exists."""

    event: Event
    count: int
    first: datetime
    last: datetime
    name: str = ""


@dataclass(slots=True)
class _Similar:
    messages: set[str] = field(default_factory=set)
    last: float = 0.0


class Correlator:
    """Decides what to write for each event."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._similar: OrderedDict[tuple[str, ...], _Similar] = OrderedDict()
        self._series: OrderedDict[tuple[str, ...], EventSeries] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, ...], TokenBucket] = OrderedDict()

    def correlate(self, event: Event, *, now: datetime, monotonic: float) -> tuple[tuple[str, ...], EventSeries] | None:
        """Return the key and the series to write, or None when the event is to be dropped."""
        combined = self._combine(event, monotonic)
        key = (*_similar_key(event), COMBINED if combined else event.message)
        shown = replace(event, message=COMBINED + event.message) if combined else event
        known = self._series.get(key)
        series = (
            replace(known, event=shown, count=known.count + 1, last=now)
            if known is not None
            else EventSeries(event=shown, count=1, first=now, last=now)
        )
        self._remember(self._series, key, series)
        return (key, series) if self._bucket(event).allow(monotonic) else None

    def written(self, key: tuple[str, ...], name: str) -> None:
        """Note the name of the event that now exists for a series; an empty one that it is gone."""
        known = self._series.get(key)
        if known is not None:
            self._series[key] = replace(known, name=name)

    def _combine(self, event: Event, monotonic: float) -> bool:
        key = _similar_key(event)
        similar = self._similar.get(key)
        if similar is None or monotonic - similar.last > SIMILAR_WINDOW_SECONDS:
            similar = _Similar()
        if len(similar.messages) < SIMILAR_LIMIT:
            similar.messages.add(event.message)
            combined = False
        else:
            combined = event.message not in similar.messages
        similar.last = monotonic
        self._remember(self._similar, key, similar)
        return combined

    def _bucket(self, event: Event) -> TokenBucket:
        regarding = event.regarding
        key = (regarding.kind, regarding.namespace, regarding.name, regarding.uid, event.type.value)
        bucket = self._buckets.get(key) or TokenBucket(SPAM_QPS, SPAM_BURST)
        self._remember(self._buckets, key, bucket)
        return bucket

    def _remember(self, memory: OrderedDict[tuple[str, ...], V], key: tuple[str, ...], value: V) -> None:
        memory[key] = value
        memory.move_to_end(key)
        if len(memory) > self._capacity:
            memory.popitem(last=False)


def _similar_key(event: Event) -> tuple[str, ...]:
    regarding = event.regarding
    return (
        regarding.api_version,
        regarding.kind,
        regarding.namespace,
        regarding.name,
        regarding.uid,
        event.type.value,
        event.reason,
    )


log = get_logger("recorder")

QUEUE_SIZE = 1000
ATTEMPTS = 5
RETRY = Backoff(base=1.0, cap=30.0, jitter=0.5)


class Recorder(Protocol):
    """Where events go."""

    def publish(self, event: Event) -> None:
        """Write an event soon, never waiting."""


class EventRecorder:
    """Writes events in the name of one component."""

    def __init__(self, client: Client, *, clock: Clock, component: str, instance: str = "") -> None:
        self.name = f"recorder/{component}"
        self.dropped = 0
        self._client = client
        self._clock = clock
        self.component = component
        self._instance = instance
        self._correlator = Correlator()
        self._queue: asyncio.Queue[Event] = asyncio.Queue(QUEUE_SIZE)
        client.announce(self)

    def publish(self, event: Event) -> None:
        """Write the event soon, or not at all; never wait."""
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.dropped += 1

    def ready(self) -> bool:
        """Events can always be accepted."""
        return True

    def healthy(self) -> bool:
        """A server that is away is no reason to restart."""
        return True

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._record(event)
            except KubetideError as error:
                self.dropped += 1
                log.warning("could not write an event", reason=event.reason, error=str(error))
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        """Wait until everything published so far was written or dropped."""
        await self._queue.join()

    async def _record(self, event: Event) -> None:
        found = self._correlator.correlate(event, now=self._clock.now(), monotonic=self._clock.monotonic())
        if found is None:
            self.dropped += 1
            return
        key, series = found
        for attempt in range(ATTEMPTS):
            try:
                self._correlator.written(key, await self._write(series))
                return
            except (Unavailable, ApiError) as error:
                if attempt == ATTEMPTS - 1 or (isinstance(error, ApiError) and error.status < 500):
                    raise
                await asyncio.sleep(RETRY.delay(attempt, self._client.rng))

    async def _write(self, series: EventSeries) -> str:
        namespace = series.event.regarding.namespace or "default"
        if series.name:
            try:
                await self._client.patch(EVENTS, series.name, MergePatch(_repeat(series)), namespace=namespace)
                return series.name
            except NotFound:
                log.debug("event expired, writing a new one", event=series.name)
        body = self._body(series, namespace)
        await self._client.create(EVENTS, body, namespace=namespace)
        name: str = body["metadata"]["name"]
        return name

    def _body(self, series: EventSeries, namespace: str) -> dict[str, Any]:
        event = series.event
        regarding = event.regarding
        reference = {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "namespace": regarding.namespace,
            "name": regarding.name,
            "uid": regarding.uid,
            "resourceVersion": regarding.resource_version,
            "fieldPath": regarding.field_path,
        }
        stamp = int(series.last.timestamp() * 1_000_000) * 1000 + self._client.rng.randrange(1000)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{regarding.name}.{stamp:x}", "namespace": namespace},
            "involvedObject": {key: value for key, value in reference.items() if value},
            "type": event.type.value,
            "reason": event.reason,
            "message": event.message,
            "count": series.count,
            "firstTimestamp": _seconds(series.first),
            "lastTimestamp": _seconds(series.last),
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": self._instance,
        }


def _repeat(series: EventSeries) -> dict[str, Any]:
    return {"count": series.count, "lastTimestamp": _seconds(series.last), "message": series.event.message}


def _seconds(at: datetime) -> str:
    return micro_time(at).partition(".")[0] + "Z"
