"""What the agent reports about its node and its pods when asked why: values for `/explain`."""

from collections.abc import Iterable, Mapping
from typing import Any

from kubetide.kube.control.manager import Component
from kubetide.node.core.prediction.peak import PeakModels
from kubetide.node.core.snapshot import PodState


def explain_pod(pod: PodState, models: PeakModels) -> dict[str, Any]:
    """Return how the agent classifies a pod, where its cgroup is and what it predicts."""
    peaks = models.predict(pod.uid) or {}
    return {
        "pod": pod.key,
        "qos": {"label": pod.raw_qos, "used": pod.qos, "kubernetes": pod.kube_qos},
        "priority": pod.priority,
        "cgroup": pod.directory,
        "predicted": {
            name: {"cpuMillis": peak.cpu_millis, "memoryBytes": peak.memory_bytes} for name, peak in peaks.items()
        },
    }


def told_by(components: Iterable[Component], node_name: str) -> dict[str, dict[str, Any]]:
    """Return what the components that can explain something say about the node."""
    told: dict[str, dict[str, Any]] = {}
    for component in components:
        ask = getattr(component, "explain", None)
        if ask is not None and (more := ask("node", node_name)) is not None:
            told[component.name] = more
    return told


def with_components(answer: dict[str, Any], components: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the answer about a node with what its components report, the strategies once more in one list."""
    strategies = [line for explained in components.values() for line in _strategies(explained)]
    return {**answer, **components, **({"strategies": strategies} if components else {})}


def _strategies(explained: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the last decision of every strategy in one line each."""
    decided: dict[str, dict[str, Any]] = explained.get("strategies") or {}
    return [{"name": name, "reason": reason_of(decision), "trace": decision} for name, decision in decided.items()]


def reason_of(decision: Mapping[str, Any]) -> str:
    """Return in a few words what came of a strategy's last sync."""
    for given in ("reason", "state"):
        if decision.get(given):
            return str(decision[given])
    if decision.get("skipped"):
        return f"nothing to do: {decision['skipped']}"
    evicted, unwritten = decision.get("evicted") or (), decision.get("notWritten") or ()
    parts = [f"{decision.get('writes', 0)} kernel values asked for"]
    if unwritten:
        parts.append(f"{len(unwritten)} not written")
    if evicted:
        parts.append(f"{len(evicted)} pods evicted")
    return ", ".join(parts)
