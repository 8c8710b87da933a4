"""Workers that take keys from a queue and reconcile them, and outlive the failure of any one.

To reconcile is to compare what is with what should be; it may happen twice. What it returns decides what follows:
a `Result` with `requeue_after` comes back then, a plain one when something changes, an error after a delay that
doubles with each failure, a `TerminalError` not before the object changes.

What can wait, of a key that is being worked on, gives way to keys that are urgent (`Workers.behind`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import Context, copy_context
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from kubetide import tracing
from kubetide.errors import TerminalError
from kubetide.kube.control.back_lane import BackLane
from kubetide.kube.control.workqueue import WorkQueue
from kubetide.log import get_logger

K = TypeVar("K", bound=Hashable)

log = get_logger("reconcile")

_AT_ONCE: AbstractAsyncContextManager[None] = nullcontext()

# Shorter than a Lease's duration less its renew deadline (15 s - 10 s), so that work in flight when leadership is
# lost has ended before anyone else may begin.
STOP_GRACE = timedelta(seconds=3)

MOST_BEHIND = 4096
"""So many keys give way at a time; each costs some kilobytes."""
SHARE_BEHIND = 5
"""While something is urgent, one request for so many workers is for what gave way."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a reconcile that succeeded."""

    requeue_after: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What one reconcile came to: for telemetry."""

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
        stop_grace: timedelta = STOP_GRACE,
        retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
        observe: Callable[[Reconciled], None] | None = None,
    ) -> None:
        self.queue = queue
        self.name = queue.name
        self._reconcile = reconcile
        self._workers = workers
        self._stop_grace = stop_grace.total_seconds()
        self._retry_on = retry_on
        self._observe = observe
        self._log = log.bind(controller=self.name)
        self._group = asyncio.TaskGroup()
        self._context = Context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: dict[asyncio.Task[Any], K] = {}
        self._lane = BackLane(lambda: queue.is_calm, wide=workers, narrow=max(1, workers // SHARE_BEHIND))
        queue.calmed = self._lane.move
        self._surplus = 0
        """Workers that are too many, since one that another stood in for is back."""
        self._stopping = False

    async def run(self) -> None:
        """Work until cancelled; what is in flight then gets the stop grace to finish."""
        self._stopping, self._surplus = False, 0
        self._context = copy_context()
        async with asyncio.TaskGroup() as self._group:
            for _ in range(self._workers):
                self._start()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # Idle workers go at once; the group waits for the busy ones, which get the grace to finish their key.
                self._stopping = True
                for task in self._tasks - self._busy.keys():
                    task.cancel()
                if self._busy and self._stop_grace > 0:
                    with self.queue.hurried():
                        await asyncio.wait(tuple(self._busy), timeout=self._stop_grace)
                raise

    def behind(self) -> AbstractAsyncContextManager[None]:
        """Do what can wait of the work on a key: behind what is urgent, while another worker stands in for this one."""
        # Nearly always nothing is urgent, and then nobody has to be asked who works on what.
        return _AT_ONCE if self.queue.has_nothing_urgent else self._giving_way()

    @asynccontextmanager
    async def _giving_way(self) -> AsyncIterator[None]:
        task = asyncio.current_task()
        if task is not None and task in self._busy:
            self.queue.relax(self._busy[task])
        if self._stopping or self.queue.is_calm or len(self._lane) >= MOST_BEHIND:
            yield
            return
        self._start()
        try:
            async with self._lane.passing():
                yield
        finally:
            self._surplus += 1

    def _start(self) -> None:
        # In the context of all workers, not in that of the key that one stands in for.
        task = self._group.create_task(self._work(), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not self._stopping:
            key = await self.queue.get()
            self._busy[task] = key
            try:
                with tracing.span(self.name, key=key):
                    await self._handle(key)
            finally:
                self._busy.pop(task, None)
                self.queue.done(key)
            if self._surplus:
                self._surplus -= 1
                return

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
            self._observe(Reconciled(seconds=loop.time() - started, error=error))

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
