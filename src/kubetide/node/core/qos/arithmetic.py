"""Integer division as upstream computes it: truncated toward zero, or rounded up.

Python's `//` rounds toward minus infinity, which differs as soon as one operand is negative, and quantities
of the QoS formulas (what is left for best-effort work, a limit below a request) may well be.
"""


def trunc_div(numerator: int, denominator: int) -> int:
    """Divide two integers and drop the fraction, whatever the signs."""
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient


def ceil_div(numerator: int, denominator: int) -> int:
    """Divide two integers and round toward plus infinity."""
    return -(-numerator // denominator)
