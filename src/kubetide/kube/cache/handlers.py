"""Whoever wants to hear of changes in a cache: called one after the other, none of them able to break the cache."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Generic, TypeVar

from kubetide.log import Logger

T = TypeVar("T")

Handler = Callable[[T | None, T | None], None]
"""Called with (old, new): None means absent."""


class Handlers(Generic[T]):
    """The handlers of one cache."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._handlers: list[Handler[T]] = []

    def add(self, handler: Handler[T], present: Iterable[T]) -> None:
        """Call a handler from now on; for what is already there, at once."""
        self._handlers.append(handler)
        for value in present:
            self._call(handler, None, value)

    def notify(self, old: T | None, new: T | None) -> None:
        """Call all handlers with a change."""
        for handler in self._handlers:
            self._call(handler, old, new)

    async def repeat(self, present: Callable[[], Iterable[T]], *, every: timedelta) -> None:
        """Call all handlers with every object, unchanged, once per `every`."""
        while True:
            await asyncio.sleep(every.total_seconds())
            for value in present():
                self.notify(value, value)

    def _call(self, handler: Handler[T], old: T | None, new: T | None) -> None:
        try:
            handler(old, new)
        except Exception as error:  # noqa: BLE001 - the cache must stay complete whatever a handler does
            self._log.error("handler failed", error=str(error), kind=type(error).__name__)
