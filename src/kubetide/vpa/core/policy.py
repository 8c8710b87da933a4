"""What a VPA's owner declared for a container, and the recommendation as a value.

The policy of a container is the first entry with exactly its name, else the *last* entry named `*`, else none; the
two are never merged. A zero in `minAllowed` or `maxAllowed` is no bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubetide.api.objects.core import ResourceList, ResourceRequirements
from kubetide.api.objects.vpa import (
    OFF,
    REQUESTS_AND_LIMITS,
    ContainerRecommendation,
    ContainerResourcePolicy,
    PodRecommendation,
    PodResourcePolicy,
)
from kubetide.api.values.quantity import Quantity, parse_quantity

CPU = "cpu"
MEMORY = "memory"
RESOURCES = (CPU, MEMORY)

Amounts = dict[str, Quantity]
"""Resource name to exact amount."""


def amounts(listed: ResourceList | None) -> Amounts:
    """Return the parsed amounts of a resource list; raises QuantityError."""
    return {name: parse_quantity(text) for name, text in (listed or {}).items()}


def texts(listed: Mapping[str, Quantity]) -> dict[str, str]:
    """Return amounts as the API writes them."""
    return {name: str(amount) for name, amount in listed.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """What one container should request. A bound that is None was never given, which is not the same as empty."""

    container: str
    target: Amounts = field(default_factory=dict)
    lower: Amounts | None = None
    upper: Amounts | None = None
    uncapped: Amounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAmounts:
    """Requests and limits of one container of a pod."""

    name: str
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)


def container_amounts(name: str, resources: ResourceRequirements | None) -> ContainerAmounts:
    """Return the parsed requests and limits of a container; raises QuantityError."""
    if resources is None:
        return ContainerAmounts(name=name)
    return ContainerAmounts(name=name, requests=amounts(resources.requests), limits=amounts(resources.limits))


def recommended(given: ContainerRecommendation) -> Recommended:
    """Return one entry of `status.recommendation` as a value; raises QuantityError."""

    def bound(listed: ResourceList | None) -> Amounts | None:
        return None if listed is None else amounts(listed)

    return Recommended(
        container=given.container_name,
        target=amounts(given.target),
        lower=bound(given.lower_bound),
        upper=bound(given.upper_bound),
        uncapped=bound(given.uncapped_target),
    )


def recommendations(given: PodRecommendation | None) -> tuple[Recommended, ...] | None:
    """Return `status.recommendation` as values; None when there is none, which is not the same as an empty one."""
    if given is None:
        return None
    return tuple(recommended(entry) for entry in given.container_recommendations or ())


def container_policy(policy: PodResourcePolicy | None, container: str) -> ContainerResourcePolicy | None:
    """Return the policy entry that governs a container."""
    fallback = None
    for entry in (policy.container_policies if policy is not None else None) or ():
        if entry.container_name == container:
            return entry
        if entry.container_name == "*":
            fallback = entry
    return fallback


def is_off(entry: ContainerResourcePolicy | None) -> bool:
    """Return whether the container is left out of scaling."""
    return entry is not None and entry.mode == OFF


def controlled_resources(entry: ContainerResourcePolicy | None) -> tuple[str, ...]:
    """Return the resources that are recommended for a container: cpu and memory unless the policy lists fewer."""
    if entry is None or entry.controlled_resources is None:
        return RESOURCES
    return tuple(name for name in RESOURCES if name in entry.controlled_resources)


def controlled_values(policy: PodResourcePolicy | None, container: str) -> str:
    """Return whether limits follow requests (`RequestsAndLimits`, the default) or stay (`RequestsOnly`)."""
    entry = container_policy(policy, container)
    return (entry.controlled_values if entry is not None else None) or REQUESTS_AND_LIMITS
