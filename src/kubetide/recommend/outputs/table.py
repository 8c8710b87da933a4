"""Rows for a terminal: what is too small first, then what is too large, in as many columns as there are.

Names give way to numbers: a long name ends in an ellipsis, amounts are never cut.
"""

from collections.abc import Sequence
from textwrap import wrap

from rich.text import Text

from kubetide.recommend.core.rows import Row, Total, by_namespace, counted
from kubetide.recommend.core.sizing import short
from kubetide.recommend.outputs.texts import why
from kubetide.vpa.core.policy import CPU, MEMORY

_STYLES = {"high": "bold red", "medium": "yellow", "none": "green", "unknown": "dim"}
_KINDS = {"Deployment": "deploy", "StatefulSet": "sts", "DaemonSet": "ds", "ReplicaSet": "rs", "CronJob": "cronjob"}
WIDTH = 80
_MOST_TOTALS = 10
_LEAST = 16
"""Characters that a name keeps, however wide the numbers are."""


def table(rows: Sequence[Row], *, width: int = WIDTH, details: bool = False) -> list[Text]:
    """Return the lines of a table, and what the rows sum up to."""
    if not rows:
        return [Text(part) for part in wrap(summary(rows), width)]
    with_money = any(row.saved_money is not None for row in rows)
    head = ("WORKLOAD", "RISK", "CPU", "MEMORY", "SAVED/MO" if with_money else "SAVED", "TRUST")
    clusters = len({row.cluster for row in rows}) > 1
    cells = [_cells(row, with_cluster=clusters) for row in rows]
    widths = [max(len(each[place]) for each in (head, *cells)) for place in range(1, len(head))]
    name_width = max(_LEAST, min(width - sum(widths) - len(widths), max(len(each[0]) for each in (head, *cells))))
    lines = [Text(_line(head, name_width, widths), style="bold")]
    for row, each in zip(rows, cells, strict=True):
        line = Text(_line(each, name_width, widths))
        line.stylize(_STYLES[row.risk], name_width + 1, name_width + 1 + len(row.risk))
        lines.append(line)
        if details or row.recommended is None:
            parts = wrap(why(row), max(20, width - 2), break_on_hyphens=False)
            lines += [Text(f"  {part}", style="dim") for part in parts]
    totals = by_namespace(rows)
    if len(totals) > 1:
        lines += [Text(_total(each, with_cluster=clusters), style="dim") for each in totals[:_MOST_TOTALS]]
        if len(totals) > _MOST_TOTALS:
            lines.append(Text(f"  … {len(totals) - _MOST_TOTALS} more namespaces: -o json has all", style="dim"))
    return [*lines, *(Text(part) for part in wrap(summary(rows), width))]


def _total(total: Total, *, with_cluster: bool) -> str:
    name = f"{total.cluster}: {total.namespace}" if with_cluster else total.namespace
    saved = saving(total.saved_cpu_millis, total.saved_memory_bytes, total.saved_money)
    return f"  {name}: {total.too_small} of {total.containers} too small; {saved}"


def saving(cpu_millis: int, memory_bytes: int, money: float | None) -> str:
    """Return what would be free, and what is needed beside it."""
    amounts = (
        (cpu_millis / 1000, f"{abs(cpu_millis) / 1000:.1f} cores"),
        (memory_bytes / 2**30, f"{abs(memory_bytes) / 2**30:.1f} GiB"),
        *(() if money is None else ((money, f"{abs(money):,.2f} per month"),)),
    )
    free = ", ".join(text for amount, text in amounts if amount >= 0)
    more = ", ".join(text for amount, text in amounts if amount < 0)
    return "; ".join([*([f"saves {free}"] if free else []), *([f"needs {more} more"] if more else [])])


def summary(rows: Sequence[Row]) -> str:
    """Return what rows sum up to, in one line."""
    if not rows:
        return "no workload was found: nothing here has containers, or none matches -n, -l and --kind"
    cpu, memory = sum(row.saved_cpu_millis for row in rows), sum(row.saved_memory_bytes for row in rows)
    small = sum(row.risk in ("high", "medium") for row in rows)
    unknown = sum(row.risk == "unknown" for row in rows)
    priced = any(row.saved_money is not None for row in rows)
    money = sum(row.saved_money or 0.0 for row in rows) if priced else None
    return (
        f"{counted(len(rows), 'container')}: {small} too small, {unknown} without usage; {saving(cpu, memory, money)}"
    )


def _cells(row: Row, *, with_cluster: bool) -> tuple[str, ...]:
    new = row.recommended
    name = f"{row.workload} {_KINDS.get(row.kind, row.kind.lower())}"
    if row.container not in ("", row.name):
        name += f" [{row.container}]"
    return (
        f"{row.cluster}: {name}" if with_cluster else name,
        row.risk,
        _change(CPU, row.current.cpu_request_millis, new.cpu_request_millis if new else None),
        _change(MEMORY, row.current.memory_request_bytes, new.memory_request_bytes if new else None),
        "" if new is None else _saved(row),
        row.confidence,
    )


def _line(cells: Sequence[str], name_width: int, widths: Sequence[int]) -> str:
    name = cells[0] if len(cells[0]) <= name_width else cells[0][: name_width - 1] + "…"
    risk, cpu, memory, saved, trust = widths
    return (
        f"{name:<{name_width}} {cells[1]:<{risk}} {cells[2]:>{cpu}} {cells[3]:>{memory}} {cells[4]:>{saved}} "
        f"{cells[5]:<{trust}}"
    ).rstrip()


def _change(resource: str, old: int | None, new: int | None) -> str:
    return short(resource, old) if new is None or new == old else f"{short(resource, old)}→{short(resource, new)}"


def _saved(row: Row) -> str:
    if row.saved_money is not None:
        return f"{row.saved_money:,.2f}"
    return f"{row.saved_cpu_millis / 1000:.1f}c {row.saved_memory_bytes / 2**30:.1f}Gi"
