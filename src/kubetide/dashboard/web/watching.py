"""One cluster, looked at again and again for as long as somebody wants to see it.

A look serves all viewers. The first lists everything, the next ones read caches that watches keep up to date
(`cluster_cache`), and only usage is listed; what follows from it (verdicts, rows) is worked out again only where
something changed (`core.looks`), in a thread, so that pages are served meanwhile. A look that costs much is repeated
less often, so that a large cluster takes no more than a fifth of a core; without viewers one look a minute keeps the
history going, and after ten minutes none, and nothing is watched any more.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from kubetide.clock import Clock
from kubetide.dashboard.core.changes import changes
from kubetide.dashboard.core.history import History
from kubetide.dashboard.core.looks import Results, results
from kubetide.dashboard.core.model import Entry, Workload
from kubetide.dashboard.core.nodes import NodeRow
from kubetide.dashboard.web.cluster_cache import ClusterCache
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import Unauthorized
from kubetide.log import get_logger
from kubetide.verdicts.cluster_reader import read_cluster
from kubetide.verdicts.core.verdict import Finding
from kubetide.verdicts.core.view import ClusterView

log = get_logger("dashboard")

INTERVAL = timedelta(seconds=5)
IDLE = timedelta(minutes=1)
FORGOTTEN = timedelta(minutes=10)
"""Without anybody asking for so long, the cluster is not looked at any more until somebody does."""
SHARE = 4.0
"""A look that takes one second of CPU is followed by four without; and none takes more than half of the time."""
KEPT_ENTRIES = 1000
_LATENCIES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A cluster as it was read once, and what follows from it."""

    version: int
    results: Results
    seconds: float
    """How long reading and judging took."""

    @property
    def view(self) -> ClusterView:
        return self.results.view

    @property
    def rows(self) -> list[Workload]:
        return self.results.rows

    @property
    def nodes(self) -> list[NodeRow]:
        return self.results.nodes

    @property
    def findings(self) -> list[Finding]:
        return self.results.findings


@dataclass(slots=True)
class Requests:
    """How the API server answered."""

    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_LATENCIES))
    failed: int = 0

    def observe(self, method: str, status: int, seconds: float) -> None:
        """Note a request; status 0 means that nobody answered."""
        self.seconds.append(seconds)
        self.failed += status == 0 or status >= 500


class Expired(KubetideError):
    """The API server does not accept the visitor's credentials (any more)."""


class ClusterWatch:
    """Looks at one cluster as one identity."""

    def __init__(
        self,
        make_client: Callable[[Callable[[str, int, float], None]], Client],
        clock: Clock,
        *,
        namespace: str = "",
        interval: timedelta = INTERVAL,
    ) -> None:
        self.requests = Requests()
        self.client = make_client(self.requests.observe)
        self.namespace = namespace
        self.history = History()
        self.log: deque[Entry] = deque(maxlen=KEPT_ENTRIES)
        self._clock = clock
        self._interval = interval
        self._look: Look | None = None
        self._problem: KubetideError | None = None
        self._asked = clock.monotonic()
        self._viewers = 0
        self._wanted = asyncio.Event()
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                cache = ClusterCache(self.client, self._clock, group)
                try:
                    while True:
                        began, busy = self._clock.monotonic(), time.process_time()
                        await self._once(cache)
                        took, cost = self._clock.monotonic() - began, time.process_time() - busy
                        await self._rest(max(self._interval.total_seconds(), SHARE * cost, took), cache)
                finally:
                    cache.close()
        finally:
            await self.client.close()

    async def current(self) -> Look:
        """Return the last look, or wait for the first; raises why there is none, `Expired` where credentials are."""
        self._asked = self._clock.monotonic()
        self._wanted.set()
        async with self._changed:
            await self._changed.wait_for(lambda: self._look is not None or self._problem is not None)
        if isinstance(self._problem, Expired) or self._look is None:
            assert self._problem is not None, "waited for one of the two"
            raise self._problem
        return self._look

    @property
    def problem(self) -> str:
        """Why the last look failed; empty where it did not."""
        return "" if self._problem is None else " ".join(str(self._problem).split())

    async def after(self, version: int) -> Look | None:
        """Wait for a look newer than a version; None where the newest attempt failed."""
        self._viewers += 1
        self._wanted.set()
        try:
            async with self._changed:
                seen = self._problem
                await self._changed.wait_for(
                    lambda: (
                        (self._look is not None and self._look.version > version)
                        or (self._problem is not None and self._problem is not seen)
                    )
                )
            return None if self._problem is not None else self._look
        finally:
            self._viewers -= 1
            self._asked = self._clock.monotonic()

    async def _once(self, cache: ClusterCache) -> None:
        began = self._clock.monotonic()
        last = self._look
        try:
            view = await read_cluster(
                self.client,
                self._clock,
                namespace=self.namespace,
                whole=not self.namespace,
                lists=cache,
                before=None if last is None else last.view,
            )
            trends = self.history.trends()
            found = await asyncio.to_thread(results, view, trends, None if last is None else last.results)
        except Unauthorized as error:
            self._problem = Expired(f"the API server does not accept the credentials: {error}")
        except KubetideError as error:
            if self._problem is None:
                log.warning("cannot read the cluster", error=str(error))
            self._problem = error
        else:
            self._problem = None
            if last is not None:
                self.log.extend(changes(last.view, view, last.rows, found.rows))
            self.history.add(view, found.rows)
            version = 1 if last is None else last.version + 1
            self._look = Look(version=version, results=found, seconds=self._clock.monotonic() - began)
        async with self._changed:
            self._changed.notify_all()

    async def _rest(self, pause: float, cache: ClusterCache) -> None:
        """Wait until the next look is due: soon while somebody looks, later else, and in the end until asked."""
        self._wanted.clear()
        unseen = self._clock.monotonic() - self._asked
        if self._viewers or unseen < 2 * pause:
            await asyncio.sleep(pause)
            return
        limit = max(IDLE.total_seconds(), pause) if unseen < FORGOTTEN.total_seconds() else None
        if limit is None:
            cache.close()
        try:
            async with asyncio.timeout(limit):
                await self._wanted.wait()
        except TimeoutError:
            return
