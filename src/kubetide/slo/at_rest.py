"""Nodes that need no look: nothing of what they were decided on has changed, and time alone changes nothing yet.

A sync of all nodes, and a change of leader, ask about every node there is. While the objects in the caches are the very
ones that the last decision was made from, and that decision left nothing to write, the answer is known.
"""

from datetime import datetime, timedelta

Basis = tuple[object, ...]
"""What a decision was made from: objects out of caches, which are replaced and never changed, and counters."""


class AtRest:
    """The nodes at rest, by loop."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, tuple[Basis, datetime | None]]] = {}

    def settle(self, loop: str, node: str, basis: Basis, now: datetime, steady: timedelta | None = None) -> None:
        """Note that a node was looked at and nothing was left to write; None: that holds until something changes."""
        until = None if steady is None else now + steady
        self._kept.setdefault(node, {})[loop] = basis, until

    def holds(self, loop: str, node: str, basis: Basis, now: datetime) -> bool:
        """Return whether a look at the node would find what the last one found."""
        kept = self._kept.get(node, {}).get(loop)
        if kept is None or (kept[1] is not None and now > kept[1]):
            return False
        return all(
            one is other or (type(one) is int and one == other) for one, other in zip(kept[0], basis, strict=True)
        )

    def steady(self, loop: str, node: str, now: datetime) -> timedelta | None:
        """Return how long a node at rest stays so if nothing changes; None: for ever."""
        until = self._kept[node][loop][1]
        return None if until is None else until - now

    def wake(self, loop: str, node: str) -> None:
        """Note that there is something to write for a node."""
        self._kept.get(node, {}).pop(loop, None)

    def forget(self, node: str) -> None:
        """Forget a node."""
        self._kept.pop(node, None)
