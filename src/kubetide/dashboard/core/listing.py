"""Which rows of a long list are shown: search, filter, order, and the window that fits a screen.

A search is words, all of which must occur in the namespace, the name, the kind or the verdict; `ns:shop`,
`kind:statefulset` and `is:problem` (`error`, `hpa`, `vpa`, `max`, `oom`) narrow it down. Without an order that is known
the worst come first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubetide.dashboard.core.model import Tone, Workload

RANKS: Mapping[Tone, int] = {"bad": 0, "warn": 1, "plain": 2, "good": 3}
MOST_ROWS = 500
"""Of one window, whatever is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What somebody wants to see of a list."""

    search: str = ""
    sort: str = "verdict"
    descending: bool = False
    start: int = 0
    count: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a list that is shown, and how long the whole is."""

    rows: tuple[Workload, ...]
    start: int
    matched: int
    total: int
    tones: Mapping[Tone, int] = field(default_factory=dict)
    """How many of the matched rows there are of each tone."""


def _share(part: float | None, whole: float | None) -> float:
    return part / whole if part is not None and whole else -1.0


ORDERS: Mapping[str, Callable[[Workload], Any]] = {
    "verdict": lambda row: RANKS[row.verdict.tone],
    "name": lambda row: (row.namespace, row.name),
    "replicas": lambda row: row.pods,
    "load": lambda row: _share(*row.load) if row.load is not None else -1.0,
    "cpu": lambda row: -1.0 if row.cpu.used is None else row.cpu.used,
    "cpu-request": lambda row: row.cpu.asked,
    "cpu-best": lambda row: -1.0 if row.cpu.recommended is None else row.cpu.recommended,
    "memory": lambda row: -1.0 if row.memory.used is None else row.memory.used,
    "memory-request": lambda row: row.memory.asked,
    "restarts": lambda row: row.restarts,
}
"""What rows may be sorted by; equal ones stay in the order of their names."""

_IS: Mapping[str, Callable[[Workload], bool]] = {
    "problem": lambda row: row.verdict.tone in ("bad", "warn"),
    "error": lambda row: row.verdict.tone == "bad",
    "hpa": lambda row: bool(row.hpa),
    "vpa": lambda row: bool(row.vpa),
    "max": lambda row: row.bounds is not None and row.pods >= row.bounds[1],
    "oom": lambda row: row.oom_kills > 0,
}


def window(rows: Sequence[Workload], query: Query, *, most: int = MOST_ROWS) -> Window:
    """Return the rows that match, in order, and of them those that are to be shown."""
    matched = [row for row in rows if matches(row, query.search)]
    matched.sort(key=lambda row: (row.namespace, row.name, row.kind))
    matched.sort(key=ORDERS.get(query.sort, ORDERS["verdict"]), reverse=query.descending)
    start = max(0, min(query.start, len(matched)))
    count = max(0, min(query.count, most))
    tones: dict[Tone, int] = {}
    for row in matched:
        tones[row.verdict.tone] = tones.get(row.verdict.tone, 0) + 1
    return Window(
        rows=tuple(matched[start : start + count]), start=start, matched=len(matched), total=len(rows), tones=tones
    )


def matches(row: Workload, search: str) -> bool:
    """Return whether a row has all words of a search."""
    text = f"{row.namespace}/{row.name} {row.kind} {row.verdict.text}".lower()
    return all(_has(row, text, word) for word in search.lower().split())


def _has(row: Workload, text: str, word: str) -> bool:
    name, colon, value = word.partition(":")
    match name if colon else "":
        case "ns" | "namespace":
            return row.namespace == value
        case "kind":
            return row.kind.lower() == value
        case "is":
            return value in _IS and _IS[value](row)
        case _:
            return word in text
