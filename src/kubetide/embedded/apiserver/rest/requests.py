"""A request to the API server, and what its path means.

    /api/v1/namespaces/NS/PLURAL/NAME/SUBRESOURCE          core group
    /apis/GROUP/VERSION/namespaces/NS/PLURAL/NAME/SUB      named groups
    the same without namespaces/NS                         cluster-scoped, or all namespaces

Path segments arrive still quoted; each is unquoted by itself, so a name cannot smuggle in a slash.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote

import msgspec

from kubetide.embedded.apiserver.rest.status import bad_request
from kubetide.embedded.apiserver.storage.objects import StoreKey


@dataclass(frozen=True, slots=True)
class User:
    """Who asks. `system:masters` may do anything."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    @property
    def is_master(self) -> bool:
        return "system:masters" in self.groups


ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))


class Request(msgspec.Struct, frozen=True):
    """One call: HTTP in shape, whatever carried it."""

    method: str
    path: str
    query: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    accept: str = "application/json"
    user: User = ADMIN
    user_agent: str = ""

    def flag(self, name: str) -> bool:
        """Whether a boolean query parameter is on; present without a value counts as on."""
        value = self.query.get(name)
        return value is not None and value.lower() in ("1", "true", "t", "")


class Answer(msgspec.Struct, frozen=True):
    """A whole answer. A watch is answered by a stream instead."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class DocumentAnswer(Answer, frozen=True, kw_only=True):
    """An answer of which readers in this process take the value; the body is made for others."""

    document: object
    encode: Callable[[], bytes]

    @property  # type: ignore[misc]  # stands in for the field of an answer whose bytes are there
    def body(self) -> bytes:
        """The whole answer."""
        return self.encode()


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """What the path of a resource request names. `rest` is what follows the subresource (proxy paths)."""

    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    key: StoreKey = field(init=False, compare=False)
    """Where the object lies that it names."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", StoreKey(self.namespace, self.name))


@lru_cache(maxsize=8192)
def parse_target(path: str) -> RequestTarget | None:
    """Return what a path below /api or /apis names, or None for any other path."""
    quoted = path.split("/")
    if len(quoted) < 3 or quoted[0]:
        return None
    parts = [_segment(part) for part in quoted[1:]]
    if parts[-1] == "":
        parts.pop()
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    if not rest:
        return RequestTarget(group, version)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and not (not group and _is_namespace_subresource(rest)):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *more = [*rest, "", "", ""][: max(len(rest), 3)]
    return RequestTarget(group, version, plural, namespace, name, subresource, "/".join(more))


def _is_namespace_subresource(rest: list[str]) -> bool:
    return len(rest) == 3 and rest[2] in ("status", "finalize")


def _segment(quoted: str) -> str:
    try:
        text = unquote(quoted, errors="strict")
    except UnicodeDecodeError:
        raise bad_request("the path is not valid UTF-8") from None
    if text in (".", "..") or "/" in text or "\x00" in text:
        raise bad_request(f"invalid path segment {quoted!r}")
    return text
