"""How `kubetide explain pod` shows a pod: which profile made it what it is, and what the updater would do."""

from typing import Any

from kubetide.slo.colocation.explain import render as render_colocation
from kubetide.vpa.updater.explain import render as render_update


def render(trace: dict[str, Any]) -> str:
    """Return the explanation for a person."""
    parts = [render_colocation(trace["colocation"])] if "colocation" in trace else []
    if "vpa" in trace:
        parts.append(render_update(trace))
    return "\n\n".join(parts)
