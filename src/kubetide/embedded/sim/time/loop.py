"""An event loop in virtual time: when nothing is ready, the clock jumps to the next timer.

`asyncio.sleep`, `asyncio.timeout` and every timer obey it, so controllers that wait minutes run a week in seconds, in
the same order on every run. Three things that would hang a real loop are named instead:

- *deadlock*: no timer and nothing ready; the error lists the tasks and the lines they wait in;
- *livelock*: a million iterations without the clock moving;
- *limit*: virtual time has reached the limit the caller set.

With a `speed` the same loop is paced against real time (60 = a minute a second), which also lets sockets take part;
at speed 0 time stands still and only sockets are served; without a speed it never waits. `real_timers` wait in real
time at any pace: for the limits of connections (`kube.wire`).

A pace never changes what happens, only how long one has to wait for it:

- the clock goes from timer to timer, to the very number that the timer was set to, and a timer rings at that moment
  and no other. How long the real waiting in between took, how often a socket interrupted it, and what other timers
  there are, cannot be seen in it. What a socket brings is therefore dated to the last timer, a few seconds ago at most
  where a cluster is simulated;
- blocking work runs at once instead of in a thread, whose end would fall into the order of events at a random place.
"""

import asyncio
import heapq
import math
import selectors
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from kubetide.clock import LoopClock
from kubetide.embedded.sim.time.handles import Callback, Timer
from kubetide.embedded.sim.time.realtime import RealTimers
from kubetide.errors import KubetideError

T = TypeVar("T")

DEFAULT_START = datetime(2026, 1, 5, tzinfo=UTC)
"""A Monday at midnight, so that daily and weekly load begins at its beginning."""

_LIVELOCK_ITERATIONS = 1_000_000
_POLL_EVERY = 256
_CANCELLED_KEPT = 50
"""So many cancelled timers, or half of all, are left where they are; more are cleared away."""
_FAR = 3600.0
"""A timer that is further away than so many seconds is rare, and reached as asyncio does it."""
_LONGEST_REAL_WAIT = 0.25  # keeps a changed speed and Ctrl-C responsive


class VirtualTimeError(KubetideError):
    """The simulation cannot go on."""


class Deadlock(VirtualTimeError):
    """Every task waits and no timer is left: nothing can ever happen again."""


class Livelock(VirtualTimeError):
    """Tasks keep each other busy and time stands still."""


class TimeLimitReached(VirtualTimeError):
    """Virtual time reached the limit that the caller set."""


