"""Numbers as the kernel and its tools print them: decimal, no spaces, no underscores, within 64 bits."""

import re

from kubetide.errors import InvalidInput

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
UINT64_MAX = 2**64 - 1
_SURE_DIGITS = 20
"""A number with fewer digits than this fits into 64 bits."""

# Longer than any number of 64 bits, leading zeros allowed; what is longer still is not worth converting.
_SIGNED = re.compile(r"[+-]?[0-9]{1,100}")
_UNSIGNED = re.compile(r"[0-9]{1,100}")


class FormatError(InvalidInput):
    """A kernel file or the output of a tool does not look as it should."""


def signed(text: str, what: str = "number", *, low: int = INT64_MIN, high: int = INT64_MAX) -> int:
    """Parse a signed decimal integer within [low, high]."""
    if not _SIGNED.fullmatch(text):
        raise FormatError(f"{what} {text!r} is not an integer")
    number = int(text)
    if not low <= number <= high:
        raise FormatError(f"{what} {text!r} is out of range")
    return number


def unsigned(text: str, what: str = "number") -> int:
    """Parse an unsigned decimal integer of 64 bits."""
    if text.isdecimal() and text.isascii() and len(text) < _SURE_DIGITS:
        return int(text)
    if not _UNSIGNED.fullmatch(text):
        raise FormatError(f"{what} {text!r} is not an unsigned integer")
    number = int(text)
    if number > UINT64_MAX:
        raise FormatError(f"{what} {text!r} is out of range")
    return number


def is_index(text: str) -> bool:
    """Return whether a text numbers something (a CPU, a NUMA node); `²` is a digit too, which no number has."""
    return text.isascii() and text.isdecimal() and len(text) < _SURE_DIGITS


def limit(text: str, what: str = "limit") -> int:
    """Parse an integer file in which `max` means no limit (-1)."""
    return -1 if text == "max" else signed(text, what)


def key_values(text: str) -> dict[str, str]:
    """Parse a flat `key value` file; lines with fewer than two words are ignored, further words too."""
    pairs: dict[str, str] = {}
    for line in text.split("\n"):
        words = line.split(None, 2)
        if len(words) >= 2:
            pairs[words[0]] = words[1]
    return pairs


def counters(text: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the named counters of a flat file; a missing or unreadable one is an error.

    Written for files that are read every second: only the wanted lines are looked at. As in `key_values` the last line
    of a name counts.
    """
    padded = "\n" + text
    found: list[int] = []
    for name in names:
        start = padded.rfind(f"\n{name} ")
        if start < 0:
            pairs = key_values(text)  # unusual white space: fall back to the general parser
            if name not in pairs:
                raise FormatError(f"{name} is missing")
            found.append(unsigned(pairs[name], name))
            continue
        start += len(name) + 2
        end = padded.find("\n", start)
        words = (padded[start:] if end < 0 else padded[start:end]).split(None, 1)
        if not words:
            raise FormatError(f"{name} has no value")
        found.append(unsigned(words[0], name))
    return tuple(found)


def trunc_div(numerator: int, denominator: int) -> int:
    """Divide two integers and drop the fraction, whatever the signs; `//` would round a negative one down."""
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient


def ceil_div(numerator: int, denominator: int) -> int:
    """Divide two integers and round toward plus infinity."""
    return -(-numerator // denominator)
