"""Large answers share a budget of bytes, from the first byte read to the last one decoded.

A limit per answer does not bound a process that asks in many namespaces at once: sixty-four times 64 MiB is more than
any container has. Answers up to `SMALL` pass freely. One that turns out to be longer reserves what it may need, its
declared length or else the most that is accepted, and is not read further until that is there. It reserves once, so
nobody who waits holds anything that another one waits for. When it has been read, it keeps its real length only; when
it has been decoded, it keeps nothing, and free memory goes back to the operating system.

The reader of the socket and the decoder do not know each other, so the share of an answer goes with the context in
which it is asked for.
"""

import asyncio
import ctypes
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from kubetide.kube.client.transport import METRICS_LIMIT

SMALL = 1024 * 1024
GIVE_BACK = 8 * 1024 * 1024
"""After answers of this length free memory is given back; after shorter ones it is soon used again."""


class AnswerBudget:
    """How many bytes of large answers there may be at once."""

    def __init__(self, limit: int = METRICS_LIMIT, *, give_back: Callable[[], object] | None = None) -> None:
        self._left = self._limit = limit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._give_back = give_back or give_back_memory

    @property
    def held(self) -> int:
        """How many bytes are reserved."""
        return self._limit - self._left

    @asynccontextmanager
    async def answer(self) -> AsyncIterator[None]:
        """Count what is read inside of the block."""
        share = Share(self)
        token = _current.set(share)
        try:
            yield
        finally:
            _current.reset(token)
            share.keep(0)
            if share.longest >= GIVE_BACK:
                self._give_back()

    async def take(self, size: int) -> int:
        """Wait for so many bytes, first come, first served; return how many: what is more than all gets all."""
        size = min(size, self._limit)
        if size <= self._left and not self._waiting:
            self._left -= size
            return size
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                self.put_back(size)  # it came at the same moment
            else:
                self._next()  # those behind may need less
            raise
        return size

    def put_back(self, size: int) -> None:
        """Return bytes, and let those go on who wait for them."""
        self._left += size
        self._next()

    def _next(self) -> None:
        while self._waiting:
            size, granted = self._waiting[0]
            if not granted.cancelled():
                if size > self._left:
                    return
                self._left -= size
                granted.set_result(None)
            self._waiting.popleft()


class Share:
    """What one answer has of the budget."""

    def __init__(self, budget: AnswerBudget) -> None:
        self._budget = budget
        self._taken = 0
        self.longest = 0

    async def cover(self, size: int, *, at_most: int) -> None:
        """Wait until the answer may have `size` bytes in memory; it will have no more than `at_most`."""
        self.longest = max(self.longest, size)
        if size > SMALL and not self._taken:
            self._taken = await self._budget.take(at_most)

    def keep(self, size: int) -> None:
        """Return all but `size` bytes: the answer has been read."""
        if self._taken > size:
            self._budget.put_back(self._taken - size)
            self._taken = size


_current: ContextVar[Share | None] = ContextVar("share", default=None)


def current_share() -> Share | None:
    """Return the share of the answer that is read here; None where answers are not counted."""
    return _current.get()


def give_back_memory() -> bool:
    """Return freed memory to the operating system where the C library can; return whether anything was returned.

    glibc keeps what lies below the last block in use, and after a large answer some small block always does.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))
