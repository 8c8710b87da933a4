"""The in-process transport: requests and streaming watches without a socket, in whatever time the loop lives in."""

import asyncio
import types
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeVar

from kubetide.embedded.apiserver.rest.requests import ADMIN, Answer, DocumentAnswer, Request, User
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.kube.client.errors import ConnectionLost, RequestTimeout, error_from
from kubetide.kube.client.transport import DocumentResponse, Response

T = TypeVar("T")

_READS_AT_ONCE = 8
"""So many reads in a row are answered without letting others run."""


class InProcessTransport:
    """Implements `kube.transport.Transport` on an `ApiServer`."""

    def __init__(self, api: ApiServer, *, user: User = ADMIN) -> None:
        self._api = api
        self._user = user
        self._closed = False
        self._reads = 0

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
        """Send one request and return the answer, whatever its status."""
        request = self._request(method, path, query, body, content_type, accept)
        # Let others run, as a socket would: a writer that never waits must not starve the watchers.
        self._reads = 0 if method != "GET" else (self._reads + 1) % _READS_AT_ONCE
        if self._reads == 0:
            await asyncio.sleep(0)
        try:
            answer = await _within(timeout, self._api.handle(request))
        except TimeoutError as error:
            raise RequestTimeout(f"{method} {path}: no answer within {timeout} s") from error
        if not isinstance(answer, Answer):
            raise ConnectionLost(f"{method} {path}: a watch is opened with watch()")
        if isinstance(answer, DocumentAnswer):
            return DocumentResponse(answer.status, _headers(answer), document=answer.document, encode=answer.encode)
        return Response(answer.status, _headers(answer), answer.body)

    @asynccontextmanager
    async def watch(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch: an iterator over whole JSON lines."""
        request = self._request("GET", path, {**query, "watch": "true"}, None, "application/json", "application/json")
        await asyncio.sleep(0)
        answer = await self._api.handle(request)
        if isinstance(answer, Answer):
            raise error_from(Response(answer.status, dict(answer.headers), answer.body))
        batches = answer.batches()

        async def lines() -> AsyncGenerator[bytes, None]:
            async for batch in batches:
                for line in batch:
                    yield line

        stream = lines()
        try:
            yield stream
        finally:
            await stream.aclose()
            await batches.aclose()

    async def close(self) -> None:
        """Refuse further requests."""
        self._closed = True

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        accept: str,
    ) -> Request:
        if self._closed:
            raise ConnectionLost("the transport is closed")
        return Request(method, path, query or {}, body, content_type, accept, self._user, "kubetide")


_JSON = MappingProxyType({"content-type": "application/json"})


def _headers(answer: Answer) -> Mapping[str, str]:
    if answer.headers or answer.content_type != "application/json":
        return {"content-type": answer.content_type, **answer.headers}
    return _JSON


async def _within(timeout: float | None, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns, or raise TimeoutError; the clock is looked at only if it has to wait at all."""
    try:
        waits_for = work.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    async with asyncio.timeout(timeout):
        return await _rest(work, waits_for)


@types.coroutine
def _rest(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Go on with work that has begun and waits for something, which is handed to the loop as `await` would do it."""
    while True:
        try:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - a cancellation is for the work to see first
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
        except StopIteration as finished:
            result: T = finished.value
            return result
