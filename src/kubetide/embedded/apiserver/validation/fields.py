"""Which fields the built-in types have, and what of an object is none of them.

`builtin_fields.txt` has one line per type: `PodSpec: containers []Container, nodeName, overhead, …`. `[]` is a list of
a type, `{}` a map of it, `*` anything at all; a field without a type is a value, or a map or list of values. The kinds
come first, with their API version.

Almost every object has known fields only, and that is settled by one conversion in C: each kind is also made into a
msgspec type that forbids all others (`knows`). Only an object that fails it is walked through (`prune`). A null that
stands for an item of a list or a value of a map fails it too: it is read as the empty one of its type, unlike a null
that stands for a field, which is as good as none.
"""

import json
import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from types import GenericAlias
from typing import Any

import msgspec

from kubetide.embedded.apiserver.rest.status import Raw


@dataclass(slots=True, eq=False)
class Members:
    """An object with fields of its own. `free` takes any."""

    fields: "dict[str, Members | Many | None]" = field(default_factory=dict)
    free: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Many:
    """A list or a map of something."""

    mark: str
    each: "Members | Many"


FREE = Members(free=True)
_SCALAR = str | int | float | bool
_VALUE = _SCALAR | list[_SCALAR] | dict[str, _SCALAR]
_NUMBERS = frozenset(["supplementalGroups"])
_QUANTITIES = frozenset(
    (
        *("limits", "requests", "capacity", "allocatable", "allocatedResources", "overhead", "hard", "used"),
        *("default", "defaultRequest", "max", "maxLimitRequestRatio", "min"),
    )
)
"""The fields that hold several numbers or quantities; other fields with several values hold texts."""


@cache
def _table() -> dict[str, Members]:
    """Return every type by name; kinds are named by API version and kind."""
    text = resources.files("kubetide.embedded").joinpath("builtin_fields.txt").read_text()
    lines = [line.partition(": ") for line in text.splitlines() if line]
    types = {name: Members() for name, _, _ in lines} | {"*": FREE}
    for name, _, members in lines:
        for member in members.split(", "):
            label, _, kind = member.partition(" ")
            types[name].fields[label] = _held(kind, types) if kind else None
    return types


def _held(kind: str, types: dict[str, Members]) -> "Members | Many":
    mark = kind[:2]
    return Many(mark, _held(kind[2:], types)) if mark in ("[]", "{}") else types[kind]


@lru_cache(maxsize=256)
def type_of(api_version: str, kind: str) -> Members | None:
    """Return the type of a kind, None if it is not in the table."""
    return _table().get(f"{api_version} {kind}")


def metadata_type() -> Members:
    """Return the type of metadata, which is the same for all."""
    return _table()["ObjectMeta"]


@lru_cache(maxsize=128)
def _strict(node: Members) -> type[Any] | None:
    """Return a msgspec type that takes the fields of `node` and no others; None if the type contains itself."""
    made: dict[Members, Any] = {}

    def convert(held: "Members | Many | None", above: tuple[Members, ...]) -> Any:
        if held is None:
            return _VALUE
        if held is FREE:
            return Any
        if isinstance(held, Many):
            inner = convert(held.each, above)
            return GenericAlias(list, (inner,)) if held.mark == "[]" else GenericAlias(dict, (str, inner))
        if held in above:
            raise RecursionError
        if held not in made:
            names = {f"f{number}": label for number, label in enumerate(held.fields)}
            members = [
                (name, convert(held.fields[label], (*above, held)) | None, msgspec.field(default=None, name=label))
                for name, label in names.items()
            ]
            made[held] = msgspec.defstruct("Fields", members, forbid_unknown_fields=True, gc=False)
        return made[held]

    try:
        convert(node, ())
    except RecursionError:
        return None
    kind: type[Any] = made[node]
    return kind


def knows(node: Members, obj: Any) -> bool:
    """Whether every field of `obj` is one of its type. False may also mean that it takes a closer look."""
    strict = _strict(node)
    if strict is None:
        return False
    try:
        msgspec.convert(obj, strict)
    except msgspec.ValidationError:
        return False
    return True


def prune(value: Any, node: "Members | Many | None", path: str = "") -> list[str]:
    """Remove fields that the type does not have and fill nulls in lists and maps, in place; return what was removed."""
    if node is None or node is FREE:
        return []
    if isinstance(node, Many):
        if node.each is not FREE:
            _fill(value, {})
        return [gone for member, below in _each(value, node, path) for gone in prune(member, node.each, below)]
    if not isinstance(value, dict):
        return []
    dropped: list[str] = []
    for key in list(value):
        below = f"{path}.{key}" if path else key
        if key in node.fields:
            if node.fields[key] is None:
                _fill(value[key], 0 if key in _NUMBERS else "0" if key in _QUANTITIES else "")
            dropped += prune(value[key], node.fields[key], below)
        else:
            del value[key]
            dropped.append(below)
    return dropped


def _fill(value: Any, empty: Any) -> None:
    """Put the empty value of its type where a list or a map holds a null."""
    if isinstance(value, list | dict):
        for place, held in list(enumerate(value) if isinstance(value, list) else value.items()):
            if held is None:
                value[place] = copy(empty)


def _each(value: Any, node: Many, path: str) -> Iterator[tuple[Any, str]]:
    if node.mark == "[]" and isinstance(value, list):
        yield from ((item, f"{path}[{index}]") for index, item in enumerate(value))
    elif node.mark == "{}" and isinstance(value, dict):
        yield from ((member, f"{path}.{key}") for key, member in value.items())


_NAME_END = re.compile(rb'"[ \t\r\n]*:')


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it was written: names may come twice."""


def has_duplicates(body: bytes, decoded: Any) -> bool:
    """Whether a name might be there twice in one object. What our own clients send is settled by one comparison.

    Of a name that is there twice only one value is decoded, so that fewer members are written again. A member's name
    ends in a quote and a colon; strings have these in both texts alike, unless a quote is spelt by its code point.
    """
    if msgspec.json.encode(decoded) == body:
        return False
    try:
        again = msgspec.json.encode(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return b"\\u" in body or len(_NAME_END.findall(body)) != len(_NAME_END.findall(again))


def complaints(body: bytes, node: "Members | Many | None") -> list[str]:
    """Return what is wrong with the fields of a JSON text, in its order; without a type only what is there twice."""
    try:
        written = json.loads(body, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return []
    return list(dict.fromkeys(_complaints(written, node, "")))


def _complaints(value: Any, node: "Members | Many | None", path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, member in value:
            below = f"{path}.{key}" if path else key
            if isinstance(node, Members) and key not in node.fields:
                yield f'unknown field "{below}"'
                continue
            if key in seen:
                yield f'duplicate field "{below}"'
            seen.add(key)
            held = node.fields[key] if isinstance(node, Members) else node.each if isinstance(node, Many) else None
            if held is not FREE:
                yield from _complaints(member, held, below)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _complaints(item, node.each if isinstance(node, Many) else None, f"{path}[{index}]")


def metadata_dropped(obj: Raw) -> list[str]:
    """Remove unknown fields of an object's metadata, in place, and return their paths."""
    metadata = obj.get("metadata")
    return [] if knows(metadata_type(), metadata) else prune(metadata, metadata_type(), "metadata")
