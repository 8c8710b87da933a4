"""Rows for a terminal: what is too small first, then what is too large, in as many columns as there are.

Names give way to numbers: a long name loses its middle, amounts are never cut.
"""

from collections.abc import Sequence
from textwrap import wrap

from rich.text import Text

from kubetide.recommend.core.rows import Row, Total, by_namespace, counted
from kubetide.recommend.core.sizing import short
from kubetide.recommend.outputs.texts import named, saved_amount, why
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
    cells = [_cells(row) for row in rows]
    widths = [max(len(each[place]) for each in (head[1:], *cells)) for place in range(len(head) - 1)]
    longest = max(len(head[0]), *(len(_named(row, 0, with_cluster=clusters)) for row in rows))
    name_width = max(_LEAST, min(width - sum(widths) - len(widths), longest))
    lines = [Text(_line(head[0], head[1:], name_width, widths), style="bold")]
    for place, (row, each) in enumerate(zip(rows, cells, strict=True)):
        line = Text(_line(_named(row, name_width, with_cluster=clusters), each, name_width, widths))
        line.stylize(_STYLES[row.risk], name_width + 1, name_width + 1 + len(row.risk))
        lines.append(line)
        # What holds for one after the other is said below the last.
        repeated = row.recommended is None and place + 1 < len(rows) and why(rows[place + 1]) == why(row)
        if (details or row.recommended is None) and not repeated:
            # A number and its sign stay on one line.
            parts = wrap(why(row).replace(" %", "\0%"), max(20, width - 2), break_on_hyphens=False)
            lines += [Text("  " + part.replace("\0", " "), style="dim") for part in parts]
    totals = by_namespace(rows)
    if len(totals) > 1:
        lines += [Text(_total(each, with_cluster=clusters), style="dim") for each in totals[:_MOST_TOTALS]]
        if len(totals) > _MOST_TOTALS:
            lines.append(Text(f"  … {len(totals) - _MOST_TOTALS} more namespaces: -o json has all", style="dim"))
    return [*lines, *(Text(part) for part in wrap(summary(rows), width))]


def _total(total: Total, *, with_cluster: bool) -> str:
    name = named(total.cluster if with_cluster else "", total.namespace)
    saved = saving(total.saved_cpu_millis, total.saved_memory_bytes, total.saved_money)
    return f"  {name}: {total.too_small} of {total.containers} too small; {saved}"


def saving(cpu_millis: int, memory_bytes: int, money: float | None) -> str:
    """Return what would be free, and what is needed beside it."""
    amounts = (
        (round(cpu_millis / 1000, 1), f"{abs(cpu_millis) / 1000:,.1f} cores"),
        (round(memory_bytes / 2**30, 1), f"{abs(memory_bytes) / 2**30:,.1f} GiB"),
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
    found = f"{counted(len(rows), 'container')}: {small:,} too small, {unknown:,} without usage"
    return found if unknown == len(rows) else f"{found}; {saving(cpu, memory, money)}"


def _named(row: Row, width: int, *, with_cluster: bool) -> str:
    """Return a workload, its kind and its container; each keeps its ends where there is too little room (0: enough)."""
    who, kind = row.workload, f" {_KINDS.get(row.kind, row.kind.lower())}"
    if with_cluster:
        who = named(row.cluster, who)
    container = "" if row.container in ("", row.name) else row.container
    around = kind + (" []" if container else "")
    if width and len(who) + len(around) + len(container) > width:
        room = max(2, width - len(around))
        among = min(len(container), max(room // 2, room - len(who)))
        who, container = _shortened(who, room - among), _shortened(container, among)
    found = f"{who}{kind} [{container}]" if container else who + kind
    return _shortened(found, width) if width else found


def _shortened(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    head = width // 2
    return f"{name[:head]}…{name[len(name) - (width - head - 1) :]}"


def _cells(row: Row) -> tuple[str, ...]:
    new = row.recommended
    return (
        row.risk,
        _change(CPU, row.current.cpu_request_millis, new.cpu_request_millis if new else None),
        _change(MEMORY, row.current.memory_request_bytes, new.memory_request_bytes if new else None),
        "" if new is None else _saved(row),
        row.confidence,
    )


def _line(name: str, cells: Sequence[str], name_width: int, widths: Sequence[int]) -> str:
    risk, cpu, memory, saved, trust = widths
    return (
        f"{name:<{name_width}} {cells[0]:<{risk}} {cells[1]:>{cpu}} {cells[2]:>{memory}} {cells[3]:>{saved}} "
        f"{cells[4]:<{trust}}"
    ).rstrip()


def _change(resource: str, old: int | None, new: int | None) -> str:
    return short(resource, old) if new is None or new == old else f"{short(resource, old)}→{short(resource, new)}"


def _saved(row: Row) -> str:
    if row.saved_money is not None:
        return f"{row.saved_money:,.2f}"
    return f"{saved_amount(row.saved_cpu_millis / 1000)}c {saved_amount(row.saved_memory_bytes / 2**30):>4}Gi"
