"""The embedded API server on a loopback port, with TLS and an administrator, for tests: sockets and real time."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.auth.identity import Identity, make_identity
from kubetide.embedded.apiserver.http import ServerOptions, Serving, serve
from kubetide.embedded.apiserver.rest.requests import ADMIN, User
from kubetide.embedded.apiserver.server import ApiServer, Audit
from kubetide.kube.client.credentials import Headers, Static, bearer
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import Certificate, Pem, ServerTrust


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is up."""

    api: ApiServer
    identity: Identity
    serving: Serving

    def transport(self, token: str | None = None, certificate: Certificate | None = None) -> HttpTransport:
        """Return a transport for the administrator, the bearer of a token, or the owner of a certificate."""
        headers: Headers = ()
        if certificate is None:
            headers = bearer(self.identity.token if token is None else token)
        trust = ServerTrust(ca=Pem(data=self.identity.ca.certificate))
        return HttpTransport(
            Access(server=self.serving.url, trust=trust, credentials=Static(headers, certificate=certificate))
        )


@asynccontextmanager
async def running(
    options: ServerOptions | None = None,
    *,
    window: int = 5000,
    audit: Audit | None = None,
    tokens: Mapping[str, User] | None = None,
) -> AsyncIterator[Running]:
    """Serve while the context lasts, the bearers of `tokens` too."""
    clock = SystemClock()
    identity = make_identity(None, now=clock.now())
    users = {identity.token: ADMIN, **(tokens or {})}
    api = ApiServer(clock=clock, token_key=identity.token_key, tokens=users, window=window, audit=audit)
    tls = identity.tls("127.0.0.1", now=clock.now())
    async with serve(api, tls=tls, options=options) as serving:
        yield Running(api, identity, serving)
