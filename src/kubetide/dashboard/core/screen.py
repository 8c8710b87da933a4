"""A state as lines of text for a terminal of any size: a pure function, so that a screen can be tested and captured.

    header      name, day clock, progress, pace
    banners     scenario events that go on
    workloads   two lines each where there is room: numbers, and the verdict; one line where there is not
    nodes       a line each: used, asked for, overcommitted for batch work
    log         what changed and why, as much as fits; or the explanation of the workload that was chosen
    keys

What there is most of gives way first: the log, then the second line of workloads, then nodes, then workloads that are
fine. Names are the last thing to be cut.
"""

from dataclasses import dataclass

from kubetide.dashboard.core.bars import bar, cores, cut, gauge, memory, sparkline
from kubetide.dashboard.core.model import Banner, Entry, Filter, Node, State, Tone, Workload

WIDE = 120
"""From this width on there is room for memory and for response times."""
LEAST_WIDTH, LEAST_HEIGHT = 40, 8
_READY = 11
_LEAST_LOG = 2
_MOST_BANNERS = 2
MARKS: dict[Tone, str] = {"plain": "·", "good": "✓", "warn": "!", "bad": "✗"}
_FILTERS: dict[Filter, str] = {
    "all": "what changed and why",
    "problems": "problems only",
    "workload": "of this workload only",
}


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line and how it is meant."""

    text: str
    tone: Tone = "plain"
    strong: bool = False
    dim: bool = False


Row = tuple[Span, ...]


def text_of(rows: list[Row]) -> list[str]:
    """Return lines without their colours."""
    return ["".join(span.text for span in row).rstrip() for row in rows]


def render(state: State, width: int, height: int) -> list[Row]:
    """Return exactly `height` lines of at most `width` characters."""
    width, height = max(width, LEAST_WIDTH), max(height, LEAST_HEIGHT)
    top = [_header(state, width), *(_banner(each, width) for each in state.banners[-_MOST_BANNERS:])]
    keys: Row = (Span(cut(state.keys, width), dim=True),)
    room = height - len(top) - 1
    body = _explained(state, width, room) if state.selected is not None else _overview(state, width, room)
    rows = [*top, *body[:room]]
    rows += [(Span(""),)] * (height - 1 - len(rows))
    return [clipped(row, width) for row in (*rows, keys)]


def _header(state: State, width: int) -> Row:
    clock = f"{state.now:%a %H:%M}"
    right = f"{100 * state.progress:3.0f} %  {state.pace}"
    name = cut(state.title, max(8, min(len(state.title), width - 40)))
    length = max(4, width - len(name) - len(clock) - len(right) - 6)
    return (
        Span(name, strong=True),
        Span(f"  {clock}  ", "good", strong=True),
        Span(bar(state.progress, length)),
        Span(f" {right}"),
    )


def _banner(banner: Banner, width: int) -> Row:
    left = "" if banner.left is None else f" ({_minutes(banner.left.total_seconds())} left)"
    return (Span(cut(f" ▶ {banner.at:%H:%M} {banner.text}{left}", width), banner.tone, strong=True),)


def _minutes(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60}h{minutes % 60:02}m" if minutes >= 60 else f"{minutes} min"


# -- all workloads


def _overview(state: State, width: int, room: int) -> list[Row]:
    nodes = node_lines(state.nodes, width) if room >= len(state.nodes) + len(state.workloads) + 3 else []
    left = room - len(nodes)
    shown = _fitting(state.workloads, left - 1)
    two_lines = 1 + 2 * len(shown) <= left - (_LEAST_LOG if left > 2 * len(shown) + _LEAST_LOG else 0)
    rows = [column_titles(state.workloads, width)]
    for each in shown:
        rows.append(numbers(each, name_width(state.workloads, width), width, mark=not two_lines))
        if two_lines:
            rows.append(_verdict(each, width))
    if len(shown) < len(state.workloads):
        rows.append((Span(f"  … and {len(state.workloads) - len(shown)} more", dim=True),))
    return [*rows, *nodes, *_log(state, width, left - len(rows))]


def _fitting(workloads: tuple[Workload, ...], most: int) -> list[Workload]:
    """Return as many workloads as fit above a line for the rest, in their order; the fine ones give way first."""
    if len(workloads) <= most:
        return list(workloads)
    ranks: dict[Tone, int] = {"bad": 0, "warn": 1, "plain": 2, "good": 3}
    by_need = sorted(range(len(workloads)), key=lambda index: (ranks[workloads[index].verdict.tone], index))
    return [workloads[index] for index in sorted(by_need[: max(1, most - 1)])]


def name_width(workloads: tuple[Workload, ...], width: int) -> int:
    """Return how much room names have."""
    longest = max((len(each.key) for each in workloads), default=8)
    return max(8, min(longest, width - 42 if width < WIDE else width - 100))


def column_titles(workloads: tuple[Workload, ...], width: int, *, rates: bool = True) -> Row:
    """Return the line above the workloads; `rates` leaves room for requests and response times."""
    name = name_width(workloads, width)
    text = f"  {'workload':<{name}}  {'ready':<11} {'load':<15} {'cpu used│asked◆best':<{_gauge_width(name, width)}}"
    if width >= WIDE:
        text += f" {'used/asked/best':<17}{'memory used│asked◆best':<24} {'used/asked/best':<19}"
        text += f"{'req/s':>6}{'resp.':>9}" if rates else ""
    return (Span(cut(f"{text}  trend", width), dim=True),)


def _gauge_width(name: int, width: int) -> int:
    return 20 if width >= WIDE else max(6, min(20, width - name - 2 - 2 - 12 - 16 - 2 - 8))


def numbers(each: Workload, name: int, width: int, *, mark: bool, rates: bool = True) -> Row:
    """Return the line of one workload, its name cut to `name` characters; `mark` shows its verdict as a sign."""
    tone = each.verdict.tone
    bounds = f" [{each.bounds[0]}-{each.bounds[1]}]" if each.bounds is not None else ""
    replicas = f"{each.ready}/{each.pods}{bounds}"
    if len(replicas) > _READY and each.ready == each.pods:
        replicas = f"{each.pods}{bounds}"
    gauge_width = _gauge_width(name, width)
    spans = [
        Span(f"{MARKS[tone]} " if mark else "  ", tone, strong=True),
        Span(cut(each.key, name), strong=True),
        Span("  "),
        Span(cut(replicas, _READY), "bad" if each.ready < each.pods else "plain"),
        Span(" " + cut(each.usage, 15) + " "),
        Span(gauge(each.cpu.used, each.cpu.asked, each.cpu.recommended, gauge_width), "good"),
    ]
    used = 2 + name + 2 + _READY + 17 + gauge_width
    if width >= WIDE:
        best = "" if each.cpu.recommended is None else f"/{cores(each.cpu.recommended)}"
        spans.append(Span(" " + cut(f"{cores(each.cpu.used)}/{cores(each.cpu.asked)}{best}", 17)))
        spans.append(Span(gauge(each.memory.used, each.memory.asked, each.memory.recommended, 23), "good"))
        best = "" if each.memory.recommended is None else f"/{memory(each.memory.recommended)}"
        spans.append(Span("  " + cut(f"{memory(each.memory.used)}/{memory(each.memory.asked)}{best}", 19)))
        used += 18 + 23 + 21
        if rates:
            rate = f"{each.rate:6.0f}{_latency(each.latency):>9}" if each.rate else " " * 15
            spans.append(Span(rate, "bad" if each.latency >= 1 else "plain"))
            used += 15
    spans.append(Span("  " + sparkline(each.trend, max(0, min(30, width - used - 2)))))
    return tuple(spans)


def _latency(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _verdict(each: Workload, width: int) -> Row:
    remedy = f"  FIX: {each.verdict.remedy}" if each.verdict.remedy else ""
    text = cut(f"    {MARKS[each.verdict.tone]} {each.verdict.text}{remedy}", width).rstrip()
    return (Span(text, each.verdict.tone),)


# -- nodes


def node_lines(nodes: tuple[Node, ...], width: int) -> list[Row]:
    """Return a line for each node below a line of titles."""
    if not nodes:
        return []
    length = max(6, min(40, width - 60))
    legend = f"  {'node':<12}{'pods':>4}  {'cpu used│asked':<{length}} used asked  of   batch overcommit"
    rows: list[Row] = [(Span(cut(legend, width), dim=True),)]
    for node in nodes:
        batch = f"{node.batch_asked:.1f} of {node.batch:.1f} cores taken" if node.batch else "none"
        batch = batch if node.ready else "DOWN"
        text = (
            f"  {cut(node.name, 12)}{node.pods:4}  {_share(node, length)} "
            f"{node.used:4.1f} {node.asked:5.1f} {node.cpu:3.0f}   {batch}"
        )
        rows.append((Span(cut(text, width).rstrip(), "plain" if node.ready else "bad"),))
    return rows


def _share(node: Node, width: int) -> str:
    """The whole bar is the node; what it is asked for may be more than it has."""
    cells = list(bar(node.used / node.cpu if node.cpu else 0.0, width))
    if node.asked and node.cpu:
        cells[min(width - 1, max(0, round(node.asked / node.cpu * width) - 1))] = "│"
    return "".join(cells)


# -- the log, and one workload


def _log(state: State, width: int, room: int) -> list[Row]:
    if room < _LEAST_LOG:
        return []
    entries = [entry for entry in state.log if _passes(entry, state)]
    title = f"── {_FILTERS[state.filter]} "
    rows: list[Row] = [(Span(title + "─" * max(0, width - len(title)), dim=True),)]
    return [*rows, *(_entry(each, width) for each in entries[-(room - 1) :])]


def _passes(entry: Entry, state: State) -> bool:
    if state.filter == "problems":
        return entry.tone in ("warn", "bad")
    if state.filter == "workload" and state.selected is not None:
        return entry.workload == state.workloads[state.selected].key
    return True


def _entry(entry: Entry, width: int) -> Row:
    subject = cut(entry.subject, 34 if width >= WIDE else 20)
    start = f"{entry.at:%H:%M} "
    return (
        Span(start, dim=True),
        Span(f"{subject} "),
        Span(cut(entry.text, width - len(start) - len(subject) - 1).rstrip(), entry.tone),
    )


def _explained(state: State, width: int, room: int) -> list[Row]:
    if state.selected is None or state.selected >= len(state.workloads):
        return []
    each = state.workloads[state.selected]
    rows: list[Row] = [
        column_titles(state.workloads, width),
        numbers(each, name_width(state.workloads, width), width, mark=False),
        (Span(cut(f"  {MARKS[each.verdict.tone]} {each.verdict.text}", width).rstrip(), each.verdict.tone, True),),
    ]
    if each.verdict.remedy:
        rows.append((Span(cut(f"    FIX: {each.verdict.remedy}", width).rstrip(), "warn"),))
    of_it = [entry for entry in state.log if entry.workload == each.key]
    log = [_entry(entry, width) for entry in of_it[-max(1, room // 3) :]]
    space = room - len(rows) - len(log) - 2
    rows.append((Span(""),))
    rows += [(Span(cut(f"  {line}", width).rstrip()),) for line in state.explanation[: max(0, space)]]
    if log:
        rows.append((Span("── what changed " + "─" * max(0, width - 16), dim=True),))
    return [*rows, *log]


def clipped(row: Row, width: int) -> Row:
    """Return a line without what stands out on the right."""
    spans, left = [], width
    for span in row:
        if left <= 0:
            break
        spans.append(span if len(span.text) <= left else Span(span.text[:left], span.tone, span.strong, span.dim))
        left -= len(span.text)
    return tuple(spans)
