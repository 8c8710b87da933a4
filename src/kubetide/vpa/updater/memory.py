"""What the updater remembers between two runs. Losing all of it on a restart only makes it more careful.

Breakers are also in the status of their VPA, whence they come back; everything else is about pods that were touched
a moment ago.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kubetide.api.meta import ObjectKey
from kubetide.vpa.policy import Amounts
from kubetide.vpa.updater.breaker import BreakerState
from kubetide.vpa.updater.budget import Creator
from kubetide.vpa.updater.inplace import ResizeClock, Targets
from kubetide.vpa.updater.settling import Disruption


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """An eviction whose replacement has not been looked at yet."""

    vpa: ObjectKey
    creator: Creator
    disruption: Disruption
    before: Mapping[str, Amounts]
    """Requests of the evicted pod by container."""
    expected: Targets
    """Requests that the replacement should have."""


@dataclass(slots=True)
class Memory:
    """The updater's memory."""

    clock: ResizeClock = field(default_factory=ResizeClock)
    infeasible: dict[str, Targets] = field(default_factory=dict)
    """By pod uid: the recommendation that its node could not give."""
    disruptions: dict[Creator, list[Disruption]] = field(default_factory=dict)
    evictions: list[Eviction] = field(default_factory=list)
    breakers: dict[ObjectKey, BreakerState] = field(default_factory=dict)

    def record(self, creator: Creator, disruption: Disruption) -> None:
        """Remember what was done to a workload."""
        self.disruptions.setdefault(creator, []).append(disruption)

    def settle(self, creator: Creator, left: Iterable[Disruption]) -> None:
        """Keep only what a workload has not got over."""
        remaining = list(left)
        if remaining:
            self.disruptions[creator] = remaining
        else:
            self.disruptions.pop(creator, None)

    def forget(self, *, uids: Iterable[str], creators: Iterable[Creator], vpas: Iterable[ObjectKey]) -> None:
        """Drop what no longer exists."""
        present, makers, known = set(uids), set(creators), set(vpas)
        self.clock.forget_except(present)
        self.infeasible = {uid: targets for uid, targets in self.infeasible.items() if uid in present}
        self.disruptions = {creator: done for creator, done in self.disruptions.items() if creator in makers}
        self.evictions = [e for e in self.evictions if e.vpa in known and e.creator in makers]
        self.breakers = {key: state for key, state in self.breakers.items() if key in known}


def disruption_of(*, name: str, uid: str, at: datetime, evicted: bool, known: Iterable[str]) -> Disruption:
    """Return the record of something done to a pod; `known` are the pods that exist already."""
    return Disruption(pod=name, uid=uid, at=at, evicted=evicted, known=frozenset(known))
