"""From the bytes of lists and watch lines to typed items, one bad item never spoiling the others.

An item that does not fit its struct is handed back as `Rejected` with its name and what is wrong with it, because
one object that somebody wrote badly must not hide twenty thousand good ones.
"""

import asyncio
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from kubetide.api.objects.meta import ApiObject, ObjectKey, TypedObject
from kubetide.api.values.codec import SLICE, ListMeta, RawList, decode
from kubetide.errors import DecodeError
from kubetide.kube.client.errors import error_from_status

T = TypeVar("T")
Foreign = Callable[[str, ObjectKey], bool]
"""Whether nobody here wants an object, by its uid and key."""

AT_ONCE = 512 * 1024
"""Pages of at most so many bytes are decoded in one go: two milliseconds. In slices all is read twice."""

_MODIFIED_LINE = b'{"type":"MODIFIED",'
_VERSION = b'"resourceVersion":"'
ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One change, or with type BOOKMARK only the news that all changes up to `resource_version` were delivered."""

    type: str
    object: T
    key: ObjectKey
    resource_version: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """An object that could not be decoded: what it is called, and why."""

    type: str
    key: ObjectKey
    resource_version: str
    error: DecodeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """A whole list at one resource version; `rejected` names the items that could not be decoded."""

    items: tuple[T, ...]
    resource_version: str
    rejected: tuple[Rejected, ...] = field(default=())
    shard: str = ""
    """The shard selector that the server applied; a server without the feature ignores it and says nothing."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A change of an object of another shard, of which nothing else was read."""

    type: str
    key: ObjectKey
    resource_version: str


