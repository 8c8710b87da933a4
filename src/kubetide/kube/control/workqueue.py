"""A work queue: which keys are due (`QueueState`), with a clock and sleeping workers around it.

A key that fails comes back later each time.

Keys that are urgent go first, but for every ninth: what is not urgent goes on, slowly, however many are.

Whoever waits sleeps until there is a key for it: one key wakes one worker, and one timer stands for all delays.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Generic, TypeVar

from kubetide.clock import Clock
from kubetide.kube.pacing import Backoff

# The state of a work queue, without waiting: which keys are due, which are being worked on, which failed how often.

K = TypeVar("K", bound=Hashable)

# Five milliseconds doubled up to 1000 s, the delays that Kubernetes controllers use for a failing key.
FAILURE_BACKOFF = Backoff(base=0.005, factor=2.0, cap=1000.0, jitter=0.0)

URGENT_IN_A_ROW = 8
"""So many urgent keys are taken one after the other before one that is not, if there is one."""


class QueueState(Generic[K]):
    """Which keys wait, run and are delayed."""

    def __init__(self, backoff: Backoff = FAILURE_BACKOFF) -> None:
        self._backoff = backoff
        self.waiting: dict[K, None] = {}
        """Keys that wait for a worker, the first one first."""
        self.urgent: dict[K, None] = {}
        """Those that go before them."""
        self.pressing: set[K] = set()
        """Keys that are being worked on, were taken as urgent, and still are."""
        self._in_a_row = 0
        self._running: dict[K, float] = {}
        self._again: dict[K, bool] = {}
        """Keys that were asked for while they were worked on, and whether urgently."""
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self.waiting) + len(self.urgent)

    @property
    def running(self) -> int:
        """How many keys are being worked on."""
        return len(self._running)

    def running_keys(self) -> Collection[K]:
        """Return the keys that are being worked on."""
        return self._running.keys()

    def begun(self) -> Collection[float]:
        """Return when the work under way was begun, for each key."""
        return self._running.values()

    @property
    def delayed(self) -> int:
        """How many keys wait for a time."""
        return len(self._due)

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Ask for work on `key` now; what is urgent once stays so until it is taken."""
        if key in self._running:
            self._again[key] = urgent or self._again.get(key, False)
        elif urgent:
            self.waiting.pop(key, None)
            self.urgent.setdefault(key)
        elif key not in self.urgent:
            self.waiting.setdefault(key)

    def add_at(self, key: K, due: float, now: float) -> None:
        """Ask for work on `key` at `due`, or earlier where that was asked before."""
        if due <= now:
            self.add(key)
            return
        current = self._due.get(key)
        if current is not None and current <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))

    def add_failed(self, key: K, now: float) -> float:
        """Ask again after the delay that the failures of `key` have earned, and return it."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = self._backoff.delay(failures)
        self.add_at(key, now + delay, now)
        return delay

    def failures(self, key: K) -> int:
        """Return how often `key` failed since it was last forgotten."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Forget the failures of `key`: it succeeded."""
        self._failures.pop(key, None)

    def take(self, now: float) -> K | None:
        """Return the next key to work on, or None when there is none; `done` gives it back."""
        if self._heap and self._heap[0][0] <= now:
            self.release(now)
        if self.urgent and (not self.waiting or self._in_a_row < URGENT_IN_A_ROW):
            first, self._in_a_row = self.urgent, self._in_a_row + 1
            self.pressing.add(next(iter(first)))
        elif self.waiting:
            first, self._in_a_row = self.waiting, 0
        else:
            return None
        key = next(iter(first))
        del first[key]
        self._running[key] = now
        return key

    def begin(self, key: K, now: float) -> bool:
        """Take just this key, if nobody works on it and it does not wait for anybody; `done` gives it back."""
        if key in self._running or key in self.waiting or key in self.urgent:
            return False
        self._running[key] = now
        return True

    def done(self, key: K) -> bool:
        """Give back a key that `take` returned; return whether it was urgent."""
        self._running.pop(key, None)
        pressed = key in self.pressing
        self.pressing.discard(key)
        if (urgent := self._again.pop(key, None)) is not None:
            self.add(key, urgent=urgent)
        return pressed

    def next_due(self) -> float | None:
        """Return when the first delayed key becomes due."""
        heap, due = self._heap, self._due
        # A key that was asked for earlier later on has left its old entry in the heap.
        while heap and due.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def release(self, now: float) -> None:
        """Let the delayed keys that are due by now wait for a worker."""
        heap, due = self._heap, self._due
        while heap and heap[0][0] <= now:
            at, _, key = heapq.heappop(heap)
            if due.get(key) == at:
                del due[key]
                self.add(key)


