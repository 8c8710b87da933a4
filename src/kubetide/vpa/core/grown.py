"""The note on a pod whose memory was raised before it could be OOM killed.

    kubetide.io/memory-grown: main=498073600@2026-11-17T09:30:00+00:00

says what a container needed when it was given more, and when. The updater writes it; the recommender learns the level
from it as it does from an OOM kill; and until it has, the updater takes nothing back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kubetide.api.objects.core import Pod
from kubetide.vpa.core.capping import NewResources
from kubetide.vpa.core.policy import MEMORY, container_amounts

GROWN: Final = "kubetide.io/memory-grown"
HELD: Final = timedelta(minutes=10)
"""How long nothing is taken back from a container that grew: long enough for the recommendation to follow."""


@dataclass(frozen=True, slots=True)
class Grown:
    """What a container needed, in bytes, when its memory was raised."""

    need: int
    at: datetime


def grown_text(grown: Mapping[str, Grown]) -> str:
    """Return the value of the annotation."""
    return ",".join(f"{name}={one.need}@{one.at.isoformat(timespec='seconds')}" for name, one in grown.items())


def read_grown(annotations: Mapping[str, str] | None) -> dict[str, Grown]:
    """Return what the annotation says by container; entries that cannot be read are left out."""
    found = {}
    for entry in (annotations or {}).get(GROWN, "").split(","):
        name, _, rest = entry.strip().partition("=")
        need, _, at = rest.partition("@")
        try:
            when = datetime.fromisoformat(at)
            if name and need.isascii() and need.isdigit() and when.tzinfo is not None:
                found[name] = Grown(int(need), when)
        except ValueError:
            continue
    return found


def held_after_growth(pod: Pod, new: Iterable[NewResources], *, now: datetime) -> str:
    """Return why memory is not taken back now from a container that grew a moment ago; empty when it may be."""
    grown = read_grown(pod.metadata.annotations)
    if not grown:
        return ""
    own = {one.name: container_amounts(one.name, one.resources) for one in pod.spec.containers or ()}
    for one in new:
        at = grown[one.name].at if one.name in grown else None
        if at is None or one.name not in own or now - at >= HELD:
            continue
        has = own[one.name]
        pairs = ((has.requests, one.requests), (has.limits, one.limits))
        if any(MEMORY in before and MEMORY in after and after[MEMORY] < before[MEMORY] for before, after in pairs):
            return f"container {one.name} got more memory at {at:%H:%M:%S}, which the recommendation does not know yet"
    return ""
