"""Whom to evict under pressure, in which order, and until when.

    CPU:    lower priority first, then the higher used / requested
    memory: lower priority first, then the larger usage; a pod of unknown usage never, because it may free nothing

Both are total orders. A pod without a priority counts as priority 0, which is what Kubernetes gives it.
Pods that are terminating already free what they hold without any further eviction: that amount is *pending
release* and is taken off the need before anyone is picked. One that outlives its grace period by a minute no
longer counts and is reported as stuck, or a single hanging pod would protect the node from every eviction.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

STUCK_AFTER_GRACE = timedelta(minutes=1)
DEFAULT_GRACE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestEffortPod:
    """A best-effort pod as the evictions see it."""

    uid: str
    namespace: str
    name: str
    priority: int | None = None
    request_milli: int = 0
    used_milli: float = 0.0
    memory_used: int | None = None
    terminating_since: datetime | None = None
    grace: timedelta = DEFAULT_GRACE

    @property
    def terminating(self) -> bool:
        """Return whether the pod is on its way out."""
        return self.terminating_since is not None

    def stuck(self, now: datetime) -> bool:
        """Return whether the pod should have been gone for more than a minute."""
        since = self.terminating_since
        return since is not None and now >= since + self.grace + STUCK_AFTER_GRACE

    @property
    def used_of_request(self) -> float:
        """Return used / requested CPU, 0 without a request."""
        return self.used_milli / self.request_milli if self.request_milli > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The outcome of picking: who goes, what leaves by itself, what nobody can give."""

    need: int
    pending: int
    candidates: tuple[tuple[BestEffortPod, int], ...] = ()
    stuck: tuple[BestEffortPod, ...] = ()

    @property
    def remaining(self) -> int:
        """Return what is still to be released after the terminating pods."""
        return max(self.need - self.pending, 0)

    @property
    def victims(self) -> tuple[BestEffortPod, ...]:
        """Return the candidates that are evicted when the API refuses none of them."""
        return tuple(take(self.candidates, self.remaining))

    @property
    def shortfall(self) -> int:
        """Return what is missing even when every candidate goes."""
        return max(self.remaining - sum(amount for _, amount in self.candidates), 0)


def cpu_order(pods: Iterable[BestEffortPod]) -> list[BestEffortPod]:
    """Return the pods in the order in which CPU evict takes them."""
    return sorted(pods, key=lambda pod: (pod.priority or 0, -pod.used_of_request, pod.namespace, pod.name))


def memory_order(pods: Iterable[BestEffortPod]) -> list[BestEffortPod]:
    """Return the pods of known usage in the order in which memory evict takes them."""
    known = [pod for pod in pods if pod.memory_used is not None]
    by_name = sorted(known, key=lambda pod: (pod.name, pod.namespace), reverse=True)
    return sorted(by_name, key=lambda pod: (pod.priority or 0, -(pod.memory_used or 0)))


def take(ordered: Iterable[tuple[BestEffortPod, int]], need: int) -> list[BestEffortPod]:
    """Return the first pods whose amounts together reach the need."""
    taken: list[BestEffortPod] = []
    released = 0
    for pod, amount in ordered:
        if released >= need:
            break
        taken.append(pod)
        released += amount
    return taken


def select(
    pods: Sequence[BestEffortPod],
    need: int,
    *,
    order: Callable[[Iterable[BestEffortPod]], list[BestEffortPod]],
    amount: Callable[[BestEffortPod], int],
    now: datetime,
) -> Selection:
    """Split the pods into those that leave anyway and ordered candidates for the rest of the need."""
    leaving = [pod for pod in pods if pod.terminating]
    stuck = tuple(pod for pod in leaving if pod.stuck(now))
    pending = sum(amount(pod) for pod in leaving if not pod.stuck(now))
    candidates = tuple((pod, amount(pod)) for pod in order(pod for pod in pods if not pod.terminating))
    return Selection(need=need, pending=pending, candidates=candidates, stuck=stuck)


def memory_need(used: int, capacity: int, *, threshold_percent: int, lower_percent: int) -> int:
    """Return the bytes to free: from the used percent down to the lower bound, 0 below the threshold."""
    percent = used * 100 // capacity
    if percent < threshold_percent:
        return 0
    return capacity * (percent - lower_percent) // 100
