"""The one seam between kubetide and an API server: a request, and a watch as a stream of lines.

Controllers never know what is behind it: HTTPS to a cluster (`client.http`), HTTP to the embedded API server, or the
embedded one in process and in virtual time (`apiserver.inprocess`). An HTTP status is an answer, whatever it is;
an error means that nobody answered.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

BODY_LIMIT = 256 * 1024 * 1024
METRICS_LIMIT = 64 * 1024 * 1024
"""The usage of 100,000 pods is 36 MB. What is larger is not read: decoded it would take several times its size."""

_METRICS_GROUPS = ("metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io")


def largest_answer(path: str) -> int:
    """Return how many bytes an answer may have; metrics come from servers that anybody may have written."""
    group = path.removeprefix("/apis/").partition("/")[0]
    return METRICS_LIMIT if group in _METRICS_GROUPS else BODY_LIMIT


class Response(msgspec.Struct, frozen=True):
    """One answer of an API server. Header names are in lower case."""

    status: int
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""


class DocumentResponse(Response, frozen=True, kw_only=True):
    """An answer from the same process: a value that says what the body says, which is made if somebody reads it."""

    document: object
    encode: Callable[[], bytes]

    @property  # type: ignore[misc]  # stands in for the field of an answer whose bytes are there
    def body(self) -> bytes:
        """The answer as any other transport brings it."""
        return self.encode()


class Transport(Protocol):
    """Carries requests to an API server and its answers back."""

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
        """Send one request and return the answer, whatever its status.

        Raises `kubetide.errors.Unavailable` when nothing answered.
        """
        ...

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch: an iterator over whole JSON lines, ended when the server ends the stream.

        Entering raises the `ApiError` of an answer other than 200, or `Unavailable` when nothing answered;
        iterating raises `Unavailable` when the connection breaks.
        """
        ...

    async def close(self) -> None:
        """Give back connections. A closed transport is not used again."""
        ...
