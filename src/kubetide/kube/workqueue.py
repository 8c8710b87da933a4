"""A work queue that waits: the state of `kube.queueing` with a clock and sleeping workers around it.

A key that fails comes back later each time; with a rate, all failing keys together also come back no faster than
that, so that a server which refuses ten thousand objects at once is not asked ten thousand times at once again.
"""

import asyncio
from collections.abc import Hashable
from datetime import timedelta
from typing import Generic, TypeVar

from kubetide.clock import Clock
from kubetide.kube.backoff import Backoff
from kubetide.kube.flow import TokenBucket
from kubetide.kube.queueing import FAILURE_BACKOFF, QueueState

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys to work on. Adding never waits; `get` waits for the next key, or returns None once shut down."""

    def __init__(
        self,
        *,
        clock: Clock,
        name: str = "",
        backoff: Backoff = FAILURE_BACKOFF,
        retry_qps: float | None = None,
        retry_burst: int = 100,
    ) -> None:
        self.name = name
        self._retries = TokenBucket(retry_qps, retry_burst) if retry_qps else None
        self._clock = clock
        self._state: QueueState[K] = QueueState(backoff)
        self._changed = asyncio.Event()
        self._shut = False

    def __len__(self) -> int:
        return len(self._state)

    @property
    def running(self) -> int:
        """How many keys are being worked on."""
        return self._state.running

    @property
    def delayed(self) -> int:
        """How many keys wait for a time."""
        return self._state.delayed

    def add(self, key: K) -> None:
        """Ask for work on `key` now; asking twice before it starts is asking once."""
        if not self._shut:
            self._state.add(key)
            self._changed.set()

    def add_after(self, key: K, delay: timedelta | float) -> None:
        """Ask for work on `key` after `delay` (a number is seconds); an earlier time asked for before stays."""
        if not self._shut:
            seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
            now = self._clock.monotonic()
            due = self._state.next_due()
            self._state.add_at(key, now + seconds, now)
            # Waiting workers sleep until the first due time: only an earlier one, or work at once, concerns them.
            if len(self._state) or self._state.next_due() != due:
                self._changed.set()

    def add_rate_limited(self, key: K) -> float:
        """Ask again after a delay that doubles with each failure of `key`; return the seconds."""
        if self._shut:
            return 0.0
        now = self._clock.monotonic()
        at_least = self._retries.reserve(now) if self._retries is not None else 0.0
        delay = self._state.add_failed(key, now, at_least)
        self._changed.set()
        return delay

    def forget(self, key: K) -> None:
        """Forget the failures of `key`: it succeeded."""
        self._state.forget(key)

    def failures(self, key: K) -> int:
        """Return how often `key` failed since it was last forgotten."""
        return self._state.failures(key)

    async def get(self) -> K | None:
        """Wait for a key and take it; every key taken is given back with `done`. None: the queue is shut down."""
        while not self._shut:
            now = self._clock.monotonic()
            key = self._state.take(now)
            if key is not None:
                return key
            await self._wait(now)
        return None

    def done(self, key: K) -> None:
        """Give back a key taken with `get`."""
        self._state.done(key)
        if len(self._state):
            self._changed.set()

    def shut_down(self) -> None:
        """Hand out nothing more and wake everybody who waits."""
        self._shut = True
        self._changed.set()

    async def _wait(self, now: float) -> None:
        self._changed.clear()
        due = self._state.next_due()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - now)):
                await self._changed.wait()
        except TimeoutError:
            return
