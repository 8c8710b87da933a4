"""Patches as values: what to change in an object, and the result of changing it.

Three kinds, each with its content type:

- `MergePatch` (RFC 7386): members replace members, null removes, lists are replaced whole;
- `JsonPatch` (RFC 6902): a sequence of operations on paths, all or nothing;
- `StrategicMergePatch`: like a merge patch, but lists of the core types merge by key (`containers` by name), with
  the directives `$patch`, `$retainKeys`, `$deleteFromPrimitiveList/…` and `$setElementOrder/…`.

Applying never changes its input: it returns a new object that shares what did not change.

A JSON patch can say much in few bytes: each `copy` may double the document. What copies add is counted before they
are made, and so is what every operation copies on its way to its place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import msgspec

from kubetide.api.values import strategic
from kubetide.api.values.pointer import add_at, parse_pointer, remove_at, value_at
from kubetide.errors import PatchError, PatchTooLarge

Raw = dict[str, Any]

RESULT_LIMIT = 3 * 1024 * 1024
"""The largest object that a patch with copies may leave, in bytes of JSON: as large as a request may be."""
_MOST_OPERATIONS = 10_000
_MOST_WORK = 20_000_000
"""Members and elements that all operations together may pass on their way: well below a second."""


class Patch(Protocol):
    """A change that can be sent or applied."""

    content_type: ClassVar[str]

    def encode(self) -> bytes: ...

    def apply(self, target: Raw) -> Raw: ...


@dataclass(frozen=True, slots=True)
class MergePatch:
    """Members replace members; null removes."""

    content_type: ClassVar[str] = "application/merge-patch+json"
    body: Mapping[str, Any]

    def encode(self) -> bytes:
        return msgspec.json.encode(self.body)

    def apply(self, target: Raw) -> Raw:
        merged: Raw = _bounded(lambda: _merge(target, _object(self.body)))
        return merged


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """Operations in order; if one fails none happens."""

    content_type: ClassVar[str] = "application/json-patch+json"
    operations: Sequence[Mapping[str, Any]]

    def encode(self) -> bytes:
        return msgspec.json.encode(self.operations)

    def apply(self, target: Raw) -> Raw:
        if len(self.operations) > _MOST_OPERATIONS:
            text = f"has {len(self.operations)} operations, more than {_MOST_OPERATIONS}"
            raise PatchTooLarge(text, subject="JSON patch")
        result: Any = target
        effort = _Effort()
        for index, operation in enumerate(self.operations):
            try:
                result = _bounded(partial(_apply_operation, result, _object(operation), effort))
            except PatchError as error:
                raise type(error)(error.message, subject="JSON patch", field=f"[{index}]") from error
        if not isinstance(result, dict):
            raise PatchError("the result is not an object", subject="JSON patch")
        if effort.copied and len(msgspec.json.encode(result)) > RESULT_LIMIT:
            raise PatchTooLarge(f"the result is larger than {RESULT_LIMIT} bytes", subject="JSON patch")
        return result


@dataclass(frozen=True, slots=True)
class StrategicMergePatch:
    """A merge patch that knows which lists of the core types merge by which key."""

    content_type: ClassVar[str] = "application/strategic-merge-patch+json"
    body: Mapping[str, Any]

    def encode(self) -> bytes:
        return msgspec.json.encode(self.body)

    def apply(self, target: Raw) -> Raw:
        merged: Raw = _bounded(lambda: strategic.merge(target, _object(self.body)))
        return merged


def _object(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise PatchError(f"must be an object, not {type(body).__name__}")
    return body


def _bounded(change: Callable[[], Any]) -> Any:
    """Make a change; a document too deep to walk through is refused like any other that cannot be used."""
    try:
        return change()
    except RecursionError as error:
        raise PatchError("nested too deeply") from error


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


@dataclass(slots=True)
class _Effort:
    """What the operations of one patch have taken so far."""

    copied: int = 0
    work: int = 0

    def copy(self, value: Any) -> Any:
        """Return a value that is about to be copied, unless that makes the document too large."""
        # Everything in the document was counted when it came in, so that encoding it is bounded too.
        self.copied += len(msgspec.json.encode(value))
        if self.copied > RESULT_LIMIT:
            raise PatchTooLarge(f"copies more than {RESULT_LIMIT} bytes")
        return value

    def walk(self, document: Any, path: tuple[str, ...]) -> None:
        """Count what is copied on the way to a place; what is wrong with the path is said by who goes there."""
        found = document
        for step in path:
            if isinstance(found, dict):
                self.work += len(found)
                found = found.get(step)
            elif isinstance(found, list):
                self.work += len(found)
                index = int(step) if step.isascii() and step.isdigit() and len(step) < 10 else len(found)
                found = found[index] if index < len(found) else None
            else:
                break
        if self.work > _MOST_WORK:
            raise PatchTooLarge("the operations have to pass too many members and elements")


def _apply_operation(document: Any, operation: Mapping[str, Any], effort: _Effort) -> Any:
    for place in ("path", "from"):
        if operation.get("op") != "test" and place in operation:
            effort.walk(document, _path(operation, place))
    match operation.get("op"):
        case "add":
            return add_at(document, _path(operation, "path"), _value(operation))
        case "remove":
            return remove_at(document, _path(operation, "path"))
        case "replace":
            path = _path(operation, "path")
            value_at(document, path)
            return add_at(remove_at(document, path) if path else document, path, _value(operation))
        case "move":
            source, path = _path(operation, "from"), _path(operation, "path")
            if path[: len(source)] == source and path != source:
                raise PatchError("cannot move a value into itself")
            return add_at(remove_at(document, source), path, value_at(document, source))
        case "copy":
            value = effort.copy(value_at(document, _path(operation, "from")))
            return add_at(document, _path(operation, "path"), value)
        case "test":
            if not json_equal(value_at(document, _path(operation, "path")), _value(operation)):
                raise PatchError(f"test failed at {operation['path']}")
            return document
        case other:
            raise PatchError(f"unknown operation {other!r}")


def _path(operation: Mapping[str, Any], member: str) -> tuple[str, ...]:
    text = operation.get(member)
    if not isinstance(text, str):
        raise PatchError(f"{member!r} is missing or not text")
    return parse_pointer(text)


def _value(operation: Mapping[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchError("'value' is missing")
    return operation["value"]


def json_equal(one: Any, other: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(json_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(json_equal, one, other))
    return bool(one == other)
