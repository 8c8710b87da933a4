"""What a strategy is: a name, an interval, and a decision from a snapshot to a plan.

A strategy never touches the machine. What it looks at in the kernel it names in `needs`; the agent reads that, lets
it `decide`, writes the plan and hands the outcome of every write to `applied`:

    needs(snapshot) -> decide(snapshot with kernel values) -> the agent writes -> applied(plan, outcomes)

Its memory between syncs is its own. What it believes to be in force in the kernel it learns from values that were
read and from outcomes, never from its own plan: a write may fail, and the next decision must know that it did.

Only `name`, `interval` and `decide` are required. The others are for strategies that look, remember, rest or undo.
"""

from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from kubetide.api.qos.slo_strategies import ResourceThresholdStrategy
from kubetide.node.core.kernel_values import Needs
from kubetide.node.core.outcomes import Outcomes
from kubetide.node.core.plan import Plan
from kubetide.node.core.snapshot import Snapshot


class Strategy(Protocol):
    """One QoS rule, run at its own interval."""

    @property
    def name(self) -> str:
        """Name in logs, telemetry and `explain`."""
        ...

    @property
    def interval(self) -> timedelta:
        """Time from the start of one sync to the next; zero or less switches the strategy off."""
        ...

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return what should be written and who should leave."""
        ...


@runtime_checkable
class Gated(Protocol):
    """A strategy behind a feature gate."""

    @property
    def gate(self) -> str:
        """Name of the gate."""
        ...


@runtime_checkable
class Observing(Protocol):
    """A strategy that looks at kernel values."""

    def needs(self, snapshot: Snapshot) -> Needs:
        """Return what `decide` and `release` look at; the snapshot has everything but kernel values."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A strategy that remembers what is in force."""

    def applied(self, plan: Plan, outcomes: Outcomes) -> None:
        """Learn what became of the writes of a plan, that of `release` included."""
        ...


@runtime_checkable
class Cooling(Protocol):
    """A strategy that rests after an accepted eviction."""

    def evicted(self, now: datetime) -> None:
        """Begin to rest."""
        ...


@runtime_checkable
class Releasing(Protocol):
    """A strategy whose values would hurt without the agent."""

    def release(self, snapshot: Snapshot) -> Plan:
        """Return the writes that leave the node safe when the agent stops."""
        ...


def threshold_of(snapshot: Snapshot) -> ResourceThresholdStrategy | None:
    """Return the threshold block, the switch of suppression and evictions; None while it is unknown.

    Only an explicit `false` takes back what was done: forgetting a setting must not lift every limit of a busy node.
    """
    block = snapshot.slo.resource_used_threshold_with_be if snapshot.slo else None
    return block if block is not None and block.enable is not None else None


def skipped(reason: str) -> Plan:
    """Return a plan that changes nothing and says why."""
    return Plan(trace={"skipped": reason})
