"""An HTTP server on a port for as long as a block lasts, and not a moment longer: the one door of every server we open.

Connections are accepted here, not by a site of the web framework, because four things belong together at this point:

- the TLS context is asked for per connection, so that a certificate can be replaced without dropping a request;
- a connection is limited from its first moment on, in its TLS handshake already (`kube.connections`);
- where the process is out of file descriptors, accepting pauses and reports it once a minute;
- when the server stops, connections in their handshake end with it, and a peer that does not return a TLS goodbye is
  cut off after a moment rather than after half a minute.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web

from kubetide.kube.connections import ConnectionLimits, Connections
from kubetide.kube.wire import rest, wire_timers
from kubetide.log import Throttle, get_logger

log = get_logger("http")

Tls = ssl.SSLContext | Callable[[], ssl.SSLContext]
"""A context, or what gives the one for the next connection."""

GOODBYE_SECONDS = 0.5
ACCEPT_PAUSE_SECONDS = 1.0
_NOT_HERE = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


@asynccontextmanager
async def listening(
    runner: web.AppRunner | web.ServerRunner,
    host: str,
    port: int,
    *,
    tls: Tls | None = None,
    backlog: int = 128,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[int]:
    """Serve on `host` and `port` (0: a free one) while the block lasts, and give the port.

    Requests in flight at the end have the runner's shutdown timeout to be answered.
    """
    await runner.setup()
    assert runner.server is not None, "a runner that is set up has a server"
    connections = Connections(runner.server, limits or ConnectionLimits(), wire_timers())
    try:
        doors = await _open(host, port, backlog)
    except BaseException:
        await runner.cleanup()
        raise
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        accepting = [group.create_task(_accept(door, connections, tls, group)) for door in doors]
        try:
            yield doors[0].getsockname()[1]
        except Exception as error:  # noqa: BLE001 - raised again below, as itself and not as a group
            failure = error
        finally:
            connections.closing = True
            for task in accepting:
                task.cancel()
            for door in doors:
                asyncio.get_running_loop().remove_reader(door)
                door.close()
            connections.abort(shaking=True)
            try:
                await runner.cleanup()
                with suppress(TimeoutError):
                    async with asyncio.timeout(GOODBYE_SECONDS):
                        await connections.gone.wait()
            finally:
                connections.abort()
    if failure is not None:
        raise failure


async def _accept(door: socket.socket, connections: Connections, tls: Tls | None, group: asyncio.TaskGroup) -> None:
    """Accept connections until cancelled.

    Nothing is awaited between accepting a connection and admitting it: with `loop.sock_accept` one that comes in the
    moment in which this task is cancelled would belong to nobody, and stay open.
    """
    port = door.getsockname()[1]
    complaints = Throttle()
    while True:
        try:
            peer, _ = door.accept()
        except (BlockingIOError, InterruptedError):
            await _somebody_at(door)
            continue
        except ConnectionAbortedError:
            continue
        except OSError as error:
            held_back = complaints.admit(connections.timers.time())
            if held_back is not None:
                log.warning(
                    "cannot accept connections, will try again",
                    port=port,
                    error=error.strerror,
                    open=len(connections),
                    unreported=held_back,
                )
            await rest(connections.timers, ACCEPT_PAUSE_SECONDS)
            continue
        peer.setblocking(False)
        connections.admit(peer, tls() if callable(tls) else tls, group)


async def _somebody_at(door: socket.socket) -> None:
    """Wait until there is a connection to accept."""
    loop = asyncio.get_running_loop()
    there: asyncio.Future[None] = loop.create_future()
    loop.add_reader(door, _answer, there)
    try:
        await there
    finally:
        if door.fileno() >= 0:  # closed, it is not read any more, and its number may be another's
            loop.remove_reader(door)


def _answer(there: "asyncio.Future[None]") -> None:
    if not there.done():
        there.set_result(None)


async def _open(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Return a listening socket for each address that the host stands for, all on one port.

    Addresses of a kind that this machine does not have are left out, as long as there is another.
    """
    passive = socket.AI_PASSIVE
    infos = await asyncio.get_running_loop().getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=passive)
    doors: list[socket.socket] = []
    failed: OSError | None = None
    for family, _, protocol, _, (address, _, *scope) in dict.fromkeys(infos):
        try:
            doors.append(_bound(family, protocol, (address, port, *scope), backlog))
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


def _bound(family: int, protocol: int, address: tuple[Any, ...], backlog: int) -> socket.socket:
    door = socket.socket(family, socket.SOCK_STREAM, protocol)
    try:
        door.setblocking(False)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        door.bind(address)
        door.listen(backlog)
    except OSError:
        door.close()
        raise
    return door
