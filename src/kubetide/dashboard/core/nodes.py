"""Nodes as rows: what they have, what is requested and used of it, what is overcommitted, and what their agents do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubetide.api.objects.core import Node, Pod
from kubetide.api.objects.meta import key_of
from kubetide.api.objects.resources import CPU, MEMORY
from kubetide.api.qos.qos import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from kubetide.dashboard.core.model import Judgement
from kubetide.dashboard.core.rows import TONES
from kubetide.verdicts.core.judge import about
from kubetide.verdicts.core.room import is_ready
from kubetide.verdicts.core.view import ClusterView, amounts, is_live

THROTTLED = 0.25
"""Share of CPU periods from which on a pod counts as throttled."""
_BATCH = {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY}
_MID = {CPU: MID_CPU, MEMORY: MID_MEMORY}
_SCALE = {CPU: 1000.0, MEMORY: 1.0}
"""Batch and mid CPU is counted in millicores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAmounts:
    """One resource of a node, in cores or bytes."""

    allocatable: float
    requested: float
    used: float | None
    batch: float = 0.0
    batch_requested: float = 0.0
    mid: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """What one QoS strategy of a node's agent did last."""

    name: str
    text: str
    evicted: int = 0
    failing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node."""

    name: str
    ready: bool
    pods: int
    cpu: NodeAmounts
    memory: NodeAmounts
    verdict: Judgement
    conditions: tuple[str, ...] = ()
    """What is not as it should be."""
    classes: Mapping[str, int] = field(default_factory=dict)
    """Pods by QoS class."""
    throttled: int | None = None
    strategies: tuple[Strategy, ...] = ()
    """Empty where its agent could not be asked."""


def node_rows(
    view: ClusterView,
    records: Mapping[str, Mapping[str, Any]] | None = None,
    statuses: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[NodeRow]:
    """Return a row for every node; `records` and `statuses` are what agents explain and report, by node."""
    by_node: dict[str, list[Pod]] = {}
    for pod in view.pods:
        if pod.spec.node_name and is_live(pod):
            by_node.setdefault(pod.spec.node_name, []).append(pod)
    reported = {metric.metadata.name: metric for metric in view.node_metrics}
    rows = []
    for node in view.nodes:
        name = node.metadata.name
        metric = reported.get(name)
        usage = metric.status.node_metric if metric is not None else None
        used = amounts(usage.node_usage.resources) if usage is not None else {}
        measured = {resource: used[resource].nanos / 1e9 for resource in (CPU, MEMORY) if resource in used}
        pods = by_node.get(name, [])
        record = (records or {}).get(name)
        finding = about(view, "node", key_of(node), record)[0]
        rows.append(
            NodeRow(
                name=name,
                ready=is_ready(node),
                pods=len(pods),
                cpu=_amounts(CPU, node, pods, measured, view),
                memory=_amounts(MEMORY, node, pods, measured, view),
                verdict=Judgement(tone=TONES[finding.severity], text=finding.line, remedy=finding.remedy),
                conditions=_conditions(node),
                classes=_classes(view, pods),
                throttled=_throttled((statuses or {}).get(name)),
                strategies=tuple(strategies(record or {})),
            )
        )
    return sorted(rows, key=lambda row: row.name)


def _amounts(
    resource: str, node: Node, pods: Sequence[Pod], measured: Mapping[str, float], view: ClusterView
) -> NodeAmounts:
    has = amounts(node.status.allocatable)
    sizes = [view.facts(pod).requests for pod in pods]

    def of(name: str, scale: float) -> float:
        return has[name].nanos / 1e9 / scale if name in has else 0.0

    def asked(name: str, scale: float) -> float:
        return sum(size[name].nanos for size in sizes if name in size) / 1e9 / scale

    known = [used[resource] for pod in pods if (used := view.used.get(key_of(pod))) is not None]
    of_pods = sum(known) if known or not pods else None
    scale = _SCALE[resource]
    return NodeAmounts(
        allocatable=of(resource, 1.0),
        requested=asked(resource, 1.0),
        used=measured.get(resource, of_pods),
        batch=of(_BATCH[resource], scale),
        batch_requested=asked(_BATCH[resource], scale),
        mid=of(_MID[resource], scale),
    )


def _conditions(node: Node) -> tuple[str, ...]:
    found = [
        condition.type for condition in node.status.conditions or () if condition.is_true != (condition.type == "Ready")
    ]
    return (*found, *(("Cordoned",) if node.spec.unschedulable else ()))


def _classes(view: ClusterView, pods: Sequence[Pod]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for pod in pods:
        name = view.facts(pod).qos
        counted[name] = counted.get(name, 0) + 1
    return dict(sorted(counted.items()))


def _throttled(status: Mapping[str, Any] | None) -> int | None:
    if status is None:
        return None
    return sum(bool((pod.get("throttled") or 0.0) > THROTTLED) for pod in status.get("pods") or ())


def evictions(audit: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return what an agent's audit log tells of evictions, in its order: the only pods among its weightiest entries."""
    return [each for each in audit if each.get("level") == 0 and each.get("type") == "pod"]


def strategies(record: Mapping[str, Any]) -> list[Strategy]:
    """Return what the strategies of an agent did last, those that did nothing at the end."""
    acting = record.get("qos") or {}
    failing = acting.get("failing") or {}
    found = []
    for name, last in (acting.get("strategies") or {}).items():
        text = str(last.get("reason") or last.get("skipped") or last.get("policy") or "")
        found.append(
            Strategy(
                name=name,
                text=text or f"{last.get('writes', 0)} values kept",
                evicted=len(last.get("evicted") or ()),
                failing=str(failing.get(name, "")),
            )
        )
    return sorted(found, key=lambda one: (not one.failing, not one.evicted, one.name))
