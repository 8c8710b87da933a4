"""A memory of answers that grow old: fresh for a while, kept for longer, forgotten when nobody asks.

An answer is fresh for `freshness * (1 + jitter * u)`, u uniform in [0, 1): answers learned together are renewed
apart. It is dropped when it was not asked for during `lifetime`; renewing it does not count as asking. Failures are
remembered like answers, so that a server that cannot answer is not asked once per pod.
"""

import random
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Entry(Generic[V]):
    value: V
    fresh_until: float
    drop_at: float


class Lookups(Generic[K, V]):
    """Answers by key. All times are seconds of one steady clock."""

    def __init__(self, *, freshness: float, lifetime: float, jitter: float, rng: random.Random) -> None:
        self._freshness = freshness
        self._lifetime = lifetime
        self._jitter = jitter
        self._rng = rng
        self._entries: dict[K, _Entry[V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: float) -> tuple[bool, V | None]:
        """Return (True, answer) while it is fresh, and keep it for another lifetime; else (False, None)."""
        entry = self._entries.get(key)
        if entry is None or now >= entry.fresh_until or now >= entry.drop_at:
            return False, None
        entry.drop_at = now + self._lifetime
        return True, entry.value

    def put(self, key: K, value: V, now: float) -> None:
        """Remember an answer that was just asked for."""
        self._entries[key] = _Entry(value, self._fresh_until(now), now + self._lifetime)

    def refreshed(self, key: K, value: V, now: float) -> None:
        """Replace an answer that was renewed without being asked for: it is dropped when it would have been."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries[key] = _Entry(value, self._fresh_until(now), entry.drop_at)

    def due(self, now: float) -> list[K]:
        """Forget what nobody asked for, and return the keys whose answers are no longer fresh."""
        for key in [key for key, entry in self._entries.items() if now >= entry.drop_at]:
            del self._entries[key]
        return [key for key, entry in self._entries.items() if now >= entry.fresh_until]

    def _fresh_until(self, now: float) -> float:
        return now + self._freshness * (1 + self._jitter * self._rng.random())
