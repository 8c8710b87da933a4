"""What keys do to a showing: its pace, which workload is explained, which lines are shown, what is injected.

    + -        faster, slower          Tab, Shift-Tab   from workload to workload: its explanation; then all of them
    space      stop and go on          l                which lines are shown
    q          end                     s                inject a spike or an outage

A key makes new controls out of old ones; what is to be injected stands in `injected` for one key press.
"""

from dataclasses import dataclass, replace
from typing import Literal

from kubetide.cli.demo.pace import Pace
from kubetide.dashboard.core.model import Filter

NEXT, BACK, LINES, INJECT = "\t", "\x1b[Z", "l", "s"
Injection = Literal["spike", "metrics", "node"]
_CHOICES: dict[str, Injection] = {"1": "spike", "2": "metrics", "3": "node"}
_FILTERS: tuple[Filter, ...] = ("all", "problems", "workload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What the person at the terminal has chosen."""

    pace: Pace
    workloads: int = 0
    """How many there are to go through."""
    selected: int | None = None
    filter: Filter = "all"
    choosing: bool = False
    injected: Injection | None = None

    def press(self, key: str) -> "Controls":
        """Return the controls after a key; one without a meaning changes nothing."""
        now = replace(self, injected=None, choosing=False)
        if self.choosing:
            return replace(now, injected=_CHOICES[key]) if key in _CHOICES else now
        if key == INJECT:
            return replace(now, choosing=True)
        if key in (NEXT, BACK):
            return replace(now, selected=_step(self.selected, self.workloads, 1 if key == NEXT else -1))
        if key == LINES:
            # What concerns one workload can be picked out only where one is chosen.
            filters = _FILTERS if self.selected is not None else _FILTERS[:2]
            at = filters.index(self.filter) if self.filter in filters else -1
            return replace(now, filter=filters[(at + 1) % len(filters)])
        return replace(now, pace=self.pace.press(key))

    def hint(self) -> str:
        """Return the line that shows which keys there are."""
        if self.choosing:
            return "inject:  1 a spike, 3 times the load   2 outage of metrics   3 outage of a node"
        return f"{self.pace.hint()}  Tab explain  l lines  s inject"


def _step(selected: int | None, count: int, by: int) -> int | None:
    """Go through the workloads and then back to all of them, which is the place before the first."""
    if not count:
        return None
    place = (0 if selected is None else selected + 1) + by
    return None if place % (count + 1) == 0 else place % (count + 1) - 1
