"""Where the agent's blocking work runs: on a thread of its own, or at once where time is virtual.

Reading a kernel file or running a tool can hang for as long as a disk or a driver likes. The event loop answers the
container runtime, health probes and gRPC, so it never does such work itself: it hands it to a worker. One worker owns
the kernel files (one thread, so nothing about open descriptors or written values needs a lock); a second one does what
waits for disks (tools, history, audit log), so that a hanging disk does not stop sampling either.

    call     hand over and wait for the result          post     hand over and go on; refused when too much waits

What a worker runs gets plain values and returns plain values; state of the loop is read before and changed after.
A thread that hangs cannot be ended: it is left behind when the process ends.
"""

import asyncio
import contextlib
import errno
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kubetide.log import get_logger

log = get_logger("node.host")

T = TypeVar("T")

MOST_POSTED = 1024
"""Work that nobody waits for and that may queue up before more of it is refused."""
HANGS_AFTER = 10.0
"""Seconds after which one piece of work counts as hanging."""
_LOOK_EVERY = 2.0


class Worker(Protocol):
    """Runs blocking work, one piece after the other, in the order in which it came."""

    async def call(self, work: Callable[[], T], what: str = "") -> T:
        """Return the result of `work`, or raise what it raised."""
        ...

    def post(self, work: Callable[[], object], what: str = "") -> bool:
        """Have `work` done and go on; an error is logged. Return False when too much is waiting already."""
        ...

    def hand_back(self, function: Callable[..., object], *arguments: Any) -> None:
        """Called by the work: have the loop call `function`, before the work's own result arrives there."""
        ...

    def hanging(self) -> str:
        """Return what has been taking too long, and for how long; empty while all is healthy."""
        ...


class Inline:
    """Runs everything at once, without a thread: for virtual time, where hosts are in memory."""

    async def call(self, work: Callable[[], T], what: str = "") -> T:
        """Run `work` without yielding to the event loop, so that virtual time keeps its order of events."""
        return work()

    def post(self, work: Callable[[], object], what: str = "") -> bool:
        """Run `work` now."""
        _isolated(work, what)
        return True

    def hand_back(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call `function` now."""
        function(*arguments)

    def hanging(self) -> str:
        """Return nothing: work runs at once."""
        return ""


@dataclass(slots=True)
class _Job:
    work: Callable[[], Any]
    what: str
    future: asyncio.Future[Any] | None = None


class WorkerThread:
    """A worker with a thread of its own; made on the loop that waits for it."""

    def __init__(self, name: str, *, most_posted: int = MOST_POSTED, hangs_after: float = HANGS_AFTER) -> None:
        self.name = name
        self.refused = 0
        self._most_posted = most_posted
        self._hangs_after = hangs_after
        self._jobs: deque[_Job] = deque()
        self._posted = 0
        self._wake = threading.Condition()
        self._closing = False
        self._busy: tuple[float, str] | None = None
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # A daemon: a system call that never returns must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=f"kubetide-{name}", daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[], T], what: str = "") -> T:
        """Have the thread do `work`; a caller that is cancelled meanwhile takes back what has not begun."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._put(_Job(work, what, future))
        return await future

    def post(self, work: Callable[[], object], what: str = "") -> bool:
        """Have the thread do `work` and go on."""
        if self._closing:
            return False
        if self._posted >= self._most_posted:
            if not self.refused:
                log.warning("work dropped: too much is waiting already", worker=self.name, waiting=self._posted)
            self.refused += 1
            return False
        self.refused = 0
        self._put(_Job(work, what))
        return True

    def hand_back(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have the loop call `function`."""
        self._on_loop(function, *arguments)

    def hanging(self) -> str:
        """Return what the thread has been doing for too long."""
        busy = self._busy
        if busy is None or (seconds := time.monotonic() - busy[0]) < self._hangs_after:
            return ""
        return f"{busy[1] or 'work'} has not come back for {seconds:.0f} s"

    async def run(self) -> None:
        """Report once when the thread hangs, and when it goes on, until cancelled."""
        told = False
        while True:
            problem = self.hanging()
            if problem and not told:
                log.warning("the host hangs; answers go on from what is known", worker=self.name, problem=problem)
            elif told and not problem:
                log.info("the host answers again", worker=self.name)
            told = bool(problem)
            await asyncio.sleep(_LOOK_EVERY)

    async def close(self, timeout: float = 5.0) -> bool:
        """Let the thread finish what it was given, for a limited time; return whether it ended."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        try:
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        except TimeoutError:
            log.warning("the host still hangs at the end", worker=self.name, problem=self.hanging() or "work waits")
            return False
        self._thread.join()
        return True

    def _put(self, job: _Job) -> None:
        with self._wake:
            if self._closing:
                raise OSError(errno.ESHUTDOWN, f"{job.what or 'work'} comes after the end of the agent")
            self._posted += job.future is None
            self._jobs.append(job)
            self._wake.notify()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            self._busy = (time.monotonic(), job.what)
            if job.future is None:
                _isolated(job.work, job.what)
            elif not job.future.cancelled():
                self._answer(job.work, job.future)
            self._busy = None
        self._on_loop(self._ended.set)

    def _next(self) -> _Job | None:
        with self._wake:
            while not self._jobs:
                if self._closing:
                    return None
                self._wake.wait()
            job = self._jobs.popleft()
            self._posted -= job.future is None
            return job

    def _answer(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            self._on_loop(_fail, future, error)
        else:
            self._on_loop(_settle, future, result)

    def _on_loop(self, function: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(function, *arguments)


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _isolated(work: Callable[[], object], what: str) -> None:
    try:
        work()
    except Exception:
        log.exception("work failed", what=what)
