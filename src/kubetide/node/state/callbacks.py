"""Who wants to know what changed: one pending signal per kind of news.

A signal while one is pending is dropped, so bursts collapse; the pending run sees the newest state. Callbacks of a
kind run one after the other in the order of registration; one that fails does not stop the others.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum

from kubetide.errors import KubetideError
from kubetide.log import get_logger

log = get_logger("node.state")


class News(StrEnum):
    """What may change."""

    NODE_SLO = "NodeSLO spec"
    PODS = "all pods"
    TOPOLOGY = "node topology"
    NODE = "node metadata"


class DuplicateCallback(KubetideError):
    """Two consumers registered under one name."""


class Callbacks:
    """Registers consumers before the run and calls them during it."""

    def __init__(self) -> None:
        self._functions: dict[News, dict[str, Callable[[], None]]] = {news: {} for news in News}
        self._pending: dict[News, asyncio.Event] = {news: asyncio.Event() for news in News}

    def register(self, news: News, name: str, function: Callable[[], None]) -> None:
        """Call `function` after changes of this kind."""
        if name in self._functions[news]:
            raise DuplicateCallback(f"{name} is already registered for {news}")
        self._functions[news][name] = function

    def signal(self, news: News) -> None:
        """Report that something changed."""
        self._pending[news].set()

    async def run(self) -> None:
        """Call the consumers until cancelled; signals sent before are kept, one of each kind."""
        async with asyncio.TaskGroup() as group:
            for news in News:
                group.create_task(self._follow(news), name=f"callbacks/{news}")

    async def _follow(self, news: News) -> None:
        while True:
            await self._pending[news].wait()
            self._pending[news].clear()
            for name, function in self._functions[news].items():
                try:
                    function()
                except Exception:
                    log.exception("callback failed", news=str(news), consumer=name)