class WorkQueue(Generic[K]):
    """Keys to work on. Adding never waits; `get` waits for the next key, or returns None once shut down."""

    def __init__(
        self,
        *,
        clock: Clock,
        name: str = "",
        backoff: Backoff = FAILURE_BACKOFF,
    ) -> None:
        self.name = name
        self._clock = clock
        self._backoff = backoff
        self._state: QueueState[K] = QueueState(backoff)
        self._given_back = asyncio.Event()
        self.calmed: Callable[[], None] = lambda: None
        """Called when nothing is urgent any more."""
        self._hurried = 0
        """How many wait for the end of work, so that none of it may give way."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._woken = 0
        """Workers that were woken and have not looked yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def __len__(self) -> int:
        return len(self._state)

    @property
    def running(self) -> int:
        """How many keys are being worked on."""
        return self._state.running

    def under_way(self) -> list[float]:
        """Return for how many seconds each of these keys has been worked on."""
        now = self._clock.monotonic()
        return [now - begun for begun in self._state.begun()]

    @property
    def delayed(self) -> int:
        """How many keys wait for a time."""
        return self._state.delayed

    def add(self, key: K, *, urgent: bool = False) -> None:
        """Ask for work on `key` now, before others if `urgent`; asking twice before it starts is asking once."""
        self._state.add(key, urgent=urgent)
        self._wake()

    @property
    def has_nothing_urgent(self) -> bool:
        """Whether no key that waits or is worked on is urgent."""
        return not (self._state.urgent or self._state.pressing)

    @property
    def is_calm(self) -> bool:
        """Whether nothing is urgent, or the end of the work is waited for."""
        return bool(self._hurried) or self.has_nothing_urgent

    def relax(self, key: K) -> None:
        """Note that what was urgent about a key that is being worked on is done."""
        self._state.pressing.discard(key)
        self._tell_if_calm()

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Let no work give way while the block lasts."""
        self._hurried += 1
        self.calmed()
        try:
            yield
        finally:
            self._hurried -= 1

    def _tell_if_calm(self) -> None:
        if self.is_calm:
            self.calmed()

    def add_after(self, key: K, delay: timedelta | float) -> None:
        """Ask for work on `key` after `delay` (a number is seconds); an earlier time asked for before stays."""
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        now = self._clock.monotonic()
        due = now + seconds
        self._state.add_at(key, due, now)
        if due <= now:
            self._wake()
        elif self._timer is None or due < self._timer_due:
            self._set_timer(now)

    def add_rate_limited(self, key: K) -> float:
        """Ask again after a delay that doubles with each failure of `key`; return the seconds."""
        now = self._clock.monotonic()
        delay = self._state.add_failed(key, now)
        self._wake()
        self._set_timer(now)
        return delay

    def forget(self, key: K) -> None:
        """Forget the failures of `key`: it succeeded."""
        self._state.forget(key)

    def failures(self, key: K) -> int:
        """Return how often `key` failed since it was last forgotten."""
        return self._state.failures(key)

    async def get(self) -> K:
        """Wait for a key and take it; every key taken is given back with `done`."""
        while True:
            now = self._clock.monotonic()
            key = self._state.take(now)
            if key is not None:
                return key
            await self._wait(now)

    def begin(self, key: K) -> bool:
        """Take just this key, as `get` does the next one; return False if somebody works on it or is about to."""
        return self._state.begin(key, self._clock.monotonic())

    def done(self, key: K) -> None:
        """Give back a key taken with `get` or `begin`."""
        if self._state.done(key):
            self._tell_if_calm()
        self._given_back.set()
        self._wake()

    async def until_done(self, concerns: Callable[[K], bool]) -> None:
        """Wait until nobody works on a key that `concerns` accepts."""
        with self.hurried():
            while any(map(concerns, self._state.running_keys())):
                self._given_back.clear()
                await self._given_back.wait()

    def clear(self) -> None:
        """Forget all keys, delays and failures; nobody may be working on a key."""
        self._drop_timer()
        self._state = QueueState(self._backoff)
        self.calmed()

    async def _wait(self, now: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self._timer is None:  # else it is set for the first key already
            self._set_timer(now)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with suppress(ValueError):
                    self._waiters.remove(waiter)
                if not self._waiters:
                    self._drop_timer()
            else:
                # Woken and cancelled at once: the key it was woken for is for the next one.
                self._woken -= 1
                self._wake()
            raise
        self._woken -= 1

    def _wake(self) -> None:
        """Wake as many as there are keys for."""
        state, waiters = self._state, self._waiters
        if waiters and (state.waiting or state.urgent):
            keys = len(state)
            while waiters and self._woken < keys:
                self._wake_one()

    def _wake_one(self) -> None:
        waiter = self._waiters.popleft()
        # One that was cancelled in this iteration of the loop has not had the time to leave.
        if not waiter.done():
            waiter.set_result(None)
            self._woken += 1

    def _set_timer(self, now: float) -> None:
        """Let the first delayed key wake somebody, if somebody waits; who waits next sets a timer that was dropped."""
        due = self._state.next_due()
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        self._drop_timer()
        if not self._waiters:
            return
        self._timer_due = due
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._ring)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        self._state.release(now)
        self._wake()
        self._set_timer(now)
