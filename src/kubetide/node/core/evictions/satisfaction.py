"""How much best-effort CPU must go: satisfaction of best-effort pods and the release it asks for.

    satisfaction s = CPU that best-effort work may use / CPU that it requested
    s > lower: nothing;   otherwise release = request x (upper - s)

Best-effort pods that are starved do not finish; a few fewer of them finish sooner. The release counts only
when their usage of what they may use is high, on average over a window and again right now.
"""

from dataclasses import dataclass

DEFAULT_USAGE_THRESHOLD_PERCENT = 90
ALWAYS_HIGH_BELOW_MILLI = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BestEffortCpu:
    """Best-effort CPU over a window or at one point, in milli-cores, with the number of samples behind it."""

    count: int
    used: float
    request: float
    real_limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SatisfactionPolicy:
    """What the NodeSLO says about satisfaction."""

    lower_percent: int | None
    upper_percent: int | None
    usage_threshold_percent: int | None = None

    @property
    def valid(self) -> bool:
        """Return whether the band is one that can be used."""
        lower, upper = self.lower_percent, self.upper_percent
        if lower is None or upper is None:
            return False
        return 0 < lower <= 60 and 0 < upper < 100 and upper >= lower


def enough_samples(*, window_seconds: int, collect_interval_seconds: int, count: int) -> bool:
    """Return whether a third of the window is covered by samples."""
    return count * collect_interval_seconds >= window_seconds // 3


def usage_is_high(used_milli: float, limit_milli: float, threshold_percent: int | None) -> bool:
    """Return whether best-effort pods use so much of their limit that eviction helps."""
    if limit_milli <= 0:
        return False
    if limit_milli < ALWAYS_HIGH_BELOW_MILLI:
        return True
    threshold = DEFAULT_USAGE_THRESHOLD_PERCENT if threshold_percent is None else threshold_percent
    return used_milli / limit_milli >= threshold / 100


def release_milli(request_milli: float, limit_milli: float, *, lower_percent: int, upper_percent: int) -> int:
    """Return the milli-CPU of requests that must go so that the rest is satisfied again."""
    if request_milli <= 0:
        return 0
    satisfaction = limit_milli / request_milli
    if satisfaction > lower_percent / 100:
        return 0
    gap = upper_percent / 100 - satisfaction
    return int(request_milli * gap) if gap > 0 else 0


def allocatable_limit(batch_milli: int | None) -> int:
    """Return the limit by allocatable batch-cpu: unknown and negative are no limit, zero counts as one."""
    if batch_milli is None or batch_milli < 0:
        return -1
    return batch_milli or 1


def release_amount(
    average: BestEffortCpu,
    current: BestEffortCpu,
    policy: SatisfactionPolicy,
    *,
    window_seconds: int,
    collect_interval_seconds: int,
    allocatable_batch_milli: int | None = None,
    by_allocatable: bool = False,
) -> tuple[int, str]:
    """Return the milli-CPU to release and why it is that much."""
    if not policy.valid or policy.lower_percent is None or policy.upper_percent is None:
        return 0, "the satisfaction band is missing or not usable"
    if not enough_samples(
        window_seconds=window_seconds, collect_interval_seconds=collect_interval_seconds, count=average.count
    ):
        return 0, "too few samples in the window"
    allocatable = allocatable_limit(allocatable_batch_milli)
    average_limit = allocatable if by_allocatable else average.real_limit
    current_limit = allocatable if by_allocatable else current.real_limit
    if not usage_is_high(average.used, average_limit, policy.usage_threshold_percent):
        return 0, "best-effort usage is not high over the window"
    over_window = release_milli(
        average.request, average_limit, lower_percent=policy.lower_percent, upper_percent=policy.upper_percent
    )
    if over_window <= 0:
        return 0, "best-effort pods are satisfied over the window"
    if not usage_is_high(current.used, current_limit, policy.usage_threshold_percent):
        return 0, "best-effort usage is not high now"
    if current.request == average.request and current_limit == average_limit:
        return over_window, "satisfaction is below its lower bound"
    now = release_milli(
        current.request, current_limit, lower_percent=policy.lower_percent, upper_percent=policy.upper_percent
    )
    if now <= 0:
        return 0, "best-effort pods are satisfied now"
    return min(over_window, now), "satisfaction is below its lower bound"
