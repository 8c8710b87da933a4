"""The whole judgement: every object of a view, or one of them with all that belongs to it.

rows(view)                       what `doctor` lists: every object that is not fine, worst first
about(view, "hpa", key, record)  what `explain` opens with: the verdict, then what else there is to say
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.objects.apps import PodDisruptionBudget
from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import HasMetadata, ObjectKey, key_of
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.verdicts.core.budgets import judge_pdb
from kubetide.verdicts.core.finding import found
from kubetide.verdicts.core.hpas import judge_hpa
from kubetide.verdicts.core.nodes import judge_node
from kubetide.verdicts.core.pods import judge_pod, troubles_of
from kubetide.verdicts.core.verdict import Finding, Severity, worst_first
from kubetide.verdicts.core.view import KIND_WORDS, ClusterView, Family, Workload, WorkloadKey
from kubetide.verdicts.core.vpas import judge_vpa
from kubetide.verdicts.core.webhook import judge_webhook
from kubetide.verdicts.core.workloads import judge_workload, kind_of

Record = Mapping[str, Any]

_APPS = ("deployments.apps", "statefulsets.apps")
NEEDS: Mapping[str, tuple[str, ...]] = {
    "hpa": ("horizontalpodautoscalers.autoscaling", "pods", "pods.metrics.k8s.io", *_APPS),
    "vpa": ("verticalpodautoscalers.autoscaling.k8s.io", "pods", "leases.coordination.k8s.io", *_APPS),
    "pdb": ("poddisruptionbudgets.policy", "pods"),
    "pod": ("pods", "nodes"),
    "node": ("nodes", "pods"),
    "deploy": ("deployments.apps", "pods", "nodes", "resourcequotas"),
    "statefulset": ("statefulsets.apps", "pods", "nodes", "resourcequotas"),
    "daemonset": ("daemonsets.apps", "pods"),
}
"""What has to be readable before an object of a kind may be called fine."""


STANDS = timedelta(seconds=30)
"""For so long a judgement of unchanged objects stands, though room on nodes, usage and ages go on changing."""

_ORDER = ("cluster", "hpa", "vpa", "pdb", *KIND_WORDS.values(), "node", "pod", "webhook")
"""Of findings that weigh the same."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found in one family, and in which objects."""

    family: Family
    findings: list[Finding]
    at: datetime


def rows(view: ClusterView) -> list[Finding]:
    """Return everything that is not fine in a view, worst first; what is fine is left out."""
    return together(view, judge_families(view))


def judge_families(
    view: ClusterView, before: Mapping[WorkloadKey, Judged] | None = None, *, stands: timedelta = STANDS
) -> dict[WorkloadKey, Judged]:
    """Return what is not fine with every workload, its autoscalers and its pods.

    What was found `before`, not long ago, in the very same objects stands.
    """
    known = before or {}
    judged: dict[WorkloadKey, Judged] = {}
    for key, family in view.families.items():
        last = known.get(key)
        if last is None or view.now - last.at >= stands or not last.family.is_same(family):
            last = Judged(family, _in_family(view, family), view.now)
        judged[key] = last
    return judged


def together(view: ClusterView, judged: Mapping[WorkloadKey, Judged]) -> list[Finding]:
    """Return these findings and those about budgets, nodes and the cluster as one list, worst first."""
    listed: list[Finding] = [
        found("unreadable", "cluster", ObjectKey("", ""), resource=resource, message=message)
        for resource, message in sorted(view.unreadable.items())
    ]
    for each in judged.values():
        listed += each.findings
    for pdb in view.pdbs:
        listed += judge_pdb(view, pdb)
    for node in view.nodes:
        listed += judge_node(view, node)
    listed += judge_webhook(view)
    kept = [finding for finding in listed if finding.severity is not Severity.OK]
    return worst_first(sorted(kept, key=lambda finding: _ORDER.index(finding.kind)))


def _in_family(view: ClusterView, family: Family) -> list[Finding]:
    listed: list[Finding] = []
    for hpa in family.hpas:
        listed += judge_hpa(view, hpa)
    for vpa in family.vpas:
        listed += judge_vpa(view, vpa)
    for workload in family.workloads:
        listed += judge_workload(view, workload)
    listed += _of_pods(view, family.pods)
    return [finding for finding in listed if finding.severity is not Severity.OK]


