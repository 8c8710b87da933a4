"""What follows from a cluster as it was read: findings, rows of workloads and nodes.

Of a large cluster little changes from one look to the next. Objects that did not change are the same objects, so a
workload is judged again only if it, its autoscalers or its pods are others, or its last judgement is half a minute old;
its row is made again if it was judged again, or its usage, its budget or its trend moved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubetide.api.objects.meta import key_of
from kubetide.api.objects.metrics import PodMetrics
from kubetide.dashboard.core.model import Workload
from kubetide.dashboard.core.nodes import NodeRow, node_rows
from kubetide.dashboard.core.rows import concerning_budgets, workload_row
from kubetide.verdicts.core.judge import Judged, judge_families, together
from kubetide.verdicts.core.verdict import Finding
from kubetide.verdicts.core.view import ClusterView, WorkloadKey
from kubetide.verdicts.core.webhook import webhook_problem

Trends = Mapping[WorkloadKey, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Basis:
    """A row, and all that it was made of."""

    row: Workload
    judged: Judged
    budgets: Sequence[Finding]
    usage: Sequence[PodMetrics | None]
    trend: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All that follows from one view."""

    view: ClusterView
    rows: list[Workload]
    nodes: list[NodeRow]
    findings: list[Finding]
    judged: Mapping[WorkloadKey, Judged]
    bases: Mapping[WorkloadKey, Basis]


def results(view: ClusterView, trends: Trends | None = None, before: Results | None = None) -> Results:
    """Return what follows from a view; `before` is what followed from the last one, `trends` what was used lately."""
    last = before if before is not None and _same_conditions(before.view, view) else None
    judged = judge_families(view, None if last is None else last.judged)
    findings = together(view, judged)
    budgets = concerning_budgets(view, findings)
    bases: dict[WorkloadKey, Basis] = {}
    for key in view.workloads:
        known = None if last is None else last.bases.get(key)
        own, about, trend = judged[key], budgets.get(key, ()), (trends or {}).get(key, ())
        usage = [view.usage.get(key_of(pod)) for pod in own.family.pods]
        if known is None or known.judged is not own or (known.budgets, known.usage, known.trend) != (
            about, usage, trend,
        ):  # fmt: skip
            known = Basis(workload_row(view, key, [*own.findings, *about], trend), own, about, usage, trend)
        bases[key] = known
    return Results(
        view=view,
        rows=[basis.row for basis in bases.values()],
        nodes=node_rows(view),
        findings=findings,
        judged=judged,
        bases=bases,
    )


def _same_conditions(before: ClusterView, view: ClusterView) -> bool:
    """Return whether what was found in one view may hold in another: as much could be read, pods are sized alike."""

    def of(each: ClusterView) -> tuple[object, ...]:
        return each.absent, each.unreadable, each.whole, webhook_problem(each)

    return of(before) == of(view)
