"""When to stop believing that evicting pods helps.

An eviction is only worth its price if the replacement carries the recommendation. When the webhook is not called,
returns nothing, or another webhook puts the old values back, every round would evict the same workload again. So
each replacement is looked at, and

    two in a row without the recommendation    -> the workload is paused: condition UpdatesPaused = True, one event
    an hour later, or the webhook proves itself -> one more try; if that one fails, paused again

The webhook proves itself when a pod of the workload that was made after the pause carries the recommendation, or
when the admission lease says that patching works *since* a moment after the pause. The state is the condition, so a
restart changes nothing:

    UpdatesPaused   absent                            no strike
                    False  ReplacementUnchanged       one strike, the next one pauses
                    True   ReplacementsUnchanged      paused since lastTransitionTime
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubetide.api.conditions import Condition, find_condition
from kubetide.api.core import Pod
from kubetide.api.quantity import Quantity, parse_quantity

UPDATES_PAUSED = "UpdatesPaused"
STRUCK = "ReplacementUnchanged"
PAUSED = "ReplacementsUnchanged"
STRIKES = 2
PAUSE = timedelta(hours=1)

Targets = Mapping[str, Mapping[str, Quantity]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState:
    """How much trust is left: strikes so far, and since when the workload is paused."""

    strikes: int = 0
    paused_since: datetime | None = None
    detail: str = ""

    @property
    def paused(self) -> bool:
        return self.paused_since is not None


CLOSED = BreakerState()


def state_from(conditions: Iterable[Condition] | None) -> BreakerState:
    """Read the state back from the VPA's status."""
    condition = find_condition(conditions, UPDATES_PAUSED)
    if condition is None:
        return CLOSED
    if condition.is_true:
        since = condition.last_transition_time
        return BreakerState(strikes=STRIKES, paused_since=since, detail=condition.message) if since else CLOSED
    return BreakerState(strikes=STRIKES - 1, detail=condition.message) if condition.reason == STRUCK else CLOSED


def condition_from(state: BreakerState) -> tuple[str, str, str] | None:
    """Return status, reason and message of the condition that holds the state; None when there is nothing to say."""
    if state.paused:
        return "True", PAUSED, state.detail
    if state.strikes:
        return "False", STRUCK, state.detail
    return None


def after_replacement(state: BreakerState, replacement: Pod, *, carries: bool, now: datetime) -> BreakerState:
    """Return the state once a replacement has been looked at."""
    if carries:
        return CLOSED
    strikes = min(state.strikes + 1, STRIKES)
    if state.paused:
        return state
    name = replacement.metadata.name
    if strikes < STRIKES:
        detail = f"Pod {name} replaced an evicted pod and does not carry the recommendation; once more pauses updates."
        return BreakerState(strikes=strikes, detail=detail)
    detail = (
        f"{STRIKES} replacements in a row, the last one pod {name}, do not carry the recommendation: "
        "is the admission webhook called for this workload? Evictions are tried again after an hour."
    )
    return BreakerState(strikes=strikes, paused_since=now, detail=detail)


def after_pause(state: BreakerState, *, proved: bool, patching_since: datetime | None, now: datetime) -> BreakerState:
    """Return the state once a pause may have ended.

    `proved`: a pod of this workload made after the pause carries the recommendation. `patching_since`: since when the
    admission lease says that patching works, None when it does not say.
    """
    if state.paused_since is None:
        return state
    if proved:
        return CLOSED
    mended = patching_since is not None and patching_since > state.paused_since
    if mended or now - state.paused_since >= PAUSE:
        why = "the webhook works again" if mended else "an hour has passed"
        return BreakerState(strikes=STRIKES - 1, detail=f"Updates are tried once more: {why}.")
    return state


def carries(pod: Pod, *expected: Targets, tolerance: float) -> bool:
    """Say whether the pod's requests are those of one of the expected targets, give or take `tolerance`.

    The recommendation may have moved between the eviction and the creation: the one at the eviction and the
    one of now are both good.
    """
    return any(_matches(pod, targets, tolerance) for targets in expected)


def _matches(pod: Pod, targets: Targets, tolerance: float) -> bool:
    for container in pod.spec.containers or ():
        requests = (container.resources.requests if container.resources else None) or {}
        for resource, target in targets.get(container.name, {}).items():
            if resource not in requests:
                return False
            wanted, is_now = target.nanos, parse_quantity(requests[resource]).nanos
            if abs(is_now - wanted) > tolerance * max(wanted, 1):
                return False
    return True
