"""Rows as JSON, YAML, CSV and Markdown; the JSON form is the one that is read back (`--diff`)."""

import csv
import io
from collections.abc import Sequence

import msgspec
import yaml

from kubetide.errors import InvalidInput
from kubetide.recommend.core.backtest import Backtest
from kubetide.recommend.core.rows import Evidence, Row, Total, counted, lasting
from kubetide.recommend.core.sizing import short
from kubetide.vpa.core.policy import CPU, MEMORY

COLUMNS = (
    "cluster", "namespace", "kind", "name", "container", "replicas", "risk",
    "cpu_request", "cpu_recommended", "memory_request", "memory_recommended",
    "saved_cpu_millis", "saved_memory_bytes", "saved_money_per_month", "confidence", "reason", "notes",
    "days", "samples", "percentile", "oom_kills", "throttled",
    "memory_days_above", "cpu_minutes_above", "cpu_slack", "memory_slack", "cpu_slack_now", "memory_slack_now",
)  # fmt: skip
_TABLE = ("Workload", "Container", "Risk", "CPU", "CPU →", "Memory", "Memory →", "Confidence", "Why")


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All rows of one run, with what could not be read."""

    version: int = 1
    at: str = ""
    problems: tuple[str, ...] = ()
    namespaces: tuple[Total, ...] = ()
    """Savings per namespace."""
    rows: tuple[Row, ...]


def to_json(report: Report) -> str:
    """Return a report as JSON."""
    return msgspec.json.format(msgspec.json.encode(report)).decode()


def from_json(text: bytes, subject: str) -> Report:
    """Read a report that was written as JSON."""
    try:
        return msgspec.json.decode(text, type=Report)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"is not a report of `kubetide recommend -o json`: {error}", subject=subject) from error


def to_yaml(report: Report) -> str:
    """Return a report as YAML."""
    return yaml.safe_dump(msgspec.to_builtins(report), sort_keys=False, allow_unicode=True)


def to_csv(rows: Sequence[Row]) -> str:
    """Return rows as CSV with a header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        new = row.recommended
        writer.writerow(
            [
                row.cluster, row.namespace, row.kind, row.name, row.container, row.replicas, row.risk,
                _cell(row.current.cpu_request_millis), _cell(new.cpu_request_millis if new else None),
                _cell(row.current.memory_request_bytes), _cell(new.memory_request_bytes if new else None),
                row.saved_cpu_millis, row.saved_memory_bytes,
                "" if row.saved_money is None else f"{row.saved_money:.2f}",
                row.confidence, row.reason, "; ".join(row.notes), *_evidence_cells(row.evidence),
            ]
        )  # fmt: skip
    return out.getvalue()


def to_markdown(rows: Sequence[Row]) -> str:
    """Return rows as a table for a pull request."""
    lines = ["| " + " | ".join(_TABLE) + " |", "|" + " --- |" * len(_TABLE)]
    for row in rows:
        new = row.recommended
        cells = (
            f"{row.kind} {row.workload}",
            row.container,
            row.risk,
            short(CPU, row.current.cpu_request_millis),
            short(CPU, new.cpu_request_millis if new else None),
            short(MEMORY, row.current.memory_request_bytes),
            short(MEMORY, new.memory_request_bytes if new else None),
            row.confidence,
            why(row),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def named(cluster: str, name: str) -> str:
    """Return a name with its cluster, where there are several."""
    return f"{cluster}: {name}" if cluster else name


def why(row: Row) -> str:
    """Return everything that speaks for a row: history, percentile, backtests, and which rules changed it."""
    return "; ".join(reasons(row))


def reasons(row: Row) -> list[str]:
    """Return the same, one by one."""
    known = () if row.recommended is None else (row.reason, row.evidence.percentile)
    return list(dict.fromkeys((*known, *_evidence(row), *row.notes)))


def evidence_text(row: Row) -> str:
    """Return the backtest of a row in one sentence, or why there is none."""
    return "; ".join(_evidence(row))


def _evidence(row: Row) -> list[str]:
    before, after = row.evidence.with_current, row.evidence.with_recommended
    if row.recommended is None or after is None:
        return [row.reason]
    parts = [f"in {lasting(row.evidence.days)} with this request, in hindsight: {_above(after)}"]
    slacks = []
    for name, new, old in (
        ("CPU", after.cpu_slack, before.cpu_slack if before is not None else None),
        ("memory", after.memory_slack, before.memory_slack if before is not None else None),
    ):
        if new is not None:
            slacks.append(f"of {name} {percent(new)}" + ("" if old is None else f" instead of {percent(old)}"))
    if slacks:
        parts.append(f"slack {', '.join(slacks)}")
    if row.evidence.throttled is not None:
        parts.append(f"{percent(row.evidence.throttled)} of the CPU periods of the last day throttled")
    if row.evidence.oom_kills:
        parts.insert(0, counted(row.evidence.oom_kills, "OOM kill"))
    if row.evidence.day_by_day is not None:
        parts.append(f"day by day, sized from the days before: {_above(row.evidence.day_by_day)}")
    return parts


def percent(share: float) -> str:
    """Return a share as people read it."""
    return f"{share * 100:.0f} %"


def saved_amount(amount: float) -> str:
    """Return cores or GiB with one digit; next to nothing is nothing, not `-0.0`."""
    return f"{round(amount, 1) + 0.0:.1f}"


def _above(judged: Backtest) -> str:
    parts = []
    if judged.memory_days_above is not None:
        parts.append(f"memory above it on {counted(judged.memory_days_above, 'container-day')}")
    if judged.cpu_minutes_above is not None:
        parts.append(f"CPU above it for {counted(round(judged.cpu_minutes_above), 'minute')}")
    return ", ".join(parts)


def _evidence_cells(evidence: Evidence) -> list[str | int]:
    before, after = evidence.with_current or Backtest(), evidence.with_recommended or Backtest()
    shares = (after.cpu_slack, after.memory_slack, before.cpu_slack, before.memory_slack)
    return [
        f"{evidence.days:.2f}",
        evidence.samples,
        evidence.percentile,
        evidence.oom_kills,
        _share(evidence.throttled),
        _cell(after.memory_days_above),
        "" if after.cpu_minutes_above is None else f"{after.cpu_minutes_above:.0f}",
        *(_share(each) for each in shares),
    ]


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.4f}"


def _cell(amount: int | None) -> str | int:
    return "" if amount is None else amount
