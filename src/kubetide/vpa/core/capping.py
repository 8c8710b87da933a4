"""A recommendation within what is allowed.

The recommender caps by policy alone (`cap_to_policy`). Before a recommendation is applied to a pod, updater and
webhook fit it to that pod (`adjust`), in this order, so that later rules win:

    1. Pod LimitRange         sums over all containers are scaled into min…max
    2. Container LimitRange   each request keeps its proportional limit inside min…max
    3. policy                 up to minAllowed, then down to maxAllowed
    4. RequestsOnly           no request above the limit that stays

`container_resources` then says what each container of the pod gets. A container whose request would end up above its
limit is left alone and says why, because the API server refuses such a pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kubetide.api.objects.vpa import (
    OFF,
    REQUESTS_AND_LIMITS,
    REQUESTS_ONLY,
    ContainerResourcePolicy,
    PodResourcePolicy,
)
from kubetide.api.values.quantity import Quantity
from kubetide.vpa.core.limits import (
    ZERO,
    LimitItem,
    NamespaceLimits,
    boundary_request,
    chosen_limit,
    new_limits,
    proportional_limit,
    scaled,
)
from kubetide.vpa.core.policy import (
    CPU,
    MEMORY,
    RESOURCES,
    Amounts,
    ContainerAmounts,
    Recommended,
    amounts,
    container_policy,
    controlled_values,
)

Notes = dict[str, tuple[str, ...]]
"""Container name to what was done to its target."""


@dataclass(frozen=True, slots=True)
class Adjusted:
    """A recommendation fitted to one pod."""

    recommendations: tuple[Recommended, ...]
    notes: Notes = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewResources:
    """What one container of a pod gets: empty means that it stays as it is."""

    name: str
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    refused: str = ""
    """The resource whose request would exceed its limit; then nothing is changed."""


def cap_to_policy(
    given: Sequence[Recommended], policy: PodResourcePolicy | None, largest: Mapping[str, Quantity] | None = None
) -> tuple[Recommended, ...]:
    """Return a recommendation inside the policy of each container; `largest` stands in for a missing maxAllowed."""
    if policy is None and not largest:
        return tuple(given)
    capped = []
    for one in given:
        entry = container_policy(policy, one.container)
        low, high = _allowed(entry, largest or {})

        def cap(bound: Amounts | None, low: Amounts = low, high: Amounts = high) -> Amounts | None:
            return None if bound is None else _between(bound, low, high, "", "")[0]

        capped.append(replace(one, target=cap(one.target) or {}, lower=cap(one.lower), upper=cap(one.upper)))
    return tuple(capped)


def _allowed(entry: ContainerResourcePolicy | None, largest: Mapping[str, Quantity]) -> tuple[Amounts, Amounts]:
    low = amounts(entry.min_allowed) if entry is not None else {}
    high = dict(largest)
    high.update(amounts(entry.max_allowed) if entry is not None else {})
    return low, high


def adjust(
    given: Sequence[Recommended] | None,
    policy: PodResourcePolicy | None,
    containers: Sequence[ContainerAmounts],
    limits: NamespaceLimits,
) -> Adjusted | None:
    """Return the recommendation fitted to a pod, or None when there is neither a recommendation nor a policy."""
    if given is None and policy is None:
        return None
    fitted = tuple(given or ())
    if limits.pod is not None:
        fitted = fit_pod(fitted, containers, limits.pod)
    own = {container.name: container for container in containers}
    result: list[Recommended] = []
    notes: Notes = {}
    for one in fitted:
        container = own.get(one.container)
        if container is None:
            continue
        target, said = _fit_container(one.target, container, policy, limits.container)
        if said:
            notes[one.container] = said
        bounds = [
            None if bound is None else _fit_container(bound, container, policy, limits.container)[0]
            for bound in (one.lower, one.upper)
        ]
        result.append(replace(one, target=target, lower=bounds[0], upper=bounds[1]))
    return Adjusted(tuple(result), notes)


def fit_pod(
    given: Sequence[Recommended], containers: Sequence[ContainerAmounts], item: LimitItem
) -> tuple[Recommended, ...]:
    """Return a recommendation whose sums respect a Pod LimitRange; containers without one stand for themselves."""
    known = {one.container for one in given}
    pseudo = [Recommended(container=c.name, target=dict(c.requests)) for c in containers if c.name not in known]
    work = {one.container: one for one in [*given, *(p for p in pseudo if p.target)]}
    uppers = {name: _copy(one.upper) for name, one in work.items()}
    targets: dict[str, Amounts | None] = {name: dict(one.target) for name, one in work.items()}
    lowers = {name: _copy(one.lower) for name, one in work.items()}
    for values in (uppers, targets, lowers):
        for resource in RESOURCES:
            _fit_sum(resource, values, containers, item)
    return tuple(
        replace(one, target=targets[name] or {}, lower=lowers[name], upper=uppers[name]) for name, one in work.items()
    )


def _copy(bound: Amounts | None) -> Amounts | None:
    return None if bound is None else dict(bound)


def _fit_sum(
    resource: str, values: dict[str, Amounts | None], containers: Sequence[ContainerAmounts], item: LimitItem
) -> None:
    """Scale one resource of one bound in place, so that the pod's sums fit."""
    minimum = (item.minimum or {}).get(resource, ZERO)
    maximum = (item.maximum or {}).get(resource, ZERO)
    default = (item.default or {}).get(resource, ZERO)
    requests, total_request, total_limit = {}, ZERO, ZERO
    for container in containers:
        # A recommendation without this bound adds nothing to the sum; only a container with no recommendation
        # at all counts with its own request.
        bound = values.get(container.name, container.requests)
        request = (bound or {}).get(resource, ZERO)
        requests[container.name] = request
        limit = proportional_limit(
            resource,
            limit=container.limits.get(resource, ZERO),
            request=container.requests.get(resource, ZERO),
            new_request=request,
            default=default,
        ).limit
        total_request += request
        if limit is not None:
            total_limit += limit
    if minimum <= total_limit and minimum <= total_request and (not maximum or maximum >= total_limit):
        return
    if not total_limit:
        return
    if minimum > total_request:
        numerator, denominator, up = minimum, total_request, resource == CPU
    else:
        numerator, denominator, up = minimum, total_limit, False
        if maximum and maximum < total_limit:
            numerator = maximum
    if not denominator:
        return
    for name, request in requests.items():
        bound = values.get(name)
        if bound is not None:
            bound[resource] = scaled(resource, request, numerator, denominator, up=up)[0]


