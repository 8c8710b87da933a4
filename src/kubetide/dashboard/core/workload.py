"""One workload on one page: its pods and containers, every decision about it with the reason, and what to do."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from kubetide.api.objects.core import Pod, PodTemplate
from kubetide.api.objects.meta import key_of
from kubetide.api.objects.resources import CPU, MEMORY
from kubetide.api.objects.vpa import ContainerRecommendation, VerticalPodAutoscaler
from kubetide.api.values.conditions import is_true
from kubetide.dashboard.core.model import Entry, Workload
from kubetide.dashboard.core.overview import Problem, problem
from kubetide.recommend.core.workloads import Container, Sizes, sizes
from kubetide.recommend.core.workloads import Workload as Sized
from kubetide.verdicts.core.judge import about, parts_of
from kubetide.verdicts.core.view import KIND_WORDS, ClusterView, WorkloadKey, requests_of, template_of

_API_VERSION = "apps/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRow:
    """One container: what it requests, may use, and should request."""

    name: str
    requests: Sizes
    limits: Sizes
    target: Sizes
    lower: Sizes
    upper: Sizes
    uncapped: Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRow:
    """One pod."""

    name: str
    node: str
    phase: str
    ready: bool
    restarts: int
    cpu_used: float | None
    cpu_requested: float
    memory_used: float | None
    memory_requested: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided, why, and how often in a row."""

    at: str
    text: str
    why: str
    wrote: bool
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What a running controller reports about an object, or why nothing is known."""

    kind: str
    name: str
    lines: tuple[str, ...] = ()
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPage:
    """The page."""

    row: Workload
    problems: tuple[Problem, ...]
    containers: tuple[ContainerRow, ...]
    pods: tuple[PodRow, ...]
    decisions: tuple[Decision, ...]
    log: tuple[Entry, ...]
    events: tuple[Mapping[str, str], ...]
    explained: tuple[Explained, ...]


def workload_page(
    view: ClusterView,
    row: Workload,
    key: WorkloadKey,
    *,
    log: Sequence[Entry] = (),
    traces: Mapping[str, Mapping[str, Any]] | None = None,
    explained: Sequence[Explained] = (),
    events: Sequence[Mapping[str, str]] = (),
) -> WorkloadPage:
    """Return the page of a workload that is in the view; `traces` are what controllers explain, by kind."""
    kind, name = key
    workload = view.workloads[key]
    vpa = next(iter(parts_of(view, workload).vpas), None)
    findings = about(view, KIND_WORDS[kind], name)
    return WorkloadPage(
        row=row,
        problems=tuple(problem(finding) for finding in findings),
        containers=tuple(_containers(template_of(workload), vpa)),
        pods=tuple(_pod(view, pod) for pod in sorted(view.pods_of(kind, name), key=lambda one: one.metadata.name)),
        decisions=tuple(decisions((traces or {}).get("hpa") or {})),
        log=tuple(entry for entry in reversed(log) if entry.workload == row.key),
        events=tuple(reversed(events)),
        explained=tuple(explained),
    )


def decisions(trace: Mapping[str, Any]) -> list[Decision]:
    """Return the last decisions of an autoscaler, newest first, equal ones as one."""
    found = []
    for line in reversed(trace.get("history") or ()):
        current, desired = line.get("current"), line.get("desired")
        text = f"{current} → {desired} replicas" if current != desired else f"stays at {desired}"
        why, rule = str(line.get("problem") or line.get("why") or ""), str(line.get("rule") or "")
        said = f"{why} ({rule})" if why and rule else why or rule
        found.append(Decision(at=str(line.get("at")), text=text, why=said, wrote=bool(line.get("wrote"))))
    return [
        replace(first, times=len(same))
        for _, group in groupby(found, key=lambda one: (one.text, one.why, one.wrote))
        if (first := (same := list(group))[0])
    ]


def scalings(decided: Sequence[Decision], log: Sequence[Entry]) -> dict[float, str]:
    """Return when its count was changed and why: what its controller still knows, and before that what was seen."""
    told: dict[float, Decision] = {}
    for each in decided:
        with suppress(ValueError):  # a trace without a time has no place on the axis
            told[datetime.fromisoformat(each.at).timestamp()] = each
    known = min(told, default=float("inf"))
    seen = {each.at.timestamp(): each.text for each in log if "replicas" in each.text and each.at.timestamp() < known}
    written = {at: f"{each.text}: {each.why}" for at, each in told.items() if each.wrote}
    return dict(sorted({**seen, **written}.items()))


def sized_workload(view: ClusterView, key: WorkloadKey, *, utilization: Mapping[str, int] | None = None) -> Sized:
    """Return a workload as reports and what-ifs size it."""
    kind, name = key
    pods = view.pods_of(kind, name)
    return Sized(
        api_version=_API_VERSION,
        kind=kind,
        namespace=name.namespace,
        name=name.name,
        replicas=len(pods),
        containers=tuple(
            Container(row.name, row.requests, row.limits) for row in _containers(template_of(view.workloads[key]), None)
        ),
        pods=frozenset(pod.metadata.name for pod in pods),
        nodes=frozenset(pod.spec.node_name for pod in pods if pod.spec.node_name),
        utilization=utilization or {},
    )


def _containers(template: PodTemplate, vpa: VerticalPodAutoscaler | None) -> list[ContainerRow]:
    status = vpa.status if vpa is not None else None
    given = status.recommendation if status is not None else None
    best = {one.container_name: one for one in (given.container_recommendations if given is not None else None) or ()}
    found = []
    for one in template.spec.containers or ():
        resources, recommendation = one.resources, best.get(one.name, ContainerRecommendation())
        found.append(
            ContainerRow(
                name=one.name,
                requests=sizes(resources.requests if resources is not None else None),
                limits=sizes(resources.limits if resources is not None else None),
                target=sizes(recommendation.target),
                lower=sizes(recommendation.lower_bound),
                upper=sizes(recommendation.upper_bound),
                uncapped=sizes(recommendation.uncapped_target),
            )
        )
    return found


def _pod(view: ClusterView, pod: Pod) -> PodRow:
    used, size = view.used.get(key_of(pod)), requests_of(pod)
    return PodRow(
        name=pod.metadata.name,
        node=pod.spec.node_name or "",
        phase=pod.status.phase,
        ready=is_true(pod.status.conditions, "Ready"),
        restarts=sum(one.restart_count for one in pod.status.container_statuses or ()),
        cpu_used=None if used is None else used[CPU],
        cpu_requested=size[CPU].nanos / 1e9 if CPU in size else 0.0,
        memory_used=None if used is None else used[MEMORY],
        memory_requested=size[MEMORY].nanos / 1e9 if MEMORY in size else 0.0,
    )
