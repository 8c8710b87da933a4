"""How many pods of a workload may go at once.

Live pods are grouped by the controller that made them. A group takes part when it has at least `minReplicas` live
pods and its controller reports how many replicas it wants (`configured`):

    tolerance   = trunc(configured * fraction)
    disruptable : running - (evicted + initiated) > configured - tolerance
               or running = configured, tolerance = 0 and nothing was disrupted yet (one pod of a small group)

Evictions and resizes in place draw on the same count. A pending pod serves nobody: evicting it is free.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey, controller_of, key_of

PENDING = "Pending"

SCALED_KINDS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Controllers whose `spec.replicas` is the configured number; a DaemonSet's is `status.numberReady`."""


class Creator(NamedTuple):
    """The controller that made a pod; kind and name are empty for a pod without one."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind or 'pods without controller'} {self.namespace}/{self.name}".rstrip("/")


def creator_of(pod: Pod) -> Creator:
    """Return the first owner that manages the pod."""
    owner = controller_of(pod.metadata)
    if owner is None:
        return Creator(pod.metadata.namespace, "", "")
    return Creator(pod.metadata.namespace, owner.kind, owner.name)


def is_pending(pod: Pod) -> bool:
    """Return whether the pod has not started anything yet."""
    return pod.status.phase == PENDING


@dataclass(slots=True, kw_only=True)
class Group:
    """The live pods of one controller, and what was already done to them in this loop."""

    creator: Creator
    configured: int
    tolerance: int
    pending: int
    running: int
    below_minimum: bool = False
    evicted: int = 0
    initiated: int = 0

    @property
    def live(self) -> int:
        return self.pending + self.running

    def disruptable(self) -> bool:
        """Return whether one more running pod may be disturbed."""
        disturbed = self.evicted + self.initiated
        if self.running - disturbed > self.configured - self.tolerance:
            return True
        return self.running == self.configured and self.tolerance == 0 and disturbed == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRules:
    """What decides whether a group takes part, and how much of it may go."""

    min_replicas: int = 2
    tolerance: float = 0.5
    keep_below_minimum: bool = False
    """Keep small groups for resizes in place that skip the budget; their running pods are not evicted."""
    count_live_pods: bool = False
    """Take the live pods as the configured number of a controller of unknown kind, instead of 0 (no budget at all)."""


class Budget:
    """The groups of one VPA during one loop."""

    def __init__(self, groups: Mapping[ObjectKey, Group], left_out: Mapping[ObjectKey, str]) -> None:
        self._groups = groups
        self._left_out = left_out

    def group_of(self, pod: Pod) -> Group | None:
        """Return the group of a pod, or None when it takes no part."""
        return self._groups.get(key_of(pod))

    def why_left_out(self, pod: Pod) -> str:
        """Return why the pod's group takes no part."""
        return self._left_out.get(key_of(pod), "the pod is not among the pods of this VPA")

    def record_eviction(self, pod: Pod) -> None:
        """Count a successful eviction; a pending pod is free."""
        group = self._groups.get(key_of(pod))
        if group is not None and not is_pending(pod):
            group.evicted += 1

    def record_resize(self, pod: Pod) -> None:
        """Count a resize that was started."""
        group = self._groups.get(key_of(pod))
        if group is not None:
            group.initiated += 1


def configured_replicas(creator: Creator, stated: int | None, *, live: int, rules: BudgetRules) -> int | None:
    """Return how many pods the controller should have, or None when its group must be left alone.

    `stated` is what the controller object says (`spec.replicas`, or `status.numberReady` of a DaemonSet).
    """
    if creator.kind in SCALED_KINDS or creator.kind == "DaemonSet":
        return stated or None
    if creator.kind == "Job" or rules.count_live_pods:
        return live
    return 0


def build_budget(pods: Iterable[Pod], stated: Mapping[Creator, int | None], rules: BudgetRules) -> Budget:
    """Group live pods by creator and work out what may go."""
    by_creator: dict[Creator, list[Pod]] = {}
    for pod in pods:
        by_creator.setdefault(creator_of(pod), []).append(pod)
    groups: dict[ObjectKey, Group] = {}
    left_out: dict[ObjectKey, str] = {}
    for creator, members in by_creator.items():
        live = len(members)
        short = live < rules.min_replicas
        reason = ""
        if short and not rules.keep_below_minimum:
            reason = f"{creator} has {live} live pods, fewer than the minimum of {rules.min_replicas}"
        configured = configured_replicas(creator, stated.get(creator), live=live, rules=rules)
        if not reason and configured is None:
            reason = f"{creator} does not say how many replicas it wants"
        if reason or configured is None:
            left_out.update((key_of(pod), reason) for pod in members)
            continue
        pending = sum(map(is_pending, members))
        group = Group(
            creator=creator,
            configured=configured,
            tolerance=int(configured * rules.tolerance),
            pending=pending,
            running=live - pending,
            below_minimum=short,
        )
        groups.update((key_of(pod), group) for pod in members)
    return Budget(groups, left_out)
