"""`kubetide top` as plain values: what keys do to what is shown, and the lines that show it.

    Up Down j k PgUp PgDn   the row          /           filter, as the dashboard searches; Esc leaves it
    v a r c m               sort: verdict, name, replicas, CPU, memory; the same key again turns it round
    Enter explanation   p plot   e what changed and events   n nodes   Esc back   q end

From 80 by 24 on; a narrow terminal drops memory first, then the trend. Names are the last thing to be cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from kubetide.dashboard.core.bars import counted, cut
from kubetide.dashboard.core.listing import Query, window
from kubetide.dashboard.core.model import Node, Tone, Workload
from kubetide.dashboard.core.nodes import NodeRow
from kubetide.dashboard.core.screen import MARKS, Row, Span, clipped, column_titles, name_width, node_lines, numbers

View = Literal["workloads", "explanation", "plot", "events", "nodes"]
UP, DOWN, PAGE_UP, PAGE_DOWN, ESCAPE, ENTER = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~", "\x1b", "\n"
_BACKSPACE = ("\x7f", "\b")
_SORTS = {"v": "verdict", "a": "name", "r": "replicas", "c": "cpu", "m": "memory"}
_FALLING = ("replicas", "cpu", "memory")
"""What is looked for at its largest."""
_VIEWS: dict[str, View] = {ENTER: "explanation", "\r": "explanation", "p": "plot", "e": "events", "n": "nodes"}
_PAGE = 10
KEYS = "Enter explain  p plot  e events  n nodes  / filter  v a r c m sort  q end"
DETAIL_KEYS = "Esc back  Up Down scroll  Enter explain  p plot  e events  n nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What the person at the terminal has chosen."""

    at: int = 0
    """The chosen row among those that match."""
    search: str = ""
    typing: bool = False
    sort: str = "verdict"
    descending: bool = False
    view: View = "workloads"
    scroll: int = 0
    ended: bool = False

    def press(self, key: str, *, rows: int) -> "Controls":
        """Return the controls after a key; `rows` is how many match. A key without a meaning changes nothing."""
        if self.typing:
            return self._typed(key)
        if key == "q":
            return replace(self, ended=True) if self.view == "workloads" else replace(self, view="workloads", scroll=0)
        if key == ESCAPE:
            return replace(self, view="workloads", scroll=0, search=self.search if self.view != "workloads" else "")
        steps = {UP: -1, "k": -1, DOWN: 1, "j": 1, PAGE_UP: -_PAGE, PAGE_DOWN: _PAGE}
        if key in steps and self.view == "workloads":
            return replace(self, at=max(0, min(rows - 1, self.at + steps[key])))
        if key in steps:
            return replace(self, scroll=max(0, self.scroll + steps[key]))
        if key in _VIEWS:
            return replace(self, view=_VIEWS[key], scroll=0)
        if key == "/":
            return replace(self, typing=True, view="workloads", at=0)
        if (sort := _SORTS.get(key)) is not None:
            turned = not self.descending if sort == self.sort else sort in _FALLING
            return replace(self, sort=sort, descending=turned, at=0)
        return self

    def _typed(self, key: str) -> "Controls":
        if key in (ENTER, "\r"):
            return replace(self, typing=False)
        if key == ESCAPE:
            return replace(self, typing=False, search="")
        if key in _BACKSPACE:
            return replace(self, search=self.search[:-1], at=0)
        return replace(self, search=self.search + key, at=0) if key.isprintable() and len(key) == 1 else self

    def matched(self, rows: Sequence[Workload]) -> tuple[Workload, ...]:
        """Return the rows that are shown, in order."""
        query = Query(search=self.search, sort=self.sort, descending=self.descending, count=len(rows))
        return window(rows, query, most=len(rows)).rows

    def renewed(self, before: Sequence[Workload], after: Sequence[Workload]) -> "Controls":
        """Return the controls after another look: the chosen workload stays chosen wherever it now stands.

        Who has not left the top of the list goes on to see what is at the top.
        """
        chosen = self.chosen(before)
        if chosen is None or (self.view == "workloads" and self.at == 0):
            return self
        key = (chosen.kind, chosen.key)
        places = (place for place, row in enumerate(self.matched(after)) if (row.kind, row.key) == key)
        return replace(self, at=next(places, self.at))

    def chosen(self, rows: Sequence[Workload]) -> Workload | None:
        """Return the row that is looked at; None where none matches."""
        found = self.matched(rows)
        return found[min(self.at, len(found) - 1)] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Everything that a screen of `top` is made of."""

    context: str
    now: datetime
    rows: Sequence[Workload]
    nodes: Sequence[NodeRow] = ()
    text: Sequence[str] = ()
    """Of the explanation, the plot or the events."""
    problem: str = ""


def render(shown: Shown, controls: Controls, width: int, height: int) -> list[Row]:
    """Return exactly `height` lines of at most `width` characters."""
    width, height = max(width, 40), max(height, 8)
    matched = controls.matched(shown.rows)
    lines = [_header(shown, matched, controls, width)]
    if shown.problem:
        lines.append((Span(cut(f" ✗ {shown.problem}", width), "bad", strong=True),))
    room = height - len(lines) - 1
    lines += _list(matched, controls, width, room) if controls.view == "workloads" else _detail(
        shown, controls, width, room
    )  # fmt: skip
    lines = lines[: height - 1]
    lines += [(Span(""),)] * (height - 1 - len(lines))
    prompt = f"/{controls.search}▏ Enter keeps it, Esc clears it" if controls.typing else KEYS
    if controls.view != "workloads":
        prompt = DETAIL_KEYS
    return [clipped(line, width) for line in (*lines, (Span(cut(prompt, width), dim=not controls.typing),))]


def _header(shown: Shown, matched: Sequence[Workload], controls: Controls, width: int) -> Row:
    tones: dict[Tone, int] = {tone: sum(row.verdict.tone == tone for row in matched) for tone in ("bad", "warn")}
    order = f"by {controls.sort}{' ▼' if controls.descending else ''}"
    found = f"{len(matched)} of {len(shown.rows)} workloads" if controls.search else f"{len(shown.rows)} workloads"
    return (
        Span(cut(shown.context, min(len(shown.context), max(8, width - 60))), strong=True),
        Span(f"  {shown.now:%a %H:%M:%S}  ", "good", strong=True),
        Span(f"{found}, {order}  "),
        Span(f"{counted(tones['bad'], 'error')}  ", "bad" if tones["bad"] else "plain"),
        Span(counted(tones["warn"], "warning"), "warn" if tones["warn"] else "plain"),
        Span(f"  /{controls.search}" if controls.search else "", dim=True),
    )


def _list(matched: Sequence[Workload], controls: Controls, width: int, room: int) -> list[Row]:
    """The rows around the chosen one, and below them what there is to say about it."""
    if not matched:
        return [(Span("  No workload matches.", dim=True),)]
    at = min(controls.at, len(matched) - 1)
    space = max(1, room - 4)
    first = max(0, min(at - space // 2, len(matched) - space))
    lines = [column_titles(tuple(matched), width, rates=False)]
    for place, row in enumerate(matched[first : first + space], start=first):
        line = numbers(row, name_width(tuple(matched), width), width, mark=True, rates=False)
        lines.append((Span("▶ ", strong=True), *line[1:]) if place == at else line)
    lines += [(Span(""),)] * (space + 1 - len(lines))
    chosen = matched[at]
    title = f"── {chosen.key} "
    lines.append((Span(title + "─" * max(0, width - len(title)), dim=True),))
    lines.append((Span(cut(f" {MARKS[chosen.verdict.tone]} {chosen.verdict.text}", width), chosen.verdict.tone),))
    lines.append((Span(cut(f"   FIX: {chosen.verdict.remedy}" if chosen.verdict.remedy else "", width)),))
    return lines


def _detail(shown: Shown, controls: Controls, width: int, room: int) -> list[Row]:
    chosen = controls.chosen(shown.rows)
    about = "nodes" if controls.view == "nodes" else f"{controls.view} of {chosen.key if chosen else 'nothing'}"
    lines: list[Row] = [(Span(f"── {about} " + "─" * max(0, width - len(about) - 4), dim=True),)]
    if controls.view == "nodes":
        nodes = tuple(
            Node(
                name=node.name,
                ready=node.ready,
                pods=node.pods,
                cpu=node.cpu.allocatable,
                asked=node.cpu.requested,
                used=node.cpu.used or 0.0,
                batch=node.cpu.batch,
                batch_asked=node.cpu.batch_requested,
            )
            for node in shown.nodes
        )
        lines += node_lines(nodes, width) or [(Span("  No node can be read.", dim=True),)]
    else:
        lines += [(Span(cut(f" {line}", width)),) for line in shown.text] or [(Span("  Asking …", dim=True),)]
    start = min(controls.scroll, max(0, len(lines) - room))
    return [lines[0], *lines[1 + start : start + room]]
