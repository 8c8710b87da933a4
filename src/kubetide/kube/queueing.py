"""The state of a work queue, without waiting: which keys are due, which are being worked on, which failed how often.

Four laws, as in every controller queue. A key is handed to one worker at a time; a key added while it is worked on
is handed out again afterwards; adding a waiting key twice is adding it once; of two delays for a key the earlier
counts. Times are seconds of any steady clock and always arguments.
"""

import heapq
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

from kubetide.kube.backoff import Backoff

K = TypeVar("K", bound=Hashable)

# Five milliseconds doubled up to 1000 s, the delays that Kubernetes controllers use for a failing key.
FAILURE_BACKOFF = Backoff(base=0.005, factor=2.0, cap=1000.0, jitter=0.0)


class QueueState(Generic[K]):
    """Which keys wait, run and are delayed."""

    def __init__(self, backoff: Backoff = FAILURE_BACKOFF) -> None:
        self._backoff = backoff
        self._waiting: dict[K, None] = {}
        self._running: dict[K, float] = {}
        self._again: set[K] = set()
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        """How many keys are being worked on."""
        return len(self._running)

    def begun(self) -> Collection[float]:
        """Return when the work under way was begun, for each key."""
        return self._running.values()

    @property
    def delayed(self) -> int:
        """How many keys wait for a time."""
        return len(self._due)

    def add(self, key: K) -> None:
        """Ask for work on `key` now."""
        if key in self._running:
            self._again.add(key)
        else:
            self._waiting.setdefault(key)

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

    def add_failed(self, key: K, now: float, at_least: float = 0.0) -> float:
        """Ask again after the delay that the failures of `key` have earned, or `at_least`, and return it."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = max(at_least, self._backoff.delay(failures))
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
        self.release(now)
        if not self._waiting:
            return None
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._running[key] = now
        return key

    def done(self, key: K) -> None:
        """Give back a key that `take` returned."""
        self._running.pop(key, None)
        if key in self._again:
            self._again.discard(key)
            self._waiting.setdefault(key)

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
