"""The numbers of CPU burst: cfs burst, the quota step of one container, the state of the shared pool.

    burst  = limit cores x burst percent x period                      (never written above the quota)
    ceil   = base x quota percent         base = quota of the limit
    target = clamp(current x 1.2 | current x 0.8 | base | current, base, ceil)
    pool   = (node used - used of LSE, LSR, BE pods) / (CPUs - requests of LSE, LSR pods)

Raising a quota is only right while the shared pool has room: an overloaded pool pulls every raised quota
back, a nearly full one stops further raises.
"""

from enum import StrEnum

PERIOD_US = 100_000
UP_STEP = 1.2
DOWN_STEP = 0.8
COOLING_SHARE = 0.9


class PoolState(StrEnum):
    """How full the CPUs shared by latency-sensitive pods are."""

    IDLE = "idle"
    COOLING = "cooling"
    OVERLOAD = "overload"
    UNKNOWN = "unknown"


class Operation(StrEnum):
    """What happens to the quota of one container."""

    UP = "up"
    DOWN = "down"
    RESET = "reset"
    REMAIN = "remain"


def pool_state(*, total_cores: float, used_cores: float, threshold_percent: int) -> PoolState:
    """Compare the used share of the pool with its threshold."""
    ratio = used_cores / total_cores if total_cores > 0 else 1.0
    threshold = threshold_percent / 100
    if ratio >= threshold:
        return PoolState.OVERLOAD
    if ratio >= threshold * COOLING_SHARE:
        return PoolState.COOLING
    return PoolState.IDLE


def under_pool(operation: Operation, state: PoolState) -> Operation:
    """Return what remains of an operation in this state of the pool."""
    if state is PoolState.OVERLOAD and operation in (Operation.UP, Operation.REMAIN):
        return Operation.DOWN
    if state in (PoolState.COOLING, PoolState.UNKNOWN) and operation is Operation.UP:
        return Operation.REMAIN
    return operation


def static_burst_us(limit_milli: int, burst_percent: int) -> int:
    """Return the cfs burst of a container with this CPU limit."""
    if limit_milli <= 0:
        return 0
    return int((limit_milli / 1000) * (burst_percent / 100) * PERIOD_US)


def ceiling_us(base: int, quota_percent: int | None) -> int:
    """Return the highest quota that bursting may reach."""
    if quota_percent is None or quota_percent <= 100:
        return base
    return base * quota_percent // 100


def target_us(current: int, base: int, ceiling: int, operation: Operation) -> int:
    """Return the quota after one operation, within [base, ceiling]."""
    wanted = {
        Operation.UP: int(current * UP_STEP),
        Operation.DOWN: int(current * DOWN_STEP),
        Operation.RESET: base,
        Operation.REMAIN: current,
    }[operation]
    return max(base, min(wanted, ceiling))


def usage_percent(used_cores: float | None, limit_milli: int) -> int:
    """Return the usage in percent of the limit; unknown usage counts as the whole limit."""
    limit = limit_milli / 1000
    used = limit if used_cores is None else used_cores
    return int(used / limit * 100)
