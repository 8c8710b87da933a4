"""Resource lists, and what a pod asks for in all.

A pod runs its init containers one after the other, then its containers together; a sidecar (an init container that
restarts always) keeps running beside all that come after it. What must be reserved is therefore

    max( containers + sidecars,  for each init container: itself + the sidecars started before it )  + overhead

Requests and limits that are set on the pod itself replace the sum, resource by resource.
"""

from collections.abc import Callable, Iterable, Mapping

from kubetide.api.core import Container, Pod, ResourceList, ResourceRequirements
from kubetide.api.quantity import ZERO, Quantity, parse_quantity

CPU = "cpu"
MEMORY = "memory"

Amounts = dict[str, Quantity]
"""Resource name to exact amount."""


def parse_list(resources: ResourceList | None) -> Amounts:
    """Parse every quantity of a resource list."""
    return {name: parse_quantity(text) for name, text in (resources or {}).items()}


def format_list(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    """Return the resource list as the API writes it."""
    return {name: str(amount) for name, amount in amounts.items()}


def add(*lists: Mapping[str, Quantity]) -> Amounts:
    """Sum resource by resource."""
    total: Amounts = {}
    for amounts in lists:
        for name, amount in amounts.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def subtract(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    """Subtract resource by resource; what only `right` has comes out negative."""
    return {name: left.get(name, ZERO) - right.get(name, ZERO) for name in {**left, **right}}


def maximum(*lists: Mapping[str, Quantity]) -> Amounts:
    """Return the largest amount of each resource that any list names."""
    return _fold(lists, max)


def minimum(*lists: Mapping[str, Quantity]) -> Amounts:
    """Return the smallest amount of each resource that any list names."""
    return _fold(lists, min)


def equal(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> bool:
    """Tell whether both name the same resources with the same amounts."""
    return dict(left) == dict(right)


def container_requests(container: Container) -> Amounts:
    """Return the requests of one container; a limit without a request requests as much."""
    resources = container.resources
    return {**container_limits(container), **parse_list(resources.requests if resources else None)}


def container_limits(container: Container) -> Amounts:
    """Return the limits of one container."""
    return parse_list(container.resources.limits if container.resources else None)


def is_sidecar(container: Container) -> bool:
    """Tell whether an init container keeps running beside the others."""
    return container.restart_policy == "Always"


def pod_requests(pod: Pod) -> Amounts:
    """Return what must be reserved for the pod."""
    return _pod_total(pod, lambda container: parse_list(_part(container.resources, "requests")), "requests")


def pod_limits(pod: Pod) -> Amounts:
    """Return what the pod may use at most, for the resources that some container limits."""
    return _pod_total(pod, container_limits, "limits")


def _pod_total(pod: Pod, of_container: Callable[[Container], Amounts], part: str) -> Amounts:
    running: Amounts = add(*(of_container(container) for container in pod.spec.containers or ()))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in pod.spec.init_containers or ():
        needed = of_container(container)
        if is_sidecar(container):
            sidecars = add(sidecars, needed)
            starting = maximum(starting, sidecars)
        else:
            starting = maximum(starting, add(sidecars, needed))
    total = maximum(add(running, sidecars), starting)
    total.update(parse_list(_part(pod.spec.resources, part)))
    overhead = parse_list(pod.spec.overhead)
    if part == "limits":
        # Overhead belongs to a limit that exists; it does not create one.
        overhead = {name: amount for name, amount in overhead.items() if name in total}
    return add(total, overhead)


def _part(resources: ResourceRequirements | None, part: str) -> ResourceList | None:
    if resources is None:
        return None
    return resources.requests if part == "requests" else resources.limits


def _fold(lists: Iterable[Mapping[str, Quantity]], choose: Callable[[Quantity, Quantity], Quantity]) -> Amounts:
    result: Amounts = {}
    for amounts in lists:
        for name, amount in amounts.items():
            result[name] = choose(result[name], amount) if name in result else amount
    return result
