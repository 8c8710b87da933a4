"""Findings as SARIF 2.1.0, the form in which code hosts and CI take the results of checks."""

from collections.abc import Sequence
from typing import Any

from kubetide import __version__
from kubetide.verdicts.core.table import TABLE
from kubetide.verdicts.core.verdict import Finding, Severity, Verdict

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {
    Severity.ERROR: "error",
    Severity.UNKNOWN: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
    Severity.OK: "none",
}


def sarif(findings: Sequence[Finding], *, looked: bool) -> dict[str, Any]:
    """Return a log with one run; `looked` says whether everything could be looked at."""
    used = [verdict for verdict in TABLE if any(finding.verdict is verdict for finding in findings)]
    index = {verdict.id: position for position, verdict in enumerate(used)}
    driver = {"name": "kubetide", "version": __version__, "rules": [_rule(verdict) for verdict in used]}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": looked}],
        "results": [_result(finding, index[finding.verdict.id]) for finding in findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(verdict: Verdict) -> dict[str, Any]:
    return {
        "id": verdict.id,
        "shortDescription": {"text": verdict.line},
        "fullDescription": {"text": verdict.meaning},
        "help": {"text": verdict.remedy or verdict.meaning},
        "defaultConfiguration": {"level": _LEVELS[verdict.severity]},
    }


def _result(finding: Finding, position: int) -> dict[str, Any]:
    text = f"{finding.subject}: {finding.line}"
    where = {"name": finding.key.name or finding.kind, "fullyQualifiedName": finding.subject, "kind": "resource"}
    return {
        "ruleId": finding.verdict.id,
        "ruleIndex": position,
        "kind": "pass" if finding.severity is Severity.OK else "fail",
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{text}. Fix: {finding.remedy}" if finding.remedy else text},
        "locations": [{"logicalLocations": [where]}],
    }
