"""How long a connection may keep a server waiting, and how many there may be: for every HTTP server that we open.

A connection passes through three states, and in two of them somebody else decides how long they last:

    waiting    for the TLS handshake and the headers of a request: `header_seconds` for the first one, counted from the
               accept, `idle_seconds` for each one after it
    reading    the body: `body_seconds` from the end of the headers
    answering  our own work, however long it takes (a watch lasts for half an hour)

Bytes that trickle in do not extend a limit, so a client that sends one byte a second gains nothing by it. An answer
that its reader takes slowly is waited for as long as it takes any of it.

At most `connections` are open. The next one takes the place of the one that has been waiting longest, because a client
that holds connections without asking must not keep out a probe that asks; if all are being answered, it is refused.
"""

import asyncio
import math
import socket
import ssl
from dataclasses import dataclass

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from kubetide.kube.wire import Timer, Timers
from kubetide.log import Throttle, get_logger

log = get_logger("http")

_OURS_COMES_FIRST = 86_400.0
"""asyncio limits handshakes too, in the time of the loop; ours are limited in the time of the wire."""

_LATE_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one client may cost a server."""

    header_seconds: float = 10.0
    body_seconds: float = 30.0
    idle_seconds: float = 120.0
    """Longer than the 90 seconds after which Go's client gives an idle connection up, so that it is never surprised."""
    connections: int = 512
    header_bytes: int = 8 * 1024
    """The longest request line, and the longest header; there may be 128 of them."""
    body_bytes: int | None = 64 * 1024
    """None: the handler counts for itself."""

    def runner(self, app: web.Application, *, shutdown_seconds: float = 60.0) -> web.AppRunner:
        """Return a runner for `app` whose parser keeps to the limits."""
        return web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=shutdown_seconds,
            max_line_size=self.header_bytes,
            max_field_size=self.header_bytes,
            # How long the rest of a body is read that nobody wanted.
            lingering_time=min(1.0, self.body_seconds),
        )

    def grpc_options(self) -> list[tuple[str, int]]:
        """Return the same limits for a gRPC server. Its sockets are for this node only; their number is not capped."""
        return [
            ("grpc.server_handshake_timeout_ms", round(self.header_seconds * 1000)),
            ("grpc.max_connection_idle_ms", round(self.idle_seconds * 1000)),
            ("grpc.max_metadata_size", self.header_bytes),
            ("grpc.max_concurrent_streams", self.connections),
        ]


class Connections:
    """The connections of one server."""

    def __init__(self, server: web.Server, limits: ConnectionLimits, timers: Timers) -> None:
        self.limits = limits
        self.timers = timers
        self.closing = False
        self.gone = asyncio.Event()
        self.gone.set()
        self._server = server
        self._open: dict[RequestHandler, _Connection] = {}
        self._full = Throttle()
        self._answer = server.request_handler
        self._server_made, self._server_lost = server.connection_made, server.connection_lost
        server.request_handler = self._handle
        server.connection_made = self._made  # type: ignore[method-assign]
        server.connection_lost = self._lost  # type: ignore[method-assign]

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, peer: socket.socket, tls: ssl.SSLContext | None, group: asyncio.TaskGroup) -> None:
        """Take in a connection that was accepted, or close it if there is no room."""
        if len(self._open) >= self.limits.connections and not self._make_room():
            peer.close()
            return
        handler = self._server()
        connection = self._open[handler] = _Connection(self, handler)
        self.gone.clear()
        connection.wait(self.limits.header_seconds)
        connection.handshake = group.create_task(connection.shake_hands(peer, tls))
        connection.handshake.add_done_callback(lambda _: connection.shaken(peer))

    def forget(self, handler: RequestHandler) -> None:
        """Count a connection no more."""
        self._open.pop(handler, None)
        if not self._open:
            self.gone.set()

    def abort(self, *, shaking: bool = False) -> None:
        """End all connections, or only those that have not finished their handshake."""
        for connection in tuple(self._open.values()):
            if not shaking or connection.transport is None:
                connection.end()

    def _make_room(self) -> bool:
        idle = [connection for connection in self._open.values() if connection.waiting_since is not None]
        oldest = min(idle, key=lambda connection: connection.waiting_since or 0.0, default=None)
        held_back = self._full.admit(self.timers.time())
        if held_back is not None:
            log.warning(
                "connection limit reached",
                limit=self.limits.connections,
                ended="the one that waited longest" if oldest is not None else "the new one",
                unreported=held_back,
            )
        if oldest is None:
            return False
        oldest.end()
        return True

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = self._open.get(request.protocol)
        if connection is None:
            return await self._answer(request)
        connection.read(request)
        try:
            limit = self.limits.body_bytes
            if limit is not None and (request.content_length or 0) > limit:
                refusal = web.Response(status=413, text=f"the body is longer than {limit} bytes")
                refusal.force_close()
                return refusal
            return await self._answer(request)
        finally:
            connection.wait(self.limits.idle_seconds)

    def _made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        self._server_made(handler, transport)
        connection = self._open.get(handler)
        if connection is not None and not self.closing:
            connection.transport = transport
        else:
            transport.abort()

    def _lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        connection = self._open.get(handler)
        if connection is not None:
            connection.over()
        self._server_lost(handler, exc)


