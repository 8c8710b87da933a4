"""Rows as SARIF 2.1.0: requests that do not fit, as code hosts and CI take the results of checks.

Code hosts show results at lines of files and refuse a log with one that has none; so where places are known, rows
without a place are no results.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from kubetide import __version__
from kubetide.recommend.core.rows import TOLERANCE, Row
from kubetide.recommend.core.sizing import short
from kubetide.recommend.core.workloads import ContainerKey
from kubetide.recommend.outputs.texts import evidence_text
from kubetide.vpa.core.policy import CPU, MEMORY

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES = {
    "memory-too-small": ("error", "OOM kills happened, or memory passed the request."),
    "request-too-small": ("warning", "A request is missing or smaller than usage needs."),
    "request-too-large": ("note", "A request is larger than usage needs."),
    "no-usage": ("none", "There is no usage to size the container by."),
}
_BY_RISK = {"high": "memory-too-small", "medium": "request-too-small", "unknown": "no-usage"}


def sarif(rows: Sequence[Row], places: Mapping[ContainerKey, tuple[str, int]] | None = None) -> dict[str, Any]:
    """Return a log with one run; containers that fit are no results. `places` are files and lines of containers."""
    names = list(_RULES)
    results = []
    for row in rows:
        rule = _BY_RISK.get(row.risk) or ("request-too-large" if _too_large(row) else None)
        if rule is not None and (places is None or row.key in places):
            results.append(_result(row, rule, names.index(rule), None if places is None else places[row.key]))
    rules = [
        {"id": name, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}
        for name, (level, text) in _RULES.items()
    ]
    driver = {"name": "kubetide recommend", "version": __version__, "rules": rules}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _too_large(row: Row) -> bool:
    new = row.recommended
    return new is not None and (
        (row.current.cpu_request_millis or 0) * (1 - TOLERANCE) > (new.cpu_request_millis or 0)
        or (row.current.memory_request_bytes or 0) * (1 - TOLERANCE) > (new.memory_request_bytes or 0)
    )


def _result(row: Row, rule: str, position: int, place: tuple[str, int] | None) -> dict[str, Any]:
    new = row.recommended
    text = f"{row.kind} {row.workload}{f' container {row.container}' if row.container else ''}: "
    if new is not None:
        text += (
            f"cpu {short(CPU, row.current.cpu_request_millis)} → {short(CPU, new.cpu_request_millis)}, "
            f"memory {short(MEMORY, row.current.memory_request_bytes)} → {short(MEMORY, new.memory_request_bytes)}; "
        )
    name = f"{row.kind} {row.workload}/{row.container}".removesuffix("/")
    if row.cluster:
        name = f"{row.cluster} {name}"
    where: dict[str, Any] = {"logicalLocations": [{"name": row.name, "fullyQualifiedName": name, "kind": "resource"}]}
    if place is not None:
        file, line = place
        where["physicalLocation"] = {"artifactLocation": {"uri": quote(file)}, "region": {"startLine": line}}
    return {
        "ruleId": rule,
        "ruleIndex": position,
        "level": _RULES[rule][0],
        "message": {"text": text + evidence_text(row)},
        "locations": [where],
    }
