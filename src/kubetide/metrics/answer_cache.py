"""Answers of the API server about who may do what, kept for a while: equal questions at the same time are one.

Bounded: the oldest answer makes room. A question that fails is answered with its failure and is not kept.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import Generic, TypeVar

from kubetide.clock import Clock

T = TypeVar("T")

MOST_ANSWERS = 8192


class AnswerCache(Generic[T]):
    """Answers by question."""

    def __init__(self, clock: Clock, ttl: Callable[[T], timedelta], *, most: int = MOST_ANSWERS) -> None:
        """`ttl` returns how long an answer may be used."""
        self._clock = clock
        self._ttl = ttl
        self._most = most
        self._answers: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._asking: dict[Hashable, asyncio.Future[None]] = {}

    async def get(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer that is kept, or that of `ask`."""
        while True:
            known = self._answers.get(question)
            if known is not None and known[0] > self._clock.monotonic():
                return known[1]
            waiting = self._asking.get(question)
            if waiting is None:
                break
            # Whoever asks first asks for all; if that fails, the next one asks again for itself.
            await asyncio.shield(waiting)
        done = self._asking[question] = asyncio.get_running_loop().create_future()
        try:
            answer = await ask()
        finally:
            del self._asking[question]
            done.set_result(None)
        self._answers[question] = (self._clock.monotonic() + self._ttl(answer).total_seconds(), answer)
        self._answers.move_to_end(question)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)
        return answer