class _Connection:
    """One connection: what it waits for, and until when. One timer, which looks again when the limit has moved."""

    def __init__(self, all_of_them: Connections, handler: RequestHandler) -> None:
        self._all = all_of_them
        self._timers = all_of_them.timers
        self._handler = handler
        self.transport: asyncio.Transport | None = None
        self.handshake: asyncio.Task[None] | None = None
        self.waiting_since: float | None = None
        """None while a request is read or answered."""
        self._began = False
        self._request: web.BaseRequest | None = None
        self._unsent = 0
        self._limit = math.inf
        self._timer: Timer | None = None
        self._rings_at = math.inf

    async def shake_hands(self, peer: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Make the socket a connection of the server."""
        self._began = True
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: self._handler,
                peer,
                ssl=tls,
                ssl_handshake_timeout=_OURS_COMES_FIRST if tls is not None else None,
            )
        except Exception as error:  # noqa: BLE001 - whatever a peer does in its handshake concerns this peer alone
            log.debug("handshake failed", error=str(error) or type(error).__name__)

    def shaken(self, peer: socket.socket) -> None:
        """Take note of the end of the handshake."""
        if not self._began:
            peer.close()
        if self.transport is None:
            self.over()

    def wait(self, seconds: float) -> None:
        """Wait for the next request."""
        now = self._timers.time()
        self.waiting_since = now
        self._request = None
        self._set_limit(now + seconds)

    def read(self, request: web.BaseRequest) -> None:
        """Read the body of a request and answer it."""
        self.waiting_since = None
        self._request = request
        self._set_limit(math.inf if request.content.is_eof() else self._timers.time() + self._all.limits.body_seconds)

    def end(self) -> None:
        """End the connection at once."""
        self.over()
        if self.transport is not None:
            self.transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()

    def over(self) -> None:
        """Let go of a connection that has ended."""
        self._limit = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._all.forget(self._handler)

    def _set_limit(self, at: float) -> None:
        self._limit = at
        if at < self._rings_at:
            if self._timer is not None:
                self._timer.cancel()
            self._rings_at = at
            self._timer = self._timers.call_later(at - self._timers.time(), self._look)

    def _look(self) -> None:
        now = self._timers.time()
        late = now - self._rings_at
        self._timer, self._rings_at = None, math.inf
        if late > _LATE_SECONDS:
            # The loop was busy with something else, and what the client sent may still lie in the socket.
            self._limit = max(self._limit, now + late)
        if self._limit > now:
            if self._limit < math.inf:
                self._set_limit(self._limit)
            return
        if self._request is not None and self._request.content.is_eof():
            return
        if self._is_taking_its_answer():
            self._set_limit(now + self._all.limits.idle_seconds)
            return
        log.debug("cut off a connection that kept us waiting", reading=self._request is not None)
        self.end()

    def _is_taking_its_answer(self) -> bool:
        # One over TLS that has been closed has no buffer to ask about.
        if self.transport is None or self.transport.is_closing():
            return False
        unsent = self.transport.get_write_buffer_size()
        before, self._unsent = self._unsent, unsent
        return unsent > 0 and unsent != before
