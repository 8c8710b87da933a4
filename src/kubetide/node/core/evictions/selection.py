"""Who goes, one pod after the other, until every task of a sync has its amounts.

    released    what accepted evictions freed, by what is counted and resource; shared by all tasks of the sync
    finished    a task whose every amount is released; amounts of 0 or less ask for nothing
    skipped     pods that were tried already, and pods that free nothing of what their task still misses

What leaves anyway counts first. A refused pod is not credited, and the next one is tried.
"""

from collections.abc import Mapping, Sequence

from kubetide.node.core.plan import Amounts, Counted, Eviction, EvictionTask


class Selection:
    """The state of one sync: ask for `next`, record what was accepted."""

    def __init__(self, tasks: Sequence[EvictionTask], pending: Mapping[Counted, Amounts] | None = None) -> None:
        self._tasks = [task for task in tasks if any(amount > 0 for amount in task.amounts.values())]
        self._counted = {task.counted for task in self._tasks}
        self._tried: set[str] = set()
        self.released: dict[Counted, dict[str, int]] = {}
        for counted, amounts in (pending or {}).items():
            self._credit(counted, amounts)

    def missing(self, task: EvictionTask) -> dict[str, int]:
        """Return what a task still has to release."""
        released = self.released.get(task.counted, {})
        gaps = {name: amount - released.get(name, 0) for name, amount in task.amounts.items() if amount > 0}
        return {name: gap for name, gap in gaps.items() if gap > 0}

    def next(self) -> Eviction | None:
        """Return the next pod to ask for, None when all tasks have their amounts or nobody is left."""
        for task in self._tasks:
            missing = self.missing(task)
            if not missing:
                continue
            for candidate in task.candidates:
                frees = candidate.releases.get(task.counted, {})
                if candidate.uid not in self._tried and any(frees.get(name, 0) > 0 for name in missing):
                    self._tried.add(candidate.uid)
                    return candidate
        return None

    def accepted(self, eviction: Eviction) -> None:
        """Credit a pod that goes, for everything that is counted."""
        for counted, amounts in eviction.releases.items():
            self._credit(counted, amounts)

    def _credit(self, counted: Counted, amounts: Amounts) -> None:
        if counted not in self._counted:
            return
        released = self.released.setdefault(counted, {})
        for name, amount in amounts.items():
            released[name] = released.get(name, 0) + amount


def planned(tasks: Sequence[EvictionTask], pending: Mapping[Counted, Amounts]) -> tuple[list[Eviction], Selection]:
    """Return who is evicted when the API refuses nobody, and the selection after that."""
    selection = Selection(tasks, pending)
    chosen: list[Eviction] = []
    while (candidate := selection.next()) is not None:
        chosen.append(candidate)
        selection.accepted(candidate)
    return chosen, selection
