"""Workers that take keys from a queue and reconcile them, and outlive the failure of any one.

To reconcile is to compare what is with what should be; it may happen twice. What it returns decides what follows:
a `Result` with `requeue_after` comes back then, a plain one when something changes, an error after a delay that
doubles with each failure, a `TerminalError` not before the object changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

import msgspec

from kubetide import tracing
from kubetide.errors import TerminalError
from kubetide.kube.control.workqueue import WorkQueue
from kubetide.log import get_logger

K = TypeVar("K", bound=Hashable)

log = get_logger("reconcile")

# Shorter than a Lease's duration less its renew deadline (15 s - 10 s), so that work in flight when leadership is
# lost has ended before anyone else may begin.
STOP_GRACE = timedelta(seconds=3)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a reconcile that succeeded."""

    requeue_after: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled(Generic[K]):
    """What one reconcile came to: for telemetry and tests."""

    key: K
    seconds: float
    error: Exception | None = None


class Workers(Generic[K]):
    """N workers over one queue. One key's failure never stops another's work."""

    def __init__(
        self,
        queue: WorkQueue[K],
        reconcile: Callable[[K], Awaitable[Result]],
        *,
        workers: int = 1,
        name: str = "",
        stop_grace: timedelta = STOP_GRACE,
        retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
        observe: Callable[[Reconciled[K]], None] | None = None,
    ) -> None:
        self.queue = queue
        self.name = name or queue.name
        self._reconcile = reconcile
        self._workers = workers
        self._stop_grace = stop_grace.total_seconds()
        self._retry_on = retry_on
        self._observe = observe
        self._log = log.bind(controller=self.name)
        self._busy: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def run(self) -> None:
        """Work until cancelled; what is in flight then gets the stop grace to finish."""
        self._stopping = False
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._work()) for _ in range(self._workers)]
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError:
                # Idle workers go at once; the group waits for the busy ones, which get the grace to finish their key.
                self._stopping = True
                for task in tasks:
                    if task not in self._busy:
                        task.cancel()
                if self._busy and self._stop_grace > 0:
                    await asyncio.wait(tuple(self._busy), timeout=self._stop_grace)
                raise

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not self._stopping:
            key = await self.queue.get()
            self._busy.add(task)
            try:
                with tracing.span(self.name, key=key):
                    await self._handle(key)
            finally:
                self._busy.discard(task)
                self.queue.done(key)

    async def _handle(self, key: K) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        error: Exception | None = None
        try:
            result = await self._reconcile(key)
        except TerminalError as terminal:
            error = terminal
            self.queue.forget(key)
            self._log.warning("gave up until the object changes", key=str(key), error=str(terminal))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody cancelled this work: something inside it was, and let it show.
            error = RuntimeError("a part of the work was cancelled")
            self._failed(key, error)
        except self._retry_on as failure:  # by default any: the loop must outlive any one object
            error = failure
            self._failed(key, failure)
        else:
            self.queue.forget(key)
            if result.requeue_after is not None:
                self.queue.add_after(key, result.requeue_after)
        if error is not None:
            tracing.failed(error)
        if self._observe is not None:
            self._observe(Reconciled(key=key, seconds=loop.time() - started, error=error))

    def _failed(self, key: K, error: Exception) -> None:
        delay = self.queue.add_rate_limited(key)
        self._log.warning(
            "reconcile failed",
            key=str(key),
            error=str(error),
            kind=type(error).__name__,
            failures=self.queue.failures(key),
            retry_seconds=delay,
        )
