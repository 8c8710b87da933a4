"""Rows for a terminal: what is too small first, then what is too large, in 80 columns."""

from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kubetide.recommend.core.rows import Row
from kubetide.recommend.core.sizing import short
from kubetide.recommend.outputs.texts import evidence_text
from kubetide.vpa.core.policy import CPU, MEMORY

_STYLES = {"high": "bold red", "medium": "yellow", "none": "green", "unknown": "dim"}
_KINDS = {"Deployment": "deploy", "StatefulSet": "sts", "DaemonSet": "ds", "ReplicaSet": "rs", "CronJob": "cronjob"}
WIDTH = 80


def print_table(rows: Sequence[Row], out: IO[str], *, width: int | None = None, details: bool = False) -> None:
    """Write rows as a table, and what they sum up to."""
    console = Console(file=out, width=width, highlight=False, soft_wrap=False)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("WORKLOAD", overflow="ellipsis", no_wrap=True, ratio=1)
    table.add_column("RISK", no_wrap=True)
    table.add_column("CPU", justify="right", no_wrap=True)
    table.add_column("MEMORY", justify="right", no_wrap=True)
    with_money = any(row.saved_money is not None for row in rows)
    table.add_column("SAVED/MO" if with_money else "SAVED", justify="right", no_wrap=True)
    table.add_column("TRUST", no_wrap=True)
    clusters = len({row.cluster for row in rows}) > 1
    for row in rows:
        new = row.recommended
        name = f"{row.workload} {_KINDS.get(row.kind, row.kind.lower())}"
        if row.container != row.name:
            name += f" [{row.container}]"
        if clusters:
            name = f"{row.cluster}: {name}"
        table.add_row(
            Text(name),
            Text(row.risk, style=_STYLES[row.risk]),
            _change(CPU, row.current.cpu_request_millis, new.cpu_request_millis if new else None),
            _change(MEMORY, row.current.memory_request_bytes, new.memory_request_bytes if new else None),
            "" if new is None else _saved(row),
            row.confidence,
        )
        if details or new is None:
            table.add_row(Text(f"  {evidence_text(row)}", style="dim"))
    console.print(table)
    console.print(summary(rows))


def summary(rows: Sequence[Row]) -> str:
    """Return what rows sum up to, in one line."""
    cpu = sum(row.saved_cpu_millis for row in rows) / 1000
    memory = sum(row.saved_memory_bytes for row in rows) / 2**30
    small = sum(row.risk in ("high", "medium") for row in rows)
    unknown = sum(row.risk == "unknown" for row in rows)
    text = (
        f"{len(rows)} containers: {small} too small, {unknown} without usage; saves {cpu:.1f} cores, {memory:.1f} GiB"
    )
    if any(row.saved_money is not None for row in rows):
        text += f", {sum(row.saved_money or 0.0 for row in rows):,.2f} per month"
    return text


def _change(resource: str, old: int | None, new: int | None) -> str:
    return short(resource, old) if new is None or new == old else f"{short(resource, old)}→{short(resource, new)}"


def _saved(row: Row) -> str:
    if row.saved_money is not None:
        return f"{row.saved_money:,.2f}"
    return f"{row.saved_cpu_millis / 1000:.1f}c {row.saved_memory_bytes / 2**30:.1f}Gi"
