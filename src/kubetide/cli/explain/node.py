"""How `kubetide explain node` shows a node: what it lends, and what its agent last decided."""

from typing import Any

from kubetide.slo.explain import render as render_overcommit


def render(trace: dict[str, Any]) -> str:
    """Return the explanation for a person."""
    parts = [render_overcommit(trace["overcommit"])] if "overcommit" in trace else []
    parts.extend(_strategy(strategy) for strategy in trace.get("strategies", ()))
    acting = trace.get("qos")
    if isinstance(acting, dict):
        parts.append(_decisions(acting))
    hooks = trace.get("runtime-hooks")
    if isinstance(hooks, dict) and hooks.get("hooks"):
        parts.append("runtime hooks\n" + _facts(hooks["hooks"]))
    return "\n\n".join(parts)


def _decisions(acting: dict[str, Any]) -> str:
    """Return the last decision of every strategy of the agent, and which of them fail."""
    lines: list[str] = []
    for name, decision in acting.get("strategies", {}).items():
        lines.append(f"{name}  {decision.get('at', '')}")
        lines.append(_facts({key: value for key, value in decision.items() if key != "at"}))
    lines += [f"{name} fails: {error}" for name, error in acting.get("failing", {}).items()]
    counts = acting.get("executor", {})
    lines.append("kernel values: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    return "\n".join(lines)


def _facts(facts: dict[str, Any]) -> str:
    return "\n".join(f"  {name:<28} {_short(value)}" for name, value in facts.items() if value not in ([], {}, ""))


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {inner}" for key, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _strategy(strategy: dict[str, Any]) -> str:
    said = strategy.get("reason") or strategy.get("state") or "no decision yet"
    lines = [f"{strategy.get('name', 'strategy')}: {said}"]
    lines += [
        f"  {write.get('path', '')} = {write.get('value', '')}  {write.get('reason', '')}".rstrip()
        for write in strategy.get("writes", ())
    ]
    lines += [
        f"  evict {eviction.get('pod', '')}  {eviction.get('reason', '')}".rstrip()
        for eviction in strategy.get("evictions", ())
    ]
    return "\n".join(lines)
