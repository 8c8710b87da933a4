"""What the updater remembers between two runs. Losing all of it on a restart only makes it more careful.

Breakers are also in the status of their VPA, whence they come back, and with them the fact that a replacement is
awaited; everything else is about pods that were touched a moment ago.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kubetide.api.objects.meta import ObjectKey
from kubetide.vpa.core.policy import Amounts
from kubetide.vpa.updater.core.breaker import BreakerState
from kubetide.vpa.updater.core.budget import Creator
from kubetide.vpa.updater.core.inplace import ResizeClock, Targets
from kubetide.vpa.updater.core.settling import Disruption


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEviction:
    """An eviction whose replacement has not been looked at yet."""

    vpa: ObjectKey
    creator: Creator
    disruption: Disruption
    before: Mapping[str, Amounts]
    """Requests of the evicted pod by container."""
    expected: Targets
    """Requests that the replacement should have."""


@dataclass(slots=True, kw_only=True)
class Inherited:
    """An eviction that another process announced, and nobody has looked at what came of it."""

    after: datetime
    """The youngest pod of the workload was made then: what was made later may be a replacement."""
    noticed: datetime
    judged: set[str] = field(default_factory=set)
    """Pods that have been looked at, by uid."""


@dataclass(slots=True)
class Memory:
    """The updater's memory."""

    clock: ResizeClock = field(default_factory=ResizeClock)
    infeasible: dict[str, Targets] = field(default_factory=dict)
    """By pod uid: the recommendation that its node could not give."""
    skips: dict[str, Targets] = field(default_factory=dict)
    """By pod uid: the infeasible recommendation that has been reported."""
    disruptions: dict[Creator, list[Disruption]] = field(default_factory=dict)
    evictions: dict[ObjectKey, list[PastEviction]] = field(default_factory=dict)
    """By VPA, oldest first."""
    inherited: dict[ObjectKey, Inherited] = field(default_factory=dict)
    breakers: dict[ObjectKey, BreakerState] = field(default_factory=dict)

    def begin(self, eviction: PastEviction, *, judged: bool) -> None:
        """Remember an eviction that is about to be asked for; `judged` when its replacement will be looked at."""
        if judged:
            self.evictions.setdefault(eviction.vpa, []).append(eviction)
        self.record(eviction.creator, eviction.disruption)

    def undo(self, eviction: PastEviction) -> None:
        """Forget an eviction that did not happen."""
        self.drop(eviction)
        left = [done for done in self.disruptions.get(eviction.creator, ()) if done is not eviction.disruption]
        self.settle(eviction.creator, left)

    def drop(self, eviction: PastEviction) -> None:
        """Forget an eviction whose replacement has been looked at, or will never come."""
        left = [each for each in self.evictions.get(eviction.vpa, ()) if each is not eviction]
        if left:
            self.evictions[eviction.vpa] = left
        else:
            self.evictions.pop(eviction.vpa, None)

    def awaits(self, vpa: ObjectKey) -> bool:
        """Return whether the replacement of some eviction has not been looked at."""
        return vpa in self.evictions or vpa in self.inherited

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

    def creators(self) -> set[Creator]:
        """Return the workloads of which something is remembered."""
        return self.disruptions.keys() | {each.creator for mine in self.evictions.values() for each in mine}

    def forget(self, *, uids: Iterable[str], creators: Iterable[Creator], vpas: Iterable[ObjectKey]) -> None:
        """Drop what no longer exists."""
        present, makers, known = set(uids), set(creators), set(vpas)
        self.clock.forget_except(present)
        self.infeasible = {uid: targets for uid, targets in self.infeasible.items() if uid in present}
        self.skips = {uid: targets for uid, targets in self.skips.items() if uid in self.infeasible}
        self.disruptions = {creator: done for creator, done in self.disruptions.items() if creator in makers}
        kept = {key: [e for e in mine if e.creator in makers] for key, mine in self.evictions.items() if key in known}
        self.evictions = {key: mine for key, mine in kept.items() if mine}
        self.inherited = {key: inherited for key, inherited in self.inherited.items() if key in known}
        self.breakers = {key: state for key, state in self.breakers.items() if key in known}

    def leave(self, leaves: Callable[[str], bool]) -> None:
        """Drop what is in namespaces that became another replica's, which may have acted since."""
        self.disruptions = {
            creator: done for creator, done in self.disruptions.items() if not leaves(creator.namespace)
        }
        self.evictions = {key: mine for key, mine in self.evictions.items() if not leaves(key.namespace)}
        self.inherited = {key: inherited for key, inherited in self.inherited.items() if not leaves(key.namespace)}
        self.breakers = {key: state for key, state in self.breakers.items() if not leaves(key.namespace)}


def disruption_of(*, name: str, uid: str, at: datetime, evicted: bool, known: Iterable[str]) -> Disruption:
    """Return the record of something done to a pod; `known` are the pods that exist already."""
    return Disruption(pod=name, uid=uid, at=at, evicted=evicted, known=frozenset(known))
