"""What waits in a loop of virtual time: callbacks that are ready, and timers. There are millions of both."""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any


class Callback(asyncio.Handle):
    """A callback that is ready: all that the class above it sets, without asking whether the loop debugs."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: Any, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._callback, self._args, self._loop = callback, args, loop
        self._cancelled = False
        self._repr = self._source_traceback = None


class Timer(asyncio.TimerHandle):
    """A timer that goes before a later one of the same instant.

    In real time two timers hardly ever meet. In virtual time thousands do (every pod that starts takes a second), and
    a heap that compares times alone would let any unrelated timer reshuffle them, and with them the whole history.
    """

    __slots__ = ("order",)
    order: int
    _when: float
    _scheduled: bool

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: Any, context: Context
    ) -> None:
        # All that the two classes above it set, without asking whether the loop debugs.
        self._when = when
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._scheduled = False, True
        self._repr = self._source_traceback = None

    def __lt__(self, other: "Timer") -> bool:  # type: ignore[override]  # this loop makes no other timers
        at, others = self._when, other._when
        return at < others or (at == others and self.order < other.order)
