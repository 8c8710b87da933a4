"""Whether best-effort work is managed at all: one switch for suppression and both evictions.

A missing NodeSLO or a missing switch is "unknown" and changes nothing; only an explicit `false` takes back what was
done. Forgetting a setting must not lift every limit of a busy node.
"""

from kubetide.api.qos.slo_strategies import ResourceThresholdStrategy
from kubetide.node.core.plan import Plan
from kubetide.node.core.snapshot import Snapshot


def threshold_of(snapshot: Snapshot) -> ResourceThresholdStrategy | None:
    """Return the threshold block, None while its switch is unknown."""
    block = snapshot.slo.resource_used_threshold_with_be if snapshot.slo else None
    return block if block is not None and block.enable is not None else None


def skipped(reason: str) -> Plan:
    """Return a plan that changes nothing and says why."""
    return Plan(trace={"skipped": reason})
