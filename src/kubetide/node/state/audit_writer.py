"""Hands what is to be audited to the worker that owns the log's files, with the time at which it happened.

Whoever acts (the executor on the host's thread, the evictor on the loop) never waits for the disk of the log.
"""

from functools import partial
from typing import Any

from kubetide.clock import Clock
from kubetide.node.core.plan import Write
from kubetide.node.executor.audit_log import Audit
from kubetide.node.host.worker import Worker


class AuditWriter:
    """The audit log, as those see it who write to it and ask it."""

    def __init__(self, audit: Audit, clock: Clock, disk: Worker) -> None:
        self._audit = audit
        self._clock = clock
        self._disk = disk

    def record(self, **event: Any) -> None:
        """Have an event noted."""
        self._post(partial(self._audit.record, at=self._clock.now(), **event))

    def record_write(self, write: Write, path: str, previous: str, value: str) -> None:
        """Have a kernel write noted."""
        self._post(partial(self._audit.record_write, write, path, previous, value, at=self._clock.now()))

    async def query(self, size: int, token: str = "") -> tuple[list[dict[str, Any]], str]:
        """Return events, newest first, and the token of the next page."""
        return await self._disk.call(partial(self._audit.query, size, token), "reading the audit log")

    def keep_house(self) -> None:
        """Have what is buffered written."""
        self._post(self._audit.keep_house)

    async def close(self) -> None:
        """Write what is left."""
        await self._disk.call(self._audit.close, "closing the audit log")

    def _post(self, work: "partial[None] | Any") -> None:
        self._disk.post(work, "writing the audit log")
