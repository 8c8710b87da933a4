"""A very small API server in memory that can be told to misbehave: for tests of the client, not of semantics.

It knows lists with pages, watches with bookmarks, resource versions, conflicts and merge patches, and nothing of
types, validation or subresources (the embedded API server does). What it is for is the other half: every request
and every watch line passes through a `Faults` object, which may answer, break, repeat, delay or garble it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.patch import MergePatch
from kubetide.kube.client.errors import error_from
from kubetide.kube.client.transport import Response

Raw = dict[str, Any]


class EndOfStream(Exception):
    """Ends a watch in order."""


class Faults:
    """The behaviour of a healthy server; tests override what should go wrong."""

    def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
        """Return an answer instead of the real one, raise to break the connection, or None to behave."""
        return None

    def lines(self, line: bytes) -> Iterable[bytes | Exception]:
        """Return what is sent instead of a watch line; an exception breaks or ends the stream."""
        return (line,)


@dataclass(frozen=True, slots=True)
class _Target:
    """A path taken apart."""

    collection: str
    namespace: str
    name: str


class MemoryApi:
    """Objects by collection (`/api/v1/pods`), and the history of their changes."""

    def __init__(self) -> None:
        self.version = 100
        self.requests: list[tuple[str, str, dict[str, str], bytes | None]] = []
        self._objects: dict[str, dict[ObjectKey, Raw]] = {}
        self._history: list[tuple[int, str, str, Raw]] = []
        self._oldest = 0
        self._changed = asyncio.Event()

    def objects(self, collection: str) -> dict[ObjectKey, Raw]:
        """Return the objects of a collection."""
        return self._objects.setdefault(collection, {})

    def put(self, collection: str, raw: Raw) -> Raw:
        """Create or replace an object."""
        key = _key(raw)
        kind = "MODIFIED" if key in self.objects(collection) else "ADDED"
        stored = self._stamped(raw)
        self.objects(collection)[key] = stored
        self._record(kind, collection, stored)
        return stored

    def remove(self, collection: str, key: ObjectKey) -> None:
        """Delete an object, if it is there."""
        raw = self.objects(collection).pop(key, None)
        if raw is not None:
            self._record("DELETED", collection, self._stamped(raw))

    def forget_history(self) -> None:
        """Let every version before now be too old to watch from."""
        self._oldest = self.version
        self._history.clear()

    def after(self, collection: str, version: int) -> list[tuple[int, str, Raw]]:
        """Return the changes of a collection after a version."""
        return [(at, kind, raw) for at, kind, where, raw in self._history if where == collection and at > version]

    def too_old(self, version: int) -> bool:
        """Say whether a watch or a page cannot begin at a version."""
        return version < self._oldest

    async def wait_for_change(self) -> None:
        """Wait until something changes."""
        self._changed.clear()
        await self._changed.wait()

    def _stamped(self, raw: Raw) -> Raw:
        self.version += 1
        return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.version)}}

    def _record(self, kind: str, collection: str, raw: Raw) -> None:
        self._history.append((self.version, kind, collection, raw))
        self._changed.set()


class MemoryTransport:
    """A `kube.transport.Transport` to a MemoryApi."""

    def __init__(self, api: MemoryApi, faults: Faults | None = None, *, bookmark_seconds: float = 60.0) -> None:
        self._api = api
        self.faults = faults or Faults()
        self._bookmark_seconds = bookmark_seconds

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
        target = _parse(path)
        if method == "GET" and not target.name:
            return self._list(target, asked)
        return self._one(method, target, json.loads(body) if body else {})

    @asynccontextmanager
    async def watch(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch."""
        self._api.requests.append(("WATCH", path, dict(query), None))
        await asyncio.sleep(0)
        fault = self.faults.answer("WATCH", path, query)
        if fault is not None:
            raise error_from(fault)
        seconds = float(query.get("timeoutSeconds", "1e9"))
        yield self._stream(_parse(path).collection, int(query.get("resourceVersion") or 0), seconds)

    async def close(self) -> None:
        """Nothing is held."""

    async def _stream(self, collection: str, version: int, seconds: float) -> AsyncIterator[bytes]:
        try:
            async for line in self._healthy_lines(collection, version, seconds):
                for sent in self.faults.lines(line):
                    if isinstance(sent, Exception):
                        raise sent
                    yield sent
        except EndOfStream:
            return

    async def _healthy_lines(self, collection: str, version: int, seconds: float) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            if self._api.too_old(version):
                yield _line("ERROR", json.loads(_status(410, "Expired").body))
                return
            for at, kind, raw in self._api.after(collection, version):
                version = at
                yield _line(kind, raw)
            try:
                async with asyncio.timeout(min(self._bookmark_seconds, max(0.0, end - loop.time()))):
                    await self._api.wait_for_change()
            except TimeoutError:
                if self._api.too_old(version) or self._api.after(collection, version):
                    continue  # changed in the very moment of the bookmark
                version = self._api.version
                yield _line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    def _list(self, target: _Target, query: Mapping[str, str]) -> Response:
        items = [
            raw for key, raw in self._api.objects(target.collection).items() if target.namespace in ("", key.namespace)
        ]
        start, version = 0, self._api.version
        if query.get("continue"):
            start, version = (int(part) for part in query["continue"].split("@"))
            if self._api.too_old(version):
                return _status(410, "Expired")
        limit = int(query.get("limit") or 0) or len(items) or 1
        metadata: Raw = {"resourceVersion": str(version)}
        if start + limit < len(items):
            metadata["continue"] = f"{start + limit}@{version}"
            metadata["remainingItemCount"] = len(items) - start - limit
        body = {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items[start : start + limit]}
        return Response(200, {}, json.dumps(body).encode())

    def _one(self, method: str, target: _Target, body: Raw) -> Response:
        if method == "POST":
            if _key(body) in self._api.objects(target.collection):
                return _status(409, "AlreadyExists")
            return _ok(self._api.put(target.collection, body), 201)
        key = ObjectKey(target.namespace, target.name)
        current = self._api.objects(target.collection).get(key)
        if current is None:
            return _status(404, "NotFound")
        if method == "GET":
            return _ok(current)
        if method == "DELETE":
            self._api.remove(target.collection, key)
            return _ok(current)
        expected = (body.get("metadata") or {}).get("resourceVersion")
        if expected and expected != current["metadata"]["resourceVersion"]:
            return _status(409, "Conflict")
        return _ok(self._api.put(target.collection, body if method == "PUT" else MergePatch(body).apply(current)))


def _parse(path: str) -> _Target:
    parts = path.strip("/").split("/")
    depth = 2 if parts[0] == "api" else 3
    base, rest = parts[:depth], parts[depth:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return _Target("/" + "/".join([*base, rest[0]]), namespace, rest[1] if len(rest) > 1 else "")


def _key(raw: Raw) -> ObjectKey:
    meta = raw["metadata"]
    return ObjectKey(meta.get("namespace") or "", meta["name"])


def _line(kind: str, raw: Raw) -> bytes:
    return json.dumps({"type": kind, "object": raw}).encode()


def _ok(raw: Raw, status: int = 200) -> Response:
    return Response(status, {}, json.dumps(raw).encode())


def _status(code: int, reason: str) -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return Response(code, {}, json.dumps(body).encode())
