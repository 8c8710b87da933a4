"""How `kubetide explain node` shows a node: what it lends, and what its agent last decided."""

from typing import Any

from kubetide.slo.explain import render as render_overcommit


def render(trace: dict[str, Any]) -> str:
    """Return the explanation for a person."""
    parts = [render_overcommit(trace["overcommit"])] if "overcommit" in trace else []
    parts.extend(_strategy(strategy) for strategy in trace.get("strategies", ()))
    return "\n\n".join(parts)


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
