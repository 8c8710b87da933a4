"""A chart as SVG: one element, no script, no style attribute, no outside reference.

It stands alone in a file and inside a page under a strict Content-Security-Policy: colours are presentation attributes
that a page may override through the classes (`tide-usage`, `tide-grid`, …), which is how dark mode works. Coordinates
are rounded to a tenth of a pixel, so equal charts are equal bytes. Screen readers get the title and one sentence per
layer.
"""

from xml.sax.saxutils import escape, quoteattr

import numpy as np

from kubetide.charts.axes import Scale, written
from kubetide.charts.chart import Band, Bars, Chart, Layer, Line, Marks, Numbers, Points, Role, as_steps, runs, thin

COLOURS = {
    Role.USAGE: "#0072b2",
    Role.REQUEST: "#d55e00",
    Role.LIMIT: "#a23b72",
    Role.TARGET: "#009e73",
    Role.BOUNDS: "#5fb99b",
    Role.REPLICAS: "#0072b2",
    Role.EVENT: "#c0392b",
    Role.OTHER: "#666666",
}
"""Distinct also for the common forms of colour blindness; lines that mean limits are dashed besides."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 14.0, 26.0, 40.0
_Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""
_LETTER = 6.8
"""Width of a letter of the 11 px labels, generously."""


def render(chart: Chart, *, width: int = 640, height: int = 240) -> str:
    """Return the chart as one `<svg>` element."""
    frame = _Frame(chart, width, height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tide-chart" viewBox="0 0 {width} {height}" width="{width}"',
        f' height="{height}" role="img" aria-label={quoteattr(chart.title)} font-family="system-ui, sans-serif"',
        ' font-size="11">',
        f"<title>{escape(chart.title)}</title>",
        f"<desc>{escape(_described(chart))}</desc>",
        f'<text class="tide-text" x="{_LEFT:.0f}" y="15" font-size="13" fill="#222222">{escape(chart.title)}</text>',
        *frame.axes(),
    ]
    for layer in chart.layers:
        parts += frame.drawn(layer)
    parts += [*frame.legend(), "</svg>"]
    return "".join(parts)


class _Frame:
    """The plot area of one chart and how values become pixels."""

    def __init__(self, chart: Chart, width: int, height: int) -> None:
        self._chart = chart
        self._x, self._y = chart.scales()
        self._top, self._bottom = _TOP, max(height - _BOTTOM, _TOP + 1)
        self._y_ticks = self._y.ticks(max(2, int((self._bottom - self._top) / 30)))
        widest = max((len(self._y.written(value)) for value in self._y_ticks), default=0)
        self._left = max(_LEFT, widest * _LETTER + 8)
        self._right = max(width - _RIGHT, self._left + 1)
        self._taken: list[_Box] = []
        """What points and their names cover."""

    def axes(self) -> list[str]:
        parts = []
        for value in self._y_ticks:
            y = self._down(value)
            parts.append(
                f'<line class="tide-grid" x1="{self._left:.1f}" y1="{y:.1f}" x2="{self._right:.1f}" y2="{y:.1f}" '
                f'stroke="#dddddd"/><text class="tide-text" x="{self._left - 6:.1f}" y="{y + 4:.1f}" '
                f'text-anchor="end" fill="#555555">{escape(self._y.written(value))}</text>'
            )
        widest = max((len(self._x.written(value)) for value in self._x.ticks(4)), default=5)
        for value in self._x.ticks(max(2, int((self._right - self._left) / (widest * _LETTER + 16)))):
            x, text = self._across(value), self._x.written(value)
            # The last one must not stand out of the picture.
            middle = min(x, self._right + _RIGHT - len(text) * _LETTER / 2)
            parts.append(
                f'<line class="tide-grid" x1="{x:.1f}" y1="{self._bottom:.1f}" x2="{x:.1f}" '
                f'y2="{self._bottom + 4:.1f}" stroke="#999999"/><text class="tide-text" x="{middle:.1f}" '
                f'y="{self._bottom + 16:.1f}" text-anchor="middle" fill="#555555">{escape(text)}</text>'
            )
        return [*parts, *self._labels()]

    def _labels(self) -> list[str]:
        """Return what the axes measure, where the chart has it: up in the corner, and right below the axis."""
        labels = ((self._chart.y.label, "↑ {}", 15.0), (self._chart.x.label, "{} →", self._bottom + 33))
        return [
            f'<text class="tide-text" x="{self._right:.1f}" y="{y:.1f}" text-anchor="end" fill="#555555">'
            f"{escape(form.format(label))}</text>"
            for label, form, y in labels
            if label
        ]

    def drawn(self, layer: Layer) -> list[str]:
        match layer:
            case Line():
                return self._line(layer)
            case Band():
                return self._band(layer)
            case Bars():
                return self._bars(layer)
            case Points():
                return self._points(layer)
            case Marks():
                return self._marks(layer)

    def legend(self) -> list[str]:
        parts, x, y = [], self._left, self._bottom + 33
        end = self._right - (len(self._chart.x.label) + 3) * _LETTER if self._chart.x.label else self._right
        for layer in self._chart.layers:
            if not layer.label:
                continue
            colour = COLOURS[layer.role]
            room = 16 + len(layer.label) * _LETTER
            if x + room > end and x > self._left:
                break  # what does not fit is still in <desc>
            parts.append(
                f'<rect class="tide-{layer.role}" x="{x:.1f}" y="{y - 8:.1f}" width="9" height="9" fill="{colour}"/>'
                f'<text class="tide-text" x="{x + 13:.1f}" y="{y:.1f}" fill="#333333">{escape(layer.label)}</text>'
            )
            x += room + 10
        return parts

    def _line(self, layer: Line) -> list[str]:
        dashes = ' stroke-dasharray="5 3"' if layer.dashed else ""
        paths = []
        for part in runs(np.isfinite(layer.y) & np.isfinite(layer.x)):
            x, y = layer.x[part], layer.y[part]
            if layer.step:
                x, y = as_steps(x, y)
            x, y = thin(x, y, int(self._right - self._left))
            paths.append(self._path(x, y))
        if not paths:
            return []
        look = f'stroke="{COLOURS[layer.role]}" stroke-width="1.5"{dashes}'
        return [f'<path class="tide-{layer.role}" d="{"".join(paths)}" fill="none" {look}/>']

    def _band(self, layer: Band) -> list[str]:
        parts = []
        for part in runs(np.isfinite(layer.low) & np.isfinite(layer.high) & np.isfinite(layer.x)):
            columns = int(self._right - self._left)
            upper_x, upper = thin(layer.x[part], layer.high[part], columns)
            lower_x, lower = thin(layer.x[part], layer.low[part], columns)
            outline = self._path(np.concatenate((upper_x, lower_x[::-1])), np.concatenate((upper, lower[::-1])))
            parts.append(
                f'<path class="tide-{layer.role}" d="{outline}Z" fill="{COLOURS[layer.role]}" fill-opacity="0.25" '
                # A band of equal pods has no height; its outline is still seen.
                f'stroke="{COLOURS[layer.role]}" stroke-opacity="0.7"/>'
            )
        return parts

    def _bars(self, layer: Bars) -> list[str]:
        parts = []
        floor = self._down(max(self._y.low, 0.0))
        for left, right, height in zip(layer.edges[:-1], layer.edges[1:], layer.heights, strict=True):
            if not np.isfinite(height) or height <= 0:
                continue
            x1, x2, y = self._across(float(left)), self._across(float(right)), self._down(float(height))
            parts.append(
                f'<rect class="tide-{layer.role}" x="{x1:.1f}" y="{y:.1f}" width="{max(x2 - x1 - 0.5, 0.5):.1f}" '
                f'height="{floor - y:.1f}" fill="{COLOURS[layer.role]}" fill-opacity="0.6"/>'
            )
        return parts

    def _points(self, layer: Points) -> list[str]:
        parts = []
        for number, (x, y) in enumerate(zip(layer.x.tolist(), layer.y.tolist(), strict=True)):
            if not (np.isfinite(x) and np.isfinite(y)):
                continue
            name = layer.names[number] if number < len(layer.names) else ""
            across, down = self._across(x), self._down(y)
            parts.append(
                f'<circle class="tide-{layer.role}" cx="{across:.1f}" cy="{down:.1f}" r="4" '
                f'fill="{COLOURS[layer.role]}"><title>{escape(name or layer.label)}</title></circle>'
            )
            if name:
                at, base, anchor = self._place(name, across, down)
                parts.append(
                    f'<text class="tide-text" x="{at:.1f}" y="{base:.1f}" '
                    f'text-anchor="{anchor}" fill="#333333">{escape(name)}</text>'
                )
        return parts

    def _place(self, name: str, x: float, y: float) -> tuple[float, float, str]:
        """Return where the name of a point stands: beside it, else higher or lower, wherever nothing is yet."""
        points = [
            (self._across(a) - 4, self._down(b) - 4, self._across(a) + 4, self._down(b) + 4)
            for layer in self._chart.layers
            if isinstance(layer, Points)
            for a, b in zip(layer.x.tolist(), layer.y.tolist(), strict=True)
            if np.isfinite(a) and np.isfinite(b) and (self._across(a), self._down(b)) != (x, y)
        ]
        room, found = len(name) * _LETTER, None
        for lift in (4.0, -8.0, 16.0, -20.0, 28.0, -32.0):
            for anchor in ("start", "end"):
                left = x + 7 if anchor == "start" else x - 7 - room
                box = (left, y + lift - 9, left + room, y + lift + 2)
                inside = box[0] >= 0 and box[2] <= self._right and box[1] >= self._top and box[3] <= self._bottom + 4
                place = (x + 7 if anchor == "start" else x - 7, y + lift, anchor)
                if inside and not any(_overlap(box, other) for other in (*points, *self._taken)):
                    self._taken.append(box)
                    return place
                if found is None and inside:
                    found = place
        return found or (x + 7, y + 4, "start")

    def _marks(self, layer: Marks) -> list[str]:
        parts = []
        for number in np.flatnonzero(np.isfinite(layer.x)).tolist():
            value = float(layer.x[number])
            x, name = self._across(value), layer.names[number] if number < len(layer.names) else layer.label
            text = escape(f"{written(value, self._x.unit)}: {name}")
            parts.append(
                f'<g class="tide-{layer.role}"><title>{text}</title><line x1="{x:.1f}" y1="{self._top:.1f}" '
                f'x2="{x:.1f}" y2="{self._bottom:.1f}" stroke="{COLOURS[layer.role]}" stroke-dasharray="1 3"/>'
                f'<path d="M{x:.1f} {self._top + 6:.1f}l-4 -7h8Z" fill="{COLOURS[layer.role]}"/></g>'
            )
        return parts

    def _path(self, x: Numbers, y: Numbers) -> str:
        across = self._left + (x - self._x.low) / (self._x.high - self._x.low) * (self._right - self._left)
        down = self._bottom - (y - self._y.low) / (self._y.high - self._y.low) * (self._bottom - self._top)
        down = np.clip(down, self._top, self._bottom)
        across, down = (np.rint(10.0 * each) / 10.0 for each in (across, down))
        if across.size > 2:
            # Most requests stay for long: what lies between equal heights draws nothing.
            flat = (down[1:-1] == down[:-2]) & (down[1:-1] == down[2:])
            upright = (across[1:-1] == across[:-2]) & (across[1:-1] == across[2:])
            between = (down[1:-1] - down[:-2]) * (down[2:] - down[1:-1]) >= 0
            ahead = (across[1:-1] - across[:-2]) * (across[2:] - across[1:-1]) >= 0
            kept = np.concatenate([[True], ~((flat & ahead) | (upright & between)), [True]])
            across, down = across[kept], down[kept]
        # After M every further pair is a line.
        return "M" + " ".join(f"{a:.1f} {d:.1f}" for a, d in zip(across.tolist(), down.tolist(), strict=True))

    def _across(self, value: float) -> float:
        return self._left + self._x.at(value) * (self._right - self._left)

    def _down(self, value: float) -> float:
        return self._bottom - min(max(self._y.at(value), 0.0), 1.0) * (self._bottom - self._top)


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _described(chart: Chart) -> str:
    """Return one sentence per layer for those who do not see it."""
    x, y = chart.scales()
    layers = (f"{layer.label or layer.role}: {_summary(layer, y)}." for layer in chart.layers)
    return " ".join([f"From {x.written(x.low)} to {x.written(x.high)}.", *layers])


def _summary(layer: Layer, y: Scale) -> str:
    match layer:
        case Marks():
            return f"{np.isfinite(layer.x).sum()} marks"
        case Points():
            return f"{len(layer.x)} points"
        case Bars():
            return f"{len(layer.heights)} bars"
        case Band():
            low, high = layer.low, layer.high
        case Line():
            low = high = layer.y
    if not np.isfinite(low).any() or not np.isfinite(high).any():
        return "no data"
    return f"{written(float(np.nanmin(low)), y.unit)} to {written(float(np.nanmax(high)), y.unit)}"
