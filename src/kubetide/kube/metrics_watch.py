"""A watch that only kubetide's metrics server offers: it may be another server, or gone, and that is no error.

What is heard is the newest value, never history, so that a watch that breaks is simply opened again. `problem` is why
nothing is heard now, in words; whoever listens does without meanwhile.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, TypeVar

from kubetide.api.objects.scheme import Resource
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import WatchEvent
from kubetide.kube.pacing import Backoff, Retry

T = TypeVar("T")

WATCH_SECONDS = 600
_RETRY = Backoff(base=2.0, cap=60.0, jitter=0.5)


class MetricsWatch(Generic[T]):
    """Follows one resource of the metrics server, and calls `hear` with every event."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        rng: random.Random,
        *,
        hear: Callable[[WatchEvent[T]], None],
        changed: Callable[[str], None],
        namespace: str = "",
        field_selector: str = "",
        silence: float | None = None,
        backoff: Backoff = _RETRY,
    ) -> None:
        """`changed` is called with the problem when there is another one, and with nothing when it is over.

        After `silence` seconds without a word, bookmarks included, the watch counts as broken.
        """
        self._client = client
        self._resource = resource
        self._hear = hear
        self._changed = changed
        self._namespace = namespace
        self._field_selector = field_selector
        self._silence = silence
        self._retry = Retry(backoff, rng)
        self.problem = "not watched yet"

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
                self._retry.succeeded()
            except KubetideError as error:
                self._note(str(error))
            except TimeoutError:
                self._note(f"the metrics server has been silent for {self._silence:g} s")
            await asyncio.sleep(self._retry.next_delay())

    async def _follow(self) -> None:
        stream = self._client.watch_items(
            self._resource,
            namespace=self._namespace or None,
            field_selector=self._field_selector,
            timeout_seconds=WATCH_SECONDS,
            bookmarks=self._silence is not None,
        )
        loop = asyncio.get_running_loop()
        async with aclosing(stream), asyncio.timeout(self._silence) as patience:
            async for event in stream:
                if self._silence is not None:
                    patience.reschedule(loop.time() + self._silence)
                if self.problem:
                    self._retry.succeeded()
                    self._note("")
                if isinstance(event, WatchEvent):
                    self._hear(event)

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self._changed(problem)
