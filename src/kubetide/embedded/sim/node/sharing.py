"""Who gets how much CPU when not everybody can have what they want.

Inside each group the children share what the group got, in proportion to their weights; what one does not want goes
to the others (weighted max-min fairness), level by level:

    want(leaf)  = min(demand, quota, CPUs of its cpuset)
    want(group) = min(sum of wants below, quota)
    granted     = water filling of the parent's grant over (weight, want)

A cpuset is a second limit: leaves confined to the same set S can have at most |S| cores together. Sets are taken from
the smallest up; where the leaves confined in S want more than |S|, they share |S| by the same rule and their wants
are cut to that. For nested or disjoint sets, which is what Kubernetes makes, this is exact.
"""

from collections.abc import Callable, Sequence

from kubetide.embedded.sim.node.groups import CGroup

_EPSILON = 1e-9


def water_fill(capacity: float, wants: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return each one's part of `capacity`: never above its want, and nobody lacks while a better-served one has more.

    "Better served" compares granted/weight. The sum is min(capacity, sum of wants).
    """
    granted = list(wants)
    if sum(wants) <= capacity:
        return granted
    order = sorted(range(len(wants)), key=lambda i: wants[i] / weights[i])
    left, weight_left = capacity, sum(weights)
    for i in order:
        part = min(wants[i], left * weights[i] / weight_left) if weight_left > 0 else 0.0
        granted[i] = part
        left -= part
        weight_left -= weights[i]
    return granted


def _collect(group: CGroup, leaf_want: Callable[[CGroup], float]) -> float:
    total = leaf_want(group) if group.row is not None else 0.0
    for child in group.children.values():
        total += _collect(child, leaf_want)
    quota = group.quota_cores
    group.want = total if quota is None else min(total, quota)
    return group.want


def _spread(group: CGroup, capacity: float) -> None:
    group.granted = min(group.want, capacity)
    children = [child for child in group.children.values() if child.want > 0]
    if group.want - group.granted <= _EPSILON and sum(child.want for child in children) <= group.granted + _EPSILON:
        for child in children:
            _spread(child, child.want)
        return
    parts = water_fill(group.granted, [child.want for child in children], [child.weight for child in children])
    for child, part in zip(children, parts, strict=True):
        _spread(child, part)


def distribute(root: CGroup, demand: Callable[[int], float], *, cpus: frozenset[int]) -> None:
    """Set `granted` on every group below `root`, given what each leaf's processes could use."""
    confined: dict[frozenset[int], None] = {}
    sets: dict[int, frozenset[int]] = {}
    wanted: dict[int, float] = {}
    for leaf in root.leaves():
        row = leaf.row
        if row is None:
            continue
        allowed = leaf.effective_cpus(cpus)
        sets[row] = allowed
        wanted[row] = min(demand(row), float(len(allowed)))
        if allowed != cpus:
            confined[allowed] = None
    for group in root.walk():
        group.granted = 0.0
    for cpu_set in sorted(confined, key=lambda s: (len(s), sorted(s))):
        inside = {row for row, allowed in sets.items() if allowed <= cpu_set}
        if sum(wanted[row] for row in inside) <= len(cpu_set):
            continue
        _collect(root, lambda leaf, inside=inside: wanted[leaf.row] if leaf.row in inside else 0.0)  # type: ignore[misc]
        _spread(root, float(len(cpu_set)))
        for leaf in root.leaves():
            if leaf.row in inside:
                wanted[leaf.row] = leaf.granted
    for group in root.walk():
        group.granted = 0.0
    _collect(root, lambda leaf: wanted[leaf.row] if leaf.row is not None else 0.0)
    _spread(root, float(len(cpus)))
