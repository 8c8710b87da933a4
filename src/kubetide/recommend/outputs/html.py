"""Rows as one HTML file: search, sort and a plot per container, without a server and without the network.

Rows are data in the page and only what is in sight is drawn, so thousands stay responsive. Plots are SVG, compressed
one by one, and unpacked by the browser when a row is opened.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files

from kubetide.charts import to_svg
from kubetide.recommend.core.plots import charts
from kubetide.recommend.core.rows import Row
from kubetide.recommend.core.sizing import short
from kubetide.recommend.core.workloads import ContainerKey, Usage
from kubetide.recommend.outputs.table import summary
from kubetide.recommend.outputs.texts import Report, saved_amount, why
from kubetide.vpa.core.policy import CPU, MEMORY

_PLOT_POINTS = 60


def to_html(report: Report, usage: Mapping[ContainerKey, Usage]) -> str:
    """Return a page; rows whose samples are in `usage` have a plot."""
    data = {"summary": summary(report.rows), "at": report.at, "rows": _rows(report.rows, usage)}
    # Without any "<" no name can end the script element, nor open a comment in it.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    page = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    return page.replace("/*DATA*/null", text, 1)


def _rows(rows: Sequence[Row], usage: Mapping[ContainerKey, Usage]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for row in rows:
        new = row.recommended
        samples = usage.get((row.cluster, row.namespace, row.kind, row.name, row.container))
        found.append(
            {
                "name": f"{row.cluster + ': ' if row.cluster else ''}{row.workload}",
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
                "saved": row.saved_money
                if row.saved_money is not None
                else row.saved_cpu_millis / 1000 + row.saved_memory_bytes / 2**32,
                "money": row.saved_money is not None,
                "saved_text": f"{row.saved_money:,.2f}"
                if row.saved_money is not None
                else f"{saved_amount(row.saved_cpu_millis / 1000)}c {saved_amount(row.saved_memory_bytes / 2**30)}Gi",
                "confidence": row.confidence,
                "why": why(row),
                "plot": None if samples is None else _plot(samples, row),
            }
        )
    return found


def _plot(usage: Usage, row: Row) -> str:
    svg = "".join(to_svg(chart, width=560, height=200) for chart in charts(usage, row, points=_PLOT_POINTS))
    return base64.b64encode(zlib.compress(svg.encode(), 9)).decode()
