"""Pressure stall information: the share of time in which tasks waited for a resource.

A file has a `some` line and, except for CPU on older kernels, a `full` line. A missing line is not zero pressure: the
flags say what the kernel reports.
"""

import math
import re
from dataclasses import dataclass

from kubetide.node.core.formats.numbers import FormatError, unsigned

_LINE = re.compile(r"(\S+)\s+avg10=([0-9.eE+-]+)\s+avg60=([0-9.eE+-]+)\s+avg300=([0-9.eE+-]+)\s+total=([0-9]+)")


@dataclass(frozen=True, slots=True)
class PressureLine:
    """Percent of time stalled over the last 10, 60 and 300 seconds, and the total in microseconds."""

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Pressure:
    """One pressure file."""

    some: PressureLine = PressureLine()
    full: PressureLine = PressureLine()
    some_supported: bool = False
    full_supported: bool = False


def pressure(text: str) -> Pressure:
    """Parse a pressure file; a line that is missing leaves its averages at 0 and its flag off."""
    found: dict[str, PressureLine] = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or match[1] not in ("some", "full"):
            raise FormatError(f"{line!r} is not a line of a pressure file")
        try:
            ten, sixty, three_hundred = (float(text) for text in match.group(2, 3, 4))
        except ValueError as error:
            raise FormatError(f"{line!r} has unreadable numbers") from error
        if not math.isfinite(ten + sixty + three_hundred):
            raise FormatError(f"{line!r} has numbers without end")
        found[match[1]] = PressureLine(ten, sixty, three_hundred, unsigned(match[5], "total"))
    if not found:
        raise FormatError("a pressure file is empty")
    return Pressure(
        some=found.get("some", PressureLine()),
        full=found.get("full", PressureLine()),
        some_supported="some" in found,
        full_supported="full" in found,
    )
