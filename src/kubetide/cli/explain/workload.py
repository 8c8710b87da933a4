"""How `kubetide explain deploy` shows a workload: its pods, its autoscalers, its budgets and the room for more."""

from typing import Any

from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.values.conditions import is_true
from kubetide.verdicts.core.budgets import judge_pdb
from kubetide.verdicts.core.hpas import judge_hpa
from kubetide.verdicts.core.judge import parts_of
from kubetide.verdicts.core.room import shown_list
from kubetide.verdicts.core.verdict import Finding, worst_first
from kubetide.verdicts.core.view import ClusterView, requests_of
from kubetide.verdicts.core.vpas import judge_vpa
from kubetide.verdicts.core.workloads import next_pod


def workload_trace(view: ClusterView, kind: str, key: ObjectKey) -> dict[str, Any]:
    """Return what is known about a workload and all that belongs to it."""
    workload = view.workloads[kind, key]
    parts, pods = parts_of(view, workload), view.pods_of(kind, key)
    room = next_pod(view, workload)
    return {
        "kind": kind,
        "namespace": key.namespace,
        "name": key.name,
        "replicas": getattr(workload.spec, "replicas", None),
        "pods": [
            {
                "name": pod.metadata.name,
                "node": pod.spec.node_name,
                "ready": is_true(pod.status.conditions, "Ready"),
                "requests": shown_list(requests_of(pod)),
            }
            for pod in sorted(pods, key=lambda pod: pod.metadata.name)
        ],
        "hpas": [_row(worst_first(judge_hpa(view, hpa)), key_of(hpa)) for hpa in parts.hpas],
        "vpas": [_row(worst_first(judge_vpa(view, vpa)), key_of(vpa)) for vpa in parts.vpas],
        "pdbs": [_row(worst_first(judge_pdb(view, pdb)), key_of(pdb)) for pdb in parts.pdbs],
        "room": None
        if room is None
        else {"needs": shown_list(room.needs), "copies": room.copies, "shortage": room.shortage},
    }


def _row(findings: list[Finding], key: ObjectKey) -> dict[str, str]:
    return {"name": key.name, "verdict": findings[0].line, "remedy": findings[0].remedy}


def render(trace: dict[str, Any]) -> str:
    """Return the explanation for a person."""
    pods = trace["pods"]
    ready = sum(pod["ready"] for pod in pods)
    wanted = "" if trace["replicas"] is None else f", {trace['replicas']} wanted"
    lines = [f"{trace['kind']} {trace['namespace']}/{trace['name']}"]
    lines.append(f"  Pods        {len(pods)}{wanted}, {ready} ready")
    for size in sorted({pod["requests"] for pod in pods}):
        count = sum(pod["requests"] == size for pod in pods)
        lines.append(f"  Requests    {size}{f' ({count} of the pods)' if count != len(pods) else ' each'}")
    nodes = sorted({pod["node"] for pod in pods if pod["node"]})
    if nodes:
        lines.append(f"  Nodes       {', '.join(nodes)}")
    for title, member in (("HPA", "hpas"), ("VPA", "vpas"), ("PDB", "pdbs")):
        rows = trace[member]
        lines += [f"  {title:<11} {row['name']}: {row['verdict']}" for row in rows] or [f"  {title:<11} none"]
    lines.append(f"  Room        {_room(trace['room'])}")
    return "\n".join(lines)


def _room(room: dict[str, Any] | None) -> str:
    if room is None:
        return "unknown: nodes or pods could not be read"
    if room["copies"]:
        needs = "which request nothing" if room["needs"] == shown_list({}) else f"each {room['needs']}"
        return f"for {room['copies']} more pods on the nodes, {needs}"
    return f"for no other pod: it needs {room['needs']}, {room['shortage']}"
