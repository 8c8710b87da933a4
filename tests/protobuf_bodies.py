"""Protobuf bodies for tests: JSON objects written as Go clients write them, and objects with every member there is."""

import base64
import random
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kubetide.embedded.apiserver.protobuf.reader import MAGIC
from kubetide.embedded.apiserver.protobuf.tables import INLINE, SCALARS, SPECIAL, Field, Message, find_message

Raw = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# -- writing


def varint(number: int) -> bytes:
    """Return a number on the wire; negative ones are written in 64 bits."""
    number &= 2**64 - 1
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def field(number: int, value: bytes | str | int | float) -> bytes:
    """Return one field on the wire."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def body(api_version: str, kind: str, *fields: bytes) -> bytes:
    """Return a whole body with these fields in its message."""
    envelope = field(1, field(1, api_version) + field(2, kind)) + field(2, b"".join(fields))
    return MAGIC + envelope + field(3, "") + field(4, "")


def encode(obj: Raw) -> bytes:
    """Return an object as a whole body."""
    message = message_of(obj["apiVersion"], obj["kind"])
    return body(obj["apiVersion"], obj["kind"], _message(message, obj))


def message_of(api_version: str, kind: str) -> Message:
    """Return the message of a kind that must be there."""
    message = find_message(api_version, kind)
    assert message is not None, f"{api_version} {kind}"
    return message


def _message(message: Message, value: Any) -> bytes:
    written = b""
    for number, member in message.fields.items():
        if message.is_choice:
            if _fits(member, value):
                written += _member(number, member, value)
        elif member.name == INLINE:
            assert isinstance(member.kind, Message)
            written += field(number, _message(member.kind, value))
        elif member.name in value:
            written += _member(number, member, value[member.name])
        elif member.form == "one" and not member.keeps_zero and member.kind in SCALARS:
            # Go has no members without a value: it writes the zero.
            written += field(number, {"int": 0, "bool": 0, "double": 0.0}.get(str(member.kind), b""))
    return written


def _fits(member: Field, value: Any) -> bool:
    if member.form == "list":
        return isinstance(value, list)
    return isinstance(value, bool if member.kind == "bool" else dict)


def _member(number: int, member: Field, value: Any) -> bytes:
    match member.form:
        case "list":
            return b"".join(field(number, _one(member, item)) for item in value)
        case "map":
            return b"".join(field(number, field(1, key) + field(2, _one(member, item))) for key, item in value.items())
    return field(number, _one(member, value))


def _one(member: Field, value: Any) -> bytes | str | int | float:
    match member.kind:
        case Message():
            return _message(member.kind, value)
        case "bytes":
            return base64.b64decode(value)
        case "Quantity":
            return field(1, value)
        case "Time" | "MicroTime":
            if value is None:
                return b""
            since = datetime.fromisoformat(value) - _EPOCH
            return field(1, since.days * 86400 + since.seconds) + field(2, since.microseconds * 1000)
        case "IntOrString":
            parts = (1, 0, value) if isinstance(value, str) else (0, value, "")
            return b"".join(field(number, part) for number, part in enumerate(parts, 1))
        case "Json":
            return field(1, msgspec.json.encode(value))
        case "int" | "bool":
            return int(value)
        case "double":
            return float(value)
    assert isinstance(value, str)
    return value


# -- objects


def make_object(api_version: str, kind: str, rng: random.Random | None = None) -> Raw:
    """Return an object with random members, or with each once that its type has, as deep as types do not recur."""
    made = _make(message_of(api_version, kind), rng, ())
    return {"apiVersion": api_version, "kind": kind, **made}


def _make(message: Message, rng: random.Random | None, above: tuple[str, ...]) -> Any:
    if message.is_choice:
        alternatives = [each for each in message.fields.values() if _may_hold(each, above)]
        chosen = alternatives[-1] if rng is None else rng.choice(alternatives)
        return _held(chosen, rng, above)
    made: Raw = {}
    for member in message.fields.values():
        if not _may_hold(member, (*above, message.name)):
            continue
        if member.name == INLINE:
            assert isinstance(member.kind, Message)
            made |= _make(member.kind, rng, (*above, message.name))
        elif rng is None or rng.random() < 1.5 / (1 + len(above)):
            made[member.name] = _held(member, rng, (*above, message.name))
    return made


def _may_hold(member: Field, above: tuple[str, ...]) -> bool:
    kind = member.kind
    if not isinstance(kind, Message):
        return True
    if kind.is_choice:
        return any(_may_hold(each, above) for each in kind.fields.values())
    return above.count(kind.name) < 2


def _held(member: Field, rng: random.Random | None, above: tuple[str, ...]) -> Any:
    count = 1 if rng is None else rng.randint(1, 2)
    match member.form:
        case "list":
            return [_any(member, rng, above) for _ in range(count)]
        case "map":
            return {f"key-{number}": _any(member, rng, above) for number in range(count)}
    return _any(member, rng, above)


def _any(member: Field, rng: random.Random | None, above: tuple[str, ...]) -> Any:
    if isinstance(member.kind, Message):
        return _make(member.kind, rng, above)
    values = _VALUES[member.kind]
    # A zero is a value only where the table says so; elsewhere in a list or a map.
    start = 0 if member.form != "one" or member.keeps_zero or member.kind in SPECIAL else 1
    return values[-1] if rng is None else rng.choice(values[start:])


def _moments(precision: str) -> tuple[str, ...]:
    moments = (_EPOCH + timedelta(seconds=seconds) for seconds in (-86_400.0 * 365 * 100, -1.5, 0.25, 1_767_225_600))
    texts = [moment.replace(microsecond=0) if precision == "seconds" else moment for moment in moments]
    return tuple(text.isoformat(timespec=precision).replace("+00:00", "Z") for text in texts)


_VALUES: dict[str, tuple[Any, ...]] = {
    "str": ("", "x", "größer\n\x00", "text"),
    "int": (0, -1, 2**63 - 1, -(2**63), 300),
    "bool": (False, True),
    "bytes": ("", "AA==", "/+8B", "cQ=="),
    "double": (0.0, -1.5, 1e300, 0.25),
    "Quantity": ("0", "100m", "1Gi", "1500m"),
    "Time": _moments("seconds"),
    "MicroTime": _moments("microseconds"),
    "IntOrString": (0, -5, "", "25%", 8080),
    "Json": ({}, [1, None, "x"], "text", 0, {"a": {"b": [1.5, True]}}),
}


# -- what is inside


def reachable(message: Message) -> Iterator[tuple[Message, tuple[tuple[int, Field], ...]]]:
    """Yield every message inside a message, and itself, with the fields that lead to it."""
    waiting: list[tuple[Message, tuple[tuple[int, Field], ...]]] = [(message, ())]
    seen = {message}
    while waiting:
        found, path = waiting.pop(0)
        yield found, path
        for number, member in found.fields.items():
            if isinstance(member.kind, Message) and member.kind not in seen:
                seen.add(member.kind)
                waiting.append((member.kind, (*path, (number, member))))


def wrap(content: bytes, path: tuple[tuple[int, Field], ...]) -> bytes:
    """Return a message that has this content at the end of a path of fields."""
    for number, member in reversed(path):
        content = field(number, field(1, "key") + field(2, content) if member.form == "map" else content)
    return content
