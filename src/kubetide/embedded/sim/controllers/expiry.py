"""Events go an hour after they were last written, as an API server lets them go (`--event-ttl`).

A real one keeps the time of the write in its database. Here, after a restart, the events themselves say it: by the
stamps that the server put on them, or, where nobody's fields are managed (the cluster's own events), by what they say
of themselves. A stamp from the future counts as the present, so that no event lives for ever.
"""

from collections import deque
from datetime import datetime, timedelta

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.journal import parse_stamp, stamps_of
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.world import EVENTS, World, key_of

EVENT_TTL = timedelta(hours=1)
_SWEEP = timedelta(minutes=1)
"""How long an event may outlive its time: many go in one sweep."""
_ALL = StoreKey("", "")


def last_written(event: Raw, now: datetime) -> datetime:
    """Return when an event that was found in the store was last written."""
    metadata = event["metadata"]
    stamps: list[object] = [*stamps_of(metadata)]
    if not metadata.get("managedFields"):
        stamps += (
            event.get("lastTimestamp"),
            event.get("eventTime"),
            (event.get("series") or {}).get("lastObservedTime"),
        )
    known = [at for stamp in stamps if (at := parse_stamp(stamp)) is not None]
    return min(now, max(known, default=now))


class EventExpiry(SimController):
    """Forgets old events. A lifetime of zero keeps them."""

    name = "event-expiry"

    def __init__(self, world: World, ttl: timedelta = EVENT_TTL) -> None:
        self._ttl = ttl
        self._written: deque[tuple[datetime, StoreKey, str]] = deque()
        self._armed = False
        self._listening = False
        super().__init__(world)

    def watch(self) -> None:
        if self._ttl <= timedelta(0):
            return
        self.world.on(EVENTS, self._changed)
        self._listening = True
        if self._written:
            self._written = deque(sorted(self._written))
            self.enqueue(_ALL)

    def _changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None:
            return
        now = self.world.now()
        at = now if self._listening else last_written(new, now)
        self._written.append((at, key_of(new), new["metadata"]["resourceVersion"]))
        if self._listening:
            self._arm()

    def _arm(self) -> None:
        if self._written and not self._armed:
            self._armed = True
            due = self._written[0][0] + self._ttl - self.world.now()
            self.enqueue_after(_ALL, max(due, _SWEEP).total_seconds())

    async def reconcile(self, key: StoreKey) -> None:
        self._armed = False
        end = self.world.now() - self._ttl
        while self._written and self._written[0][0] <= end:
            _, name, version = self._written.popleft()
            event = self.world.get(EVENTS, name)
            if event is not None and event["metadata"]["resourceVersion"] == version:
                self.world.remove(EVENTS, name)
        self._arm()
