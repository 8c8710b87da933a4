"""Virtual time for tests and notebooks: an hour of sleep takes no time at all.

    @virtual_time
    async def test_a_day() -> None:
        await asyncio.sleep(86_400)

The decorated function is called without `await`, also where an event loop runs already, as in a notebook: asyncio
does not nest loops, so the virtual one then runs in a thread of its own while the caller waits for it.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar, overload

from kubetide.embedded.sim.time.loop import DEFAULT_START, run_virtual

P = ParamSpec("P")
T = TypeVar("T")
Async = Callable[P, Coroutine[Any, Any, T]]

LIMIT = timedelta(days=30)
"""What has not ended by then, in virtual time, never will."""


@overload
def virtual_time(main: Async[P, T], /) -> Callable[P, T]: ...
@overload
def virtual_time(
    *, start: datetime = DEFAULT_START, limit: timedelta | None = LIMIT
) -> Callable[[Async[P, T]], Callable[P, T]]: ...
def virtual_time(
    main: Async[P, T] | None = None, /, *, start: datetime = DEFAULT_START, limit: timedelta | None = LIMIT
) -> Callable[P, T] | Callable[[Async[P, T]], Callable[P, T]]:
    """Turn an async function into one that runs to its end in virtual time.

    The clock begins at `start`. A function that has not ended after `limit` of virtual time fails, as does one that
    waits for something that can never happen; both errors name the tasks and the lines they wait in.
    """

    def decorate(function: Async[P, T]) -> Callable[P, T]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            return _apart(lambda: run_virtual(function(*args, **kwargs), start=start, limit=limit))

        # pytest looks through wrappers and would take this for a coroutine function; it still needs the parameters,
        # for they name the fixtures.
        del run.__wrapped__
        run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return run

    return decorate if main is None else decorate(main)


def _apart(work: Callable[[], T]) -> T:
    """Run `work` here, or in a thread if an event loop runs here already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="virtual-time") as thread:
        return thread.submit(partial(copy_context().run, work)).result()
