"""The read model of a cluster at one moment: everything a screen or a page shows, as plain values.

Whoever has a cluster fills it in: the demo from its simulation, the dashboard and `kubetide top` from what they read
(`rows`). Nothing in it refers back to the cluster, so showing it can change nothing.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

Tone = Literal["plain", "good", "warn", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How a workload is doing, and what to do about it."""

    tone: Tone
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Used, asked for and recommended, in one unit; None where it is not known, or nothing is recommended."""

    used: float | None = 0.0
    asked: float = 0.0
    recommended: float | None = None


NOTHING = Amounts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One workload."""

    namespace: str
    name: str
    ready: int
    pods: int
    bounds: tuple[int, int] | None = None
    """The least and the most replicas that its autoscaler may give it."""
    usage: str = ""
    """What its autoscaler looks at: the metric, its value and its target."""
    rate: float = 0.0
    latency: float = 0.0
    cpu: Amounts = NOTHING
    memory: Amounts = NOTHING
    trend: tuple[float, ...] = ()
    """Cores used, oldest first."""
    restarts: int = 0
    oom_kills: int = 0
    """Containers whose last end was an OOM kill within the hour."""
    verdict: Judgement
    kind: str = "Deployment"
    hpa: str = ""
    vpa: str = ""
    mode: str = ""
    """The update mode of its VPA."""
    load: tuple[float, float] | None = None
    """What its autoscaler looks at as two numbers: the value and the target."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node: what it has, what is asked for and used of it, and what it overcommits for batch work. In cores."""

    name: str
    ready: bool
    pods: int
    cpu: float
    asked: float
    used: float
    batch: float = 0.0
    batch_asked: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """A scenario event that is going on, or has just happened."""

    at: datetime
    text: str
    left: timedelta | None = None
    """How long it will go on."""
    tone: Tone = "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change: when, what it is about, what happened and why."""

    at: datetime
    subject: str
    text: str
    tone: Tone = "plain"
    workload: str = ""


Filter = Literal["all", "problems", "workload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All of it."""

    title: str
    start: datetime
    now: datetime
    end: datetime
    pace: str
    workloads: tuple[Workload, ...] = ()
    nodes: tuple[Node, ...] = ()
    banners: tuple[Banner, ...] = ()
    log: tuple[Entry, ...] = ()
    """Oldest first."""
    selected: int | None = None
    """The workload whose explanation is shown; None shows all of them."""
    explanation: tuple[str, ...] = ()
    filter: Filter = "all"
    keys: str = ""

    @property
    def progress(self) -> float:
        """The share of the time that is over."""
        whole = (self.end - self.start).total_seconds()
        return min(1.0, max(0.0, (self.now - self.start).total_seconds() / whole)) if whole > 0 else 1.0
