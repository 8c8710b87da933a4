"""Waiting on a socket takes real time, also where the cluster lives in virtual time.

A paced loop counts its timers in virtual seconds. A limit that concerns the other end of a connection (how long a
request may take to arrive, a webhook to answer, a watch to last) is meant in real ones, or at 240 times real time a
webhook with ten seconds would get 40 milliseconds, and while time stands still a watcher would hear nothing. A person
who types `kubectl get -w --request-timeout=30s` counts on a wall clock, and so do the clients' own time limits.

A loop without a pace has no real time to keep to: there, as in an ordinary loop, its own timers are the right ones.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol


class Timer(Protocol):
    """Something that will be called back."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """A time and timers in it; every event loop is one."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


def wire_timers() -> Timers:
    """Return the timers for what concerns a connection of the running loop."""
    loop = asyncio.get_running_loop()
    timers: Timers = getattr(loop, "real_timers", None) or loop
    return timers


@asynccontextmanager
async def wire_timeout(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError if the block takes longer than so many real seconds."""
    async with asyncio.timeout(None) as limit:
        timer = wire_timers().call_later(seconds, lambda: limit.reschedule(asyncio.get_running_loop().time()))
        try:
            yield
        finally:
            timer.cancel()


async def rest(timers: Timers, seconds: float) -> None:
    """Sleep in the time that these timers count."""
    over = asyncio.Event()
    timer = timers.call_later(seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()


def wire_seconds(seconds: float) -> float:
    """Return how long a timer of the running loop must be to take so many real seconds at its present pace.

    For limits that a library keeps with timers of its own; others have `wire_timers` and `wire_timeout`.
    """
    pace: float | None = getattr(asyncio.get_running_loop(), "pace", None)
    return seconds * pace if pace else seconds
