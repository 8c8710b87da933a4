"""Whether a pod is resized in place, has to wait, or falls back to eviction.

The kubelet reports a resize by two conditions: `PodResizePending` (with reason Deferred or Infeasible) and
`PodResizeInProgress` (with reason Error when the runtime refused). A pod that reports one of them is *updating*
and is not resized again; in mode InPlaceOrRecreate it is evicted once waiting has no prospect (*fallback due*):

    Pending, Deferred           after more than 5 minutes        Pending, anything else      at once
    InProgress, no complaint    after more than 1 hour           InProgress with a complaint at once

Mode InPlace never evicts: it remembers the recommendation that was infeasible and waits for a smaller one. A failure
in the kubelet passes: the pod is resized again.
A resize never changes the QoS class of a pod: the API server would refuse it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from kubetide.api.objects.core import Pod
from kubetide.api.values.conditions import Condition
from kubetide.api.values.quantity import Quantity
from kubetide.vpa.updater.core.budget import Group, is_pending

DEFERRED_TIMEOUT = timedelta(minutes=5)
IN_PROGRESS_TIMEOUT = timedelta(hours=1)

CACHED = "the node has no room for it, and the recommendation has not become smaller"
RESIZE_PENDING = "PodResizePending"
RESIZE_IN_PROGRESS = "PodResizeInProgress"

Targets = Mapping[str, Mapping[str, Quantity]]
"""Target per container and resource."""


class ResizeState(Enum):
    """What the kubelet reports about a resize of a pod."""

    NONE = "none"
    DEFERRED = "deferred"
    INFEASIBLE = "infeasible"
    PENDING_UNKNOWN = "pending for an unknown reason"
    IN_PROGRESS = "in progress"
    ERROR = "failed in the runtime"
    IN_PROGRESS_UNKNOWN = "in progress with an unknown complaint"


class ResizeVerdict(Enum):
    """What may be done to a pod by way of a resize."""

    APPROVED = "InPlaceApproved"
    DEFERRED = "InPlaceDeferred"
    EVICT = "InPlaceEvict"
    INFEASIBLE = "InPlaceInfeasible"
    INFEASIBLE_CACHED = "InPlaceInfeasibleCached"


@dataclass(frozen=True, slots=True)
class InPlaceDecision:
    """A verdict with its reason."""

    verdict: ResizeVerdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlaceRules:
    """What holds for all pods of one VPA."""

    only_in_place: bool
    """Mode InPlace; else InPlaceOrRecreate."""
    gate: bool = True
    skip_budget: bool = False
    error_is_infeasible: bool = False
    """A resize that failed in the kubelet is given up (VPA 1.7), not tried again."""


def resize_state(conditions: Iterable[Condition]) -> ResizeState:
    """Read the state of a resize from a pod's conditions."""
    relevant = [c for c in conditions if c.type in (RESIZE_PENDING, RESIZE_IN_PROGRESS)]
    if not relevant or relevant[0].status != "True":
        return ResizeState.NONE
    for condition in relevant:
        if condition.type == RESIZE_PENDING and condition.status == "True":
            if condition.reason == "Deferred":
                return ResizeState.DEFERRED
            return ResizeState.INFEASIBLE if condition.reason == "Infeasible" else ResizeState.PENDING_UNKNOWN
    condition = next(c for c in relevant if c.type == RESIZE_IN_PROGRESS)
    if not condition.reason and not condition.message:
        return ResizeState.IN_PROGRESS
    return ResizeState.ERROR if condition.reason == "Error" else ResizeState.IN_PROGRESS_UNKNOWN


def pod_resize_state(pod: Pod) -> ResizeState:
    """Read the state of a resize from a pod."""
    return resize_state(pod.status.conditions or ())


def resize_message(pod: Pod) -> str:
    """Return what the kubelet reports about the resize, for people."""
    for condition in pod.status.conditions or ():
        if condition.type in (RESIZE_PENDING, RESIZE_IN_PROGRESS) and condition.message:
            return condition.message
    return ""


def is_infeasible(state: ResizeState, *, error_too: bool) -> bool:
    """Return whether the node can never give what was asked for; `error_too`: a kubelet failure counts as that."""
    return state is ResizeState.INFEASIBLE or (error_too and state is ResizeState.ERROR)


