"""The embedded API server with faults on a real socket, with TLS and a record of who came: for the HTTP client.

`FaultyServer` puts a `FaultyTransport` behind aiohttp. It notes what each client presented (headers and client
certificate), can be stopped and started again on the same port with the same objects, and turns the `ConnectionLost`
of a fault plan into a connection that is really reset.
"""

import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType

from aiohttp import web

from faulty_api import FaultyTransport
from kubetide.kube.client.certificates import KeyPair
from kubetide.kube.client.errors import ApiError, ConnectionLost
from kubetide.kube.client.tls import Certificate, Pem, load_identity
from kubetide.kube.client.transport import Response
from kubetide.kube.listener import listening


@dataclass(frozen=True, slots=True)
class Visit:
    """What one request presented."""

    path: str
    authorization: str
    common_name: str
    headers: dict[str, str]


class FaultyServer:
    """Serves a FaultyTransport over HTTP or HTTPS on loopback."""

    def __init__(
        self,
        transport: FaultyTransport,
        *,
        identity: KeyPair | None = None,
        client_ca: str = "",
        admit: Callable[[Visit], bool] = lambda _: True,
    ) -> None:
        self.transport = transport
        self.visits: list[Visit] = []
        self.port = 0
        self._admit = admit
        self._context: ssl.SSLContext | None = None
        self._open = AsyncExitStack()
        if identity is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            pems = Certificate(certificate=Pem(data=identity.certificate), key=Pem(data=identity.key))
            load_identity(self._context, pems)
            if client_ca:
                self._context.load_verify_locations(cadata=client_ca)
                self._context.verify_mode = ssl.CERT_OPTIONAL

    @property
    def url(self) -> str:
        """The address to put into a kubeconfig."""
        return f"{'https' if self._context is not None else 'http'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen; on the port of the last time, if there was one."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        self.port = await self._open.enter_async_context(listening(runner, "127.0.0.1", self.port, tls=self._context))

    async def stop(self) -> None:
        """Close everything, watches included."""
        await self._open.aclose()

    async def __aenter__(self) -> "FaultyServer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        visit = _visit(request)
        self.visits.append(visit)
        if not self._admit(visit):
            return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)
        try:
            if request.query.get("watch") == "true":
                return await self._watch(request)
            return _web(
                await self.transport.request(
                    request.method, request.path, query=request.query, body=await request.read() or None
                )
            )
        except ConnectionLost:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        try:
            async with self.transport.watch(request.path, query=request.query) as lines:
                response = web.StreamResponse(headers={"Content-Type": "application/json"})
                await response.prepare(request)
                async for line in lines:
                    await response.write(line + b"\n")
                await response.write_eof()
                return response
        except ApiError as error:
            return web.json_response(
                {"kind": "Status", "code": error.status, "reason": error.reason}, status=error.status
            )


def _visit(request: web.Request) -> Visit:
    certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
    names = [value for part in (certificate or {}).get("subject", ()) for key, value in part if key == "commonName"]
    return Visit(
        path=request.path_qs,
        authorization=request.headers.get("Authorization", ""),
        common_name=names[0] if names else "",
        headers=dict(request.headers),
    )


def _web(response: Response) -> web.Response:
    headers = {**response.headers, "Content-Type": "application/json"}
    return web.Response(status=response.status, body=response.body, headers=headers)
