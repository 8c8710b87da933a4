"""An explanation in order: the verdict and its remedy, whatever else is wrong, the numbers, then the history."""

import importlib
from collections.abc import Sequence
from typing import Any

import click

from kubetide.cli.explain.history import render_events
from kubetide.verdicts.core.verdict import Finding, Severity

COLOURS = {
    Severity.ERROR: "red",
    Severity.UNKNOWN: "magenta",
    Severity.WARNING: "yellow",
    Severity.NOTE: "cyan",
    Severity.OK: "green",
}


def with_verdict(trace: dict[str, Any], findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the answer as JSON shows it: verdict and remedy first, then the numbers."""
    if not findings:
        return trace
    first = findings[0]
    return {
        "verdict": first.line,
        "severity": first.severity.value,
        "remedy": first.remedy,
        "findings": [finding.row() for finding in findings],
        **trace,
    }


def render_answer(renderer: str, trace: dict[str, Any], findings: Sequence[Finding]) -> str:
    """Return an explanation for a person; `renderer` is the module that shows the numbers of this kind."""
    parts = ["\n".join(verdict_lines(findings))]
    if "unexplained" in trace:
        parts.append(f"No numbers: {trace['unexplained']}")
    else:
        parts.append(importlib.import_module(renderer).render(trace).strip())
    parts.append(render_events(trace.get("events") or []))
    return "\n\n".join(part for part in parts if part)


def verdict_lines(findings: Sequence[Finding]) -> list[str]:
    """Return the lines that an explanation opens with."""
    lines: list[str] = []
    for position, finding in enumerate(findings):
        lines.append(("ALSO " if position else "") + styled(finding))
        if finding.remedy:
            lines.append(f"FIX: {finding.remedy}")
    return lines


def styled(finding: Finding) -> str:
    """Return the line of a finding, its first words in the colour of its severity."""
    head, colon, rest = finding.line.partition(":")
    return click.style(head + colon, fg=COLOURS[finding.severity], bold=True) + rest


def listing(findings: Sequence[Finding]) -> str:
    """Return findings of many objects for a person: the object, its verdict, its remedy."""
    width = max((len(finding.subject) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.subject:<{width}}  {styled(finding)}")
        if finding.remedy:
            lines.append(f"{'':<{width}}  FIX: {finding.remedy}")
    return "\n".join(lines)
