"""Exact Kubernetes quantities: parse, format, compare, add.

A quantity never holds more than nine decimal places (finer digits round away from zero), so every quantity is a
whole number of nano units. That integer is the value; a Python integer has no upper end, so nothing overflows or
wraps. The notation in which it was written (decimal suffixes, binary suffixes, exponent) is kept for printing and
takes no part in comparison.

    500m  ->  500_000_000 nanos        1Ki  ->  1024 * 10^9 nanos        1e3  ->  1000 * 10^9 nanos

Usage samples arrive by the hundred thousand and nearly all look like `123456789n`, `250m`, `2` or `65536Ki`; the
helpers at the end turn these into integers without building an object.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from kubetide.errors import InvalidInput, QuantityError

NANO = 10**9
"""Nanos in one unit."""

_NANOS_PER_MILLI = 10**6

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?(.*)", re.ASCII | re.DOTALL)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_BY_EXPONENT = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}

# An exponent is text that anybody may write: beyond this no real amount exists, and the integer would fill memory.
_LARGEST_EXPONENT = 400
_SMALLEST_EXPONENT = -10_000
_LONGEST_TEXT = 1_000
_SHORT = 20
"""Usual amounts are shorter; what is longer is worth the checks of the full parser."""

QuantityText = str | int | float
"""What JSON may hold where a quantity stands."""


class Notation(Enum):
    """How a quantity is written."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount. Equality, order and hash look at the amount only."""

    nanos: int
    notation: Notation = field(default=Notation.DECIMAL, compare=False)

    @classmethod
    def parse(cls, text: QuantityText) -> "Quantity":
        """Return the quantity that `text` spells; raise QuantityError otherwise."""
        return parse_quantity(text)

    @classmethod
    def of(cls, value: int, *, binary: bool = False) -> "Quantity":
        """Return `value` whole units."""
        return cls(value * NANO, Notation.BINARY if binary else Notation.DECIMAL)

    @classmethod
    def of_milli(cls, millis: int) -> "Quantity":
        """Return `millis` thousandths of a unit."""
        return cls(millis * _NANOS_PER_MILLI)

    @property
    def value(self) -> int:
        """The amount in whole units, rounded away from zero."""
        return _divide_away(self.nanos, NANO)

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero."""
        return _divide_away(self.nanos, _NANOS_PER_MILLI)

    @property
    def sign(self) -> int:
        return (self.nanos > 0) - (self.nanos < 0)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __add__(self, other: "Quantity") -> "Quantity":
        # As in Kubernetes a sum is written like its first term, unless that term is zero.
        return Quantity(self.nanos + other.nanos, self.notation if self.nanos else other.notation)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, self.notation if self.nanos else other.notation)

    def __mul__(self, factor: int) -> "Quantity":
        return Quantity(self.nanos * factor, self.notation)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nanos, self.notation)

    def __float__(self) -> float:
        return self.nanos / NANO

    def __str__(self) -> str:
        """The canonical text: the largest suffix that leaves a whole number."""
        if self.notation is Notation.BINARY and self.nanos % NANO == 0 and abs(self.nanos) >= 1024 * NANO:
            return _binary_text(self.nanos // NANO)
        return _decimal_text(self.nanos, exponent_form=self.notation is Notation.EXPONENT)


ZERO = Quantity(0)


def parse_quantity(text: QuantityText) -> Quantity:
    """Return the quantity that `text` spells. JSON numbers are accepted; errors name the text."""
    if isinstance(text, str):
        return _parse_text(text)
    if isinstance(text, bool) or not isinstance(text, int | float):
        raise QuantityError(f"{text!r} is not a quantity")
    return _parse_text(_spelt(text))


def quantity_float(text: QuantityText) -> float:
    """Return the quantity as a double the way Kubernetes does: mantissa as written times one power of ten."""
    mantissa, exponent, _ = _scan(text if isinstance(text, str) else _spelt(text))
    if mantissa == 0:
        return 0.0
    if exponent < -9:
        mantissa, exponent = _divide_away(mantissa, 10 ** (-9 - exponent)), -9
    try:
        return float(mantissa) * float(f"1e{exponent}") if exponent else float(mantissa)
    except OverflowError:
        return float("inf") if mantissa > 0 else float("-inf")


def milli_text(millis: int) -> str:
    """Return the canonical decimal text of `millis` thousandths, as statuses show metric values."""
    return _decimal_text(millis * _NANOS_PER_MILLI)


def binary_milli_text(millis: int) -> str:
    """Return `millis` thousandths of a byte in the largest binary unit that keeps them whole: 1Gi, 1540Ki, 91091."""
    if millis % 1000:
        return f"{millis}m"
    return _binary_text(millis // 1000) if millis else "0"


_BINARY_UNITS = (("Ei", 1024**6), ("Pi", 1024**5), ("Ti", 1024**4), ("Gi", 1024**3), ("Mi", 1024**2), ("Ki", 1024))


def readable_bytes(value: float) -> str:
    """Return an amount of bytes as people read it, to three digits: 454Mi, 1.5Gi, 17Ki."""
    for unit, size in _BINARY_UNITS:
        if abs(value) >= size:
            share = value / size
            return f"{share:.0f}{unit}" if abs(share) >= 100 or share == int(share) else f"{share:.1f}{unit}"
    return f"{value:.0f}"


def readable(resource: str, text: QuantityText) -> str:
    """Return a quantity of a resource as people read it: bytes in binary units, all else as it is written."""
    if not resource.endswith(("memory", "storage")):
        return str(text)
    try:
        return readable_bytes(float(parse_quantity(text)))
    except QuantityError:
        return str(text)


def plain_number(text: QuantityText) -> str:
    """Return a quantity of no unit as people read it: 12.82 for 12820m."""
    try:
        return f"{float(parse_quantity(text)):.4g}"
    except QuantityError:
        return str(text)


def cpu_millis(text: QuantityText) -> int:
    """Return thousandths of a unit, rounded away from zero; fast for `12345n`, `250m` and `2`."""
    if isinstance(text, str) and len(text) <= _SHORT and text.isascii():
        digits = text[:-1]
        if digits.isdigit():
            last = text[-1]
            if last == "n":
                return -(-int(digits) // _NANOS_PER_MILLI)
            if last == "m":
                return int(digits)
            if last == "u":
                return -(-int(digits) // 1000)
        if text.isdigit():
            return int(text) * 1000
    return parse_quantity(text).milli


def nanos_as_millis(texts: Sequence[str]) -> list[int] | None:
    """Return `cpu_millis` of each where all are `0` or plain nanos, as metrics servers write CPU; None elsewhere."""
    if max(map(len, texts), default=0) > _SHORT:
        return None
    digits = [text[:-1] or text for text in texts]
    # What is left of each are digits alone, so an `n` can only be at its end, and all but a plain 0 must have one.
    joined = "".join(digits)
    if not (joined.isascii() and joined.isdigit()) or "".join(texts).count("n") != len(texts) - texts.count("0"):
        return None
    return [-(-int(each) // _NANOS_PER_MILLI) for each in digits]


def memory_bytes(text: QuantityText) -> int:
    """Return whole units, rounded away from zero; fast for `123456`, `128Mi` and `65536Ki`."""
    if isinstance(text, str) and len(text) <= _SHORT and text.isascii():
        if text.isdigit():
            return int(text)
        shift = _BINARY_SUFFIXES.get(text[-2:])
        if shift is not None and text[:-2].isdigit():
            return int(text[:-2]) << shift
    return parse_quantity(text).value


milli_value = cpu_millis
int_value = memory_bytes


def _spelt(number: float) -> str:
    try:
        return repr(number)
    except ValueError as error:  # Python writes out no integer of thousands of digits
        raise QuantityError("a number of thousands of digits is not a quantity") from error


@lru_cache(maxsize=65536)
def _parse_text(text: str) -> Quantity:
    mantissa, exponent, notation = _scan(text)
    shift = exponent + 9
    nanos = mantissa * 10**shift if shift >= 0 else _divide_away(mantissa, 10**-shift)
    return Quantity(nanos, notation)


def _scan(text: str) -> tuple[int, int, Notation]:
    """Split `text` into mantissa, power of ten and notation; binary suffixes are multiplied in."""
    if len(text) > _LONGEST_TEXT:
        raise QuantityError(f"{text[:40]!r}… is not a quantity: longer than {_LONGEST_TEXT} characters")
    match = _NUMBER.fullmatch(text)
    assert match is not None, "the pattern matches every text"
    sign, whole, point, fraction, suffix = match.groups(default="")
    if not whole and not fraction and (point or suffix or not sign):
        raise QuantityError(f"{text!r} is not a quantity: it has no digits")
    mantissa = int(whole + fraction or "0")
    exponent = -len(fraction)
    notation = Notation.DECIMAL
    if suffix in _DECIMAL_SUFFIXES:
        exponent += _DECIMAL_SUFFIXES[suffix]
    elif suffix in _BINARY_SUFFIXES:
        mantissa <<= _BINARY_SUFFIXES[suffix]
        notation = Notation.BINARY
    elif written := _EXPONENT.fullmatch(suffix):
        exponent += max(min(int(written[1]), _LARGEST_EXPONENT), _SMALLEST_EXPONENT)
        notation = Notation.EXPONENT
    else:
        raise QuantityError(f"{text!r} is not a quantity: unknown suffix {suffix!r}")
    return (-mantissa if sign == "-" else mantissa), exponent, notation


def _divide_away(number: int, divisor: int) -> int:
    """Divide and round away from zero."""
    return -(-number // divisor) if number >= 0 else number // divisor


def _decimal_text(nanos: int, *, exponent_form: bool = False) -> str:
    if nanos == 0:
        return "0"
    exponent = -9
    while exponent < 18 and nanos % 1000 == 0:
        nanos //= 1000
        exponent += 3
    if exponent_form:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_BY_EXPONENT[exponent]}"


def _binary_text(value: int) -> str:
    suffix = ""
    for name in _BINARY_SUFFIXES:
        if value % 1024:
            break
        value //= 1024
        suffix = name
    return f"{value}{suffix}"


_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+", re.ASCII)


def parse_float(text: str) -> float:
    """Return the finite number that a label or annotation spells; raise InvalidInput for anything else.

    As Go's `strconv` reads it: no white space, no underscores between digits, no digits of other scripts. A label that
    upstream would pass over must not become a number here.
    """
    number = math.inf
    try:
        if _DECIMAL.fullmatch(text):
            number = float(text)
        elif _HEXADECIMAL.fullmatch(text):
            number = float.fromhex(text)
    except OverflowError as error:
        raise InvalidInput(f"{text!r} is too large a number") from error
    if not math.isfinite(number):
        raise InvalidInput(f"{text!r} is not a finite number")
    return number
