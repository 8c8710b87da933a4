"""How far a rolling update may go in one step: pure arithmetic on replica counts.

    never more than   replicas + surge         pods of all revisions
    never fewer than  replicas − unavailable   available pods

Percentages round up for surge and down for unavailable; if both come to 0, one pod may be unavailable, or nothing
could ever move.
"""

from dataclasses import dataclass
from typing import Any

from kubetide.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One ReplicaSet of a Deployment: what it should have and what it has available."""

    name: str
    wanted: int
    available: int


def scaled(value: Any, total: int, *, round_up: bool) -> int:
    """Return an int-or-percent field as a number of pods."""
    if value is None:
        value = "25%"
    if isinstance(value, int):
        return value
    text = str(value)
    if not text.endswith("%") or not text[:-1].isdigit():
        raise InvalidInput(f"{text!r} is neither a number nor a percentage")
    product = int(text[:-1]) * total
    return -(-product // 100) if round_up else product // 100


def limits(surge: Any, unavailable: Any, replicas: int) -> tuple[int, int]:
    """Return how many pods may be there above, and missing below, the wanted count."""
    up = scaled(surge, replicas, round_up=True)
    down = scaled(unavailable, replicas, round_up=False)
    if up == 0 and down == 0:
        down = 1
    return up, min(down, replicas)


def step(new: Revision, old: list[Revision], *, replicas: int, surge: int, unavailable: int) -> dict[str, int]:
    """Return the next wanted count of each revision, oldest of `old` first; only changes are in it."""
    changes: dict[str, int] = {}
    total = new.wanted + sum(revision.wanted for revision in old)
    wanted_new = new.wanted
    if new.wanted > replicas:
        wanted_new = replicas
    elif new.wanted < replicas:
        wanted_new += max(0, min(replicas + surge - total, replicas - new.wanted))
    if wanted_new != new.wanted:
        changes[new.name] = wanted_new
        total += wanted_new - new.wanted
    floor = replicas - unavailable
    removable = total - floor - max(0, wanted_new - new.available)
    left = {revision.name: revision.wanted for revision in old}
    for revision in old:  # pods that serve nobody go first, they cost no availability
        broken = min(revision.wanted - min(revision.wanted, revision.available), max(0, removable))
        left[revision.name] -= broken
        removable -= broken
    spare = new.available + sum(min(left[r.name], r.available) for r in old) - floor
    removable = min(removable, spare)
    for revision in old:
        gone = min(left[revision.name], max(0, removable))
        left[revision.name] -= gone
        removable -= gone
    for revision in old:
        if left[revision.name] != revision.wanted:
            changes[revision.name] = left[revision.name]
    return changes