class _JumpingSelector(selectors.BaseSelector):
    """A selector that moves the clock by the timeout instead of waiting for it.

    asyncio asks its selector to wait until the next timer, and only when no callback is ready. That is the one place
    where time passes in a loop, so it is enough to answer "nothing came" and to put the clock forward:

        timeout 0      callbacks are ready, time must not move
        timeout > 0    all tasks wait and the next timer is so far away: jump there
        timeout None   all tasks wait and there is no timer: a deadlock, unless a socket may still bring something

    Invariant: the clock moves only here, never while a task runs, and never past a timer. A task therefore sees one
    time from one `await` to the next, and timers ring exactly when they are due.
    """

    def __init__(self, *, speed: float | None, limit: float | None) -> None:
        self._real = selectors.DefaultSelector()
        self._sockets = False
        """Whether anything but the loop's own wake-up is watched."""
        self._limit = limit
        self._iterations = 0
        self._jumps = 0
        self.now = 0.0
        self.resolution = math.ulp(0.0)
        """The smallest step from `now` on."""
        self.pace: float | None = None
        self.timers = RealTimers()
        self._waiting = self.timers.waiting
        self.call_soon: Callable[[Callable[[], object]], object] = lambda callback: callback()
        self.describe_tasks: Callable[[], str] = str
        self.next_timer: Callable[[], float] = lambda: math.inf
        self.set_speed(speed)

    def set_speed(self, speed: float | None) -> None:
        self.speed = speed
        self.pace = speed or (self.pace if speed is not None else None)
        self._real_anchor = time.monotonic()
        self._virtual_anchor = self.now

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        sockets = self._sockets
        if self._waiting and (due := self.timers.take_due()):
            for timer in due:
                self.call_soon(timer.ring)
            return self._real.select(0)
        if timeout is not None and timeout <= 0:
            self.stay()
            return self._real.select(0) if sockets or self.speed is not None else []
        self._iterations = 0
        if self.speed is not None:
            return self._paced(timeout, self.speed)
        return self._jump(timeout, sockets)

    def only_jumps(self) -> bool:
        """Whether there is nothing to wait for in real time, and no time to look whether somebody calls."""
        return not self._sockets and self.speed is None and not self._waiting and (self._jumps + 1) % _POLL_EVERY != 0

    def stay(self) -> None:
        """Note an iteration in which the clock does not move."""
        self._iterations += 1
        if self._iterations >= _LIVELOCK_ITERATIONS:
            self._iterations = 0
            where = f"{_LIVELOCK_ITERATIONS} iterations at virtual second {self.now:.3f}"
            raise Livelock(f"{where}; {self.describe_tasks()}")

    def jump_to(self, due: float) -> bool:
        """Put the clock forward to the next timer; return False if that is not how time goes on."""
        if not 0.0 < due - self.now < _FAR:
            return False
        self._iterations = 0
        self._jumps += 1
        self._arrive(due)
        return True

    def _jump(self, timeout: float | None, sockets: bool) -> list[tuple[selectors.SelectorKey, int]]:
        self._jumps += 1
        # Looking at the real selector is a system call, and there are millions of jumps. The loop's own wake-up (a
        # signal, a call from another thread) is looked for now and then, sockets every time.
        if sockets or timeout is None or self._jumps % _POLL_EVERY == 0:
            ready = self._real.select(self._patience() if timeout is None else 0)
            if ready:
                return ready
        if timeout is None and self._waiting:
            return []  # a real timer is still to come: the next iteration looks whether it is due
        if timeout is None:
            raise Deadlock(f"at virtual second {self.now:.3f} nothing can happen any more; {self.describe_tasks()}")
        self._advance(timeout)
        return []

    def _patience(self) -> float | None:
        """Return how long to wait in real time where virtual time knows of nothing to come."""
        if self._waiting:
            return self.timers.left(_LONGEST_REAL_WAIT)
        return None if self._sockets else 0

    def _paced(self, timeout: float | None, speed: float) -> list[tuple[selectors.SelectorKey, int]]:
        longest = self.timers.left(_LONGEST_REAL_WAIT)
        if not speed or timeout is None:  # time stands still, or nobody waits for it
            ready = self._real.select(longest)
            self.set_speed(speed)
            return ready
        due = self._real_anchor + (self.now + timeout - self._virtual_anchor) / speed
        wait = due - time.monotonic()
        if wait <= 0:  # due, or behind: the work itself takes longer than the pace allows
            self._advance(timeout)
            if wait < -1:
                self.set_speed(speed)
            return self._real.select(0)
        # Whatever ends the waiting, the clock stays where it is: the next call waits for the rest, or jumps.
        return self._real.select(min(wait, longest))

    def _advance(self, seconds: float) -> None:
        # A sum of differences would end beside the timer, by an amount that depends on where the clock stopped before.
        due = self.next_timer()
        self._arrive(due if due - self.now <= seconds else self.now + seconds)

    def _arrive(self, at: float) -> None:
        self.now = at
        self.resolution = math.ulp(self.now)
        if self._limit is not None and self.now > self._limit:
            limit, self._limit = self._limit, None  # clean-up after the error may still need timers
            raise TimeLimitReached(f"virtual time passed {timedelta(seconds=limit)}; {self.describe_tasks()}")

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._real.register(fileobj, events, data)
        self._sockets = len(self._real.get_map()) > 1
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = self._real.unregister(fileobj)
        self._sockets = len(self._real.get_map()) > 1
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop itself. `start` is the date of its second zero."""

    # asyncio's own, in every release since 3.4
    _ready: "deque[asyncio.Handle]"
    _scheduled: list[Timer]
    _timer_cancelled_count: int
    _stopping: bool
    _closed: bool
    _debug: bool

    def __init__(
        self, *, start: datetime = DEFAULT_START, limit: timedelta | None = None, speed: float | None = None
    ) -> None:
        self._jumping = _JumpingSelector(speed=speed, limit=None if limit is None else limit.total_seconds())
        super().__init__(self._jumping)
        self._jumping.describe_tasks = self._describe_tasks
        self._jumping.call_soon = self.call_soon
        self._jumping.next_timer = self._next_timer
        self._timers_set = 0
        self.start = start

    @property
    def _clock_resolution(self) -> float:
        """Read by asyncio: what is due less than this after now is due now. Here only now itself is."""
        return self._jumping.resolution

    @_clock_resolution.setter
    def _clock_resolution(self, seconds: float) -> None:
        """asyncio would set that of the machine's clock."""

    def _next_timer(self) -> float:
        """Return when the next timer rings. It is not cancelled: asyncio has just dropped those."""
        return self._scheduled[0]._when if self._scheduled else math.inf

    def time(self) -> float:
        return self._jumping.now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a timer. Those of one instant ring in the order in which they were set."""
        if self._closed:
            self._check_closed()  # type: ignore[attr-defined]
        timer = Timer(when, callback, args, self, copy_context() if context is None else context)
        timer.order = self._timers_set = self._timers_set + 1
        heapq.heappush(self._scheduled, timer)
        return timer

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Let a callback run in the next iteration."""
        if self._closed or self._debug:
            return super().call_soon(callback, *args, context=context)
        handle = Callback(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a timer so many seconds from now."""
        return self.call_at(self._jumping.now + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Run what is ready; if nothing is, jump to the next timer first.

        What asyncio does, in the same order, for a loop that nobody has to wait for: without a pace, sockets and real
        timers there is nothing to ask the selector. Whatever else there is goes asyncio's own way.
        """
        jumping, scheduled, ready = self._jumping, self._scheduled, self._ready
        if self._debug or not jumping.only_jumps():
            super()._run_once()  # type: ignore[misc]
            return
        if _CANCELLED_KEPT < self._timer_cancelled_count > len(scheduled) // 2:
            self._clear_cancelled()
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        if ready or self._stopping:
            jumping.stay()
        elif not scheduled or not jumping.jump_to(scheduled[0]._when):
            super()._run_once()  # type: ignore[misc]
            return
        end = jumping.now + jumping.resolution
        while scheduled and scheduled[0]._when < end:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _clear_cancelled(self) -> None:
        for timer in self._scheduled:
            timer._scheduled = not timer._cancelled
        self._scheduled[:] = [timer for timer in self._scheduled if timer._scheduled]
        heapq.heapify(self._scheduled)
        self._timer_cancelled_count = 0

    def set_speed(self, speed: float | None) -> None:
        """Change the pace: virtual seconds per real second, 0 to stop time, None to run as fast as the machine can."""
        self._jumping.set_speed(speed)

    @property
    def pace(self) -> float | None:
        """Virtual seconds per real second, as last asked for while time went on; None if nothing is asked for."""
        return self._jumping.pace

    @property
    def real_timers(self) -> RealTimers | None:
        """Timers in real seconds; None in a loop without a pace, which knows no real time."""
        return self._jumping.timers if self._jumping.pace is not None else None

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        """Run `func` at once: a thread would bring real time and its disorder in."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whatever it is belongs to the future, as in a thread
            future.set_exception(error)
        return future

    def _describe_tasks(self) -> str:
        lines = sorted(_describe(task) for task in asyncio.all_tasks(self))
        return "waiting: " + ("; ".join(lines) if lines else "no task")


def _describe(task: "asyncio.Task[Any]") -> str:
    frames = task.get_stack()
    if not frames:
        return task.get_name()
    frame = frames[-1]
    return (
        f"{task.get_name()} in {frame.f_code.co_name} ({frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno})"
    )


class _VirtualClock(LoopClock):
    """A clock that looks where the loop itself looks; it is asked for the time more often than anything else."""

    def __init__(self, start: datetime, jumping: _JumpingSelector) -> None:
        super().__init__(start)
        self._jumping = jumping
        self._told, self._told_at = start, self._loop_start

    def now(self) -> datetime:
        at = self._jumping.now
        if at != self._told_at:  # mostly asked again at the same moment
            self._told, self._told_at = self._start + timedelta(seconds=at - self._loop_start), at
        return self._told

    def monotonic(self) -> float:
        return self._jumping.now - self._loop_start


def virtual_clock() -> LoopClock:
    """Return a clock for the running loop that agrees with every other one made on it, whenever it was made."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualLoop):
        return _VirtualClock(loop.start + timedelta(seconds=loop.time()), loop._jumping)
    return LoopClock(DEFAULT_START + timedelta(seconds=loop.time()))


def set_speed(speed: float | None) -> None:
    """Change the pace of the running loop, if it is one whose pace can change."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualLoop):
        loop.set_speed(speed)


def run_virtual(
    main: Coroutine[Any, Any, T],
    *,
    start: datetime = DEFAULT_START,
    limit: timedelta | None = None,
    speed: float | None = None,
) -> T:
    """Run `main` to its end in virtual time and return its result."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start=start, limit=limit, speed=speed)) as runner:
        return runner.run(main)
