"""How long to wait before trying again: doubled each time, capped, and spread at random.

    delay(n) = min(cap, base * factor^n) * (1 + jitter * u),  u uniform in [0, 1)

The jitter keeps a thousand clients that lost one server from returning in the same instant. The source of randomness
is passed in, so a seeded run repeats itself.
"""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The shape of a series of delays, in seconds."""

    base: float = 0.8
    factor: float = 2.0
    cap: float = 30.0
    jitter: float = 1.0

    def delay(self, failures: int, rng: random.Random | None = None) -> float:
        """Return the delay after `failures` failures in a row before this one (0 for the first)."""
        # Past 2**64 the product only overflows; the cap has long been reached.
        plain = min(self.cap, self.base * self.factor ** min(failures, 64))
        return plain * (1 + self.jitter * rng.random()) if rng is not None and self.jitter else plain


class Retry:
    """Counts failures in a row and hands out the next delay; a success starts over."""

    def __init__(self, backoff: Backoff, rng: random.Random) -> None:
        self._backoff = backoff
        self._rng = rng
        self.failures = 0

    def next_delay(self) -> float:
        """Note one more failure and return how long to wait."""
        delay = self._backoff.delay(self.failures, self._rng)
        self.failures += 1
        return delay

    def succeeded(self) -> None:
        """Forget the failures."""
        self.failures = 0


# How fast a client may ask: a token bucket, and nothing else on our side.


class TokenBucket:
    """Hands out `qps` tokens a second, and up to `burst` at once after a pause."""

    def __init__(self, qps: float, burst: int) -> None:
        self.qps = qps
        self._burst = max(1, burst)
        self._tokens = float(self._burst)
        self._at: float | None = None

    def reserve(self, now: float) -> float:
        """Take one token and return how many seconds to wait before using it."""
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self.qps)
        self._at = now if self._at is None else max(now, self._at)
        self._tokens -= 1
        return max(0.0, -self._tokens / self.qps)

    def allow(self, now: float) -> bool:
        """Take a token if there is one now."""
        if self.reserve(now) > 0:
            self._tokens += 1
            return False
        return True
