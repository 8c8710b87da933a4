"""A chart as terminal text: braille dots for lines and bands, letters for axes.

A braille cell holds two dots across and four down, so a chart of 80 columns has 160 columns of dots. Lines are drawn on
one grid of dots; the last layer that touches a cell gives it its colour. Without colours the text is the same text.
"""

import numpy as np
import numpy.typing as npt

from kubetide.charts.chart import Band, Bars, Chart, Layer, Line, Marks, Numbers, Points, Role, as_steps, runs, thin

ANSI = {
    Role.USAGE: 34,
    Role.REQUEST: 33,
    Role.LIMIT: 35,
    Role.TARGET: 32,
    Role.BOUNDS: 36,
    Role.REPLICAS: 34,
    Role.EVENT: 31,
    Role.OTHER: 37,
}

_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.uint8)
"""The bit of each dot in a braille cell, by row and column."""

SPARKS = "▁▂▃▄▅▆▇█"


def render(chart: Chart, *, width: int = 80, height: int = 16, colour: bool = False) -> str:
    """Return the chart as `height` lines of at most `width` characters."""
    _, y = chart.scales()
    ticks = y.ticks(max(2, (height - 3) // 3))
    margin = max([len(y.written(value)) for value in ticks], default=1) + 1
    legend = _legend(chart, width, colour=colour)[: max(1, height // 4)]
    grid = _Grid(chart, columns=max(width - margin - 1, 4), rows=max(height - 3 - len(legend), 2))
    for layer in chart.layers:
        grid.draw(layer)
    labels = {grid.row_of(value): y.written(value) for value in ticks}
    lines = [chart.title[:width]]
    for number, row in enumerate(grid.lines(colour=colour)):
        edge = "┤" if number in labels else "│"
        lines.append(f"{labels.get(number, ''):>{margin}}{edge}{row}")
    lines.append(_x_axis(grid, margin))
    lines += legend
    return "\n".join(line.rstrip() for line in lines)


def sparkline(values: Numbers, *, width: int, top: float | None = None) -> str:
    """Return values as one line of blocks from zero to `top` (else the highest); a gap is a space."""
    if width < 1 or not len(values):
        return ""
    columns = np.array_split(values, min(width, len(values)))
    peaks = [float(np.nanmax(part)) if np.isfinite(part).any() else None for part in columns]
    highest = top if top is not None else max((peak for peak in peaks if peak is not None), default=0.0)
    if highest <= 0:
        return "".join(" " if peak is None else SPARKS[0] for peak in peaks)
    last = len(SPARKS) - 1
    return "".join(" " if peak is None else SPARKS[min(max(int(peak / highest * last), 0), last)] for peak in peaks)


class _Grid:
    """Dots, and the role that last touched each cell."""

    def __init__(self, chart: Chart, *, columns: int, rows: int) -> None:
        self.x, self.y = chart.scales()
        self.columns, self._rows = columns, rows
        self._dots = np.zeros((rows * 4, columns * 2), dtype=bool)
        self._roles: dict[tuple[int, int], Role] = {}
        self._letters: dict[tuple[int, int], str] = {}

    def draw(self, layer: Layer) -> None:
        match layer:
            case Line():
                for part in runs(np.isfinite(layer.y) & np.isfinite(layer.x)):
                    x, y = layer.x[part], layer.y[part]
                    if layer.step:
                        x, y = as_steps(x, y)
                    self._stroke(*thin(x, y, self.columns * 2), layer.role, dashed=layer.dashed)
            case Band():
                self._fill(layer)
            case Bars():
                self._bars(layer)
            case Points():
                for number, (x, y) in enumerate(zip(layer.x.tolist(), layer.y.tolist(), strict=True)):
                    if np.isfinite(x) and np.isfinite(y):
                        self._letter(x, y, layer, number)
            case Marks():
                for value in layer.x[np.isfinite(layer.x)].tolist():
                    cell = (0, min(self._column(value) // 2, self.columns - 1))
                    self._letters[cell], self._roles[cell] = "▼", layer.role

    def row_of(self, value: float) -> int:
        return min(self._row(value) // 4, self._rows - 1)

    def column_of(self, value: float) -> int:
        return min(self._column(value) // 2, self.columns - 1)

    def lines(self, *, colour: bool) -> list[str]:
        cells = self._dots.reshape(self._rows, 4, self.columns, 2)
        codes: npt.NDArray[np.uint8] = np.bitwise_or.reduce(
            np.where(cells, _DOTS[None, :, None, :], 0).astype(np.uint8), axis=(1, 3)
        )
        rows = []
        for row in range(self._rows):
            text = ""
            for column in range(self.columns):
                code = int(codes[row, column])
                character = self._letters.get((row, column)) or (chr(0x2800 + code) if code else " ")
                role = self._roles.get((row, column))
                text += f"\x1b[{ANSI[role]}m{character}\x1b[0m" if colour and role and character != " " else character
            rows.append(text)
        return rows

    def _stroke(self, x: Numbers, y: Numbers, role: Role, *, dashed: bool) -> None:
        points = [(self._column(a), self._row(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        for (x1, y1), (x2, y2) in zip(points, points[1:] or points, strict=False):
            steps = max(abs(x2 - x1), abs(y2 - y1), 1)
            for step in range(steps + 1):
                column, row = x1 + (x2 - x1) * step // steps, y1 + (y2 - y1) * step // steps
                if not dashed or column % 4 < 2:
                    self._dot(row, column, role)

    def _fill(self, layer: Band) -> None:
        for part in runs(np.isfinite(layer.low) & np.isfinite(layer.high) & np.isfinite(layer.x)):
            columns = np.array([self._column(value) for value in layer.x[part].tolist()])
            for column in np.unique(columns).tolist():
                here = columns == column
                top = self._row(float(layer.high[part][here].max()))
                bottom = self._row(float(layer.low[part][here].min()))
                for row in range(top, bottom + 1):
                    if (row + column) % 2 == 0:
                        self._dot(row, column, layer.role)

    def _bars(self, layer: Bars) -> None:
        for left, right, height in zip(layer.edges[:-1], layer.edges[1:], layer.heights.tolist(), strict=True):
            if not np.isfinite(height) or height <= 0:
                continue
            first = self._column(float(left))
            for column in range(first, max(self._column(float(right)), first + 1)):
                for row in range(self._row(height), self._rows * 4):
                    self._dot(row, column, layer.role)

    def _letter(self, x: float, y: float, layer: Points, number: int) -> None:
        row, column = self.row_of(y), self.column_of(x)
        name = layer.names[number] if number < len(layer.names) else ""
        start = column if column + 2 + len(name) <= self.columns else max(column - 1 - len(name), 0)
        text = f"● {name}" if start == column else f"{name} ●"
        for offset, character in enumerate(text.rstrip()):
            if start + offset < self.columns:
                self._letters[row, start + offset], self._roles[row, start + offset] = character, layer.role

    def _dot(self, row: int, column: int, role: Role) -> None:
        self._dots[row, column] = True
        self._roles[row // 4, column // 2] = role

    def _column(self, value: float) -> int:
        return int(min(max(self.x.at(value), 0.0), 1.0) * (self.columns * 2 - 1))

    def _row(self, value: float) -> int:
        return int((1.0 - min(max(self.y.at(value), 0.0), 1.0)) * (self._rows * 4 - 1))


def _x_axis(grid: _Grid, margin: int) -> str:
    widest = max((len(grid.x.written(value)) for value in grid.x.ticks(4)), default=5)
    line = [" "] * grid.columns
    free = 0
    for value in grid.x.ticks(max(2, grid.columns // (widest + 3))):
        text = grid.x.written(value)
        start = max(min(grid.column_of(value) - len(text) // 2, grid.columns - len(text)), 0)
        if start >= free:
            line[start : start + len(text)] = text
            free = start + len(text) + 1
    return " " * margin + "└" + "".join(line)


def _legend(chart: Chart, width: int, *, colour: bool) -> list[str]:
    """Return what is what, in as many lines as that takes: a line of the chart without a name misleads."""
    lines, length = [""], 0
    for layer in chart.layers:
        room = len(layer.label) + 4
        if not layer.label:
            continue
        if length and length + room > width:
            lines.append("")
            length = 0
        mark = f"\x1b[{ANSI[layer.role]}m{_sign(layer)}\x1b[0m" if colour else _sign(layer)
        lines[-1] += f"  {mark} {layer.label[: max(1, width - 4)]}"
        length += room
    return lines


def _sign(layer: Layer) -> str:
    """Return what a layer looks like, for where there are no colours."""
    match layer:
        case Line():
            return "╌" if layer.dashed else "─"
        case Points():
            return "●"
        case Marks():
            return "▼"
        case _:
            return "■"
