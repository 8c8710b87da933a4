"""An HTTP server on a port for as long as a block lasts, and not a moment longer.

Stopping a web server closes its connections, with two gaps that this module fills:

- A connection in its TLS handshake has met nobody yet. If the handshake ends after the server has stopped, the
  connection would be served by a component that no longer runs; here it is aborted as soon as it appears. Where the
  handshake does not end, the connection would stay; here the listening sockets know it, and end it.
- A TLS connection that was closed politely stays until the peer says goodbye too, for up to half a minute. Here a
  peer has a moment for it, and is then cut off.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any
from weakref import WeakSet

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

GOODBYE_SECONDS = 0.5
_NOT_HERE = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_ROUNDS = 20
"""So many rounds of the loop a connection has to notice its end; it takes two or three."""


@asynccontextmanager
async def listening(
    runner: web.AppRunner | web.ServerRunner,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    backlog: int = 128,
) -> AsyncIterator[int]:
    """Serve on `host` and `port` (0: a free one) while the block lasts, and give the port.

    Requests in flight at the end have the runner's shutdown timeout to be answered.
    """
    await runner.setup()
    assert runner.server is not None, "a runner that is set up has a server"
    connections = _Connections(runner.server)
    doors: list[_Door] = []
    try:
        doors += await _open(host, port)
        for door in doors:
            await web.SockSite(runner, door, ssl_context=tls, backlog=backlog).start()
        yield doors[0].getsockname()[1]
    finally:
        connections.closing = True
        try:
            await runner.cleanup()
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await connections.gone.wait()
        finally:
            connections.abort()
            await _clear(doors)


class _Door(socket.socket):
    """A listening socket that remembers whom it let in."""

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self.let_in: WeakSet[socket.socket] = WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self.let_in.add(connection)
        return connection, address


async def _open(host: str, port: int) -> list[_Door]:
    """Return a socket for each address that the host stands for, all on one port, bound and not yet listening.

    Addresses of a kind that this machine does not have are left out, as long as there is another.
    """
    passive = socket.AI_PASSIVE
    infos = await asyncio.get_running_loop().getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=passive)
    doors: list[_Door] = []
    failed: OSError | None = None
    for family, _, protocol, _, (address, _, *scope) in dict.fromkeys(infos):
        try:
            doors.append(_bound(family, protocol, (address, port, *scope)))
            port = doors[0].getsockname()[1]
        except OSError as error:
            failed = OSError(error.errno, f"cannot listen on {address!s}:{port}: {error.strerror}")
            if error.errno not in _NOT_HERE:
                break
    if failed is not None and (failed.errno not in _NOT_HERE or not doors):
        for door in doors:
            door.close()
        raise failed
    return doors


def _bound(family: int, protocol: int, address: tuple[Any, ...]) -> _Door:
    door = _Door(family, socket.SOCK_STREAM, protocol)
    try:
        door.setblocking(False)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        door.bind(address)
    except OSError:
        door.close()
        raise
    return door


async def _clear(doors: Iterable[_Door]) -> None:
    """End what is left of the connections, on their sockets: those that still shake hands have nothing else."""
    for _ in range(_ROUNDS):
        left = [connection for door in doors for connection in door.let_in if connection.fileno() >= 0]
        if not left:
            return
        for connection in left:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        await asyncio.sleep(0)


class _Connections:
    """Which connections of a server are open, by what it is told when they come and go."""

    def __init__(self, server: web.Server) -> None:
        self.closing = False
        self.gone = asyncio.Event()
        self.gone.set()
        self._open: dict[RequestHandler, asyncio.Transport] = {}
        self._server_made, self._server_lost = server.connection_made, server.connection_lost
        server.connection_made = self._made  # type: ignore[method-assign]
        server.connection_lost = self._lost  # type: ignore[method-assign]

    def abort(self) -> None:
        for transport in self._open.values():
            transport.abort()

    def _made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        self._open[handler] = transport
        self.gone.clear()
        self._server_made(handler, transport)
        if self.closing:
            transport.abort()

    def _lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._open.pop(handler, None)
        if not self._open:
            self.gone.set()
        self._server_lost(handler, exc)
