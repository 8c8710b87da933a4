"""An event loop whose clock is the CPU time of its process: what a busy neighbour takes is not seen.

Work takes as long as it takes on a core of its own, and waiting takes no time at all: while nothing is ready the clock
jumps to the next timer. So periods, leases and loops of a server and its clients in one process are those of a machine
with one idle core. CPU time is charged to whoever `ACCOUNT` names where a task was started.
"""

import asyncio
import selectors
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response, Transport

T = TypeVar("T")
ACCOUNT: ContextVar[str] = ContextVar("account", default="")
SERVER = "server"


class _Jumping(selectors.DefaultSelector):
    """Puts the clock forward instead of waiting."""

    jumped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None and timeout > 0:
            self.jumped += timeout
        return ready


class CpuLoop(asyncio.SelectorEventLoop):
    """The loop, and what each account has used."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        self.used: defaultdict[str, float] = defaultdict(float)
        super().__init__(self._jumping)

    def time(self) -> float:
        return time.process_time() + self._jumping.jumped

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        return super().call_soon(self._charged, callback, args, context.get(ACCOUNT, ""), context=context)

    def _charged(self, callback: Callable[..., Any], args: tuple[Any, ...], account: str) -> None:
        began = time.process_time()
        try:
            callback(*args)
        finally:
            self.used[account] += time.process_time() - began

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        """Run it at once: on one core a thread would only take turns."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run_on_one_core(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end and return the result."""
    with asyncio.Runner(loop_factory=CpuLoop) as runner:
        return runner.run(main)


class Charged:
    """A transport to a server in this process: requests are counted, and charged to the server; it can be cut."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.cut = False
        self.requests = 0

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        if self.cut:
            raise ConnectionLost("cut off")
        self.requests += 1
        context = copy_context()
        context.run(ACCOUNT.set, SERVER)
        loop = asyncio.get_running_loop()
        return await loop.create_task(self._inner.request(method, path, **parts), context=context)

    @asynccontextmanager
    async def watch(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        if self.cut:
            raise ConnectionLost("cut off")
        async with self._inner.watch(path, query=query) as lines:
            yield lines

    async def close(self) -> None:
        await self._inner.close()
