"""Whether a node runs pods, is short of something, and has an agent that reports."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from kubetide.api.objects.core import Node
from kubetide.api.objects.meta import key_of
from kubetide.api.objects.resources import CPU, MEMORY
from kubetide.api.values.conditions import find_condition
from kubetide.api.values.quantity import ZERO
from kubetide.verdicts.core.finding import age, found
from kubetide.verdicts.core.room import is_ready
from kubetide.verdicts.core.verdict import Finding, Severity
from kubetide.verdicts.core.view import ClusterView, amounts

KIND = "node"
REPORT_TOO_OLD = timedelta(minutes=15)
"""The default of the colocation strategy's degradeTimeMinutes."""

_PRESSURES = {
    "MemoryPressure": ("memory runs out", "memory"),
    "DiskPressure": ("disk space runs out", "memory"),
    "PIDPressure": ("process ids run out", "cpu"),
}
Record = Mapping[str, Any]


def judge_node(view: ClusterView, node: Node, record: Record | None = None) -> list[Finding]:
    """Return what there is to say about a node; `record` is what its agent and the SLO controller explain."""
    findings = [*_about_conditions(node), *_about_agent(view, node), *_about_strategies(node, record or {})]
    if node.spec.unschedulable:
        findings.append(found("node-cordoned", KIND, key_of(node)))
    if not any(finding.severity is not Severity.NOTE for finding in findings):
        findings.append(found("node-ok", KIND, key_of(node), detail=_shares(view, node)))
    return findings


def _about_conditions(node: Node) -> Iterator[Finding]:
    if not is_ready(node):
        ready = find_condition(node.status.conditions, "Ready")
        message = (ready.message or ready.reason) if ready is not None else ""
        yield found("node-not-ready", KIND, key_of(node), message=message or "the kubelet has not reported")
    for condition in node.status.conditions or ():
        if condition.type in _PRESSURES and condition.is_true:
            text, sort = _PRESSURES[condition.type]
            yield found("node-pressure", KIND, key_of(node), condition=text, sort=sort)


def _about_agent(view: ClusterView, node: Node) -> Iterator[Finding]:
    metric = view.reports.get(node.metadata.name)
    reported = metric.status.update_time if metric is not None else None
    if reported is not None and view.now - reported > REPORT_TOO_OLD:
        yield found("node-report-stale", KIND, key_of(node), age=age(reported, view.now))


def _about_strategies(node: Node, record: Record) -> Iterator[Finding]:
    acting = record.get("qos")
    failing = acting.get("failing") if isinstance(acting, dict) else None
    for name, message in (failing or {}).items():
        yield found("node-strategy-failing", KIND, key_of(node), strategy=name, message=message)


def _shares(view: ClusterView, node: Node) -> str:
    """Return how much of the node is requested."""
    has = amounts(node.status.allocatable)
    if not view.whole:
        return "an unknown part of it: pods of other namespaces were not read"
    free = view.free.get(node.metadata.name, {})
    parts = [
        f"{1 - free.get(name, ZERO).nanos / has[name].nanos:.0%} of its {name}"
        for name in (CPU, MEMORY)
        if has.get(name, ZERO)
    ]
    return " and ".join(parts) or "nothing: it reports no capacity"
