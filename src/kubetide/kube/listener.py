"""An HTTP server on a port for as long as a block lasts, and not a moment longer.

Closing a listening socket does not reach connections that are still in their TLS handshake: nobody has met them yet.
One that finishes its handshake after the server has stopped would be served by a component that no longer runs, and
would stay open until the peer tires of it. Here such a late connection is aborted as soon as it appears.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.web_protocol import RequestHandler


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
    server = runner.server
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls, backlog=backlog, reuse_address=True).start()
        yield runner.addresses[0][1]
    finally:
        if server is not None:
            server.connection_made = _abort  # type: ignore[method-assign]
        await runner.cleanup()


def _abort(handler: RequestHandler, transport: asyncio.Transport) -> None:
    transport.abort()
