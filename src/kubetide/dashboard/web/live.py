"""Server-sent events: whoever has a page open hears that there is something new, and asks for what it shows."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web

from kubetide.api.values.codec import encode
from kubetide.dashboard.web.watching import ClusterWatch, Expired
from kubetide.errors import KubetideError

KEEP_ALIVE_SECONDS = 20.0
"""Proxies end a connection on which nothing happens."""


async def follow(request: web.Request, watch: ClusterWatch, headers: Mapping[str, str]) -> web.StreamResponse:
    """Report every new look at a cluster until the other end goes away."""
    response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await response.prepare(request)
    with suppress(ConnectionResetError, ConnectionAbortedError):  # the page was closed
        await _tell(response, watch)
    return response


async def _tell(response: web.StreamResponse, watch: ClusterWatch) -> None:
    await response.write(b"retry: 3000\n\n")
    version = 0
    while True:
        try:
            if version == 0:
                look = await watch.current()
            else:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    found = await watch.after(version)
                if found is None:
                    await _send(response, "problem", {"text": watch.problem})
                    look = await watch.current()
                    continue
                look = found
        except TimeoutError:
            await response.write(b": still here\n\n")
            continue
        except Expired:
            await _send(response, "expired", {})
            return
        except KubetideError as error:
            await _send(response, "problem", {"text": str(error)})
            await asyncio.sleep(KEEP_ALIVE_SECONDS)
            continue
        version = look.version
        await _send(response, "look", {"version": version, "at": f"{look.view.now:%a %H:%M:%S}"})


async def _send(response: web.StreamResponse, event: str, data: object) -> None:
    await response.write(b"event: " + event.encode() + b"\ndata: " + encode(data) + b"\n\n")
