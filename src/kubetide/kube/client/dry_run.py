"""The seam of a dry run: a transport that reads as always, and answers every write by itself.

Whoever writes gets the answer that the API server would most likely give, so a component works as it does for real and
needs no `if`. The object is read and the patch applied to the copy; what came of it is handed to `held`. Not one write
is sent, so reading is all that the identity has to be allowed.

A write that is repeated unchanged is answered from memory: what was not written is wanted again and again.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.codec import decode_raw, encode
from kubetide.api.values.patch import JsonPatch, MergePatch, StrategicMergePatch
from kubetide.errors import KubetideError
from kubetide.kube.client.transport import Response, Transport

Raw = dict[str, Any]

_PATCHES = {kind.content_type: kind for kind in (MergePatch, JsonPatch, StrategicMergePatch)}


@dataclass(frozen=True, slots=True)
class Place:
    """What a path is about."""

    base: str
    plural: str
    key: ObjectKey
    subresource: str = ""

    @property
    def object_path(self) -> str:
        """The path of the object itself, whose subresource may be written."""
        namespace = f"/namespaces/{self.key.namespace}" if self.key.namespace else ""
        return f"{self.base}{namespace}/{self.plural}/{self.key.name}"


@dataclass(frozen=True, slots=True)
class HeldWrite:
    """A write that was not sent: the object as it is, and as it would be. None: it is not there."""

    method: str
    place: Place
    before: Raw | None
    after: Raw | None


def parse_path(path: str) -> Place:
    """Take the path of a request apart."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    head = 2 if parts[0] == "api" else 3
    base, rest = "/" + "/".join(parts[:head]), parts[head:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", "", ""][:3]
    return Place(base, plural, ObjectKey(namespace, name), subresource)


class DryRunTransport:
    """Passes reads on and holds writes back."""

    def __init__(self, inner: Transport, held: Callable[[HeldWrite], None]) -> None:
        self._inner = inner
        self._held = held
        self._answered: dict[str, tuple[str, bytes | None, HeldWrite, Response]] = {}

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
        """Send a read; answer a write."""
        if method in ("GET", "HEAD"):
            return await self._inner.request(method, path, query=query, body=body, accept=accept, timeout=timeout)
        if method == "POST":
            return self._created(parse_path(path), body or b"{}")
        held: HeldWrite | None
        known = self._answered.get(path)
        if known is not None and known[:2] == (method, body):
            held, response = known[2:]
        else:
            held, response = await self._changed(method, parse_path(path), body or b"{}", content_type, timeout)
        if held is not None:
            self._answered[path] = (method, body, held, response)
            self._held(held)
        return response

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch."""
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        """Close the transport behind."""
        await self._inner.close()

    def _created(self, place: Place, body: bytes) -> Response:
        made: Raw = decode_raw(body, what=place.plural)
        if not place.key.name:
            named = ObjectKey(place.key.namespace, str((made.get("metadata") or {}).get("name", "")))
            place = Place(place.base, place.plural, named)
        self._held(HeldWrite("POST", place, None, made))
        return Response(201, body=body)

    async def _changed(
        self, method: str, place: Place, body: bytes, content_type: str, timeout: float | None
    ) -> tuple[HeldWrite | None, Response]:
        found = await self._inner.request("GET", place.object_path, timeout=timeout)
        if found.status != 200:
            return None, found
        before: Raw = decode_raw(found.body, what=place.object_path)
        if method == "DELETE":
            done = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
            return HeldWrite(method, place, before, None), Response(200, body=encode(done))
        sent = decode_raw(body, what=place.object_path)
        try:
            after = sent if method == "PUT" else _PATCHES[content_type](sent).apply(before)
        except KubetideError as error:
            status = {"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": str(error)}
            return None, Response(422, body=encode(status))
        return HeldWrite(method, place, before, after), Response(200, body=encode(after))
