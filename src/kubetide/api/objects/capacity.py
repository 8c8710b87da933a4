"""What the nodes of a cluster have: nothing on a node can use more of it than that.

Amounts are in thousandths, as usage is compared. A pod is bound by its own node; where that is not known, by the
largest one of the cluster; where no node reports any, by nothing. `takes` tells which nodes a pod may run on at all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kubetide.api.objects.core import Node, PodSpec, ResourceList, Taint, Toleration
from kubetide.api.values.quantity import milli_value
from kubetide.errors import QuantityError

Amounts = Mapping[str, int]


@dataclass(frozen=True)
class Capacity:
    """The capacity of every node by name, in thousandths per resource."""

    nodes: Mapping[str, Amounts] = field(default_factory=dict)

    def bound(self, node: str, resource: str) -> int | None:
        """Return the most of a resource that can be used on a node; None where nothing is known."""
        return self.nodes.get(node, self.largest).get(resource)

    @cached_property
    def largest(self) -> Amounts:
        """The most that any node has."""
        found: dict[str, int] = {}
        for amounts in self.nodes.values():
            for resource, amount in amounts.items():
                found[resource] = max(amount, found.get(resource, 0))
        return found

    @cached_property
    def smallest(self) -> Amounts:
        """The least that any node has: what is below it needs no second look."""
        found: dict[str, int] = {}
        for amounts in self.nodes.values():
            for resource, amount in amounts.items():
                found[resource] = min(amount, found.get(resource, amount))
        return found


UNKNOWN = Capacity()
"""No node reports what it has."""


def capacity_of(listed: ResourceList | None) -> Amounts:
    """Return the amounts of one node; what cannot be read, or is nothing, is left out."""
    found: dict[str, int] = {}
    for resource, text in (listed or {}).items():
        try:
            amount = milli_value(text)
        except QuantityError:
            continue
        if amount > 0:
            found[resource] = amount
    return found


def takes(node: Node, spec: PodSpec, *, ever: bool = False) -> bool:
    """Return whether a node would take a pod, however full it is; affinities and volumes are not looked at.

    With `ever`, taints that Kubernetes sets while a node is in trouble, and takes away again, do not count.
    """
    labels = node.metadata.labels or {}
    return (
        not node.spec.unschedulable
        and (spec.node_selector or {}).items() <= labels.items()
        and all(
            (ever and taint.key.startswith("node.kubernetes.io/")) or _tolerated(taint, spec.tolerations or ())
            for taint in node.spec.taints or ()
        )
    )


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    if taint.effect == "PreferNoSchedule":
        return True
    return any(
        (not one.effect or one.effect == taint.effect)
        and (not one.key or one.key == taint.key)
        and (one.operator == "Exists" or one.value == taint.value)
        for one in tolerations
    )