def _fit_container(
    bound: Amounts, container: ContainerAmounts, policy: PodResourcePolicy | None, item: LimitItem | None
) -> tuple[Amounts, tuple[str, ...]]:
    notes: list[str] = []
    fitted = dict(bound)
    if item is not None:
        low = _boundaries(container, item.minimum, item.default)
        low = {name: max(amount, (item.minimum or {})[name]) for name, amount in low.items()}
        high = _boundaries(container, item.maximum, item.default)
        fitted, said = _between(
            fitted, low, high, "capped to fit Min in container LimitRange", "capped to fit Max in container LimitRange"
        )
        notes += said
    entry = container_policy(policy, container.name)
    if entry is not None:
        fitted, said = _between(fitted, *_allowed(entry, {}), "capped to minAllowed", "capped to maxAllowed")
        notes += said
    if controlled_values(policy, container.name) == REQUESTS_ONLY:
        for name, limit in container.limits.items():
            if name in fitted and fitted[name].milli > limit.milli:
                fitted[name] = limit
                notes.append(f"{name} capped to container limit")
    return fitted, tuple(notes)


def _boundaries(container: ContainerAmounts, bound: Amounts | None, default: Amounts | None) -> Amounts:
    return {
        resource: boundary_request(
            resource,
            limit=container.limits.get(resource, ZERO),
            request=container.requests.get(resource, ZERO),
            boundary=amount,
            default=(default or {}).get(resource, ZERO),
        )
        for resource, amount in (bound or {}).items()
        if resource in RESOURCES
    }


