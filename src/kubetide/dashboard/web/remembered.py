"""An answer that is asked for once in a while, however many want it at the same time; a failure is an answer too."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from kubetide.clock import Clock
from kubetide.errors import KubetideError

T = TypeVar("T")


class Remembered(Generic[T]):
    """The last answer to one question."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._kept: tuple[float, T | KubetideError] | None = None

    @property
    def is_old(self) -> bool:
        """Whether there is an answer that counts no more."""
        return self._kept is not None and self._clock.monotonic() - self._kept[0] >= self._seconds

    async def get(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer that is known, or ask; who comes meanwhile waits for the same answer, or its failure."""
        async with self._lock:
            if self._kept is None or self.is_old:
                try:
                    answer: T | KubetideError = await ask()
                except KubetideError as error:
                    answer = error
                self._kept = (self._clock.monotonic(), answer)
            found = self._kept[1]
        if isinstance(found, KubetideError):
            raise found
        return found
