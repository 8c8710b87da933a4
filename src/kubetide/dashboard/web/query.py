"""What a URL asks for beside its path: ranges of time and numbers, checked."""

from collections.abc import Mapping

from aiohttp import web

from kubetide.errors import InvalidInput

RANGES: Mapping[str, float | None] = {"15m": 900.0, "1h": 3600.0, "6h": 21600.0, "24h": 86400.0, "all": None}


def time_range(request: web.Request) -> tuple[str, float | None]:
    """Return the name of the range that was asked for, and its seconds; None for all."""
    chosen = request.query.get("range", "all")
    if chosen not in RANGES:
        raise InvalidInput(f"{chosen!r} is not one of {', '.join(RANGES)}", field="range")
    return chosen, RANGES[chosen]


def whole(request: web.Request, name: str, default: int, low: int = 0, high: int = 10**6) -> int:
    """Return a whole number of the query."""
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and low <= int(text[:9]) <= high and len(text) < 9):
        raise InvalidInput(f"must be a whole number between {low} and {high}", field=name)
    return int(text)


def number(request: web.Request, name: str, default: float, low: float, high: float) -> float:
    """Return a number of the query."""
    try:
        value = float(request.query.get(name, default))
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise InvalidInput(f"must be a number between {low} and {high}", field=name)
    return value
