"""The loop around a collector: at once, then one interval after each round ended.

The round itself runs on a worker, because it reads kernel files or runs tools. A round that fails is told once until
the reason changes; the collector goes on with the next round.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from kubetide.log import get_logger
from kubetide.node.collectors.base import READ_ERRORS, Collector
from kubetide.node.host.worker import Worker

log = get_logger("node.collect")


class Shows(Protocol):
    """Where the last problem of a collector can be seen."""

    error: str


async def collect_forever(collector: Collector, state: Shows, worker: Worker, refresh: Callable[[], object]) -> None:
    """Run a collector until cancelled; `refresh` is called on the loop before each round."""
    problem = ""
    while True:
        try:
            refresh()
            if await worker.call(collector.collect, collector.name):
                collector.started = True
            problem = ""
        except READ_ERRORS as error:
            if str(error) != problem:
                problem = str(error)
                log.warning("collector round failed", collector=collector.name, error=problem)
        state.error = problem
        rest = getattr(collector, "pause", None)
        await asyncio.sleep(collector.interval if rest is None else rest())
