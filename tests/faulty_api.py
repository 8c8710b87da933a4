"""The embedded API server behind a transport that can be told to misbehave, for tests of the client.

Objects are put into the store as they are, without validation and defaults; what a client writes passes all of it.
Namespaces are made where they are missing. Every request and every watch line passes through a `FaultPlan`, which may
answer, break, repeat, delay or garble it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kubetide.api.objects.meta import ObjectKey
from kubetide.clock import Clock, SystemClock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.resources import ApiResource
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.time.loop import virtual_clock
from kubetide.kube.client.errors import error_from
from kubetide.kube.client.transport import Response

Raw = dict[str, Any]


class EndOfStream(Exception):
    """Ends a watch in order."""


class FaultPlan:
    """The behaviour of a healthy server; tests override what should go wrong."""

    def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
        """Return an answer instead of the real one, raise to break the connection, or None to behave."""
        return None

    def lines(self, line: bytes) -> Iterable[bytes | Exception]:
        """Return what is sent instead of a watch line; an exception breaks or ends the stream."""
        return (line,)


class FaultyApi:
    """The server, and short ways to its store by collection (`/api/v1/pods`)."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.server = ApiServer(clock=clock or _clock())
        self.requests: list[tuple[str, str, dict[str, str], bytes | None]] = []

    @property
    def version(self) -> int:
        """The resource version of the newest change."""
        return self.server.store.revision

    def objects(self, collection: str) -> dict[ObjectKey, Raw]:
        """Return the objects of a collection as they are stored."""
        entries = self.server.store.collection(self._resource(collection).storage).entries()
        return {ObjectKey(*entry.key): entry.obj for entry in entries}

    def put(self, collection: str, raw: Raw) -> Raw:
        """Create or replace an object."""
        resource = self._resource(collection)
        meta = raw["metadata"]
        namespace = meta.get("namespace") or ""
        self.ensure_namespace(namespace)
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, **raw, "metadata": dict(meta)}
        return self.server.store.put(resource.storage, StoreKey(namespace, meta["name"]), obj).obj

    def remove(self, collection: str, key: ObjectKey) -> None:
        """Delete an object, if it is there."""
        storage = self._resource(collection).storage
        if self.server.store.get(storage, StoreKey(*key)) is not None:
            self.server.store.delete(storage, StoreKey(*key))

    def forget_history(self) -> None:
        """Let every version before now be too old to watch from."""
        self.server.store.compact()

    def ensure_namespace(self, name: str) -> None:
        """Make a namespace, if it is not there."""
        namespaces = self._resource("/api/v1/namespaces").storage
        if name and self.server.store.get(namespaces, StoreKey("", name)) is None:
            self.server.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def _resource(self, collection: str) -> ApiResource:
        parts = collection.strip("/").split("/")
        group, version, plural = ("", *parts[1:]) if parts[0] == "api" else parts[1:]
        found = self.server.registry.find(group, version, plural)
        assert found is not None, f"the API server does not serve {collection}"
        return found


class FaultyTransport:
    """A `kube.client.transport.Transport` to a FaultyApi."""

    def __init__(self, api: FaultyApi, faults: FaultPlan | None = None) -> None:
        self._api = api
        self._inner = InProcessTransport(api.server)
        self.faults = faults or FaultPlan()

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
        """Answer one request."""
        asked = dict(query or {})
        self._api.requests.append((method, path, asked, body))
        await asyncio.sleep(0)
        fault = self.faults.answer(method, path, asked)
        if fault is not None:
            return fault
        before, _, rest = path.partition("/namespaces/")
        if method == "POST" and before and "/" in rest:
            self._api.ensure_namespace(rest.split("/")[0])
        return await self._inner.request(
            method, path, query=asked, body=body, content_type=content_type, accept=accept, timeout=timeout
        )

    @asynccontextmanager
    async def watch(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch."""
        self._api.requests.append(("WATCH", path, dict(query), None))
        await asyncio.sleep(0)
        fault = self.faults.answer("WATCH", path, query)
        if fault is not None:
            raise error_from(fault)
        async with self._inner.watch(path, query=query) as lines:
            yield self._tampered(lines)

    async def close(self) -> None:
        """Nothing is held."""

    async def _tampered(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for line in lines:
                for sent in self.faults.lines(line):
                    if isinstance(sent, Exception):
                        raise sent
                    yield sent
        except EndOfStream:
            return


def _clock() -> Clock:
    """Return the clock of the running loop, or the machine's where none runs."""
    try:
        return virtual_clock()
    except RuntimeError:
        return SystemClock()
