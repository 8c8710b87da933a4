"""How fast pods may be disturbed, over the whole cluster.

Two rules hold at once, over evictions and resizes together:

    at most `per_minute` disruptions in any 60 seconds              (60)
    at most `burst` at one moment, refilled at `per_minute` / 60 s   (10)

A process that has just started does not know what its predecessor did in the last minute, so it waits one minute
before its first disruption: restarting every component cannot exceed the budget.

`TokenBucket` is the plain rate limiter behind `--eviction-rate-limit` and `--eviction-rate-burst`.

Replicas that share the work share all of these limits as slots (`kube.control.core.slots`), as many as the scarcest
limit has units. A slot that changes hands rests for a minute, like a process that has just started: so two replicas
never use it within one window, and in sum they do no more than one process would.
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta

WINDOW = timedelta(minutes=1)
_MOST_SLOTS = 256
"""As many as a Lease can claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may be disturbed over the whole cluster. Rates of 0 or less are no limit."""

    per_minute: int
    burst: int
    rate: float
    """Evictions, and resizes, a second."""
    rate_burst: int
    at_once: int
    """Requests that are under way."""

    @property
    def slots(self) -> int:
        """How many slots share these limits: as many as the scarcest one has units."""
        budget = (self.per_minute, max(self.burst, 1)) if self.per_minute > 0 else ()
        rated = (max(self.rate_burst, 1),) if self.rate > 0 else ()
        return min(self.at_once, *budget, *rated, _MOST_SLOTS)

    @property
    def rest(self) -> timedelta:
        """How long a slot rests that changes hands."""
        return WINDOW if self.per_minute > 0 or self.rate > 0 else timedelta(0)

    def part(self, slots: int, of: int) -> "Limits":
        """Return the part of some slots, at least one, of so many."""
        return Limits(
            per_minute=self.per_minute * slots // of,
            burst=max(self.burst, 1) * slots // of,
            rate=self.rate * slots / of,
            rate_burst=max(self.rate_burst, 1) * slots // of,
            at_once=self.at_once * slots // of,
        )


class TokenBucket:
    """`rate` tokens a second, at most `burst` saved up; starts full. A rate of 0 or less never makes anyone wait."""

    def __init__(self, *, rate: float, burst: int, now: datetime) -> None:
        self._rate = rate
        self._burst = float(max(burst, 1))
        self._tokens = self._burst
        self._at = now

    def ready_at(self, now: datetime) -> datetime:
        """Return when the next token can be taken; `now` when there is one."""
        if self._rate <= 0:
            return now
        tokens = self._level(now)
        return now if tokens >= 1 else now + timedelta(seconds=(1 - tokens) / self._rate)

    def take(self, now: datetime) -> None:
        """Take one token; may go below zero when the caller did not wait."""
        if self._rate <= 0:
            return
        self._tokens = self._level(now) - 1
        self._at = max(now, self._at)

    def give_back(self) -> None:
        """Return a token that was taken for nothing."""
        if self._rate > 0:
            self._tokens = min(self._burst, self._tokens + 1)

    def resize(self, *, rate: float, burst: int, now: datetime, fresh: bool) -> None:
        """Go on with another rate; what is new has rested for a window, and saved up in it. `fresh`: all of it is."""
        level, had_rate, had_burst = (0.0, 0.0, 0.0) if fresh else (self._level(now), self._rate, self._burst)
        saved = min(max(0.0, rate - had_rate) * WINDOW.total_seconds(), max(0.0, burst - had_burst))
        self._tokens = min(float(burst), level + saved)
        self._rate, self._burst, self._at = rate, float(burst), max(now, self._at)

    def _level(self, now: datetime) -> float:
        passed = max((now - self._at).total_seconds(), 0.0)
        # A microsecond of clock resolution must not cost a token that was promised for this very moment.
        return min(self._burst, self._tokens + passed * self._rate + 1e-6)


class DisruptionBudget:
    """The budget of the cluster. `per_minute` of 0 or less switches it off."""

    def __init__(self, *, per_minute: int, burst: int, started: datetime, shared: bool = False) -> None:
        """With `shared`, each slot has its own minute of rest."""
        self._per_minute = per_minute
        self._bucket = TokenBucket(rate=per_minute / WINDOW.total_seconds(), burst=burst, now=started)
        self._opens = started + WINDOW if per_minute > 0 and not shared else started
        self._recent: deque[datetime] = deque()

    def resize(self, *, per_minute: int, burst: int, now: datetime, fresh: bool) -> None:
        """Go on with another part of the budget of the cluster; what was done in the last minute counts on."""
        if self._per_minute > 0:
            self._per_minute = per_minute
            self._bucket.resize(rate=per_minute / WINDOW.total_seconds(), burst=burst, now=now, fresh=fresh)

    def next_at(self, now: datetime) -> datetime:
        """Return the earliest moment at which one more disruption fits."""
        if self._per_minute <= 0:
            return now
        self._forget(now)
        full = len(self._recent) >= self._per_minute
        window = self._recent[-self._per_minute] + WINDOW if full else now
        return max(now, self._opens, self._bucket.ready_at(now), window)

    def record(self, now: datetime) -> None:
        """Count a disruption. One that was tried and may have happened counts too."""
        if self._per_minute > 0:
            self._bucket.take(now)
            self._recent.append(now)

    def give_back(self, at: datetime) -> None:
        """Uncount a disruption recorded at `at` that certainly did not happen."""
        if at in self._recent:
            self._recent.remove(at)
            self._bucket.give_back()

    def used(self, now: datetime) -> int:
        """Return how many disruptions the last minute saw."""
        self._forget(now)
        return len(self._recent)

    def _forget(self, now: datetime) -> None:
        while self._recent and now - self._recent[0] >= WINDOW:
            self._recent.popleft()
