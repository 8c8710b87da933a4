"""Durations as Go writes them: `1h30m`, `1m0s`, `15.2s`, `100ms`. Kubernetes uses this form in objects and flags."""

import re
from datetime import timedelta

from kubetide.errors import InvalidInput

_MICROSECONDS = {"ns": 0.001, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6}
_LONGEST_MICROSECONDS = (2**63 - 1) / 1e3  # Go counts nanoseconds in 64 bits
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"([+-]?)((?:{_PART.pattern})+)", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """Return the duration that `text` spells; a bare `0` is allowed, other bare numbers are not."""
    if text in ("0", "+0", "-0"):
        return timedelta(0)
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{text!r} is not a duration such as 30s, 1m30s or 100ms")
    microseconds = sum(float(number) * _MICROSECONDS[unit] for number, unit in _PART.findall(match[2]))
    if microseconds > _LONGEST_MICROSECONDS:
        raise InvalidInput(f"{text[:40]!r} is too long for a duration: the longest is 2562047h")
    duration = timedelta(microseconds=microseconds)
    return -duration if match[1] == "-" else duration


def format_duration(duration: timedelta) -> str:
    """Return the text Go prints: `1h0m0s`, `1m30s`, `1.5s`, `100ms`, `0s`."""
    total = duration // timedelta(microseconds=1)
    if total == 0:
        return "0s"
    sign, total = ("-", -total) if total < 0 else ("", total)
    if total < 1_000:
        return f"{sign}{total}µs"
    if total < 1_000_000:
        return f"{sign}{_trim(total / 1e3)}ms"
    minutes, rest = divmod(total, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = _trim(rest / 1e6)
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}s"
    return f"{sign}{minutes}m{seconds}s" if minutes else f"{sign}{seconds}s"


def _trim(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")
