"""Faults on purpose, for tests and drills: what a bad day of an API server looks like.

Every fault is off by default and drawn from a seeded source, so that a drill can be repeated. Rates are
probabilities from 0 to 1 by verb; `*` stands for all verbs.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from kubetide.clock import Clock
from kubetide.embedded.apiserver.rest.status import StatusError, conflict, internal

_WRITES = ("update", "patch")


@dataclass(slots=True)
class Faults:
    """The faults in force. Change them at any time."""

    errors: Mapping[str, float] = field(default_factory=dict)
    """How often a verb is answered with 500."""
    conflicts: float = 0.0
    """How often an update or patch meets a conflict that is not there: a conflict storm at 1."""
    latency: timedelta = timedelta(0)
    """How much later every answer comes."""
    dropped: float = 0.0
    """How often a watch event is lost."""
    repeated: float = 0.0
    """How often a watch event is sent twice."""
    frozen: bool = False
    """Whether watches stay open and silent."""
    skew: timedelta = timedelta(0)
    """How far the server's clock is ahead of the world's."""
    resources: frozenset[str] = frozenset()
    """Plural names that the faults are limited to; empty means all."""
    seed: int = 0
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    @property
    def meddle(self) -> bool:
        """Whether any request may be delayed or refused."""
        return bool(self.errors or self.conflicts or self.latency)

    def concerns(self, plural: str) -> bool:
        return not self.resources or plural in self.resources

    async def before(self, verb: str, group: str, plural: str, name: str) -> None:
        """Delay a request, or refuse it."""
        if not self.concerns(plural):
            return
        if self.latency:
            await asyncio.sleep(self.latency.total_seconds())
        error = self._drawn(verb, group, plural, name)
        if error is not None:
            raise error

    def _drawn(self, verb: str, group: str, plural: str, name: str) -> StatusError | None:
        rate = self.errors.get(verb, self.errors.get("*", 0.0))
        if rate and self.random.random() < rate:
            return internal(f"injected fault on {verb} {plural}")
        if verb in _WRITES and self.conflicts and self.random.random() < self.conflicts:
            return conflict(group, plural, name)
        return None

    def tamper(self, lines: list[bytes]) -> list[bytes]:
        """Lose or repeat lines of a watch."""
        if not self.dropped and not self.repeated:
            return lines
        kept: list[bytes] = []
        for line in lines:
            if self.dropped and self.random.random() < self.dropped:
                continue
            kept.append(line)
            if self.repeated and self.random.random() < self.repeated:
                kept.append(line)
        return kept


class SkewedClock:
    """The server's clock: the world's, plus the skew in force."""

    def __init__(self, clock: Clock, faults: Faults) -> None:
        self._clock = clock
        self._faults = faults

    def now(self) -> datetime:
        skew = self._faults.skew
        return self._clock.now() + skew if skew else self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()
