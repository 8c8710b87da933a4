"""What a strategy is: a name, an interval, and a decision from a snapshot to a plan.

Strategies own their memory between rounds (cooling times, token buckets) but never touch the machine: they return a
plan and the agent applies it. A strategy that needs to undo something when the agent stops says so in `release`.
"""

from datetime import timedelta
from typing import Protocol, runtime_checkable

from kubetide.node.executor.plan import Plan
from kubetide.node.snapshot import Snapshot


class Strategy(Protocol):
    """One QoS rule, run at its own interval."""

    @property
    def name(self) -> str:
        """Name in logs, telemetry and `explain`."""
        ...

    @property
    def interval(self) -> timedelta:
        """Time between the end of one round and the next; zero or less switches the strategy off."""
        ...

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return what should be written and who should leave."""
        ...


@runtime_checkable
class Releasing(Protocol):
    """A strategy whose values would hurt without the agent."""

    def release(self, snapshot: Snapshot) -> Plan:
        """Return the writes that leave the node safe when the agent stops."""
        ...
