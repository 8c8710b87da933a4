"""A dashboard beside a simulated cluster: in a thread with a loop of its own, for browsers live in real time."""

import asyncio
import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from kubetide.cli.dashboard.command import Options, served
from kubetide.errors import KubetideError

START_SECONDS = 30.0


@contextmanager
def beside(options: Options) -> Iterator[str]:
    """Serve a dashboard while the block lasts, and give its URL; a port that is taken is exchanged for a free one."""
    started, urls, failures = threading.Event(), list[str](), list[BaseException]()
    stopping: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve(chosen: Options) -> None:
        stop = asyncio.Event()
        async with served(chosen) as url:
            urls.append(url)
            stopping.append((asyncio.get_running_loop(), stop))
            started.set()
            await stop.wait()

    def run() -> None:
        try:
            try:
                asyncio.run(serve(options))
            except* OSError as group:
                if urls or all(getattr(each, "errno", 0) != errno.EADDRINUSE for each in group.exceptions):
                    raise
                asyncio.run(serve(replace(options, port=0)))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="dashboard", daemon=True)
    thread.start()
    if not started.wait(START_SECONDS) or not urls:
        raise KubetideError("the dashboard does not start") from (failures[0] if failures else None)
    try:
        yield urls[0]
    finally:
        loop, stop = stopping[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(START_SECONDS)
