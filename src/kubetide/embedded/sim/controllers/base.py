"""The frame of every controller in the simulation: a queue without duplicates, one key at a time, retry later.

Changes only mark keys; the work happens in the controller's own task, so that a burst of changes at one instant is
handled once.
"""

import asyncio
from abc import ABC, abstractmethod

from kubetide.embedded.apiserver.rest.status import Refusal
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.world import World

RETRY_SECONDS = 1.0


class Controller(ABC):
    """Brings objects of one kind to what their spec says."""

    name = "controller"

    def __init__(self, world: World) -> None:
        self.world = world
        self._queue: dict[StoreKey, None] = {}
        self._wake = asyncio.Event()
        self.watch()

    @abstractmethod
    def watch(self) -> None:
        """Subscribe to the changes that matter."""

    @abstractmethod
    async def reconcile(self, key: StoreKey) -> None:
        """Compare what is with what should be, and act."""

    def mark(self, key: StoreKey) -> None:
        """Look at this object soon."""
        self._queue[key] = None
        self._wake.set()

    def mark_later(self, key: StoreKey, seconds: float) -> None:
        """Look at this object after a while."""
        asyncio.get_running_loop().call_later(seconds, self.mark, key)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                key = next(iter(self._queue))
                del self._queue[key]
                try:
                    await self.reconcile(key)
                except Refusal:  # somebody else was faster, or a webhook said no: the next look decides anew
                    self.mark_later(key, RETRY_SECONDS)
