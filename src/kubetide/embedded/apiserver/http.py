"""The embedded API server over HTTP(S): the same verbs, behind a socket.

Bodies are read up to a limit and within a time, headers within a time; what is longer or slower is refused or cut
off. A watch is one joined write per wake-up; a reader that does not take its bytes in time is cut off, not waited for.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC
from email.utils import format_datetime
from random import SystemRandom
from urllib.parse import unquote

from aiohttp import web

from kubetide.embedded.apiserver.auth.authentication import authenticate
from kubetide.embedded.apiserver.outbound import Outbound
from kubetide.embedded.apiserver.rest.render import answer_raw
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.status import StatusError, bad_request, internal, timed_out, too_large
from kubetide.embedded.apiserver.rest.watching import WatchPlan
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.kube.connections import ConnectionLimits
from kubetide.kube.listener import listening
from kubetide.kube.wire import wire_seconds, wire_timeout, wire_timers
from kubetide.log import get_logger

log = get_logger("apiserver")

BODY_LIMIT = 3 * 1024 * 1024
"""The largest request body, as on a real API server."""
_WATCH_SECONDS = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Limits of the HTTP side."""

    body_limit: int = BODY_LIMIT
    header_seconds: float = 75.0
    """How long a connection may stay without a complete request."""
    body_seconds: float = 30.0
    write_seconds: float = 20.0
    """How long a watcher may leave its bytes unread."""
    watch_pause: float = 0.02
    """At least this long between two writes to one watcher: bursts are joined, a single change is sent at once."""
    connections: int = 4096
    """Every watch holds one."""

    @property
    def limits(self) -> ConnectionLimits:
        """The limits of a connection. A body that is too long or too slow is refused here first, with a Status."""
        return ConnectionLimits(
            header_seconds=self.header_seconds,
            idle_seconds=self.header_seconds,
            body_seconds=2 * self.body_seconds,
            body_bytes=None,
            connections=self.connections,
        )


@dataclass(slots=True)
class Serving:
    """A server that is up."""

    host: str
    port: int
    scheme: str

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@asynccontextmanager
async def serve(
    api: ApiServer,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    anonymous: bool = False,
    options: ServerOptions | None = None,
) -> AsyncIterator[Serving]:
    """Serve `api` while the context lasts. `anonymous` lets everybody in as administrator: plain HTTP in tests."""
    front = _Front(api, options or ServerOptions(), anonymous=anonymous)
    quiet = logging.getLogger("kubetide.apiserver.http")
    quiet.propagate = False
    quiet.addHandler(logging.NullHandler())
    server = web.Server(
        front.handle,
        handler_cancellation=True,
        keepalive_timeout=wire_seconds(front.options.header_seconds),
        lingering_time=wire_seconds(1.0),
        max_line_size=32 * 1024,
        max_field_size=32 * 1024,
        access_log=None,
        logger=quiet,
    )
    runner = web.ServerRunner(server, shutdown_timeout=wire_seconds(1.0))
    outbound = Outbound(api)
    outbound.attach()
    try:
        async with listening(runner, host, port, tls=tls, backlog=512, limits=front.options.limits) as bound:
            try:
                yield Serving(host, bound, "https" if tls is not None else "http")
            finally:
                front.stop()
    finally:
        await outbound.close()


