"""The transport over HTTP(S), on aiohttp: pooled connections, TLS, gzip, credentials that renew themselves.

A body is read up to a limit, and what is longer is refused without being kept. Watch lines are split here, because
a line may be as long as a body. A watch on a quiet resource may be silent for as long as the server was asked to keep
it open, so silence alone says nothing: TCP keep-alive finds a peer that is gone.

Where the process is out of file descriptors, requests pause for a moment, so that everything that tries again does not
do so at once, and it is reported once a minute.
"""

import asyncio
import errno
import io
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from kubetide import __version__
from kubetide.kube.client.answers import current_share
from kubetide.kube.client.credentials import Presented
from kubetide.kube.client.errors import ConnectionLost, RequestTimeout, ResponseTooLarge, UntrustedServer, error_from
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ClientTls
from kubetide.kube.client.transport import BODY_LIMIT, Response, largest_answer
from kubetide.log import Throttle, get_logger

CONNECT_SECONDS = 10.0
# How long after the end it was asked for a watch may still be silent before the server counts as gone.
SILENCE_SECONDS = 30.0
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
READ_SIZE = 256 * 1024
PAUSE_SECONDS = 1.0
"""How long nothing is sent after the process ran out of file descriptors."""

log = get_logger("http")


class HttpTransport:
    """Talks to one API server as one identity."""

    def __init__(
        self,
        access: Access,
        *,
        body_limit: int = BODY_LIMIT,
        silence: float = SILENCE_SECONDS,
        user_agent: str = f"kubetide/{__version__}",
    ) -> None:
        self._access = access
        self._tls = ClientTls(access.trust) if access.server.startswith("https://") else None
        self._proxy = access.proxy or _proxy_from_environment(access.server)
        self._body_limit = body_limit
        self._silence = silence
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None
        self._paused_until = 0.0
        self._complaints = Throttle()
        self._closed = False

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
        """Send one request; once more with renewed credentials when the server does not know us."""
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        if "/proxy/" in path:
            # Packing costs what is behind the proxy several times the CPU of the answer (Prometheus: five times).
            headers["Accept-Encoding"] = "identity"
        what = f"{method} {path}"
        try:
            async with asyncio.timeout(timeout):
                presented = await self._access.credentials.present()
                response = await self._send(method, path, query, body, headers, presented, what)
                if response.status == 401 and await self._access.credentials.refused(presented):
                    presented = await self._access.credentials.present()
                    response = await self._send(method, path, query, body, headers, presented, what)
                return response
        except TimeoutError as error:
            raise RequestTimeout(f"{what}: no answer within {timeout:g} s") from error

    @asynccontextmanager
    async def watch(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch."""
        what = f"watch {path}"
        headers = {"Accept": "application/json"}
        silence = float(query["timeoutSeconds"]) + self._silence if "timeoutSeconds" in query else None
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        presented = await self._access.credentials.present()
        for attempt in (1, 2):
            with _as_unavailable(what):
                opened = await self._open("GET", path, query, None, headers, presented, timeout)
            async with _closing(opened):
                if opened.status == 200:
                    _keep_alive(opened)
                    yield self._lines(opened, what)
                    return
                with _as_unavailable(what):
                    failed = Response(opened.status, _headers(opened), await self._read(opened, path, what))
            if attempt == 2 or failed.status != 401 or not await self._access.credentials.refused(presented):
                raise error_from(failed)
            presented = await self._access.credentials.present()

    @asynccontextmanager
    async def socket(
        self, path: str, query: Mapping[str, str], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket; raises the ApiError of an answer that is no upgrade."""
        presented = await self._access.credentials.present()
        try:
            with _as_unavailable(f"GET {path}"):
                stream = await self._connected().ws_connect(
                    self._url(path, query),
                    protocols=(protocol,),
                    headers=dict(presented.headers),
                    max_msg_size=self._body_limit,
                    **self._options(presented),
                )
        except ConnectionLost as error:
            if isinstance(error.__cause__, aiohttp.WSServerHandshakeError):
                raise error_from(Response(error.__cause__.status)) from error
            raise
        async with stream:
            yield stream

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None
            # What was cut off is gone only after the loop has turned: once for TLS, once for the socket below.
            for _ in range(2):
                await asyncio.sleep(0)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        presented: Presented,
        what: str,
    ) -> Response:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        with _as_unavailable(what):
            opened = await self._open(method, path, query, body, headers, presented, timeout)
            async with _closing(opened):
                return Response(opened.status, _headers(opened), await self._read(opened, path, what))

    async def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        presented: Presented,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        loop = asyncio.get_running_loop()
        if loop.time() < self._paused_until:
            await asyncio.sleep(self._paused_until - loop.time())
        try:
            return await self._connected().request(
                method,
                self._url(path, query),
                data=body,
                headers=[*headers.items(), *presented.headers],
                timeout=timeout,
                allow_redirects=False,
                **self._options(presented),
            )
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._pause(error, loop.time())
            raise

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        # Names arrive escaped, so the URL is taken as it is.
        text = self._access.server + path
        return URL(f"{text}?{urlencode(query, quote_via=quote)}" if query else text, encoded=True)

    def _options(self, presented: Presented) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self._tls is not None:
            options["ssl"] = self._tls.context(presented.certificate)
            if self._access.tls_server_name:
                options["server_hostname"] = self._access.tls_server_name
        if self._proxy:
            options["proxy"] = self._proxy
        return options

    def _pause(self, error: OSError, now: float) -> None:
        self._paused_until = now + PAUSE_SECONDS
        held_back = self._complaints.admit(now)
        if held_back is not None:
            log.warning(
                "cannot open connections, will try again",
                server=self._access.server,
                error=os.strerror(error.errno or 0),
                unreported=held_back,
            )

    def _connected(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ConnectionLost("the transport is closed")
        if self._session is None:
            # The client bounds how much is asked at once; watches hold one connection each.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                headers={"User-Agent": self._user_agent, "Accept-Encoding": "gzip"},
                read_bufsize=READ_SIZE,
            )
        return self._session

    async def _read(self, response: aiohttp.ClientResponse, path: str, what: str) -> bytes:
        """Read a body of at most the limit."""
        limit = min(self._body_limit, largest_answer(path))
        declared = response.headers.get("Content-Length", "")
        if declared.isdecimal() and int(declared) > limit:
            response.close()
            raise _too_large(what, limit)
        share = current_share()
        # The length that is declared is that of what is sent, and says little about what it unpacks to.
        packed = "Content-Encoding" in response.headers
        at_most = int(declared) if declared.isdecimal() and not packed else limit
        # Closed, not dropped: an error that somebody keeps holds this frame, and with it all that was read.
        with io.BytesIO() as kept:
            async for chunk in response.content.iter_any():
                size = kept.tell() + len(chunk)
                if size > limit:
                    response.close()
                    raise _too_large(what, limit)
                if share is not None:
                    await share.cover(size, at_most=at_most)
                kept.write(chunk)
            if share is not None:
                share.keep(kept.tell())
            return kept.getvalue()

    async def _lines(self, response: aiohttp.ClientResponse, what: str) -> AsyncIterator[bytes]:
        """Split a stream into lines; a stream that ends inside one was cut off."""
        parts: list[bytes] = []
        size = 0
        chunks = response.content.iter_any()
        while True:
            with _as_unavailable(what):
                chunk = await anext(chunks, b"")
            if not chunk:
                break
            head, *rest = chunk.split(b"\n")
            parts.append(head)
            size += len(head)
            if size > self._body_limit:
                parts.clear()
                raise _too_large(what, self._body_limit)
            if not rest:
                continue
            for line in (b"".join(parts), *rest[:-1]):
                if line.strip():
                    yield line
            parts, size = [rest[-1]], len(rest[-1])
        if size:
            raise ConnectionLost(f"{what}: the stream ended inside a line")


