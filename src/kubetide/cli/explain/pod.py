"""How `kubetide explain pod` shows a pod: which profile made it, what the updater would do, how its node treats it."""

from typing import Any

from kubetide.slo.colocation.explain import render as render_colocation
from kubetide.vpa.updater.explain import render as render_update

_MI = 1024 * 1024


def render(trace: dict[str, Any]) -> str:
    """Return the explanation for a person: the parts that are known."""
    parts = [render_colocation(trace["colocation"])] if "colocation" in trace else []
    if "vpa" in trace:
        parts.append(render_update(trace))
    agent = trace.get("agent")
    if isinstance(agent, dict):
        parts.append(_on_its_node(agent, alone=not parts))
    return "\n\n".join(parts)


def _on_its_node(agent: dict[str, Any], *, alone: bool) -> str:
    qos = agent.get("qos") or {}
    lines = [f"pod {agent.get('pod', '')}"] if alone else []
    lines.append(
        f"  on its node: QoS class {qos.get('used') or 'none'} (Kubernetes: {qos.get('kubernetes') or 'none'})"
    )
    if agent.get("priority") is not None:
        lines.append(f"    priority {agent['priority']}")
    lines.append(f"    cgroup {agent.get('cgroup') or 'unknown'}")
    for name, peak in (agent.get("predicted") or {}).items():
        cpu, memory = peak.get("cpuMillis"), peak.get("memoryBytes")
        if cpu is not None and memory is not None:
            lines.append(f"    predicted peak ({name}): cpu {cpu / 1000:.2f} cores, memory {memory / _MI:.0f}Mi")
    return "\n".join(lines)
