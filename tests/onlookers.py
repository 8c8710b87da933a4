"""Identities that may only read, and a transport that counts what reaches the server, for tests of dry runs."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

from kubetide.embedded.apiserver.rest.requests import User
from kubetide.kube.client.transport import Response, Transport


class Counted:
    """A transport that remembers which writes reached the server, and what it took and refused."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.writes: list[str] = []
        self.written: list[str] = []
        self.refused: list[str] = []

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
        if method not in ("GET", "HEAD"):
            self.writes.append(f"{method} {path}")
        response = await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout=timeout
        )
        if response.status == 403:
            self.refused.append(f"{method} {path}: {response.body.decode()}")
        elif method not in ("GET", "HEAD") and response.status < 300:
            self.written.append(f"{method} {path}")
        return response

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        await self._inner.close()


def onlooker(component: str) -> User:
    name = f"system:serviceaccount:kube-system:kubetide-{component}-dry-run"
    return User(name, ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"))
