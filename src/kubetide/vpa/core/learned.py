"""Learned sizes as recommender, updater and webhook agree on them: who switches them on, and how they reach a pod.

    kubetide.io/estimator       vpa, adaptive or adaptive-one: which rule sizes the pods of this VPA
    kubetide.io/learned         "off": nothing learned decides, whatever else is set (the kill switch)
    kubetide.io/memory-limits   written by the recommender: memory limits by container, apart from requests
    AdaptiveEstimator           condition: True while learned sizes are recommended, with who asked for them; False for
                                half a day after they were switched off

A VPA that is switched on or off moves from one rule to the other in twelve equal steps, one an hour. The condition's
`lastTransitionTime` says how far it is, so a restart changes nothing; whoever is switched back on the way turns round
where it is, so that time is dated back. The kill switch does not wait, and after it all begin from the plain rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import decode
from kubetide.api.values.conditions import Condition, find_condition, is_true
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.errors import InvalidInput
from kubetide.vpa.core.capping import NewResources
from kubetide.vpa.core.limits import ZERO, NamespaceLimits
from kubetide.vpa.core.policy import MEMORY, Amounts, ContainerAmounts

ESTIMATOR_ANNOTATION: Final = "kubetide.io/estimator"
LEARNED_ANNOTATION: Final = "kubetide.io/learned"
LIMITS_ANNOTATION: Final = "kubetide.io/memory-limits"
ADAPTIVE_ESTIMATOR: Final = "AdaptiveEstimator"
SWITCH_HOURS: Final = 12
NEW: Final = timedelta(minutes=10)
"""A VPA that is switched on this soon after its creation has nothing to move away from."""
_HOUR: Final = timedelta(hours=1)


class Estimator(StrEnum):
    """Which rule sizes pods."""

    VPA = "vpa"
    ADAPTIVE = "adaptive"
    ADAPTIVE_ONE = "adaptive-one"


class ChosenBy(StrEnum):
    """Who chose it: the reason of the condition."""

    FLAG = "ByFlag"
    ANNOTATION = "ByAnnotation"
    KILL_SWITCH = "KillSwitch"


_WORDS: Final = {
    ChosenBy.FLAG: "--estimator",
    ChosenBy.ANNOTATION: f"annotation {ESTIMATOR_ANNOTATION}",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The rule that a VPA is sized by, who chose it, and what is wrong with what was asked for."""

    estimator: Estimator = Estimator.VPA
    by: ChosenBy = ChosenBy.FLAG
    words: str = "--estimator"
    problem: str = ""

    @property
    def learned(self) -> bool:
        """Whether learned sizes are wanted."""
        return self.estimator is not Estimator.VPA

    @property
    def message(self) -> str:
        """Return the choice in words."""
        return f"sizes by {self.estimator}, by {self.words}"


PLAIN: Final = Choice()


def choose(annotations: Mapping[str, str], default: Estimator, *, allowed: bool) -> Choice:
    """Return which rule sizes the pods of a VPA; `allowed` is False where the flag forbids everything learned."""
    switch = annotations.get(LEARNED_ANNOTATION)
    if not allowed:
        return Choice(Estimator.VPA, ChosenBy.KILL_SWITCH, "--learned=false")
    if switch not in (None, "on"):
        # However badly spelt, whoever touches the switch does not trust what was learned.
        problem = "" if switch == "off" else f"annotation {LEARNED_ANNOTATION}: {switch!r} is neither on nor off"
        return Choice(Estimator.VPA, ChosenBy.KILL_SWITCH, f"annotation {LEARNED_ANNOTATION}: {switch}", problem)
    given = annotations.get(ESTIMATOR_ANNOTATION)
    if given is None:
        return Choice(default, ChosenBy.FLAG, _WORDS[ChosenBy.FLAG])
    try:
        return Choice(Estimator(given), ChosenBy.ANNOTATION, _WORDS[ChosenBy.ANNOTATION])
    except ValueError:
        known = ", ".join(Estimator)
        problem = f"annotation {ESTIMATOR_ANNOTATION}: {given!r} is none of {known}"
        return Choice(default, ChosenBy.FLAG, _WORDS[ChosenBy.FLAG], problem)


