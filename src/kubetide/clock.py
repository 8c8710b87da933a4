"""The only reader of time.

Controllers ask a `Clock` what time it is and let the event loop do all waiting. Because `LoopClock` follows the
event loop, a loop that runs in virtual time carries every controller along with it.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Has the time of the world a controller lives in."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's wall clock, and the event loop's steady one."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class LoopClock:
    """A clock that starts at `start` and moves with the event loop it was made in, real or virtual."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._time = asyncio.get_running_loop().time
        self._loop_start = self._time()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._time() - self._loop_start)

    def monotonic(self) -> float:
        return self._time() - self._loop_start
