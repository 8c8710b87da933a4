"""A report as one HTML file: headings, paragraphs, tables and charts, and nothing from outside.

The page carries a Content-Security-Policy that forbids every request, so a report can be mailed, archived and opened
anywhere. It needs no script: charts are SVG elements, dark mode is a style. Every text is escaped here and nowhere
else, and equal reports are equal bytes. Functions suffice for one page of four kinds of parts: a template language
would be one more dependency for every user, and its templates would be outside of what mypy checks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from kubetide.charts.chart import Chart
from kubetide.charts.svg import render

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:84rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2.2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
caption{text-align:left;color:#555;padding-bottom:.3rem}
th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
.scroll{overflow-x:auto}.charts{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,28rem),1fr))}
figure{margin:0}svg{width:100%;height:auto}
@media (prefers-color-scheme:dark){body{color:#ddd;background:#16181c}th,td{border-color:#3a3d44}caption{color:#aaa}
svg .tide-text{fill:#ddd}svg .tide-grid{stroke:#3a3d44}path[fill-opacity]{fill-opacity:.45}
svg [class^=tide-]:not(.tide-text,.tide-grid){filter:brightness(1.5)}}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under headings; the first column names the row."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with what is under it: text, then a table, then charts side by side."""

    heading: str
    text: Sequence[str] = ()
    table: Table | None = None
    charts: Sequence[Chart] = ()


def page(title: str, sections: Sequence[Section]) -> str:
    """Return a whole HTML document."""
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>",
            f"<h1>{escape(title)}</h1>\n",
            *(_section(each) for each in sections),
            "</main></body></html>\n",
        ]
    )


def _section(section: Section) -> str:
    parts = [f"<section><h2>{escape(section.heading)}</h2>\n"]
    parts += [f"<p>{escape(text)}</p>\n" for text in section.text]
    if section.table is not None:
        parts.append(_table(section.table))
    if section.charts:
        drawn = "\n".join(f"<figure>{render(chart)}</figure>" for chart in section.charts)
        parts.append(f'<div class="charts">{drawn}</div>\n')
    return "".join([*parts, "</section>\n"])


def _table(table: Table) -> str:
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in table.headings)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>\n"
        for row in table.rows
        if row
    )
    return (
        f'<div class="scroll" tabindex="0"><table>{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>\n{rows}</tbody></table></div>\n"
    )