def _too_large(what: str, limit: int) -> ResponseTooLarge:
    return ResponseTooLarge(f"{what}: the answer is longer than the limit of {limit} bytes")


@asynccontextmanager
async def _closing(response: aiohttp.ClientResponse) -> AsyncIterator[None]:
    """Give the connection back if the answer was read to its end, else cut it off."""
    try:
        yield
    finally:
        if response.content.at_eof():
            response.release()
        else:
            # Not a polite goodbye: the peer of a watch may not answer one for a long time.
            transport = response.connection.transport if response.connection is not None else None
            if transport is not None:
                transport.abort()
            response.close()


def _keep_alive(response: aiohttp.ClientResponse) -> None:
    """Let the kernel find out within a minute that the peer of a silent connection is gone."""
    transport = response.connection.transport if response.connection is not None else None
    peer: socket.socket | None = transport.get_extra_info("socket") if transport is not None else None
    if peer is None:
        return
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        # Linux and macOS have different ones of these.
        if hasattr(socket, name):
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


@contextmanager
def _as_unavailable(what: str) -> Iterator[None]:
    """Turn everything that can go wrong on the way into an error of ours."""
    try:
        yield
    except aiohttp.ClientSSLError as error:
        raise UntrustedServer(f"{what}: the server's certificate was not accepted: {error}") from error
    except TimeoutError as error:
        raise RequestTimeout(f"{what}: the server fell silent") from error
    except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
        raise ConnectionLost(f"{what}: {why(error)}") from error


def _proxy_from_environment(server: str) -> str:
    parts = urlsplit(server)
    host = parts.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1" or proxy_bypass(host):
        return ""
    return getproxies().get(parts.scheme, "")


def why(error: Exception) -> str:
    """Return why a connection failed: where to, in the system's own words, without the representation of a socket."""
    if not isinstance(error, aiohttp.ClientConnectorError) or error.os_error.errno is None:
        return str(error) or type(error).__name__
    number = error.os_error.errno
    # Numbers below zero are those of name resolution, which strerror does not know.
    reason = os.strerror(number) if number > 0 else error.os_error.strerror
    return f"cannot connect to {error.host}:{error.port}: {reason}"
