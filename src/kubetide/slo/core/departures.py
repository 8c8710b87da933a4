"""Who left which node, and since when departures are watched: the memory behind gradual release.

It follows the pods from the moment their cache is synced, whether this process leads or waits. What happened before
is not known. For a node that is decided within one window of that moment the decision says what it holds back for the
unknown past (`slo.continuity`); it is remembered here like any departure.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from kubetide.api.objects.core import Pod
from kubetide.api.objects.slo import NodeMetric
from kubetide.slo.core.continuity import Departure
from kubetide.slo.core.overcommit.claims import claim_of
from kubetide.slo.core.overcommit.loads import pod_load, reported_usage

_REMEMBERED = 64
"""Departures per node. A node that loses more pods than that in a window releases the oldest of them at once."""


class Departures:
    """Remembers per node what its pods counted for when they left."""

    def __init__(self) -> None:
        self._by_node: dict[str, list[Departure]] = {}
        self._decided: set[str] = set()
        self._since: datetime | None = None
        self._taken: dict[str, datetime] = {}

    def begin(self, now: datetime) -> None:
        """Report that from now on no departure is missed."""
        self._since = now

    def taken(self, node: str, now: datetime) -> None:
        """Note that a node was another replica's until now: without its report nobody knew what left it used."""
        self.forget(node)
        self._taken[node] = now

    def of(self, node: str) -> tuple[Departure, ...]:
        """Return the departures from a node."""
        return tuple(self._by_node.get(node, ()))

    def watched_for(self, node: str, now: datetime) -> timedelta | None:
        """Return how long the past of a node is known; None once it was decided, when nothing is missing any more."""
        if node in self._decided:
            return None
        since = self._taken.get(node, self._since)
        return timedelta(0) if since is None else now - since

    def pod_changed(self, old: Pod, new: Pod | None, metric: NodeMetric | None, now: datetime) -> None:
        """Take in a change of a pod: remember what it counted for, if it left a node."""
        node = old.spec.node_name
        before = claim_of(old)
        if not node or not before.active or before.low_priority or (new is not None and claim_of(new).active):
            return
        self._add(node, Departure(now, pod_load(before, reported_usage(metric, before.key)), before.key))

    def decided(self, node: str, held: Iterable[Departure]) -> None:
        """Note that a node was decided, and what it holds back for the past that is not known."""
        self._decided.add(node)
        for departure in held:
            self._add(node, departure)

    def forget(self, node: str) -> None:
        """Forget a node."""
        self._by_node.pop(node, None)
        self._decided.discard(node)
        self._taken.pop(node, None)

    def _add(self, node: str, departure: Departure) -> None:
        found = self._by_node.setdefault(node, [])
        found.append(departure)
        del found[:-_REMEMBERED]