def fallback_due(state: ResizeState, *, waited: timedelta, disruptable: bool) -> bool:
    """Return whether an updating pod has waited long enough to be evicted instead."""
    if not disruptable or state is ResizeState.NONE:
        return False
    if state is ResizeState.DEFERRED:
        return waited > DEFERRED_TIMEOUT
    if state is ResizeState.IN_PROGRESS:
        return waited > IN_PROGRESS_TIMEOUT
    return True


def may_evict(pod: Pod, group: Group | None, *, waited: timedelta) -> bool:
    """Return whether the pod may be evicted now; `waited` counts from when it was first seen updating."""
    if group is None:
        return False
    if is_pending(pod):
        return True
    if group.below_minimum:
        return False
    state = pod_resize_state(pod)
    if state is not ResizeState.NONE:
        return fallback_due(state, waited=waited, disruptable=group.disruptable())
    return group.disruptable()


def lower_somewhere(current: Targets, remembered: Targets) -> bool:
    """Return whether `current` asks for less than `remembered` in any resource of a container that both have."""
    return any(
        amount < remembered[container][resource]
        for container, targets in current.items()
        if container in remembered
        for resource, amount in targets.items()
        if resource in remembered[container]
    )


def needs_restart(pod: Pod) -> bool:
    """Return whether some container has to be restarted to be resized."""
    return any(
        policy.restart_policy == "RestartContainer"
        for container in pod.spec.containers or ()
        for policy in container.resize_policy or ()
    )


def decide(
    pod: Pod,
    group: Group | None,
    rules: InPlaceRules,
    *,
    targets: Targets | None,
    infeasible: Targets | None,
    waited: timedelta,
) -> InPlaceDecision:
    """Decide what a resize may do to the pod now; the first rule that fits counts.

    `targets` is the VPA's recommendation (None: there is none), `infeasible` the one remembered as infeasible.
    """
    if rules.only_in_place and not rules.gate:
        return InPlaceDecision(ResizeVerdict.DEFERRED, "mode InPlace needs the feature gate InPlace")
    if group is None:
        return InPlaceDecision(ResizeVerdict.DEFERRED, "its group takes no part in updates")
    if is_pending(pod):
        return InPlaceDecision(ResizeVerdict.DEFERRED, "the pod is pending")
    if targets is None:
        return InPlaceDecision(ResizeVerdict.DEFERRED, "the VPA has no recommendation")
    if rules.only_in_place and infeasible is not None and not lower_somewhere(targets, infeasible):
        return InPlaceDecision(ResizeVerdict.INFEASIBLE_CACHED, CACHED)
    state = pod_resize_state(pod)
    if state is not ResizeState.NONE:
        return _while_updating(state, group, rules, waited=waited)
    if rules.skip_budget and not needs_restart(pod):
        return InPlaceDecision(ResizeVerdict.APPROVED, "no container restarts, so the disruption budget does not count")
    if group.disruptable():
        return InPlaceDecision(ResizeVerdict.APPROVED, "within the disruption budget of its group")
    return InPlaceDecision(ResizeVerdict.DEFERRED, "the disruption budget of its group is used up")


def _while_updating(state: ResizeState, group: Group, rules: InPlaceRules, *, waited: timedelta) -> InPlaceDecision:
    if rules.only_in_place:
        if is_infeasible(state, error_too=rules.error_is_infeasible):
            return InPlaceDecision(ResizeVerdict.INFEASIBLE, f"the last resize is {state.value}")
        return InPlaceDecision(ResizeVerdict.DEFERRED, f"the last resize is {state.value}")
    if fallback_due(state, waited=waited, disruptable=group.disruptable()):
        return InPlaceDecision(
            ResizeVerdict.EVICT, f"the resize is {state.value} after {_text(waited)}: evicted instead"
        )
    return InPlaceDecision(ResizeVerdict.DEFERRED, f"the resize is {state.value} since {_text(waited)}")


def _text(waited: timedelta) -> str:
    return f"{int(waited.total_seconds())}s"


class ResizeClock:
    """When each pod was first seen updating. A pod that is done starts anew the next time."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}

    def waited(self, uid: str, state: ResizeState, *, now: datetime) -> timedelta:
        """Return how long the pod has been updating, starting to count with the first call."""
        if state is ResizeState.NONE:
            self._since.pop(uid, None)
            return timedelta()
        return now - self._since.setdefault(uid, now)

    def start(self, uid: str, *, at: datetime) -> None:
        """Count from `at`."""
        self._since[uid] = at

    def forget_except(self, uids: Iterable[str]) -> None:
        """Drop pods that are gone."""
        keep = set(uids)
        self._since = {uid: at for uid, at in self._since.items() if uid in keep}
