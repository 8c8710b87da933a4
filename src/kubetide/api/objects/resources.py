"""Resource lists, and what a pod asks for in all.

A pod runs its init containers one after the other, then its containers together; a sidecar (an init container that
restarts always) keeps running beside all that come after it. What must be reserved is therefore

    max( containers + sidecars,  for each init container: itself + the sidecars started before it )  + overhead

Requests that are set on the pod itself replace the sum, resource by resource; only cpu, memory and huge pages can be.
"""

from collections.abc import Mapping

from kubetide.api.objects.core import Container, Pod, ResourceList, ResourceRequirements
from kubetide.api.values.quantity import ZERO, Quantity, parse_quantity

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
    result: Amounts = {}
    for amounts in lists:
        for name, amount in amounts.items():
            result[name] = max(result[name], amount) if name in result else amount
    return result


def is_sidecar(container: Container) -> bool:
    """Return whether an init container keeps running beside the others."""
    return container.restart_policy == "Always"


def is_pod_level(resource: str) -> bool:
    """Return whether a resource can be requested by a pod as a whole."""
    return resource in (CPU, MEMORY) or resource.startswith("hugepages-")


def pod_requests(pod: Pod) -> Amounts:
    """Return what must be reserved for the pod."""
    running: Amounts = add(*(_requests(container.resources) for container in pod.spec.containers or ()))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in pod.spec.init_containers or ():
        needed = _requests(container.resources)
        if is_sidecar(container):
            sidecars = add(sidecars, needed)
            starting = maximum(starting, sidecars)
        else:
            starting = maximum(starting, add(sidecars, needed))
    total = maximum(add(running, sidecars), starting)
    total.update({name: amount for name, amount in _requests(pod.spec.resources).items() if is_pod_level(name)})
    return add(total, parse_list(pod.spec.overhead))


def _requests(resources: ResourceRequirements | None) -> Amounts:
    return parse_list(resources.requests if resources else None)