def learned_share(choice: Choice, condition: Condition | None, *, created: datetime | None, now: datetime) -> float:
    """Return how much of a recommendation is learned, 0 to 1, in steps of a twelfth."""
    if choice.by is ChosenBy.KILL_SWITCH or (condition is not None and condition.reason == ChosenBy.KILL_SWITCH):
        return 0.0
    if condition is None:
        return 1.0 if choice.learned and created is not None and now - created <= NEW else 0.0
    since, learned = condition.last_transition_time, condition.status == "True"
    if learned and since is not None and created is not None and abs(since - created) <= NEW:
        return 1.0
    passed = SWITCH_HOURS if since is None else min(max((now - since) // _HOUR, 0), SWITCH_HOURS)
    return passed / SWITCH_HOURS if learned else 1.0 - passed / SWITCH_HOURS


def switched_at(choice: Choice, condition: Condition | None, *, created: datetime | None, now: datetime) -> datetime:
    """Return what `lastTransitionTime` becomes when the condition flips: as if the switch had come from the far end."""
    share = learned_share(choice, condition, created=created, now=now)
    way = share if choice.learned else 1.0 - share
    if condition is None or choice.by is ChosenBy.KILL_SWITCH or way == 0.0:
        return now
    since = now - way * SWITCH_HOURS * _HOUR
    if created is not None and abs(since - created) <= NEW:
        # It would be taken for one that was switched on when it was made.
        return created - NEW - timedelta(seconds=1)
    return since


def resizes_gladly(vpa: VerticalPodAutoscaler) -> bool:
    """Return whether CPU of this VPA follows its containers hour by hour, in place, within the bounds too."""
    return vpa.status is not None and is_true(vpa.status.conditions, ADAPTIVE_ESTIMATOR)


def adaptive_condition(vpa: VerticalPodAutoscaler) -> Condition | None:
    """Return the condition that reports learned sizes."""
    return find_condition(vpa.status.conditions, ADAPTIVE_ESTIMATOR) if vpa.status is not None else None


def limits_text(limits: Mapping[str, int]) -> str:
    """Return the annotation with memory limits in bytes; empty when there is none."""
    return msgspec.json.encode({name: str(limits[name]) for name in sorted(limits)}).decode() if limits else ""


def memory_limits(vpa: VerticalPodAutoscaler) -> dict[str, Quantity]:
    """Return the memory limits that were learned apart from requests, by container.

    Only while learned sizes are recommended, on the way back to the plain rule too: what a kill switch or a hand has
    left behind does not count. Raises InvalidInput, which names the annotation.
    """
    text = (vpa.metadata.annotations or {}).get(LIMITS_ANNOTATION)
    condition = adaptive_condition(vpa)
    if not text or condition is None or condition.reason == ChosenBy.KILL_SWITCH:
        return {}
    listed = decode(text, dict[str, str], what=f"annotation {LIMITS_ANNOTATION}")
    found = {}
    for container, amount in listed.items():
        try:
            found[container] = parse_quantity(amount)
        except InvalidInput as error:
            raise InvalidInput(str(error), subject=f"annotation {LIMITS_ANNOTATION}", field=container) from error
    return found


def with_memory_limit(
    new: NewResources,
    own: ContainerAmounts,
    limit: Quantity | None,
    ranges: NamespaceLimits,
    *,
    used: int | None,
    leaving: bool = False,
) -> NewResources:
    """Return what a container gets with its memory limit apart from the request.

    Where the limit is the request the pod may be Guaranteed and its class must not change, and where there is no limit
    there is nothing to set apart: both stay as they are. A LimitRange has the last word, and no limit falls below what
    is in use. On the way back to the plain rule (`leaving`) the limit is the larger of both: the request is still the
    small one that was learned, and its proportion would be below the peaks.
    """
    if limit is None or not applies(own) or MEMORY not in new.requests or MEMORY not in new.limits:
        return new
    item = ranges.container
    most: Amounts = (item.maximum if item is not None else None) or {}
    if ranges.pod is not None and MEMORY in (ranges.pod.maximum or {}):
        # Whole pods are limited: the sums were made with proportional limits.
        return new
    wanted = max(limit, new.requests[MEMORY], Quantity.of(used or 0, binary=True))
    if leaving:
        wanted = max(wanted, new.limits[MEMORY])
    if most.get(MEMORY, ZERO):
        wanted = max(min(wanted, most[MEMORY]), new.requests[MEMORY])
    return replace(new, limits={**new.limits, MEMORY: wanted}, notes=(*new.notes, "memory limit learned apart"))


def applies(own: ContainerAmounts) -> bool:
    """Return whether the memory limit of a container may be set apart from its request."""
    request, limit = own.requests.get(MEMORY), own.limits.get(MEMORY)
    return limit is not None and request is not None and limit > request
