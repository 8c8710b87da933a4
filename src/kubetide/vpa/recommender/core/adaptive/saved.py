"""The state of a container as text: what the recommender keeps in an annotation of its checkpoint.

    1 apart 493021 BASE64        version, memory as one number or two, the hour that is running, the numbers

The numbers are 64-bit floats, the running hour first and the memory rule last: a container whose memory is sized by
another rule from now on keeps all but the last.
"""

import base64
import binascii
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.stats.buckets import Floats

VERSION: Final = "1"
_APART, _ONE = "apart", "one"
_LARGEST: Final = 65536
"""Bytes that a state may unpack to: far above what is written, far below what would hurt."""


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered of one container, as of an hour counted from 1970."""

    limit_apart: bool
    hour: int
    numbers: Floats


def state_text(state: State) -> str:
    """Return a state as text."""
    packed = zlib.compress(np.ascontiguousarray(state.numbers, dtype="<f8").tobytes(), level=1)
    way = _APART if state.limit_apart else _ONE
    return f"{VERSION} {way} {state.hour} {base64.b64encode(packed).decode()}"


def _is_hour(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def read_state(text: str) -> State:
    """Return a state that was written as text; InvalidInput for anything else."""
    parts = text.split(" ")
    if len(parts) != 4 or parts[0] != VERSION or parts[1] not in (_APART, _ONE) or not _is_hour(parts[2]):
        raise InvalidInput("is not a state of this version", subject="adaptive state")
    try:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(base64.b64decode(parts[3], validate=True), _LARGEST)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise InvalidInput("cannot be unpacked", subject="adaptive state") from error
    if unpacking.unconsumed_tail or not unpacking.eof or len(raw) % 8:
        raise InvalidInput("cannot be unpacked", subject="adaptive state")
    numbers = np.frombuffer(raw, dtype="<f8").astype(np.float64)
    if np.isinf(numbers).any():
        raise InvalidInput("contains a non-finite number", subject="adaptive state")
    return State(limit_apart=parts[1] == _APART, hour=int(parts[2]), numbers=numbers)
