"""Pages as HTML: templates with autoescape, and the few filters that make numbers readable.

Every text that comes from a cluster passes through the escaping of the templates. Inserted as they are: drawings made
here from numbers (`charts`, `core.marks`), which escape the texts in them themselves.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from kubetide import __version__
from kubetide.charts import Chart, to_svg
from kubetide.dashboard.core import bars, marks
from kubetide.dashboard.core.model import Amounts, Tone, Workload
from kubetide.recommend.core.sizing import spelt

_PATH = re.compile(r"/sys/fs/cgroup/\S*?([^/\s]{1,24}/[^/\s]+)(?=[\s:]|$)")
"""The path of a cgroup: its last directory, cut, and the file in it are enough to read."""
_TOLERANCE = 0.1
"""Load this share above its target is left alone by an autoscaler, and nothing to worry about."""
TONE_WORDS: Mapping[Tone, str] = {"good": "fine", "plain": "note", "warn": "warning", "bad": "error"}


@cache
def environment() -> jinja2.Environment:
    """Return the templates; undefined names are errors."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("kubetide.dashboard.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "counted": bars.counted,
        "cores": bars.cores,
        "memory": bars.memory,
        "amount": _amount,
        "millis": lambda value: "–" if value is None else spelt("cpu", value),
        "bytes": lambda value: bars.memory(value) if value is not None else "–",
        "percent": lambda value: "?" if value is None else f"{100 * value:.0f} %",
        "seconds": _seconds,
        "pressure": _pressure,
        "clock": _clock,
        "short_paths": lambda text: _PATH.sub(r"…/\1", str(text)),
        "segment": lambda text: quote(str(text), safe=""),
        "chart": chart,
        "tone_word": lambda tone: TONE_WORDS[tone],
    }
    made.globals |= {
        "version": __version__,
        "gauge": _gauge,
        "load_gauge": _load_gauge,
        "share": lambda part, whole, text, mark=None: Markup(marks.share(part, whole, text, mark=mark)),
        "spark": lambda row: Markup(marks.spark(row.trend, "CPU used lately")),
        "query": lambda **parts: urlencode({name: value for name, value in parts.items() if value not in ("", None)}),
    }
    return made


def render(template: str, **values: Any) -> str:
    """Return a page, or a part of one."""
    return environment().get_template(template).render(**values)


def static_file(name: str) -> bytes | None:
    """Return a file that pages refer to; None where there is none of this name."""
    folder = resources.files("kubetide.dashboard.web") / "static"
    found = {each.name: each for each in folder.iterdir() if each.is_file()}
    return found[name].read_bytes() if name in found else None


def chart(drawn: Chart, width: int = 640, height: int = 220) -> Markup:
    """Return a chart as an element of the page."""
    return Markup(to_svg(drawn, width=width, height=height))


def _gauge(amounts: Amounts, resource: str) -> Markup:
    shown = bars.cores if resource == "cpu" else bars.memory
    text = f"{resource}: {shown(amounts.used)} used of {shown(amounts.asked)} requested"
    if amounts.recommended is not None:
        text += f", {shown(amounts.recommended)} recommended"
    return Markup(marks.gauge(amounts.used, amounts.asked, amounts.recommended, text))


def _load_gauge(row: Workload) -> Markup:
    if row.load is None:
        return Markup("")
    text = f"load against target: {row.usage}"
    return Markup(marks.gauge(row.load[0], row.load[1], None, text, tolerance=_TOLERANCE))


def _amount(value: float | None, resource: str) -> str:
    return bars.cores(value) if resource == "cpu" else bars.memory(value)


def _seconds(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _pressure(values: Mapping[str, float | None] | None) -> str:
    """Return the pressure of a pod by what it waits for; a dash where its kernel does not count it."""
    found = {name: value for name, value in (values or {}).items() if value is not None}
    return " ".join(f"{name} {value:.0f} %" for name, value in found.items()) or "–"


def _clock(value: datetime | str) -> str:
    """Return a moment as a clock shows it, in UTC."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return str(value)
    return f"{moment:%a %H:%M:%S}"
