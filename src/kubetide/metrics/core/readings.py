"""What is known about the nodes now: the newest reading of each, until it is too old to be served.

A node that stops talking is missing, never zero: its reading is served for `KEPT_WINDOWS` windows after its own end
and then no more. Where an agent and a kubelet report the same node, the one that covers the later moment is served.

Alarms are kept by node, as the agent told them last, all at once: a later set replaces an earlier one, and one that is
not repeated (an agent repeats its alarms with every window) is forgotten with its reading.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from kubetide.api.objects.sample_frames import SIGNALS, ContainerSignals

KEPT_WINDOWS = 3
SHORTEST_KEPT = timedelta(seconds=15)
"""A stream that falters for a moment leaves no gap."""

PodKey = tuple[str, str]
"""Namespace and name."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """CPU in nanocores over the window, working set in bytes at its end."""

    cpu_nanos: int
    memory_bytes: int


class PodReading(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The usage of a pod's containers, and what its node reports about it beyond that."""

    at: datetime
    window: timedelta
    containers: Mapping[str, Usage]
    uid: str = ""
    """Empty where the source does not know it: a kubelet names pods, not their uids."""
    signals: tuple[float | None, ...] = ()
    """In the order of SIGNALS; those that are missing at the end are not known."""
    details: tuple[ContainerSignals, ...] = ()
    """In the order of the containers; none where the source knows of none."""

    def signal(self, name: str) -> float | None:
        """Return a signal by name; None where the node does not say."""
        index = SIGNALS.index(name)
        return self.signals[index] if index < len(self.signals) else None


class ContainerAlarm(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A container whose memory is running out; fields as in `sample_frames.MemoryAlarm`."""

    pod: PodKey
    uid: str
    container: str
    need: int
    limit: int
    growth: float
    pressure: float | None
    hits: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAlarms:
    """All alarms of one node at one moment."""

    node: str
    at: datetime
    alarms: tuple[ContainerAlarm, ...]
    kept: timedelta = SHORTEST_KEPT

    def expires(self) -> datetime:
        """Return when nobody may act on it any more."""
        return self.at + self.kept


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """One window of one node."""

    node: str
    source: str
    """`agent` or `kubelet`."""
    at: datetime
    window: timedelta
    usage: Usage | None
    pods: Mapping[PodKey, PodReading]
    alarms: tuple[ContainerAlarm, ...] = ()

    def expires(self) -> datetime:
        """Return when it is too old to be served."""
        return self.at + max(KEPT_WINDOWS * self.window, SHORTEST_KEPT)


class Readings:
    """The newest reading of each node."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeReading] = {}
        self.heard: list[Callable[[NodeReading], None]] = []
        """Who wants to hear of every reading that is kept."""
        self._alarms: dict[str, NodeAlarms] = {}
        self.alarmed: list[Callable[[NodeAlarms, NodeAlarms | None], None]] = []
        """Who wants to hear of the alarms of a node: those there are, and those there were before."""

    def __len__(self) -> int:
        return len(self._nodes)

    def take(self, reading: NodeReading, *, now: datetime) -> bool:
        """Keep a reading unless a later one is there; return whether it was kept."""
        before = self._nodes.get(reading.node)
        if reading.expires() <= now or (before is not None and before.expires() > now and before.at > reading.at):
            return False
        self._nodes[reading.node] = reading
        for hear in self.heard:
            hear(reading)
        if reading.source == "agent":
            kept = reading.expires() - reading.at
            self.take_alarms(NodeAlarms(node=reading.node, at=reading.at, alarms=reading.alarms, kept=kept))
        return True

    def take_alarms(self, alarms: NodeAlarms) -> bool:
        """Keep the alarms of a node unless later ones are there; return whether they were kept."""
        before = self._alarms.get(alarms.node)
        if before is not None and before.at > alarms.at:
            return False
        if alarms.alarms:
            self._alarms[alarms.node] = alarms
        else:
            self._alarms.pop(alarms.node, None)
        if before is not None or alarms.alarms:
            for hear in self.alarmed:
                hear(alarms, before)
        return True

    def alarms(self, *, now: datetime) -> list[NodeAlarms]:
        """Return the alarms of all nodes that are new enough to act on."""
        return [one for one in self._alarms.values() if one.expires() > now]

    def node(self, name: str, *, now: datetime) -> NodeReading | None:
        """Return the reading of a node, if it is new enough."""
        found = self._nodes.get(name)
        return found if found is not None and found.expires() > now else None

    def live(self, *, now: datetime) -> list[NodeReading]:
        """Return all readings that are new enough."""
        return [reading for reading in self._nodes.values() if reading.expires() > now]

    def pod(self, node: str, key: PodKey, uid: str, *, now: datetime) -> PodReading | None:
        """Return the reading of a pod of a node; another pod of the same name has none yet."""
        reading = self.node(node, now=now)
        found = reading.pods.get(key) if reading is not None else None
        return found if found is not None and found.uid in ("", uid) else None

    def expire(self, nodes: Iterable[str], *, now: datetime) -> list[str]:
        """Forget nodes that are gone and readings that are too old; return the nodes that fell silent."""
        known = set(nodes)
        for name, alarms in list(self._alarms.items()):
            if alarms.expires() <= now or name not in known:
                del self._alarms[name]
                for hear in self.alarmed:
                    hear(NodeAlarms(node=name, at=alarms.at, alarms=()), alarms)
        silent = [name for name, reading in self._nodes.items() if name in known and reading.expires() <= now]
        self._nodes = {
            name: reading for name, reading in self._nodes.items() if name in known and reading.expires() > now
        }
        return silent
