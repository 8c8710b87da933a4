"""Timers in real seconds, for a loop whose own timers are in virtual ones.

They serve what concerns the other end of a connection: it lives in real time whatever the pace, and goes on waiting
while virtual time stands still.
"""

import time
from bisect import insort
from collections.abc import Callable


class RealTimer:
    """One callback and the real moment it is due."""

    __slots__ = ("_callback", "_timers", "due")

    def __init__(self, due: float, callback: Callable[[], object], timers: "RealTimers") -> None:
        self.due = due
        self._callback: Callable[[], object] | None = callback
        self._timers = timers

    def cancel(self) -> None:
        """Never call back, if it has not happened yet."""
        self._callback = None
        self._timers.forget(self)

    def ring(self) -> None:
        """Call back, unless that was cancelled after the moment had come."""
        if self._callback is not None:
            self._callback()


class RealTimers:
    """What is waiting for a real moment, the next one first. There are few: some for each connection."""

    def __init__(self) -> None:
        self.waiting: list[RealTimer] = []

    def time(self) -> float:
        """Return real seconds; only differences mean anything."""
        return time.monotonic()

    def call_later(self, delay: float, callback: Callable[[], object], /) -> RealTimer:
        """Call back once, after so many real seconds."""
        timer = RealTimer(self.time() + delay, callback, self)
        insort(self.waiting, timer, key=_due)
        return timer

    def forget(self, timer: RealTimer) -> None:
        """Take a timer out, if it is still waiting."""
        if timer in self.waiting:
            self.waiting.remove(timer)

    def left(self, longest: float) -> float:
        """Return the real seconds until the next timer, but no more than `longest`."""
        return max(0.0, min(longest, self.waiting[0].due - self.time())) if self.waiting else longest

    def take_due(self) -> list[RealTimer]:
        """Take out the timers whose moment has come, in its order."""
        now = self.time()
        due = [timer for timer in self.waiting if timer.due <= now]
        del self.waiting[: len(due)]
        return due


def _due(timer: RealTimer) -> float:
    return timer.due