def _of_pods(view: ClusterView, pods: Iterable[Pod]) -> list[Finding]:
    """Return what is wrong with pods; of the pods of one workload that have the same trouble, one."""
    groups: dict[tuple[str, object], list[Finding]] = {}
    for pod in pods:
        for finding in troubles_of(view, pod):
            if finding.severity.is_problem:
                groups.setdefault((finding.verdict.id, view.facts(pod).owner or key_of(pod)), []).append(finding)
    return [_with_more(group) for group in groups.values()]


def _with_more(group: list[Finding]) -> Finding:
    first = group[0]
    return Finding(verdict=first.verdict, kind=first.kind, key=first.key, values=first.values, more=len(group) - 1)


def about(view: ClusterView, kind: str, key: ObjectKey, record: Record | None = None) -> list[Finding]:
    """Return what there is to say about one object, worst first; the first finding is its verdict.

    An object that was not read, or that is fine as far as could be read, is unknown.
    """
    judge = _JUDGES.get(kind)
    findings = worst_first(judge(view, key, record)) if judge is not None else []
    missing = [resource for resource in NEEDS.get(kind, ()) if resource in view.unreadable]
    if missing and not any(finding.severity.is_problem for finding in findings):
        unknown = [
            found("unreadable", kind, key, resource=resource, message=view.unreadable[resource]) for resource in missing
        ]
        return [*unknown, *(finding for finding in findings if finding.severity is not Severity.OK)]
    return findings


def _hpa(view: ClusterView, key: ObjectKey, record: Record | None) -> list[Finding]:
    hpa = _named(view.hpas, key)
    return [] if hpa is None else judge_hpa(view, hpa, record)


def _vpa(view: ClusterView, key: ObjectKey, record: Record | None) -> list[Finding]:
    vpa = _named(view.vpas, key)
    return [] if vpa is None else judge_vpa(view, vpa)


def _pod(view: ClusterView, key: ObjectKey, record: Record | None) -> list[Finding]:
    pod = _named(view.pods, key)
    return [] if pod is None else judge_pod(view, pod, record)


def _node(view: ClusterView, key: ObjectKey, record: Record | None) -> list[Finding]:
    node = view.nodes_by_name.get(key.name)
    return [] if node is None else judge_node(view, node, record)


def _workload(kind: str) -> Callable[[ClusterView, ObjectKey, Record | None], list[Finding]]:
    def judge(view: ClusterView, key: ObjectKey, record: Record | None) -> list[Finding]:
        """Join what is said about the workload with what is said about all that belongs to it."""
        workload = view.workloads.get((kind, key))
        if workload is None:
            return []
        parts = parts_of(view, workload)
        findings = judge_workload(view, workload)
        for hpa in parts.hpas:
            findings += judge_hpa(view, hpa)
        for vpa in parts.vpas:
            findings += judge_vpa(view, vpa)
        for pdb in parts.pdbs:
            findings += judge_pdb(view, pdb)
        findings += _of_pods(view, view.pods_of(kind, key))
        kept = [finding for finding in findings if finding.severity is not Severity.OK]
        return kept or findings[:1]

    return judge


@dataclass(frozen=True, slots=True)
class Parts:
    """What belongs to one workload."""

    hpas: list[HorizontalPodAutoscaler]
    vpas: list[VerticalPodAutoscaler]
    pdbs: list[PodDisruptionBudget]


def parts_of(view: ClusterView, workload: Workload) -> Parts:
    """Return the autoscalers and budgets of a workload."""
    kind, key = kind_of(workload), key_of(workload)
    near, family = view.near(key.namespace), view.family((kind, key))
    pdbs = [pdb for pod in view.pods_of(kind, key) for pdb in near.selecting_pdbs.those(pod.metadata.labels)]
    return Parts(family.hpas, family.vpas, list({pdb.metadata.name: pdb for pdb in pdbs}.values()))


def _named(items: Iterable[Any], key: ObjectKey) -> Any:
    return next((item for item in items if _is(item, key)), None)


def _is(item: HasMetadata, key: ObjectKey) -> bool:
    return (item.metadata.namespace, item.metadata.name) == (key.namespace, key.name)


_JUDGES: Mapping[str, Callable[[ClusterView, ObjectKey, Record | None], list[Finding]]] = {
    "hpa": _hpa,
    "vpa": _vpa,
    "pod": _pod,
    "node": _node,
    **{word: _workload(kind) for kind, word in KIND_WORDS.items()},
}
