"""Publishes events without ever making anyone wait.

`publish` puts the event into a bounded queue and returns; a task writes them one after the other. When the server is
away the queue fills and the oldest wait; what does not fit is counted and dropped: an event is a courtesy, the
decision it tells of is not held up for it. What is written is decided in `kube.correlation`.
"""

import asyncio
from datetime import datetime
from typing import Any

from kubetide.api.events import Event
from kubetide.api.patch import MergePatch
from kubetide.api.scheme import EVENTS
from kubetide.clock import Clock
from kubetide.errors import KubetideError, Unavailable
from kubetide.kube.backoff import Backoff
from kubetide.kube.client import Client
from kubetide.kube.correlation import Correlator, Series
from kubetide.kube.election import micro_time
from kubetide.kube.errors import ApiError, NotFound
from kubetide.log import get_logger

log = get_logger("recorder")

QUEUE_SIZE = 1000
ATTEMPTS = 5
RETRY = Backoff(base=1.0, cap=30.0, jitter=0.5)


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
                await asyncio.sleep(RETRY.delay(attempt, self._client.chance))

    async def _write(self, series: Series) -> str:
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

    def _body(self, series: Series, namespace: str) -> dict[str, Any]:
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
        stamp = int(series.last.timestamp() * 1_000_000) * 1000 + self._client.chance.randrange(1000)
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


def _repeat(series: Series) -> dict[str, Any]:
    return {"count": series.count, "lastTimestamp": _seconds(series.last), "message": series.event.message}


def _seconds(at: datetime) -> str:
    return micro_time(at).partition(".")[0] + "Z"
