"""How `kubetide explain node` shows a node: what it overcommits, and what its agent last decided."""

import re
from typing import Any

from kubetide.api.values.quantity import readable_bytes
from kubetide.node.explain import reason_of
from kubetide.slo.explain import render as render_overcommit

_WORDS = {
    "leftMilli": "left for best effort",
    "thresholdPercent": "threshold",
    "share": "controlled threshold",
    "nodeUsedCores": "used by the node",
    "podsUsedCores": "used by other pods",
    "hostApplicationsUsedCores": "used by host applications",
    "systemUsedCores": "used by the system",
    "currentCpus": "CPUs before",
    "cpus": "CPUs now",
    "count": "number of CPUs",
    "currentQuota": "quota before",
    "quota": "quota now",
    "notWritten": "not written",
    "writes": "kernel values asked for",
    "lines": "I/O limits",
    "pool": "share pool",
    "quotas": "quotas moved",
    "limiters": "burst limiters",
    "victims": "to be evicted",
    "missing": "still missing",
    "pending": "on its way out",
}
_UNITS = {"Milli": "m", "Percent": "%", "Cores": " cores"}
_SAID_BY_HEADER = frozenset({"at", "reason", "state", "skipped"})
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def render(trace: dict[str, Any]) -> str:
    """Return the explanation for a person."""
    parts = [render_overcommit(trace["overcommit"])] if "overcommit" in trace else []
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
        lines.append(f"{name}: {reason_of(decision)}")
        facts = _facts(decision)
        lines += [facts] if facts else []
    lines += [f"{name} fails: {error}" for name, error in acting.get("failing", {}).items()]
    counts = acting.get("executor", {})
    lines.append("kernel values: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    return "\n".join(lines)


def _facts(facts: dict[str, Any]) -> str:
    told = {name: value for name, value in facts.items() if name not in _SAID_BY_HEADER}
    return "\n".join(
        f"  {in_words(name):<28} {_short(name, value)}"
        for name, value in told.items()
        if value not in ([], {}, "", None)
    )


def in_words(name: str) -> str:
    """Return the name of a fact as people write it; those that nobody put into words lose their humps."""
    if name in _WORDS or "/" in name or "." in name:
        return _WORDS.get(name, name)
    return _HUMP.sub(" ", name).replace("_", " ").lower()


def _short(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{in_words(str(key))}: {_short(str(key), inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(_short(name, inner) for inner in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if "memory" in name.lower() or "bytes" in name.lower():
        return readable_bytes(value)
    unit = next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "")
    return f"{value}{unit}"
