"""Powers, and a cosine, whose every bit is the same on every CPU.

IEEE 754 fixes the results of adding, multiplying, dividing, taking square roots and scaling by powers of two; it only
recommends those of `exp`, `log`, `pow` and `cos`, and libraries answer with other last bits on other CPUs. So what
decisions and the simulation rest on is made of what is fixed:

    2^x       2^(k/1024) · 2^r with k = 1024·x rounded and |r| ≤ 1/2048: a table times a short series
    e^x       2^(x·log2 e)
    b^x       b multiplied by itself for the whole part of x, square roots of b for the binary digits of the rest
    cos 2πx   its series, on the quarter of a turn that holds all values

The table is made of integers and holds each power in two floats, which keeps 2^x within 0.501 units in the last place:
in practice the nearest float.
"""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_STEPS_LOG2 = 10
_STEPS = 1 << _STEPS_LOG2
# Beyond these exponents 2^x is 0 or infinite whatever else x says.
_LEAST, _MOST = -1100.0, 1100.0
# 2^r − 1 = C1·r + C2·r² + …, with Cn = (ln 2)^n / n!; the next term is below 2^-64.
_C1 = float.fromhex("0x1.62e42fefa39efp-1")
_C2 = float.fromhex("0x1.ebfbdff82c58fp-3")
_C3 = float.fromhex("0x1.c6b08d704a0c0p-5")
_C4 = float.fromhex("0x1.3b2ab6fba4e77p-7")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
# cos a = 1 − a²/2! + a⁴/4! − …, highest first; the next term is below 2^-55 in the first quarter of a turn.
_COSINE = tuple((-1) ** k / math.factorial(2 * k) for k in range(10, -1, -1))


def _table() -> tuple[Floats, Floats]:
    """Return 2^(j/1024) for all j, as the nearest float and what is missing to the true value."""
    bits = 160
    one = 1 << bits
    root = 2 * one
    for _ in range(_STEPS_LOG2):
        root = math.isqrt(root * one)
    powers = [one]
    for _ in range(1, _STEPS):
        powers.append(powers[-1] * root >> bits)
    # Dividing integers gives the nearest float.
    nearest = [power / one for power in powers]
    missing = [
        (power - int(near * 2**52) * 2 ** (bits - 52)) / one for power, near in zip(powers, nearest, strict=True)
    ]
    return np.array(nearest), np.array(missing)


_NEAREST, _MISSING = _table()


def power_of_two(exponents: npt.ArrayLike) -> Floats:
    """Return 2^x for every x."""
    x = np.clip(np.asarray(exponents, dtype=np.float64), _LEAST, _MOST)
    steps = np.rint(x * float(_STEPS))
    number = steps.astype(np.int32)
    steps *= 1.0 / _STEPS
    rest = x - steps
    # In place, as temporary arrays would take half of the time: rest·(C1 + rest·(C2 + rest·(C3 + rest·C4))).
    grown = rest * _C4
    for constant in (_C3, _C2, _C1):
        grown += constant
        grown *= rest
    place = number & (_STEPS - 1)
    near = _NEAREST.take(place)
    # The smallest terms first, so that only the last addition rounds visibly.
    grown *= near
    grown += _MISSING.take(place)
    grown += near
    power: Floats = np.ldexp(grown, number >> _STEPS_LOG2)
    return power


def exponential_of(exponents: npt.ArrayLike) -> Floats:
    """Return e^x for every x; its relative error grows with x, to |x|·2^-52."""
    return power_of_two(np.asarray(exponents, dtype=np.float64) * _LOG2_E)


def power(base: float, exponent: float) -> float:
    """Return base^exponent; neither may be negative."""
    if not (base >= 0.0 and 0.0 <= exponent < math.inf):
        raise ValueError(f"cannot raise {base} to the power of {exponent}: both must be finite and not negative")
    whole = int(exponent)
    result, square = 1.0, base
    while whole:
        if whole & 1:
            result *= square
        square *= square
        whole >>= 1
    rest, root = exponent - int(exponent), base
    while rest:
        root = math.sqrt(root)
        rest *= 2.0
        if rest >= 1.0:
            result *= root
            rest -= 1.0
    return result


def cosine_of_turns(turns: float) -> float:
    """Return the cosine of an angle given in turns: 1 at 0, 0 at a quarter, −1 at a half."""
    part = abs(turns - round(turns))
    sign = 1.0
    if part > 0.25:
        part, sign = 0.5 - part, -1.0
    angle = 2.0 * math.pi * part
    square = angle * angle
    result = 0.0
    for factor in _COSINE:
        result = result * square + factor
    return sign * result


def cosines_of_turns(turns: Floats) -> Floats:
    """Return `cosine_of_turns` of many angles, the very same numbers."""
    part = np.abs(turns - np.rint(turns))
    far = part > 0.25
    part = np.where(far, 0.5 - part, part)
    angle = 2.0 * math.pi * part
    square = angle * angle
    result = np.zeros_like(turns)
    for factor in _COSINE:
        result = result * square + factor
    return np.where(far, -result, result)
