"""Which containers are about to be OOM killed, early enough to give them more.

Looked at is what a container cannot give back (`need`: memory in use without page cache) against the lower one of its
limits (memory.max, memory.high), second by second. An alarm is raised while one of these holds:

    soon      need >= 70 % of the limit, and at its present growth it is reached within 2 minutes
    near      need >= 90 % of the limit, and it has grown over the last half minute or more
    pressed   need >= 80 % of the limit, and the limit was reached since the last look (memory.events), or tasks waited
              for memory in 10 % of the last 10 s (PSI)

Growth is the larger one of that over the last 10 s and that over the last minute: a burst shows in the first, a leak in
the second. A heap that fills its limit and stays there raises none, nor does page cache, which the kernel takes back.
A container below 70 % of its limit, page cache included, need not be looked at more closely.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

LOOKED_AT: Final = 0.7
NEAR: Final = 0.9
PRESSED: Final = 0.8
SOON_SECONDS: Final = 120.0
PRESSURE: Final = 0.1
SHORT_SECONDS, STEADY_SECONDS, LONG_SECONDS = 10.0, 30.0, 60.0
WORSE: Final = 0.01
LEAST_GROWTH: Final = 1e-5
"""Share of the limit per second, 3.6 % an hour: less than that is not growing."""

ContainerKey = tuple[str, str]
"""Uid of the pod, name of the container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLook:
    """One close look at a container. None: this kernel does not say."""

    need: int
    limit: int
    pressure: float | None = None
    events: int | None = None
    """How often a limit was reached so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A container whose memory is running out, and by which rule."""

    need: int
    limit: int
    growth: float
    pressure: float | None
    hits: int | None
    rule: str


@dataclass(slots=True)
class _Past:
    looks: deque[tuple[float, int]] = field(default_factory=deque)
    events: int | None = None


class MemoryAlarms:
    """Remembers the last minute of the containers that are near their limits."""

    def __init__(self) -> None:
        self._past: dict[ContainerKey, _Past] = {}

    def take(self, key: ContainerKey, look: MemoryLook, *, at: float) -> Alarm | None:
        """Add a look; return the alarm that it raises, if any."""
        past = self._past.setdefault(key, _Past())
        looks = past.looks
        if looks and at <= looks[-1][0]:
            return None
        looks.append((at, look.need))
        while at - looks[0][0] > LONG_SECONDS:
            looks.popleft()
        hits = None
        if look.events is not None:
            hits = max(look.events - past.events, 0) if past.events is not None else 0
            past.events = look.events
        long = _growth(looks, LONG_SECONDS)
        growth = max(_growth(looks, SHORT_SECONDS), long)
        steady = long if at - looks[0][0] >= STEADY_SECONDS else 0.0
        rule = rule_of(look, growth=growth, steady=steady, hits=hits)
        if not rule:
            return None
        return Alarm(need=look.need, limit=look.limit, growth=growth, pressure=look.pressure, hits=hits, rule=rule)

    def keep(self, keys: Iterable[ContainerKey]) -> None:
        """Forget containers that are not near their limits any more, or gone."""
        near = set(keys)
        self._past = {key: past for key, past in self._past.items() if key in near}


def worse(before: Mapping[ContainerKey, Alarm], now: Mapping[ContainerKey, Alarm]) -> bool:
    """Return whether alarms must be told at once: one is new or over, or needs another percent of its limit."""
    return before.keys() != now.keys() or any(
        one.need - before[key].need >= WORSE * one.limit or one.limit != before[key].limit for key, one in now.items()
    )


def rule_of(look: MemoryLook, *, growth: float, steady: float, hits: int | None) -> str:
    """Return the rule by which a look raises an alarm, empty for none; `steady` is growth that has lasted."""
    if look.limit <= 0 or look.need < LOOKED_AT * look.limit:
        return ""
    least = LEAST_GROWTH * look.limit
    if growth >= least and look.need + growth * SOON_SECONDS >= look.limit:
        return "soon"
    if steady >= least and look.need >= NEAR * look.limit:
        return "near"
    if look.need >= PRESSED * look.limit and (hits or (look.pressure or 0.0) >= PRESSURE):
        return "pressed"
    return ""


def _growth(looks: deque[tuple[float, int]], seconds: float) -> float:
    """Return bytes per second over the last `seconds`, or as far as looks reach; one look shows none."""
    last_at, last = looks[-1]
    first_at, first = next(one for one in looks if last_at - one[0] <= seconds)
    return (last - first) / (last_at - first_at) if last_at > first_at else 0.0
