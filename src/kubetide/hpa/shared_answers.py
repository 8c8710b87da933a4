"""Answers that many reconciles share: equal questions to the metrics APIs are asked once per sync period.

No autoscaler is given the same answer twice, or an older one than before: it would act again on what it has already
acted on. What fails is shared like what works, so that an outage is not made worse.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, Self, TypeVar

from kubetide.clock import Clock
from kubetide.hpa.core.describe import MetricsRequest

T = TypeVar("T")


class Tally(Protocol):
    """Counts what was asked."""

    def asked(self, api: str, error: str) -> None:
        """Count a request."""
        ...

    def shared(self, api: str) -> None:
        """Count an answer that came from another reconcile."""
        ...

    def refused(self, reason: str) -> None:
        """Count a sample that cannot be true."""
        ...


@dataclass(slots=True)
class _Answer:
    serial: int
    asked_at: float
    result: "asyncio.Future[Any]"

    @property
    def is_good(self) -> bool:
        """Whether it is there, and no failure."""
        return self.result.done() and self.result.exception() is None


class SharedAnswers:
    """Answers that many reconciles use, each autoscaler each answer once.

    Requests belong to whoever entered this object, usually a controller for as long as it runs: a reconcile that is
    cut off does not cancel the answer that others wait for, and nothing is in flight any more when the owner has left.
    """

    def __init__(self, clock: Clock, timeout: timedelta, tally: Tally | None = None) -> None:
        self._clock = clock
        self._timeout = timeout.total_seconds()
        self._tally = tally
        self._answers: dict[Hashable, _Answer] = {}
        self._parts: dict[tuple[Hashable, Hashable], _Answer] = {}
        """Answers to parts of questions that were asked for by themselves."""
        self._serial = 0
        self._requests = asyncio.TaskGroup()
        self._in_flight: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Own the requests from now on."""
        self._requests = asyncio.TaskGroup()
        await self._requests.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cancel what is still in flight, and wait for its end."""
        for task in self._in_flight:
            task.cancel()
        # Without the error of the block: a group would wrap it, and it is not an error of a request.
        await self._requests.__aexit__(None, None, None)
        for answer in self._answers.values():
            answer.result.cancel()
        self._answers.clear()
        self._parts.clear()

    def ready(self, api: str, question: Hashable, request: MetricsRequest) -> Any:
        """Return what `get` would return without waiting for anything; None if it would have to wait."""
        answer = self._answers.get(question)
        if answer is None or not answer.is_good:
            return None
        again = request.used.get(question) == answer.serial
        if not again and not request.may_use(question, answer.serial, self._clock.monotonic() - answer.asked_at):
            return None
        if not again and self._tally is not None:
            self._tally.shared(api)
        request.used[question] = answer.serial
        return answer.result.result()

    async def get(self, api: str, question: Hashable, ask: Callable[[], Awaitable[T]], request: MetricsRequest) -> T:
        """Return the answer to a question: one that is young enough and new to this request, or a fresh one."""
        now = self._clock.monotonic()
        answer = self._answers.get(question)
        if answer is None or not request.may_use(question, answer.serial, now - answer.asked_at):
            self._serial += 1
            answer = _Answer(self._serial, now, asyncio.get_running_loop().create_future())
            task = self._requests.create_task(self._resolve(answer.result, api, ask))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
            self._answers[question] = answer
            self._drop_older_than(now - max(request.max_age.total_seconds(), 60.0))
        elif self._tally is not None and request.used.get(question) != answer.serial:
            self._tally.shared(api)
        request.used[question] = answer.serial
        # Who is cancelled while waiting cancels the shield alone.
        found: T = answer.result.result() if answer.result.done() else await asyncio.shield(answer.result)
        return found

    async def refresh(
        self, api: str, question: Hashable, ask: Callable[[], Awaitable[Any]], parts: Collection[Hashable] = ()
    ) -> None:
        """Ask now, and put the answer in the place of the one that is there; until then nobody waits for it.

        One that was on its way may have been made a moment too early, so it is replaced too. A failure changes nothing.
        With `parts` it is an answer to these alone, and all others are left with what is there.
        """
        self._serial += 1
        answer = _Answer(self._serial, self._clock.monotonic(), asyncio.get_running_loop().create_future())
        await self._resolve(answer.result, api, ask)
        if answer.result.exception() is None:
            self._parts.update(dict.fromkeys([(question, part) for part in parts], answer))
            if not parts:
                self._answers[question] = answer

    def part(self, question: Hashable, part: Hashable, request: MetricsRequest) -> Any:
        """Return the answer to a part of a question, if it is newer than the whole and good for this request."""
        if not self._parts:
            return None
        answer, whole = self._parts.get((question, part)), self._answers.get(question)
        if answer is None or (whole is not None and whole.result.done() and whole.serial > answer.serial):
            return None
        if not request.may_use(question, answer.serial, self._clock.monotonic() - answer.asked_at):
            return None
        request.used[question] = answer.serial
        return answer.result.result()

    async def _resolve(self, result: "asyncio.Future[T]", api: str, ask: Callable[[], Awaitable[T]]) -> None:
        """Put the answer, or how it failed, where all who asked wait for it; a failure ends no other request."""
        try:
            result.set_result(await self._ask(api, ask))
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            result.set_exception(error)
            # A failure that nobody waits for any more is no error of the loop.
            result.exception()

    async def _ask(self, api: str, ask: Callable[[], Awaitable[T]]) -> T:
        error = "internal"
        try:
            async with asyncio.timeout(self._timeout):
                answer = await ask()
            error = "none"
            return answer
        finally:
            if self._tally is not None:
                self._tally.asked(api, error)

    def _drop_older_than(self, limit: float) -> None:
        for question in [key for key, answer in self._answers.items() if answer.asked_at < limit]:
            del self._answers[question]
        self._parts = {key: answer for key, answer in self._parts.items() if answer.asked_at >= limit}