class _Front:
    """Turns HTTP requests into `Request`s and answers back into HTTP."""

    def __init__(self, api: ApiServer, options: ServerOptions, *, anonymous: bool) -> None:
        self._api = api
        self.options = options
        self._anonymous = anonymous
        self._random = SystemRandom()
        self._watches: set[asyncio.Task[object]] = set()

    def stop(self) -> None:
        """End all watches, so that the server can stop."""
        for task in tuple(self._watches):
            task.cancel()

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        try:
            request = await self._request(http)
            answer = await self._api.handle(request)
        except StatusError as error:
            answer = _refused(error)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("request failed", method=http.method, path=http.path)
            answer = _refused(internal("the request made the server fail; its log has the details"))
        if isinstance(answer, WatchPlan):
            return await self._stream(http, answer)
        response = _response(answer)
        # The time that the cluster lives in, so that clients on a wall clock can notice that it is another one.
        response.headers["Date"] = format_datetime(self._api.clock.now().astimezone(UTC), usegmt=True)
        return response

    async def _request(self, http: web.BaseRequest) -> Request:
        user = authenticate(http, self._api, anonymous=self._anonymous)
        raw = http.raw_path
        path, _, query = raw.partition("?")
        if not path.startswith("/") or len(raw) > 16 * 1024:
            raise bad_request("the path is not one of this server")
        return Request(
            http.method,
            path,
            _query(query),
            await self._body(http),
            http.headers.get("Content-Type", "application/json"),
            http.headers.get("Accept", "application/json"),
            user,
            http.headers.get("User-Agent", ""),
        )

    async def _body(self, http: web.BaseRequest) -> bytes | None:
        if not http.can_read_body:
            return None
        limit = self.options.body_limit
        if (http.content_length or 0) > limit:
            raise too_large(limit)
        chunks: list[bytes] = []
        size = 0
        try:
            async with wire_timeout(self.options.body_seconds):
                async for chunk in http.content.iter_any():
                    size += len(chunk)
                    if size > limit:
                        raise too_large(limit)
                    chunks.append(chunk)
        except TimeoutError:
            raise timed_out("the body of the request did not arrive in time") from None
        except web.RequestPayloadError as error:
            raise bad_request(f"the body of the request cannot be read: {error}") from error
        return b"".join(chunks) or None

    async def _stream(self, http: web.BaseRequest, plan: WatchPlan) -> web.StreamResponse:
        if plan.timeout is None:
            # Not the server's own randomness: who watches a simulation must not change the names of its pods.
            plan.timeout = _WATCH_SECONDS * (1 + self._random.random())
        plan.timers = wire_timers()
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        await response.prepare(http)
        task = asyncio.current_task()
        if task is not None:
            self._watches.add(task)
        plan.pause = self.options.watch_pause
        batches = plan.batches()
        guard = _Guard(http, self.options.write_seconds)
        try:
            async for lines in batches:
                guard.writing_since = guard.now()
                await response.write(b"\n".join(lines) + b"\n")
                guard.writing_since = None
            await response.write_eof()
        except ConnectionError:
            log.debug("a watcher went away", path=http.path)
        finally:
            guard.cancel()
            await batches.aclose()
            if task is not None:
                self._watches.discard(task)
        return response


class _Guard:
    """Cuts off a watcher that leaves its bytes unread. One timer per watch: a timeout around every write costs more."""

    def __init__(self, http: web.BaseRequest, limit: float) -> None:
        self._http = http
        self._limit = limit
        self._timers = wire_timers()
        self.writing_since: float | None = None
        self._timer = self._timers.call_later(limit / 2, self._look)

    def now(self) -> float:
        return self._timers.time()

    def cancel(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self.writing_since is not None and self.now() - self.writing_since > self._limit:
            log.info("cut off a slow watcher", path=self._http.path)
            if self._http.transport is not None:
                self._http.transport.abort()
            return
        self._timer = self._timers.call_later(self._limit / 2, self._look)


def _query(text: str) -> dict[str, str]:
    """Return the parameters of a query; of several with one name the last counts."""
    found: dict[str, str] = {}
    if not text:
        return found
    try:
        for part in text.split("&"):
            name, _, value = part.partition("=")
            if name:
                found[_unquote(name)] = _unquote(value)
    except UnicodeDecodeError:
        raise bad_request("the query is not valid UTF-8") from None
    return found


def _unquote(text: str) -> str:
    return unquote(text.replace("+", " "), errors="strict")


def _refused(error: StatusError) -> Answer:
    told = answer_raw(error.to_raw(), error.code)
    return Answer(told.status, told.body, headers={"www-authenticate": "Bearer"} if error.code == 401 else {})


def _response(answer: Answer) -> web.Response:
    headers = {**answer.headers, "Content-Type": answer.content_type, "Cache-Control": "no-cache, private"}
    return web.Response(status=answer.status, body=answer.body, headers=headers)
