"""The protobuf wire format: a message as a sequence of field numbers and raw values.

The type of a raw value says how it was sent: an int is a varint, a float eight bytes, bytes anything with a length.
"""

import struct
from collections.abc import Iterator

from kubetide.embedded.apiserver.rest.status import bad_request

Value = int | float | bytes


def split_fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the field numbers and raw values of a message."""
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position)
        match tag & 7:
            case 0:
                value: Value
                value, position = read_varint(data, position)
            case 1:
                part, position = _take(data, position, 8)
                (value,) = struct.unpack("<d", part)
            case 2:
                length, position = read_varint(data, position)
                value, position = _take(data, position, length)
            case form:
                raise bad_request(f"the protobuf message has a field of unknown form {form}")
        yield tag >> 3, value


def split_varints(data: bytes) -> Iterator[int]:
    """Yield the numbers of a packed list."""
    position = 0
    while position < len(data):
        number, position = read_varint(data, position)
        yield number


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position and the position after it."""
    if position < len(data) and data[position] < 0x80:  # most are one byte
        return data[position], position + 1
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


def _take(data: bytes, position: int, length: int) -> tuple[bytes, int]:
    end = position + length
    if end > len(data):
        raise bad_request("the protobuf message ends too early")
    return data[position:end], end
