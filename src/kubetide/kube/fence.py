"""A transport that lets writes through only while their sender leads.

Cancelling a controller that lost its Lease takes a turn of the event loop; a process that was frozen for a minute
gets to send before that turn comes. The fence asks the clock at the last moment, so such a write never leaves.
Reads always pass. The Lease itself is written through the transport behind the fence.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from kubetide.errors import Unavailable
from kubetide.kube.transport import Response, Transport


class NotLeading(Unavailable):
    """A write was held back because this process does not hold the Lease."""


class FencedTransport:
    """Passes requests on; writes only while `may_write` says so."""

    def __init__(self, inner: Transport, may_write: Callable[[], bool]) -> None:
        self._inner = inner
        self._may_write = may_write

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        """Send a request, or raise NotLeading."""
        if method not in ("GET", "HEAD") and not self._may_write():
            raise NotLeading(f"held back {method} {path}: the lease is not held")
        return await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout=timeout
        )

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch."""
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        """Close the transport behind."""
        await self._inner.close()
