"""How much more memory a container gets before it is OOM killed.

    wanted limit    the largest of limit * 1.2, limit + 100Mi, need + growth * 5 min; at most twice the limit
    request         keeps its proportion to the limit, as after any recommendation; of a Guaranteed pod it is the limit

A growth in place disturbs nobody, so it needs no disruption budget, no maintenance window and no recommendation. It is
bounded by what holds for every size: `maxAllowed` of the policy (times the proportion for the limit), the LimitRanges
of the namespace, what its ResourceQuotas leave, and what the node can still promise (allocatable without the requests
of its pods; where that is not known, nothing). Where there is room for the limit but not for the request, the limit
alone grows; a Guaranteed pod, whose two must be equal, then gets what there is room for. Less than 1 % more is not
worth a write.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from kubetide.api.objects.core import Container, Pod, ResourceQuota
from kubetide.api.objects.metrics import MemoryRunsOut
from kubetide.api.objects.vpa import REQUESTS_ONLY, VerticalPodAutoscaler, update_mode
from kubetide.api.values.quantity import Quantity, parse_quantity, readable_bytes
from kubetide.vpa.core.capping import NewResources
from kubetide.vpa.core.limits import NamespaceLimits
from kubetide.vpa.core.policy import (
    MEMORY,
    amounts,
    container_amounts,
    container_policy,
    controlled_resources,
    controlled_values,
    is_off,
)
from kubetide.vpa.updater.core.inplace import ResizeState, pod_resize_state
from kubetide.vpa.updater.core.plan import UPDATING_MODES
from kubetide.vpa.updater.core.resizing import changes_qos

RATIO: Final = 1.2
LEAST_BYTES: Final = 100 * 2**20
LEAD_SECONDS: Final = 300.0
MOST: Final = 2.0
WORTH: Final = 0.01
FAR: Final = 0.7
"""A need below this share of the limit is far from it: somebody has raised the limit since the alarm."""
SETTLE: Final = timedelta(seconds=10)
"""How long the kubelet gets to carry a growth out before the next one."""
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Bytes that are left, by who says so."""

    node: int | None
    """What requests may still take on the node; None: not known, so none of it is promised."""
    quota_requests: int | None = None
    """None here and below: no quota says anything."""
    quota_limits: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a container gets, and why; nothing (`new` is empty), and why not."""

    container: str
    reason: str
    need: int
    limit: int = 0
    new_limit: int = 0
    new_request: int = 0
    new: tuple[NewResources, ...] = ()
    """For all containers of the pod, in their order."""

    @property
    def grows(self) -> bool:
        return bool(self.new)


def grow(
    pod: Pod,
    vpa: VerticalPodAutoscaler,
    container: str,
    alarm: MemoryRunsOut,
    *,
    ranges: NamespaceLimits,
    room: Room,
) -> Growth:
    """Decide what a container whose memory is running out gets; raises QuantityError."""

    def refused(reason: str) -> Growth:
        return Growth(container=container, reason=reason, need=alarm.need_bytes, limit=limit)

    limit = request = 0
    spec = next((one for one in pod.spec.containers or () if one.name == container), None)
    if spec is None:
        return refused("it is not among the containers of the pod that are resized")
    own = container_amounts(container, spec.resources)
    if MEMORY not in own.limits:
        return refused("it has no memory limit")
    limit = own.limits[MEMORY].value
    request = own.requests[MEMORY].value if MEMORY in own.requests else limit
    if why := _left_alone(vpa, spec) or _unsettled(pod, spec, alarm, limit):
        return refused(why)
    wanted = max(
        int(limit * RATIO), limit + LEAST_BYTES, int(alarm.need_bytes + alarm.growth_bytes_per_second * LEAD_SECONDS)
    )
    most_limit, limited_by = _least(
        (int(limit * MOST), "no step is larger than the limit itself"),
        *_policy_bounds(vpa, container, limit, request),
        *_range_bounds(pod, ranges, limit),
        (None if room.quota_limits is None else limit + room.quota_limits, "a ResourceQuota allows no higher limits"),
    )
    most_request, held_by = _least(
        (request, "what the node has left is not known")
        if room.node is None
        else (request + room.node, "the node has no room left"),
        (
            None if room.quota_requests is None else request + room.quota_requests,
            "a ResourceQuota allows no higher requests",
        ),
    )
    new_limit = min(wanted, most_limit)
    if request >= limit:
        if most_request < new_limit:
            new_limit, limited_by = most_request, held_by
        new_limit = new_request = _whole(new_limit)
    else:
        new_limit = _whole(new_limit)
        new_request = max(request, min(_whole(request * new_limit // limit), most_request))
    if new_limit < limit * (1 + WORTH):
        return refused(limited_by)
    size = {MEMORY: Quantity.of(new_limit, binary=True)}
    requests = {MEMORY: Quantity.of(new_request, binary=True)} if new_request != request else {}
    new = tuple(
        NewResources(name=one.name, requests=requests, limits=size)
        if one.name == container
        else NewResources(name=one.name)
        for one in pod.spec.containers or ()
    )
    if change := changes_qos(pod, new):
        return refused(f"the QoS class would change from {change}, which a resize cannot do")
    return Growth(
        container=container,
        reason=_because(alarm),
        need=alarm.need_bytes,
        limit=limit,
        new_limit=new_limit,
        new_request=new_request,
        new=new,
    )


def quota_room(quotas: Iterable[ResourceQuota]) -> tuple[int | None, int | None]:
    """Return what the quotas of a namespace leave for requests and for limits of memory.

    Quotas with scopes are left to the API server, which knows what is in scope and refuses what is too much.
    """
    requests: list[int] = []
    limits: list[int] = []
    for quota in quotas:
        if quota.spec.scopes or quota.spec.scope_selector is not None:
            continue
        hard, used = amounts(quota.status.hard), amounts(quota.status.used)
        for name, kept in (("requests.memory", requests), (MEMORY, requests), ("limits.memory", limits)):
            if name in hard:
                kept.append(max(hard[name].value - (used[name].value if name in used else 0), 0))
    return min(requests, default=None), min(limits, default=None)


def _left_alone(vpa: VerticalPodAutoscaler, spec: Container) -> str:
    mode, policy = update_mode(vpa), vpa.spec.resource_policy
    entry = container_policy(policy, spec.name)
    if mode not in UPDATING_MODES:
        return f"mode {mode} leaves running pods alone"
    if is_off(entry):
        return "its policy switches scaling off"
    if MEMORY not in controlled_resources(entry):
        return "its policy does not control memory"
    if controlled_values(policy, spec.name) == REQUESTS_ONLY:
        return "its policy leaves limits alone"
    if any(
        one.resource_name == MEMORY and one.restart_policy == "RestartContainer" for one in spec.resize_policy or ()
    ):
        return "it has to be restarted to be resized"
    return ""


def _unsettled(pod: Pod, spec: Container, alarm: MemoryRunsOut, limit: int) -> str:
    """Return why an alarm is answered already, or cannot be for now."""
    state = pod_resize_state(pod)
    if state is not ResizeState.NONE:
        return f"its last resize is {state.value}"
    status = next((one for one in pod.status.container_statuses or () if one.name == spec.name), None)
    actual = amounts(status.resources.limits) if status is not None and status.resources is not None else {}
    if MEMORY in actual and actual[MEMORY].value != limit:
        return "a new limit is written, and the kubelet has not answered yet"
    if alarm.need_bytes < FAR * limit:
        return "its limit has been raised since"
    return ""


def _policy_bounds(
    vpa: VerticalPodAutoscaler, container: str, limit: int, request: int
) -> Iterable[tuple[int | None, str]]:
    entry = container_policy(vpa.spec.resource_policy, container)
    text = (entry.max_allowed or {}).get(MEMORY) if entry is not None else None
    most = parse_quantity(text).value if text is not None else 0
    if most:
        yield (most * limit // request if 0 < request < limit else most), "maxAllowed allows no more"


def _range_bounds(pod: Pod, ranges: NamespaceLimits, limit: int) -> Iterable[tuple[int | None, str]]:
    if ranges.container is not None and MEMORY in (ranges.container.maximum or {}):
        yield (ranges.container.maximum or {})[MEMORY].value, "a LimitRange allows containers no more"
    if ranges.pod is not None and MEMORY in (ranges.pod.maximum or {}):
        limits = [container_amounts(one.name, one.resources).limits for one in pod.spec.containers or ()]
        total = sum(one[MEMORY].value for one in limits if MEMORY in one)
        yield (ranges.pod.maximum or {})[MEMORY].value - total + limit, "a LimitRange allows pods no more"


def _least(*bounds: tuple[int | None, str]) -> tuple[int, str]:
    """Return the lowest of the bounds that there are, and its words."""
    known = [(bound, words) for bound, words in bounds if bound is not None]
    return min(known, key=lambda one: one[0], default=(2**63 - 1, ""))


def _whole(amount: int) -> int:
    """Return whole mebibytes, rounded down: what is written can be read."""
    return amount // _MIB * _MIB if amount >= 16 * _MIB else amount


def _because(alarm: MemoryRunsOut) -> str:
    parts = [f"it needs {readable_bytes(alarm.need_bytes)} of {readable_bytes(alarm.limit_bytes)}"]
    if alarm.growth_bytes_per_second > 0:
        parts.append(f"{readable_bytes(60 * alarm.growth_bytes_per_second)} more each minute")
    if alarm.limit_hits:
        parts.append(f"reached its limit {alarm.limit_hits} times in a second")
    if alarm.pressure_ratio:
        parts.append(f"waited for memory {alarm.pressure_ratio:.0%} of the time")
    return ", ".join(parts)


def readable_growth(one: Growth) -> str:
    """Return what was done, in words."""
    return f"memory limit {readable_bytes(one.limit)} to {readable_bytes(one.new_limit)}, because {one.reason}"
