"""Events go an hour after they were last written, as an API server lets them go (`--event-ttl`)."""

from collections import deque
from datetime import datetime, timedelta

from kubetide.embedded.objects import StoreKey
from kubetide.embedded.sim.controllers.base import Controller
from kubetide.embedded.sim.world import EVENTS, World, key_of
from kubetide.embedded.status import Raw

EVENT_TTL = timedelta(hours=1)
_SWEEP = timedelta(minutes=1)
"""How long an event may outlive its time: many go in one sweep."""
_ALL = StoreKey("", "")


class EventExpiry(Controller):
    """Forgets old events. A lifetime of zero keeps them."""

    name = "event-expiry"

    def __init__(self, world: World, ttl: timedelta = EVENT_TTL) -> None:
        self._ttl = ttl
        self._written: deque[tuple[datetime, StoreKey, str]] = deque()
        self._armed = False
        super().__init__(world)

    def watch(self) -> None:
        if self._ttl > timedelta(0):
            self.world.on(EVENTS, self._changed)

    def _changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None:
            return
        self._written.append((self.world.now(), key_of(new), new["metadata"]["resourceVersion"]))
        self._arm()

    def _arm(self) -> None:
        if self._written and not self._armed:
            self._armed = True
            due = self._written[0][0] + self._ttl - self.world.now()
            self.mark_later(_ALL, max(due, _SWEEP).total_seconds())

    async def reconcile(self, key: StoreKey) -> None:
        self._armed = False
        end = self.world.now() - self._ttl
        while self._written and self._written[0][0] <= end:
            _, name, version = self._written.popleft()
            event = self.world.get(EVENTS, name)
            if event is not None and event["metadata"]["resourceVersion"] == version:
                self.world.remove(EVENTS, name)
        self._arm()
