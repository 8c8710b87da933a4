"""The whole cluster on one page: what is requested, used and recommended, what is overcommitted, and what is wrong."""

from collections.abc import Sequence
from dataclasses import dataclass

from kubetide.api.objects.resources import CPU, MEMORY
from kubetide.dashboard.core.model import Tone, Workload
from kubetide.dashboard.core.nodes import NodeRow
from kubetide.dashboard.core.throttling import NOBODY_ASKED, Throttled
from kubetide.recommend.core.money import HOURS, Price
from kubetide.verdicts.core.verdict import Finding, Severity
from kubetide.verdicts.core.view import ClusterView

MOST_FINDINGS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One resource of the whole cluster, in cores or bytes; None where it is not known."""

    resource: str
    allocatable: float | None
    requested: float
    used: float | None
    recommended: float
    """With what is requested where nothing is recommended."""
    batch: float = 0.0
    """Overcommitted for batch work, in the same unit."""
    batch_requested: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Something worth counting, how many there are, and which search shows them."""

    label: str
    count: int | None
    """None where it is not known."""
    tone: Tone
    search: str = ""
    note: str = ""
    why: str = ""
    """Where the count comes from, or why it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What would be free if every workload requested what is recommended for it; negative where more is needed."""

    cpu: float
    memory: float
    monthly: float | None
    """None without prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A verdict with its remedy."""

    severity: str
    tone: Tone
    kind: str
    subject: str
    text: str
    remedy: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The page."""

    workloads: int
    pods: int
    nodes: int | None
    hpas: int | None
    vpas: int | None
    totals: tuple[Total, Total]
    counts: tuple[Count, ...]
    savings: Savings
    problems: tuple[Problem, ...]
    more_problems: int
    unreadable: tuple[tuple[str, str], ...]


_COUNTED: Sequence[tuple[str, tuple[str, ...], Tone, str]] = (
    ("Autoscalers at their maximum", ("hpa-at-max",), "warn", "is:max"),
    ("Recommendations capped", ("vpa-capped",), "warn", "capped"),
    ("Updates paused", ("vpa-paused",), "warn", "paused"),
    (
        "Conflicts",
        ("hpa-vpa-conflict", "vpa-hpa-conflict", "hpa-two-on-target", "vpa-two-on-target", "hpa-two-controllers"),
        "bad",
        "conflict",
    ),
)


def overview(
    view: ClusterView,
    rows: Sequence[Workload],
    nodes: Sequence[NodeRow],
    findings: Sequence[Finding],
    *,
    price: Price | None = None,
    throttled: Throttled = NOBODY_ASKED,
) -> Overview:
    """Return the page."""
    cpu, memory = (_total(resource, view, rows, nodes) for resource in (CPU, MEMORY))
    shown = [finding for finding in findings if finding.severity is not Severity.NOTE]
    return Overview(
        workloads=len(rows),
        pods=sum(row.ready for row in rows),
        nodes=None if "nodes" in view.unreadable or not view.whole else len(view.nodes),
        hpas=_known(view, "horizontalpodautoscalers.autoscaling", len(view.hpas)),
        vpas=_known(view, "verticalpodautoscalers.autoscaling.k8s.io", len(view.vpas)),
        totals=(cpu, memory),
        counts=(*_counts(view, findings), _kills(view, rows), _throttling(throttled)),
        savings=savings(rows, price),
        problems=tuple(problem(finding) for finding in shown[:MOST_FINDINGS]),
        more_problems=max(0, len(shown) - MOST_FINDINGS),
        unreadable=tuple(view.unreadable.items()),
    )


def problem(finding: Finding) -> Problem:
    """Return a finding as a page shows it."""
    from kubetide.dashboard.core.rows import TONES

    return Problem(
        severity=finding.severity.value,
        tone=TONES[finding.severity],
        kind=finding.kind,
        subject=str(finding.key) if finding.key.name else "",
        text=finding.line,
        remedy=finding.remedy,
        id=finding.verdict.id,
    )


def savings(rows: Sequence[Workload], price: Price | None) -> Savings:
    """Return what the recommendations of all workloads would free."""
    cpu = sum(row.cpu.asked - row.cpu.recommended for row in rows if row.cpu.recommended is not None)
    memory = sum(row.memory.asked - row.memory.recommended for row in rows if row.memory.recommended is not None)
    monthly = None if price is None else HOURS * (price.core * cpu + price.gib * memory / 2**30)
    return Savings(cpu=cpu, memory=memory, monthly=monthly)


def _known(view: ClusterView, resource: str, count: int) -> int | None:
    return None if resource in view.unreadable else count


def _total(resource: str, view: ClusterView, rows: Sequence[Workload], nodes: Sequence[NodeRow]) -> Total:
    amounts = [row.cpu if resource == CPU else row.memory for row in rows]
    measured = [each.used for each in amounts if each.used is not None]
    of_nodes = [node.cpu if resource == CPU else node.memory for node in nodes]
    return Total(
        resource=resource,
        allocatable=sum(each.allocatable for each in of_nodes) if of_nodes else None,
        requested=sum(each.asked for each in amounts),
        used=sum(measured) if measured else None,
        recommended=sum(each.asked if each.recommended is None else each.recommended for each in amounts),
        batch=sum(each.batch for each in of_nodes),
        batch_requested=sum(each.batch_requested for each in of_nodes),
    )


def _counts(view: ClusterView, findings: Sequence[Finding]) -> list[Count]:
    counted = []
    missing = {"horizontalpodautoscalers.autoscaling", "verticalpodautoscalers.autoscaling.k8s.io"} & set(
        view.unreadable
    )
    for label, ids, tone, search in _COUNTED:
        objects = {finding.key for finding in findings if finding.verdict.id in ids}
        known = None if missing and not objects else len(objects)
        counted.append(Count(label=label, count=known, tone=tone if objects else "good", search=search))
    return counted


def _kills(view: ClusterView, rows: Sequence[Workload]) -> Count:
    if "pods" in view.unreadable:
        return Count(label="OOM kills", count=None, tone="warn", note="pods cannot be read")
    count = sum(row.oom_kills for row in rows)
    return Count(
        label="OOM kills", count=count, tone="bad" if count else "good", search="is:oom", note="pods, within the hour"
    )


def _throttling(throttled: Throttled) -> Count:
    if throttled.pods is None:
        return Count(label="Throttled pods", count=None, tone="plain", note="nobody reports it", why=throttled.unknown)
    return Count(
        label="Throttled pods",
        count=throttled.pods,
        tone="warn" if throttled.pods else "good",
        note="in more than a quarter of their CPU periods",
        why=f"from {throttled.source}",
    )
