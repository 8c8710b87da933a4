"""Reads the protobuf bodies that typed Kubernetes clients send as the JSON objects the same clients would send.

The body is a magic prefix, an envelope with the type, and the message; `tables` knows the fields. Nothing is left out
that has a value: a kind or a field that is not in the tables is refused with 415, since the client may well do without
protobuf but not without its data. Answers are always JSON, which every such client accepts.
"""

import base64
import math
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kubetide.embedded.apiserver.protobuf.tables import INLINE, SCALARS, Field, Message, find_message
from kubetide.embedded.apiserver.protobuf.wire import Value, split_fields, split_varints
from kubetide.embedded.apiserver.rest.status import Raw, StatusError, bad_request

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
_MAX_DEPTH = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decode_protobuf(body: bytes) -> Raw:
    """Return the object in a protobuf body, or refuse one that cannot be read whole."""
    if not body.startswith(MAGIC):
        raise bad_request("the body is not a Kubernetes protobuf message")
    envelope = _parts(body[len(MAGIC) :], "Unknown", (1, 2, 3, 4))
    encoding, media = _text(envelope.get(3, b"")), _text(envelope.get(4, b""))
    if encoding or media not in ("", MEDIA_TYPE):
        raise _unreadable(f"a message encoded as {encoding or media!r}")
    kind = _parts(_bytes(envelope.get(1, b"")), "TypeMeta", (1, 2))
    api_version, name = _text(kind.get(1, b"")), _text(kind.get(2, b""))
    message = find_message(api_version, name)
    if message is None:
        raise _unreadable(f"{api_version!r} {name!r}")
    obj: Raw = _message(_bytes(envelope.get(2, b"")), message, 0)
    return {"apiVersion": api_version, "kind": name, **obj}


def _message(data: bytes, message: Message, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise bad_request("the protobuf message is nested too deeply")
    result: dict[Any, Any] = {}
    seen: set[int] = set()
    for number, value in split_fields(data):
        field = message.fields.get(number)
        if field is None:
            raise _unreadable(f"field {number} of {message.name}")
        key = number if message.is_choice else field.name
        if field.form == "one":
            if number in seen:
                raise bad_request(f"field {number} of the protobuf message {message.name} is there twice")
            seen.add(number)
            decoded = _value(value, field, depth)
            if field.name == INLINE:
                result.update(decoded)
            elif decoded is not None and (field.keeps_zero or field.kind not in SCALARS or decoded):
                result[key] = decoded
        elif field.form == "list":
            result.setdefault(key, []).extend(_items(value, field, depth))
        else:
            pair = _parts(_bytes(value), f"{message.name}.{field.name}", (1, 2))
            held = _value(pair[2], field, depth) if 2 in pair else _absent(field, depth)
            result.setdefault(key, {})[_text(pair.get(1, b""))] = held
    return _chosen(message, result) if message.is_choice else result


def _chosen(message: Message, sent: dict[int, Any]) -> Any:
    """Return the value that stands for the whole message: of two the one with the higher number, as Go's JSON does."""
    if sent:
        return sent[max(sent)]
    return [] if all(field.form == "list" for field in message.fields.values()) else None


def _items(value: Value, field: Field, depth: int) -> Iterator[Any]:
    if field.kind == "int" and isinstance(value, bytes):
        return (_int(number) for number in split_varints(value))
    return iter((_value(value, field, depth),))


def _absent(field: Field, depth: int) -> Any:
    """Return the value of a map's entry that was sent without one."""
    return _value(0 if field.kind in ("int", "bool") else 0.0 if field.kind == "double" else b"", field, depth)


def _value(value: Value, field: Field, depth: int) -> Any:
    kind = field.kind
    return _READERS[kind](value) if isinstance(kind, str) else _message(_bytes(value), kind, depth + 1)


def _int(value: Value) -> int:
    if not isinstance(value, int):
        raise bad_request("the protobuf message has something else where a whole number should be")
    return value - 2**64 if value >= 2**63 else value


def _double(value: Value) -> float:
    """Return a number; whole ones as JSON writes them, without a fraction."""
    if not isinstance(value, float) or not math.isfinite(value):
        raise bad_request("the protobuf message has something else where a finite number should be")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise bad_request("the protobuf message has a number where a text or a message should be")
    return value


def _text(value: Value) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise bad_request("a text in the protobuf message is not UTF-8") from None


def _base64(value: Value) -> str:
    return base64.b64encode(_bytes(value)).decode()


def _quantity(value: Value) -> str:
    return _text(_parts(_bytes(value), "Quantity", (1,)).get(1, b"0"))


def _int_or_string(value: Value) -> int | str:
    parts = _parts(_bytes(value), "IntOrString", (1, 2, 3))
    match parts.get(1, 0):
        case 0:
            return _int(parts.get(2, 0))
        case 1:
            return _text(parts.get(3, b""))
        case other:
            raise bad_request(f"the protobuf message IntOrString has an unknown type {other!r}")


def _json(value: Value) -> Any:
    raw = _bytes(_parts(_bytes(value), "RawExtension", (1,)).get(1, b""))
    try:
        return msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad_request(f"the raw part of the protobuf message is not JSON: {error}") from error


def _time(value: Value) -> str | None:
    moment = _moment(value, "Time")
    return None if moment is None else _rfc3339(moment, "seconds")


def _micro_time(value: Value) -> str | None:
    moment = _moment(value, "MicroTime")
    return None if moment is None else _rfc3339(moment, "microseconds")


def _moment(value: Value, name: str) -> datetime | None:
    """Return a moment; one without any part was never set."""
    parts = _parts(_bytes(value), name, (1, 2))
    if not parts:
        return None
    seconds, nanos = _int(parts.get(1, 0)), _int(parts.get(2, 0))
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError as error:
        raise bad_request(f"a time in the protobuf message is out of range: {error}") from error


def _rfc3339(moment: datetime, precision: str) -> str:
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _parts(data: bytes, name: str, known: Collection[int]) -> dict[int, Value]:
    """Return the fields of a message that stands for one value."""
    parts = dict(split_fields(data))
    for number in parts:
        if number not in known:
            raise _unreadable(f"field {number} of {name}")
    return parts


def _unreadable(what: str) -> StatusError:
    text = f"the server does not read {what} in {MEDIA_TYPE}; send application/json instead"
    return StatusError(415, "UnsupportedMediaType", text)


_READERS: dict[str, Callable[[Value], Any]] = {
    "str": _text,
    "int": _int,
    "bool": lambda value: bool(_int(value)),
    "bytes": _base64,
    "double": _double,
    "Quantity": _quantity,
    "Time": _time,
    "MicroTime": _micro_time,
    "IntOrString": _int_or_string,
    "Json": _json,
}
