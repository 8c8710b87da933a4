"""More CPU while a pod starts (alpha, gate CPUStartupBoost).

The webhook gives a new pod more than it is recommended, and notes on the pod what it had asked for; the updater takes
the surplus back, in place, once the pod has been Ready for the duration of the boost:

    Factor     boosted = trunc(base * factor)         base: the recommended CPU, else the container's own request
    Quantity   boosted = base + quantity              (upstream adds, although its text says "absolute")

at most `--max-allowed-cpu-boost`; with RequestsOnly at most one millicore below the limit; otherwise the limit grows in
proportion. A container policy's boost wins over that of the pod; containers that are switched off are not touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from kubetide.api.objects.core import Pod, ResourceList
from kubetide.api.objects.vpa import OFF, REQUESTS_ONLY, StartupBoostCpu, VerticalPodAutoscaler, update_mode
from kubetide.api.values.conditions import find_condition
from kubetide.api.values.quantity import Quantity, parse_quantity
from kubetide.errors import InvalidInput
from kubetide.vpa.core.capping import NewResources, refuse_invalid
from kubetide.vpa.core.limits import ZERO, NamespaceLimits, proportional_limit
from kubetide.vpa.core.policy import (
    CPU,
    RESOURCES,
    ContainerAmounts,
    amounts,
    container_policy,
    controlled_values,
    is_off,
    texts,
)

ANNOTATION = "vpaCpuStartupBoost/"
"""Prefix of the note on a pod; the container's name follows."""

MILLI = Quantity.of_milli(1)


class _Note(msgspec.Struct, frozen=True):
    requests: ResourceList | None = None
    limits: ResourceList | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Boosted:
    """What the containers of a new pod get, and the notes about what they had asked for."""

    containers: tuple[NewResources, ...]
    notes: dict[str, str]


def boost_of(vpa: VerticalPodAutoscaler, container: str) -> StartupBoostCpu | None:
    """Return the boost of a container: its policy's, else the pod's; None when there is none."""
    entry = container_policy(vpa.spec.resource_policy, container)
    if is_off(entry):
        return None
    given = (entry.startup_boost if entry is not None else None) or vpa.spec.startup_boost
    return given.cpu if given is not None else None


def has_boost(vpa: VerticalPodAutoscaler) -> bool:
    """Return whether a VPA boosts anything."""
    policies = (vpa.spec.resource_policy.container_policies if vpa.spec.resource_policy is not None else None) or ()
    given = [vpa.spec.startup_boost, *(entry.startup_boost for entry in policies)]
    return any(each is not None and each.cpu is not None for each in given)


def boost(
    vpa: VerticalPodAutoscaler,
    own: Sequence[ContainerAmounts],
    new: Sequence[NewResources],
    ranges: NamespaceLimits,
    *,
    maximum: Quantity | None = None,
) -> Boosted:
    """Return what the containers of a new pod get while it starts. A VPA that is off gives nothing but the boost."""
    off = update_mode(vpa) == OFF
    containers, notes = [], {}
    for container, got in zip(own, new, strict=True):
        given = NewResources(name=got.name) if off else got
        wanted = boost_of(vpa, container.name)
        amount = _amount(wanted, given.requests.get(CPU) or container.requests.get(CPU))
        if amount is None:
            containers.append(given)
            continue
        if maximum is not None:
            amount = min(amount, maximum)
        boosted = refuse_invalid(_with_cpu(given, container, amount, vpa, ranges), container)
        if boosted.refused:
            # A request above its limit: the API server would refuse the pod.
            containers.append(given)
            continue
        containers.append(boosted)
        notes[container.name] = _note(container)
    return Boosted(containers=tuple(containers), notes=notes)


def boosted_containers(pod: Pod) -> tuple[str, ...]:
    """Return the containers of a pod that still carry a boost."""
    notes = pod.metadata.annotations or {}
    return tuple(key.removeprefix(ANNOTATION) for key in notes if key.startswith(ANNOTATION))


def expired(pod: Pod, vpa: VerticalPodAutoscaler, *, now: datetime) -> bool:
    """Return whether the boost of a pod is over: it is Ready, and has been for the duration of every boost."""
    ready = find_condition(pod.status.conditions, "Ready")
    if ready is None or not ready.is_true:
        return False
    given = [boost_of(vpa, container) for container in boosted_containers(pod)]
    longest = max((each.duration_seconds or 0 for each in given if each is not None), default=0)
    since = ready.last_transition_time
    return longest == 0 or (since is not None and now - since > timedelta(seconds=longest))


def unboost(pod: Pod, vpa: VerticalPodAutoscaler, new: Sequence[NewResources]) -> tuple[NewResources, ...]:
    """Return what takes a boost back: the recommendation, or what the container had asked for where there is none."""
    notes = pod.metadata.annotations or {}
    result = []
    for got in new:
        note = notes.get(f"{ANNOTATION}{got.name}")
        if note is None:
            result.append(NewResources(name=got.name))
        elif CPU in got.requests and update_mode(vpa) != OFF:
            result.append(got)
        else:
            result.append(_original(got.name, note))
    return tuple(result)


def _amount(wanted: StartupBoostCpu | None, base: Quantity | None) -> Quantity | None:
    if wanted is None or base is None or not base:
        return None
    if wanted.type == "Factor" and wanted.factor is not None:
        return Quantity.of_milli(int(base.milli * wanted.factor))
    if wanted.type == "Quantity" and wanted.quantity is not None:
        return base + parse_quantity(wanted.quantity)
    return None


def _with_cpu(
    given: NewResources, own: ContainerAmounts, amount: Quantity, vpa: VerticalPodAutoscaler, ranges: NamespaceLimits
) -> NewResources:
    limit = own.limits.get(CPU, ZERO)
    limits = dict(given.limits)
    if controlled_values(vpa.spec.resource_policy, own.name) == REQUESTS_ONLY:
        if limit and amount > limit and limit > MILLI:
            amount = limit - MILLI
    else:
        default = (ranges.container.default if ranges.container is not None else None) or {}
        found = proportional_limit(
            CPU,
            limit=limit,
            request=own.requests.get(CPU, ZERO),
            new_request=amount,
            default=default.get(CPU, ZERO),
        )
        if found.limit is not None:
            limits[CPU] = found.limit
    requests = {**given.requests, CPU: amount}
    return NewResources(name=own.name, requests=requests, limits=limits, notes=(*given.notes, "cpu boosted to start"))


def _note(own: ContainerAmounts) -> str:
    def part(listed: Mapping[str, Quantity]) -> dict[str, str]:
        return texts({name: listed[name] for name in RESOURCES if name in listed})

    return msgspec.json.encode({"requests": part(own.requests), "limits": part(own.limits)}).decode()


def _original(name: str, note: str) -> NewResources:
    try:
        raw = msgspec.json.decode(note, type=_Note)
        return NewResources(name=name, requests=amounts(raw.requests), limits=amounts(raw.limits))
    except (msgspec.DecodeError, InvalidInput, RecursionError):
        # Somebody edited the note: nothing is known to go back to.
        return NewResources(name=name)
