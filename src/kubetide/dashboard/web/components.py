"""What the dashboard asks running controllers; the command line knows where they are.

Everything is asked with the client of the visitor: who may not reach a controller is told that it is not known. What
costs others something is asked once in a while, however many want to know (`Remembered`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from kubetide.api.objects.core import Lease
from kubetide.api.objects.meta import ObjectKey
from kubetide.clock import Clock
from kubetide.dashboard.core.history import Series
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.recommend.core.workloads import Usage, Workload

T = TypeVar("T")
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a controller told about an object: its trace, and the same as text; or why there is nothing."""

    trace: Record = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    unknown: str = ""


class Components(Protocol):
    """Asks the running kubetide."""

    async def explain(self, client: Client, context: str, kind: str, key: ObjectKey) -> Told:
        """Return what the controller of an `hpa`, a `vpa` or a `node` says about it."""
        ...

    async def events(self, client: Client, objects: Sequence[tuple[str, ObjectKey]]) -> list[Record]:
        """Return the events about objects, by kind and key, oldest first."""
        ...

    async def statuses(self, client: Client, context: str) -> list[Record]:
        """Return what the agents that can be asked at once report of their nodes; none where none answers."""
        ...

    async def status(self, client: Client, context: str, node: str) -> Record:
        """Return what the agent of one node reports of it and its pods; empty where it does not answer."""
        ...

    async def audit(self, client: Client, context: str, node: str) -> tuple[list[Record], str]:
        """Return what the agent of a node did lately, newest first, or why that is not known."""
        ...

    async def leases(self, client: Client) -> list[Lease]:
        """Return the leases that kubetide's controllers lead by."""
        ...

    async def processes(self, client: Client, context: str) -> list[tuple[str, str]]:
        """Return where somebody answers, and whether it is ready, in its own words."""
        ...

    async def certificates(self, client: Client) -> Mapping[str, datetime | None]:
        """Return when the CA bundles that webhooks are registered with cease to be valid; None where unreadable."""
        ...


class UsageSource(Protocol):
    """Where the past comes from, beside what the dashboard saw itself; everything raises where it does not answer."""

    async def usage(self, client: Client, workload: Workload) -> Mapping[str, Usage]:
        """Return the usage of a workload by container."""
        ...

    async def fleet(self, namespaces: Collection[str], seconds: float | None) -> Series | None:
        """Return what all workloads of some namespaces used and requested; None where nothing is known."""
        ...

    async def throttled(self) -> Mapping[ObjectKey, float]:
        """Return the share of throttled CPU periods of every pod of the cluster that has CPU periods."""
        ...


class Remembered(Generic[T]):
    """The last answer to one question; a failure is an answer too."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._kept: tuple[float, T | KubetideError] | None = None

    @property
    def is_old(self) -> bool:
        """Whether there is an answer that counts no more."""
        return self._kept is not None and self._clock.monotonic() - self._kept[0] >= self._seconds

    async def get(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer that is known, or ask; who comes meanwhile waits for the same answer, or its failure."""
        async with self._lock:
            if self._kept is None or self.is_old:
                try:
                    answer: T | KubetideError = await ask()
                except KubetideError as error:
                    answer = error
                self._kept = (self._clock.monotonic(), answer)
            found = self._kept[1]
        if isinstance(found, KubetideError):
            raise found
        return found
