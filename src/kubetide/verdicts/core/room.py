"""How much is free on the nodes, and whether one more pod would fit.

    free(node) = allocatable - requests of the pods on it

A node counts if it is ready, not cordoned, fits the pod's node selector and has no taint that the pod does not
tolerate. Affinities and volumes are not looked at: the answer is "there is room", not "it will be put there".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from kubetide.api.objects.capacity import takes
from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.resources import CPU, MEMORY, Amounts
from kubetide.api.values.conditions import find_condition
from kubetide.api.values.quantity import ZERO, Quantity, readable
from kubetide.verdicts.core.view import PODS, ClusterView

_ONE = Quantity.of(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What one more pod of a kind would find."""

    needs: Amounts
    copies: int
    """How many more pods would fit on all nodes together."""
    shortage: str = ""
    """Why none fits; empty where one does."""
    fitting: Amounts | None = None
    """The largest requests, resource by resource, that the freest node could take."""


def is_ready(node: Node) -> bool:
    """Return whether a node reports that it runs pods."""
    condition = find_condition(node.status.conditions, "Ready")
    return condition is not None and condition.is_true


def room_for(view: ClusterView, pod: Pod) -> Room:
    """Return what one more pod like this one would find."""
    needs = {name: amount for name, amount in view.facts(pod).requests.items() if amount}
    # Thousands of workloads have a few sizes: equal questions are answered once.
    selector = frozenset((pod.spec.node_selector or {}).items())
    asked = (frozenset(needs.items()), selector, tuple(pod.spec.tolerations or ()))
    if asked not in view.worked_out:
        view.worked_out[asked] = _room(view, pod, needs)
    return cast(Room, view.worked_out[asked])


def _room(view: ClusterView, pod: Pod, needs: Amounts) -> Room:
    free = view.free
    open_nodes = [node for node in view.nodes if is_ready(node) and takes(node, pod.spec)]
    copies = sum(_copies(free[node.metadata.name], needs) for node in open_nodes)
    if copies:
        return Room(needs=needs, copies=copies)
    if not open_nodes:
        return Room(needs=needs, copies=0, shortage=f"none of {len(view.nodes)} nodes takes it")
    names = [name for name in needs if name in (CPU, MEMORY)] or list(needs) or [PODS]
    # The node that could hold the largest part of what is scarcest there.
    best = max(open_nodes, key=lambda node: min(_share(free[node.metadata.name], needs, name) for name in names))
    left = free[best.metadata.name]
    scarce = [name for name in needs if left.get(name, ZERO) < needs[name]] or [PODS]
    texts = ", ".join(f"{name} {shown(name, max(left.get(name, ZERO), ZERO))}" for name in scarce)
    fitting = {name: min(needs[name], max(left.get(name, ZERO), ZERO)) for name in names if name in needs}
    return Room(
        needs=needs,
        copies=0,
        shortage=f"the freest node {best.metadata.name} has {texts} left",
        fitting=fitting if all(fitting.values()) else None,
    )


def shown(resource: str, amount: Quantity) -> str:
    """Return an amount as people read it."""
    return readable(resource, str(amount))


def shown_list(amounts: Mapping[str, Quantity]) -> str:
    """Return amounts as people read them: `cpu 500m, memory 1Gi`."""
    return ", ".join(f"{name} {shown(name, amount)}" for name, amount in sorted(amounts.items())) or "nothing"


def flag_list(amounts: Mapping[str, Quantity]) -> str:
    """Return amounts as flags of kubectl take them, memory in whole Mi: `cpu=500m,memory=768Mi`."""
    return ",".join(f"{name}={_flag(name, amount)}" for name, amount in sorted(amounts.items()))


def _flag(name: str, amount: Quantity) -> str:
    return f"{amount.value // 1024**2}Mi" if name == MEMORY and amount.value >= 1024**2 else str(amount)


def _copies(free: Amounts, needs: Amounts) -> int:
    counts = [free.get(PODS, ZERO).nanos // _ONE.nanos] if PODS in free else []
    counts += [free.get(name, ZERO).nanos // amount.nanos for name, amount in needs.items()]
    return max(0, min(counts, default=0))


def _share(free: Amounts, needs: Amounts, name: str) -> float:
    left = free.get(name, ZERO)
    return left.nanos / needs[name].nanos if name in needs else float(left.nanos)
