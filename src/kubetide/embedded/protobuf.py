"""Reads the protobuf bodies that typed Kubernetes clients (kubectl among them) send, as JSON objects.

The body is a magic prefix, an envelope with the type, and the message. What a message means is in the table of
`protobuf_types`: field numbers and names of the objects that clients create or change. Go clients send members
without a value too; those are left out, as in JSON, unless the table marks them as optional, where zero is a value.
Answers are always JSON, which every such client accepts.
"""

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubetide.embedded.protobuf_types import MESSAGES
from kubetide.embedded.status import Raw, bad_request, unsupported_media

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: str
    optional: bool
    repeated: bool
    mapped: bool


def decode_protobuf(body: bytes) -> Raw:
    """Return the object in a protobuf body, or refuse one that cannot be read."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body is not a Kubernetes protobuf message")
    envelope = dict(_fields(body[len(_MAGIC) :]))
    kind = dict(_fields(_bytes(envelope.get(1, b""))))
    api_version, name = _text(kind.get(1, b"")), _text(kind.get(2, b""))
    if name not in MESSAGES:
        raise unsupported_media(f"{MEDIA_TYPE} of {name}", ("application/json", "application/yaml"))
    versioned = f"{name}.{api_version}"
    obj = _message(_bytes(envelope.get(2, b"")), versioned if versioned in MESSAGES else name, 0)
    return {"apiVersion": api_version, "kind": name, **obj}


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield field numbers and raw values of a message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        match wire:
            case 0:
                value, position = _varint(data, position)
                yield number, value
            case 1 | 5:
                size = 8 if wire == 1 else 4
                yield number, data[position : position + size]
                position += size
            case 2:
                length, position = _varint(data, position)
                if position + length > len(data):
                    raise bad_request("the protobuf message ends too early")
                yield number, data[position : position + length]
                position += length
            case _:
                raise bad_request(f"the protobuf message has a field of unknown form {wire}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise bad_request("the protobuf message ends too early")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return result & (2**64 - 1), position
        shift += 7


def _message(data: bytes, kind: str, depth: int) -> Raw:
    if depth > _MAX_DEPTH:
        raise bad_request("the protobuf message is nested too deeply")
    table = _TABLES[kind]
    result: Raw = {}
    for number, value in _fields(data):
        field = table.get(number)
        if field is None:
            raise bad_request(f"field {number} of {kind} is not known to this server; send JSON instead")
        if field.kind == "Ignored":
            continue
        if field.name == "+":
            result.update(_value(value, field.kind, depth))
        elif field.mapped:
            pair = dict(_fields(_bytes(value)))
            entries = result.setdefault(field.name, {})
            entries[_text(pair.get(1, b""))] = _value(pair.get(2, b""), field.kind, depth)
        elif field.repeated:
            result.setdefault(field.name, []).append(_value(value, field.kind, depth))
        else:
            decoded = _value(value, field.kind, depth)
            if field.optional or decoded not in ("", 0, False, None, {}):
                result[field.name] = decoded
    return result


def _value(value: int | bytes, kind: str, depth: int) -> Any:
    match kind:
        case "str":
            return _text(value)
        case "int":
            number = value if isinstance(value, int) else 0
            return number - 2**64 if number >= 2**63 else number
        case "bool":
            return bool(value)
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "double":
            return struct.unpack("<d", _bytes(value))[0]
        case "Quantity":
            return _text(dict(_fields(_bytes(value))).get(1, b""))
        case "Time" | "MicroTime":
            return _time(dict(_fields(_bytes(value))), micro=kind == "MicroTime")
        case "IntOrString":
            parts = dict(_fields(_bytes(value)))
            if parts.get(1, 0) == 0:
                return _value(parts.get(2, 0), "int", depth)
            return _text(parts.get(3, b""))
    return _message(_bytes(value), kind, depth + 1)


def _time(parts: dict[int, int | bytes], *, micro: bool) -> str | None:
    seconds, nanos = (_value(parts.get(number, 0), "int", 0) for number in (1, 2))
    if not parts or seconds < 0:
        return None
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise bad_request(f"a time in the protobuf message is out of range: {error}") from error
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{nanos // 1000:06d}Z" if micro else f"{text}Z"


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise bad_request("the protobuf message has a number where a message should be")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise bad_request("a text in the protobuf message is not UTF-8") from None


def _parse(text: str) -> dict[int, _Field]:
    """Read one line of the table: `1 name str, 2 labels map:str, 3 items []Item, 4 replicas int?`."""
    fields: dict[int, _Field] = {}
    for part in text.split(","):
        number, name, kind = part.split()
        optional, repeated, mapped = kind.endswith("?"), kind.startswith("[]"), kind.startswith("map:")
        bare = kind.removesuffix("?").removeprefix("[]").removeprefix("map:")
        fields[int(number)] = _Field(name, bare, optional, repeated, mapped)
    return fields


_TABLES = {name: _parse(text) for name, text in MESSAGES.items()}
