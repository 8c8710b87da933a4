"""The lane of work that can wait: wide while nothing is urgent, and narrow, but never closed, while something is.

Who reports what is done gives way to who has yet to do something, and is not forgotten for it: whoever came first goes
first, and what is under way is not interrupted.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class BackLane:
    """Lets `wide` through at a time, or `narrow` while it is not `calm`; `move` is called when it becomes calm."""

    def __init__(self, calm: Callable[[], bool], *, wide: int, narrow: int) -> None:
        self._calm = calm
        self._wide, self._narrow = wide, narrow
        self._inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return self._inside + len(self._waiting)

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Wait for room in the lane, and take it while the block lasts."""
        entry = asyncio.get_running_loop().create_future()
        self._waiting.append(entry)
        self.move()
        try:
            await entry
            yield
        finally:
            if not entry.cancelled():
                self._inside -= 1
            elif entry in self._waiting:
                self._waiting.remove(entry)
            self.move()

    def move(self) -> None:
        """Let in as many as there is room for."""
        while self._waiting and self._inside < (self._wide if self._calm() else self._narrow):
            entry = self._waiting.popleft()
            # One that was cancelled in this iteration of the loop has not had the time to leave.
            if not entry.cancelled():
                entry.set_result(None)
                self._inside += 1
