"""An HTTP server on a port for as long as a block lasts, and not a moment longer.

Stopping a web server closes its connections, with two gaps that this module fills:

- A connection in its TLS handshake has met nobody yet. If the handshake ends after the server has stopped, the
  connection would be served by a component that no longer runs; here it is aborted as soon as it appears.
- A TLS connection that was closed politely stays until the peer says goodbye too, for up to half a minute. Here a
  peer has a moment for it, and is then cut off.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

GOODBYE_SECONDS = 0.5


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
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls, backlog=backlog, reuse_address=True).start()
        yield runner.addresses[0][1]
    finally:
        connections.closing = True
        try:
            await runner.cleanup()
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await connections.gone.wait()
        finally:
            connections.abort()


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
