"""What a URL asks for beside its path: a range of time, a part of a list, numbers to try; all of it checked."""

from collections.abc import Mapping

from aiohttp import web

from kubetide.dashboard.core.listing import Query
from kubetide.dashboard.core.what_if import Numbers
from kubetide.errors import InvalidInput

RANGES: Mapping[str, float | None] = {"15m": 900.0, "1h": 3600.0, "6h": 21600.0, "24h": 86400.0, "all": None}


def time_range(request: web.Request) -> tuple[str, float | None]:
    """Return the name of the range that was asked for, and its seconds; None for all."""
    chosen = request.query.get("range", "all")
    if chosen not in RANGES:
        raise InvalidInput(f"{chosen!r} is not one of {', '.join(RANGES)}", field="range")
    return chosen, RANGES[chosen]


def listing(request: web.Request) -> Query:
    """Return which workloads are asked for, in which order."""
    return Query(
        search=request.query.get("q", ""),
        sort=request.query.get("sort", "verdict"),
        descending=request.query.get("desc", "") == "1",
        start=_whole(request, "start", 0),
        count=_whole(request, "count", 100),
    )


def tried(request: web.Request) -> Numbers:
    """Return the numbers of a what-if."""
    return Numbers(
        percentile=_number(request, "percentile", 0.9, 0.01, 1.0),
        margin=_number(request, "margin", 0.15, 0.0, 10.0),
        target=_whole(request, "target", 0, 1, 1000) if request.query.get("target") else None,
    )


def _whole(request: web.Request, name: str, default: int, low: int = 0, high: int = 10**6) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and low <= int(text[:9]) <= high and len(text) < 9):
        raise InvalidInput(f"must be a whole number between {low} and {high}", field=name)
    return int(text)


def _number(request: web.Request, name: str, default: float, low: float, high: float) -> float:
    try:
        value = float(request.query.get(name, default))
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise InvalidInput(f"must be a number between {low} and {high}", field=name)
    return value