def _between(given: Amounts, low: Amounts, high: Amounts, low_note: str, high_note: str) -> tuple[Amounts, list[str]]:
    """Raise to `low`, then cut to `high`, so that the maximum wins a conflict; zero is no bound."""
    result, notes = {}, []
    for name, amount in given.items():
        value = amount
        floor, ceiling = low.get(name, ZERO), high.get(name, ZERO)
        if floor and value < floor:
            value = floor
            notes.append(f"{name} {low_note}")
        if ceiling and value > ceiling:
            value = ceiling
            notes.append(f"{name} {high_note}")
        result[name] = value
    return result, notes


def container_resources(
    given: Sequence[Recommended] | None,
    adjusted: Adjusted | None,
    policy: PodResourcePolicy | None,
    containers: Sequence[ContainerAmounts],
    limits: NamespaceLimits,
    *,
    mode: str,
    limit_ratio: bool = False,
) -> tuple[NewResources, ...]:
    """Return what every container of a pod gets, in pod order. `given` None: no container changes.

    `limit_ratio`: a policy may derive the limits (gate RequestToLimitRatio).
    """
    if given is None or adjusted is None:
        return tuple(NewResources(name=container.name) for container in containers)
    by_name = {one.container: one for one in adjusted.recommendations}
    default = (limits.container.default if limits.container is not None else None) or {}
    result = []
    for container in containers:
        one = by_name.get(container.name)
        if one is None:
            result.append(NewResources(name=container.name))
            continue
        target = {name: amount for name, amount in one.target.items() if name}
        notes = adjusted.notes.get(container.name, ())
        # With the VPA switched off (startup boost only) the policy is not looked at here.
        values = REQUESTS_AND_LIMITS if mode == OFF else controlled_values(policy, container.name)
        new: Amounts = {}
        if values == REQUESTS_AND_LIMITS:
            found = new_limits(requests=container.requests, limits=container.limits, target=target, default=default)
            new, notes = found.limits, (*notes, *found.notes)
            if limit_ratio:
                new = {**new, **_chosen_limits(policy, container.name, target, limits)}
        result.append(NewResources(name=container.name, requests=target, limits=new, notes=notes))
    return tuple(result)


def _chosen_limits(
    policy: PodResourcePolicy | None, container: str, target: Amounts, limits: NamespaceLimits
) -> Amounts:
    """Return the limits that the policy of a container derives from its requests.

    Where the namespace limits whole pods the proportional rule stays: its sums were made with that.
    """
    entry = container_policy(policy, container)
    ratio = entry.request_to_limit_ratio if entry is not None else None
    if ratio is None:
        return {}
    most = (limits.container.maximum if limits.container is not None else None) or {}
    whole_pod = (limits.pod.maximum if limits.pod is not None else None) or {}
    found: Amounts = {}
    for resource, rule in ((CPU, ratio.cpu), (MEMORY, ratio.memory)):
        if rule is None or resource in whole_pod or resource not in target:
            continue
        limit = chosen_limit(resource, rule, target[resource], maximum=most.get(resource, ZERO))
        if limit is not None:
            found[resource] = limit
    return found


def refuse_invalid(new: NewResources, container: ContainerAmounts) -> NewResources:
    """Return `new`, or no change at all when some request would exceed its limit, naming that resource."""
    requests, limits = {**container.requests, **new.requests}, {**container.limits, **new.limits}
    for name in sorted(requests):
        if name in limits and requests[name] > limits[name] and (new.requests or new.limits):
            return NewResources(name=new.name, refused=name)
    return new
