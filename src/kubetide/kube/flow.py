"""How fast a client may ask: a token bucket, and nothing else on our side.

The API server's own flow control (429 with Retry-After) is what protects it; the bucket exists for those who keep
the upstream flags `kube-api-qps` and `kube-api-burst`.
"""


class TokenBucket:
    """Hands out `qps` tokens a second, and up to `burst` at once after a pause."""

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = max(1, burst)
        self._tokens = float(self._burst)
        self._at: float | None = None

    def reserve(self, now: float) -> float:
        """Take one token and return how many seconds to wait before using it."""
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._qps)
        self._at = now if self._at is None else max(now, self._at)
        self._tokens -= 1
        return max(0.0, -self._tokens / self._qps)

    def allow(self, now: float) -> bool:
        """Take a token if there is one now."""
        if self.reserve(now) > 0:
            self._tokens += 1
            return False
        return True