class _Identity(ApiObject, frozen=True, kw_only=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Identified(ApiObject, frozen=True, kw_only=True, gc=False):
    """An object of which only the metadata is looked at."""

    metadata: _Identity = _Identity()


class _Page(msgspec.Struct, Generic[T], frozen=True, gc=False):
    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class _Line(msgspec.Struct, Generic[T], frozen=True, gc=False):
    type: str
    object: T


def identify(obj: object) -> tuple[ObjectKey, str]:
    """Return the key and resource version of a decoded object, struct or dict."""
    if isinstance(obj, dict):
        meta: dict[str, Any] = obj.get("metadata") or {}
        return ObjectKey(meta.get("namespace") or "", meta.get("name") or ""), meta.get("resourceVersion") or ""
    typed = obj.metadata  # type: ignore[attr-defined]  # every struct of a Resource has metadata
    return ObjectKey(typed.namespace, typed.name), typed.resource_version


def uid_of(obj: object) -> str:
    """Return the uid of a decoded object, struct or dict."""
    if isinstance(obj, dict):
        return str((obj.get("metadata") or {}).get("uid") or "")
    uid: str = obj.metadata.uid  # type: ignore[attr-defined]  # every struct of a Resource has metadata
    return uid


def version_of(obj: object) -> str:
    """Return the resource version of a decoded object, struct or dict."""
    if isinstance(obj, dict):
        return (obj.get("metadata") or {}).get("resourceVersion") or ""
    version: str = obj.metadata.resource_version  # type: ignore[attr-defined]  # every struct of a Resource has metadata
    return version


_line_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _line_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    found = _line_decoders.get(kind)
    if found is None:
        found = _line_decoders[kind] = msgspec.json.Decoder(_Line[kind])
    return found


def parse_line(line: bytes, kind: type[T]) -> WatchEvent[T] | Rejected:
    """Decode one line of a watch. Raises the ApiError of an ERROR event, and DecodeError for what is no event."""
    try:
        parsed: _Line[T] = _line_decoder(kind).decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            parsed = decode(line, _Line[kind])  # type: ignore[valid-type]  # a struct made for the type at run time
        except DecodeError as error:
            return _parse_bad_line(line, error)
    if parsed.type == ERROR:
        raise _watch_error(line)
    key, version = identify(parsed.object)
    if parsed.type == BOOKMARK or (key.name and parsed.type in (ADDED, MODIFIED, DELETED)):
        return WatchEvent(parsed.type, parsed.object, key, version)
    raise DecodeError(f"no watch event: type {parsed.type!r} of an object named {key.name!r}", subject="watch")


def find_expected(line: bytes, expected: Mapping[str, WatchEvent[T]]) -> WatchEvent[T] | None:
    """Return the expected change that a line of a watch is, if it is one, by a look at its first resource version.

    That text cannot be content of the object: within a string its quotes would be escaped. A version is given to one
    change of one object only.
    """
    if not line.startswith(_MODIFIED_LINE):
        return None
    start = line.find(_VERSION)
    if start < 0:
        return None
    start += len(_VERSION)
    found = expected.get(line[start : line.find(b'"', start)].decode("ascii", "replace"))
    # The key as well: what a version is of, an object in another one for instance, depends on the order of fields.
    return found if found is not None and f'"name":"{found.key.name}"'.encode() in line else None


def find_foreign(line: bytes, foreign: Foreign) -> Elsewhere | None:
    """Return what a line of a watch is about if it is foreign by its uid and key, without decoding the rest."""
    try:
        parsed: _Line[_Identified] = _line_decoder(_Identified).decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # whoever decodes the whole says what is wrong with it
    meta = parsed.object.metadata
    key = ObjectKey(meta.namespace, meta.name)
    if parsed.type not in (ADDED, MODIFIED, DELETED) or not meta.name or not foreign(meta.uid, key):
        return None
    return Elsewhere(parsed.type, key, meta.resource_version)


def _is_foreign(raw: msgspec.Raw, foreign: Foreign) -> bool:
    try:
        meta = msgspec.json.decode(raw, type=_Identified).metadata
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return foreign(meta.uid, ObjectKey(meta.namespace, meta.name))


def _parse_bad_line(line: bytes, error: DecodeError) -> Rejected:
    envelope = decode(line, _Line[msgspec.Raw], what="watch")
    if envelope.type == ERROR:
        raise _watch_error(line)
    known = decode(bytes(envelope.object), TypedObject, what="watch")
    key, version = identify(known)
    if not key.name or envelope.type not in (ADDED, MODIFIED, DELETED):
        raise error
    return Rejected(envelope.type, key, version, DecodeError(error.message, subject=str(key)))


def _watch_error(line: bytes) -> Exception:
    return error_from_status(bytes(decode(line, _Line[msgspec.Raw], what="watch").object))


async def decode_page(
    body: bytes, kind: type[T], *, what: str = "", foreign: Foreign | None = None
) -> tuple[ListMeta, list[T], list[Rejected]]:
    """Decode one page of a list: a short one at once, a long one in slices that give way to other tasks.

    What is `foreign` by uid and key is left out, and not decoded.
    """
    if len(body) <= AT_ONCE and foreign is None:
        try:
            whole = decode(body, _Page[kind], what=what)  # type: ignore[valid-type]
        except DecodeError:
            pass
        else:
            return whole.metadata, whole.items or [], []
    page = decode(body, RawList, what=what)
    raw = page.items or []
    items: list[T] = []
    rejected: list[Rejected] = []
    for start in range(0, len(raw), SLICE):
        if start:
            await asyncio.sleep(0)
        part = raw[start : start + SLICE]
        if foreign is not None:
            part = [each for each in part if not _is_foreign(each, foreign)]
        _decode_slice(part, kind, items, rejected, what)
    return page.metadata, items, rejected


def _decode_slice(raw: list[msgspec.Raw], kind: type[T], items: list[T], rejected: list[Rejected], what: str) -> None:
    try:
        items.extend(decode(b"[" + b",".join(raw) + b"]", list[kind], what=what))  # type: ignore[valid-type]
        return
    except DecodeError:
        pass
    for each in raw:
        try:
            items.append(decode(bytes(each), kind, what=what))
        except DecodeError as error:
            key, version = identify(decode(bytes(each), TypedObject, what=what))
            rejected.append(Rejected(ADDED, key, version, DecodeError(error.message, subject=f"{what} {key}")))


GC_THRESHOLDS = (100_000, 50, 1000)


def tune_gc() -> None:
    """Make the cyclic collector rare, and let it pass over what the imports made.

    On Python 3.11 it runs inside the decoder and costs more than half of it, although the decoded structs cannot form
    cycles; since 3.12 it waits for the decoder to return, and what is left to gain is about a twentieth of a
    controller's CPU (docs/reference/measured.md, "The interpreter").
    """
    gc.set_threshold(*GC_THRESHOLDS)
    gc.collect()
    gc.freeze()
