"""How long a container may burst: a token bucket per container.

    capacity = period seconds x (percent - 100)
    usage >= 100 % of the limit: tokens -= (usage - 100) x seconds
    usage <   60 %             : tokens += (100 - usage) x seconds
    between                    : unchanged;   allowed while tokens > 0, always within [-capacity, capacity]

A container that stayed below its limit earns the right to exceed it for a while, so a quota raised for a spike
does not become a permanent gift. The first filling is random below half the capacity: after a restart of the
agent not all containers of a node spend their tokens at the same moment.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

CONSUME_FROM_PERCENT = 100
SAVE_BELOW_PERCENT = 60
INITIAL_SHARE = 0.5


@dataclass(slots=True)
class Bucket:
    """The tokens of one container."""

    period_seconds: int
    percent: int
    tokens: int
    updated_at: datetime
    capacity: int = field(init=False)

    def __post_init__(self) -> None:
        self.capacity = capacity_of(self.period_seconds, self.percent)

    def step(self, usage_percent: int, now: datetime) -> bool:
        """Spend or earn tokens for the whole seconds since the last step and return whether bursting is allowed."""
        seconds = max(int((now - self.updated_at).total_seconds()), 0)
        # Only whole seconds count; the fraction stays in `updated_at`, so that sub-second syncs lose no time.
        self.updated_at += timedelta(seconds=seconds)
        if usage_percent >= CONSUME_FROM_PERCENT:
            self.tokens -= (usage_percent - 100) * seconds
        elif usage_percent < SAVE_BELOW_PERCENT:
            self.tokens += (100 - usage_percent) * seconds
        self.tokens = max(-self.capacity, min(self.tokens, self.capacity))
        return self.tokens > 0

    def expired(self, now: datetime) -> bool:
        """Return whether nobody asked this bucket for two periods."""
        return (now - self.updated_at).total_seconds() > 2 * self.period_seconds


def capacity_of(period_seconds: int, percent: int) -> int:
    """Return the most tokens a bucket can hold."""
    return period_seconds * (percent - 100)


class Limiters:
    """The buckets of a node, by container id."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._buckets: dict[str, Bucket] = {}

    def allow(
        self,
        container_id: str,
        *,
        period_seconds: int | None,
        percent: int | None,
        usage_percent: int,
        now: datetime,
    ) -> bool:
        """Return whether the container may raise its quota now."""
        if period_seconds is None or period_seconds < 0:
            return True
        if percent is None or percent < 100:
            return False
        bucket = self._buckets.get(container_id)
        if bucket is None or bucket.capacity != capacity_of(period_seconds, percent):
            tokens = int(capacity_of(period_seconds, percent) * self._random() * INITIAL_SHARE)
            bucket = Bucket(period_seconds, percent, tokens, now)
            self._buckets[container_id] = bucket
        return bucket.step(usage_percent, now)

    def drop_expired(self, now: datetime) -> None:
        """Forget the containers that were not asked about for two periods."""
        for container_id in [key for key, bucket in self._buckets.items() if bucket.expired(now)]:
            del self._buckets[container_id]

    def __len__(self) -> int:
        return len(self._buckets)
