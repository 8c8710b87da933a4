"""Rows as one HTML file: search, sort and a plot per container, without a server and without the network.

Rows are data in the page and only what is in sight is drawn, so thousands stay responsive. Plots are SVG, compressed
one by one, and unpacked by the browser when a row is opened.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from importlib.resources import files

from kubetide.charts import to_svg
from kubetide.recommend.core.plots import charts
from kubetide.recommend.core.rows import Row, Total
from kubetide.recommend.core.sizing import short
from kubetide.recommend.core.workloads import ContainerKey, Usage
from kubetide.recommend.outputs.table import saving, summary
from kubetide.recommend.outputs.texts import Report, named, reasons, saved_amount
from kubetide.vpa.core.policy import CPU, MEMORY

_PLOT_POINTS = 60


def to_html(report: Report, usage: Mapping[ContainerKey, Usage]) -> str:
    """Return a page; rows whose samples are in `usage` have a plot."""
    with_money = any(row.saved_money is not None for row in report.rows)
    data = {
        "summary": summary(report.rows),
        "at": report.at.replace("T", " ").replace("+00:00", " UTC"),
        "problems": report.problems,
        "namespaces": [_total(each) for each in report.namespaces],
        "saved": ["Saved CPU", "Saved memory", *(["Saved per month"] if with_money else [])],
        "rows": [_row(row, usage, with_money=with_money) for row in report.rows],
    }
    # Without any "<" no name can end the script element, nor open a comment in it.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    page = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    return page.replace("/*DATA*/null", text, 1)


def _row(row: Row, usage: Mapping[ContainerKey, Usage], *, with_money: bool) -> dict[str, object]:
    new = row.recommended
    samples = usage.get(row.key)
    cores, gib = row.saved_cpu_millis / 1000, row.saved_memory_bytes / 2**30
    texts = ["", ""] if new is None else [f"{saved_amount(cores)} cores", f"{saved_amount(gib)} GiB"]
    if with_money:
        texts.append("" if row.saved_money is None else f"{row.saved_money:,.2f}")
    return {
        "name": named(row.cluster, row.workload),
        "kind": row.kind,
        "container": row.container,
        "risk": row.risk,
        "cpu": [row.current.cpu_request_millis, new.cpu_request_millis if new else None],
        "memory": [row.current.memory_request_bytes, new.memory_request_bytes if new else None],
        "texts": [
            short(CPU, row.current.cpu_request_millis),
            short(CPU, new.cpu_request_millis if new else None),
            short(MEMORY, row.current.memory_request_bytes),
            short(MEMORY, new.memory_request_bytes if new else None),
        ],
        "saved": [row.saved_cpu_millis, row.saved_memory_bytes, *([row.saved_money] if with_money else [])],
        "saved_texts": texts,
        "confidence": row.confidence,
        "why": reasons(row),
        "plot": None if samples is None else _plot(samples, row),
    }


def _total(total: Total) -> dict[str, object]:
    return {
        "name": named(total.cluster, total.namespace),
        "containers": total.containers,
        "tooSmall": total.too_small,
        "savings": saving(total.saved_cpu_millis, total.saved_memory_bytes, total.saved_money),
    }


def _plot(usage: Usage, row: Row) -> str:
    svg = "".join(to_svg(chart, width=560, height=200) for chart in charts(usage, row, points=_PLOT_POINTS))
    return base64.b64encode(zlib.compress(svg.encode(), 9)).decode()
