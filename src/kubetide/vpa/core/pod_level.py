"""Resources of the pod as a whole (gate `VPAPodLevelResources`, proposal AEP-7571).

Where `podPolicy` has mode `Auto`, the pod-level requests follow the containers:

    target   sum over the containers of the pod: the recommended target, else what the container requests itself
             within minAllowed…maxAllowed of podPolicy, but never below what its containers then request together,
             because the API server refuses such a pod
    limit    keeps its proportion to the request (RequestsAndLimits); a pod without pod-level resources whose containers
             all have a limit gets the sum of these, so that its QoS class stays

A container of mode `RecommendationOnly` counts in the sum and is itself left as it is. Every component sums up for
itself: `status.recommendation.podRecommendation` is for people, so a list of containers that has changed does no harm.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kubetide.api.objects.core import Pod, ResourceRequirements
from kubetide.api.objects.resources import add, pod_requests
from kubetide.api.objects.vpa import (
    RECOMMENDATION_ONLY,
    REQUESTS_ONLY,
    PodLevelPolicy,
    PodResourcePolicy,
    VerticalPodAutoscaler,
)
from kubetide.api.values.codec import decode
from kubetide.api.values.quantity import ZERO, Quantity
from kubetide.errors import InvalidInput
from kubetide.vpa.core.capping import NewResources
from kubetide.vpa.core.limits import proportional_limit
from kubetide.vpa.core.policy import (
    RESOURCES,
    Amounts,
    ContainerAmounts,
    Recommended,
    amounts,
    container_policy,
    texts,
)
from kubetide.vpa.core.sidecars import without_sidecars

POLICY_ANNOTATION = "kubetide.io/vpa-pod-policy"
"""Holds podPolicy as JSON where the CRD does not know the field; the field wins."""
WHOLE_POD = ""
"""Stands for the pod where a container is named."""
AUTO = "Auto"


@dataclass(frozen=True, slots=True)
class PodLevel:
    """What the pod as a whole gets, and the bounds to judge it by."""

    new: NewResources
    bounds: Recommended


def declared_policy(vpa: VerticalPodAutoscaler) -> PodLevelPolicy | None:
    """Return the podPolicy of a VPA, from its field or its annotation; InvalidInput when it cannot be read."""
    policy = vpa.spec.resource_policy
    found = policy.pod_policy if policy is not None else None
    text = (vpa.metadata.annotations or {}).get(POLICY_ANNOTATION)
    if found is None and text is not None:
        found = decode(text.encode(), PodLevelPolicy, what=f"annotation {POLICY_ANNOTATION}")
    if found is not None:
        amounts(found.min_allowed)
        amounts(found.max_allowed)
    return found


def pod_policy(vpa: VerticalPodAutoscaler) -> PodLevelPolicy | None:
    """Return the podPolicy in force; None while it is off, or cannot be read, which the recommender reports."""
    try:
        found = declared_policy(vpa)
    except InvalidInput:
        return None
    return found if found is not None and found.mode == AUTO else None


def recommendation_only(policy: PodResourcePolicy | None, container: str) -> bool:
    """Return whether a container is recommended for and never changed."""
    entry = container_policy(policy, container)
    return entry is not None and entry.mode == RECOMMENDATION_ONLY


def whole_pod(given: Sequence[Recommended], policy: PodLevelPolicy) -> Recommended | None:
    """Return the recommendation for the pod as a whole: the containers together, within the policy."""
    if not given:
        return None
    target = _controlled(add(*(one.target for one in given)), policy)
    return Recommended(
        container=WHOLE_POD,
        target=_within(target, policy),
        lower=_within(_controlled(add(*(one.lower or {} for one in given)), policy), policy),
        upper=_within(_controlled(add(*(one.upper or {} for one in given)), policy), policy),
        uncapped=_controlled(add(*(one.uncapped or {} for one in given)), policy),
    )


def pod_level(
    pod: Pod,
    policy: PodLevelPolicy,
    given: Iterable[Recommended],
    containers: Sequence[ContainerAmounts],
    new: Sequence[NewResources],
) -> PodLevel | None:
    """Return what a pod as a whole gets; None when nothing is recommended for any of its containers.

    `given` is fitted to the pod, `containers` are as they are and `new` what they will get.
    """
    by_name = {one.container: one for one in given}
    known = [by_name[own.name] for own in containers if own.name in by_name]
    if not known:
        return None
    alone = [own.requests for own in containers if own.name not in by_name]
    named = {name for one in known for name in one.target}
    needed = _needed(pod, new)
    target: Amounts = {}
    notes: list[str] = []
    for resource in (name for name in _controlled_names(policy) if name in named):
        wanted = sum((found.get(resource, ZERO) for found in (*(one.target for one in known), *alone)), ZERO)
        fitted = _within({resource: wanted}, policy)[resource]
        target[resource] = max(fitted, needed.get(resource, ZERO))
        if target[resource] > fitted:
            notes.append(f"{resource} raised to what the containers request")
        elif fitted != wanted:
            notes.append(f"{resource} capped to podPolicy")
    lower = _bound((one.lower for one in known), alone, policy, target, smaller=True)
    upper = _bound((one.upper for one in known), alone, policy, target, smaller=False)
    limits = {} if policy.controlled_values == REQUESTS_ONLY else _limits(pod, containers, new, target)
    refused = _refused(pod, target, limits)
    changed = NewResources(name=WHOLE_POD, requests=target, limits=limits, notes=tuple(notes))
    if refused:
        changed = NewResources(name=WHOLE_POD, refused=refused)
    return PodLevel(changed, Recommended(container=WHOLE_POD, target=target, lower=lower, upper=upper))


def own_resources(pod: Pod) -> ContainerAmounts:
    """Return the pod-level requests and limits as they are."""
    stanza = pod.spec.resources or ResourceRequirements()
    return ContainerAmounts(name=WHOLE_POD, requests=amounts(stanza.requests), limits=amounts(stanza.limits))


def changes_pod_level(pod: Pod, level: PodLevel | None) -> bool:
    """Return whether the pod-level resources would become different."""
    if level is None:
        return False
    own = own_resources(pod)
    pairs = ((own.requests, level.new.requests), (own.limits, level.new.limits))
    return any(has.get(name) != amount for has, gets in pairs for name, amount in gets.items())


def _bound(
    given: Iterable[Amounts | None],
    alone: Sequence[Amounts],
    policy: PodLevelPolicy,
    target: Mapping[str, Quantity],
    *,
    smaller: bool,
) -> Amounts | None:
    """Return a bound of the whole pod that the target lies within; None where some container has none."""
    listed = tuple(given)
    if any(one is None for one in listed):
        return None
    total = _within(add(*(one or {} for one in listed), *alone), policy)
    pick = min if smaller else max
    return {name: pick(total.get(name, amount), amount) for name, amount in target.items()}


def _needed(pod: Pod, new: Sequence[NewResources]) -> Amounts:
    """Return what the containers of a pod will request together."""
    found = []
    for container, got in zip(pod.spec.containers or (), new, strict=True):
        requests = {**((container.resources.requests if container.resources else None) or {}), **texts(got.requests)}
        found.append(msgspec.structs.replace(container, resources=ResourceRequirements(requests=requests)))
    plain = without_sidecars(pod)
    spec = msgspec.structs.replace(plain.spec, containers=tuple(found), resources=None, overhead=None)
    return pod_requests(msgspec.structs.replace(plain, spec=spec))


def _limits(
    pod: Pod, containers: Sequence[ContainerAmounts], new: Sequence[NewResources], target: Mapping[str, Quantity]
) -> Amounts:
    own = own_resources(pod)
    effective = [{**has.limits, **got.limits} for has, got in zip(containers, new, strict=True)]
    result: Amounts = {}
    for resource, request in target.items():
        if resource in own.limits:
            limit = proportional_limit(
                resource,
                limit=own.limits[resource],
                request=own.requests.get(resource, ZERO),
                new_request=request,
                default=ZERO,
            ).limit
        elif pod.spec.resources is None and all(resource in limits for limits in effective):
            limit = sum((limits[resource] for limits in effective), ZERO)
        else:
            limit = None
        if limit is not None:
            # No container may have a limit above that of its pod.
            largest = max((limits[resource] for limits in effective if resource in limits), default=ZERO)
            result[resource] = max(limit, largest, request)
    return result


def _refused(pod: Pod, requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> str:
    """Return the resource whose request would exceed a limit that stays."""
    kept = {**own_resources(pod).limits, **limits}
    return next((name for name in sorted(requests) if name in kept and requests[name] > kept[name]), "")


def _controlled_names(policy: PodLevelPolicy) -> tuple[str, ...]:
    listed = policy.controlled_resources
    return RESOURCES if listed is None else tuple(name for name in RESOURCES if name in listed)


def _controlled(given: Mapping[str, Quantity], policy: PodLevelPolicy) -> Amounts:
    return {name: given[name] for name in _controlled_names(policy) if name in given}


def _within(given: Mapping[str, Quantity], policy: PodLevelPolicy) -> Amounts:
    low, high = amounts(policy.min_allowed), amounts(policy.max_allowed)
    result = {}
    for name, amount in given.items():
        raised = max(amount, low.get(name, ZERO))
        result[name] = min(raised, high[name]) if high.get(name) else raised
    return result
