"""When to stop believing that evicting pods helps.

An eviction is only worth its price if the replacement carries the recommendation. When the webhook is not called,
returns nothing, or another webhook puts the old values back, every loop would evict the same workload again. So
each replacement is looked at, and

    two in a row without the recommendation    -> the workload is paused: condition UpdatesPaused = True, one event
    an hour later, or the webhook proves itself -> one more try; if that one fails, paused again

The webhook proves itself when a pod of the workload that was made after the pause carries the recommendation, or
when the admission lease reports that patching works *since* a moment after the pause. The state is the condition, so a
restart changes nothing:

    UpdatesPaused   absent                            no strike, no replacement awaited
                    False  ReplacementAwaited         no strike, but an eviction was announced
                    False  ReplacementUnchanged       one strike, the next one pauses
                    False  NextReplacementAwaited     one strike, and an eviction was announced
                    True   ReplacementsUnchanged      paused since lastTransitionTime

An eviction is announced before it is asked for: a process that dies between the eviction and the look at its
replacement leaves word that there is something to look at. The message then names the moment after which pods count
as replacements. It is the age of the youngest pod that was known, by the API server's own clock.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kubetide.api.objects.core import Pod
from kubetide.api.objects.resources import CPU, Amounts, parse_list
from kubetide.api.values.conditions import Condition, find_condition
from kubetide.vpa.core.boost import boosted_containers
from kubetide.vpa.updater.core.inplace import Targets

UPDATES_PAUSED = "UpdatesPaused"
AWAITED = "ReplacementAwaited"
STRUCK = "ReplacementUnchanged"
STRUCK_AWAITED = "NextReplacementAwaited"
PAUSED = "ReplacementsUnchanged"
STRIKES = 2
PAUSE = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState:
    """How much trust is left: strikes so far, and since when the workload is paused."""

    strikes: int = 0
    paused_since: datetime | None = None
    awaited: datetime | None = None
    """Replacements made after this moment have not been looked at."""
    detail: str = ""

    @property
    def paused(self) -> bool:
        return self.paused_since is not None


CLOSED = BreakerState()

_EVICTING = "An eviction is announced:"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def state_from(conditions: Iterable[Condition] | None) -> BreakerState:
    """Read the state back from the VPA's status."""
    condition = find_condition(conditions, UPDATES_PAUSED)
    if condition is None:
        return CLOSED
    if condition.is_true:
        since = condition.last_transition_time
        return BreakerState(strikes=STRIKES, paused_since=since, detail=condition.message) if since else CLOSED
    strikes = {AWAITED: 0, STRUCK: STRIKES - 1, STRUCK_AWAITED: STRIKES - 1}.get(condition.reason)
    if strikes is None:
        return CLOSED
    if condition.reason == STRUCK:
        return BreakerState(strikes=strikes, detail=condition.message)
    detail, _, rest = condition.message.rpartition(_EVICTING)
    found = _TIME.search(rest)
    after = datetime.fromisoformat(found[0]) if found is not None else condition.last_transition_time
    return BreakerState(strikes=strikes, awaited=after, detail=detail.strip())


def condition_from(state: BreakerState) -> tuple[str, str, str] | None:
    """Return status, reason and message of the condition that holds the state; None when there is nothing to say."""
    if state.paused:
        return "True", PAUSED, state.detail
    if state.awaited is not None:
        at = state.awaited.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        told = f"{state.detail} {_EVICTING} pods made after {at} are expected to carry the recommendation.".strip()
        return "False", STRUCK_AWAITED if state.strikes else AWAITED, told
    if state.strikes:
        return "False", STRUCK, state.detail
    return None


def after_replacement(state: BreakerState, replacement: Pod, *, carries: bool, now: datetime) -> BreakerState:
    """Return the state once a replacement has been looked at."""
    if carries:
        return BreakerState(awaited=state.awaited)
    strikes = min(state.strikes + 1, STRIKES)
    if state.paused:
        return state
    name = replacement.metadata.name
    if strikes < STRIKES:
        detail = f"Pod {name} replaced an evicted pod and does not carry the recommendation; once more pauses updates."
        return BreakerState(strikes=strikes, awaited=state.awaited, detail=detail)
    detail = (
        f"{STRIKES} replacements in a row, the last one pod {name}, do not carry the recommendation: "
        "is the admission webhook called for this workload? Evictions are tried again after an hour."
    )
    return BreakerState(strikes=strikes, paused_since=now, detail=detail)


def after_pause(state: BreakerState, *, proved: bool, patching_since: datetime | None, now: datetime) -> BreakerState:
    """Return the state once a pause may have ended.

    `proved`: a pod of this workload made after the pause carries the recommendation. `patching_since`: since when the
    admission lease reports that patching works, None when it does not say.
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


def carries(before: Mapping[str, Amounts], replacement: Pod, *expected: Targets, tolerance: float) -> bool:
    """Return whether a replacement went where the eviction wanted it to go.

    It carries the recommendation when every request that differed by more than `tolerance` has moved at least half of
    the way. The recommendation may have moved since the eviction: then and now are both good. Expecting nothing, as
    where there is no recommendation any more, proves nothing.
    """
    after = {
        container.name: parse_list(container.resources.requests if container.resources else None)
        for container in replacement.spec.containers or ()
    }
    return any(targets and _moved(before, after, _unboosted(replacement, targets), tolerance) for targets in expected)


def matches(pod: Pod, targets: Targets, *, tolerance: float) -> bool:
    """Return whether all requests of a pod are at their targets, give or take `tolerance`."""
    unboosted = _unboosted(pod, targets)
    for container in pod.spec.containers or ():
        requests = parse_list(container.resources.requests if container.resources else None)
        for resource, target in unboosted.get(container.name, {}).items():
            if resource not in requests or _far(requests[resource].nanos, target.nanos, tolerance):
                return False
    return True


def _unboosted(pod: Pod, targets: Targets) -> Targets:
    """Leave out the CPU of containers that have more of it while they start: the webhook gave them that."""
    boosted = boosted_containers(pod)
    return {
        name: {resource: amount for resource, amount in wanted.items() if resource != CPU or name not in boosted}
        for name, wanted in targets.items()
    }


def _moved(before: Mapping[str, Amounts], after: Mapping[str, Amounts], targets: Targets, tolerance: float) -> bool:
    for container, wanted in targets.items():
        for resource, target in wanted.items():
            was = before.get(container, {}).get(resource)
            now = after.get(container, {}).get(resource)
            if was is not None and not _far(was.nanos, target.nanos, tolerance):
                continue
            if now is None:
                return False
            start = was.nanos if was is not None else 0
            if abs(now.nanos - target.nanos) * 2 > abs(start - target.nanos):
                return False
    return True


def _far(amount: int, target: int, tolerance: float) -> bool:
    return abs(amount - target) > tolerance * max(target, 1)
