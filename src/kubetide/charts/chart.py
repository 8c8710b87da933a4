"""The description of a chart: axes and layers of plain numbers.

Layers share the axes of their chart and are drawn in the order given. A missing value is NaN and stays a gap: no
renderer joins what was not measured. Colours follow what a layer means (its role), not its place in the list, so that
usage looks the same in every chart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from kubetide.charts.axes import Axis, Scale, settle

Numbers = npt.NDArray[np.float64]


class Role(StrEnum):
    """What a layer stands for; decides its colour."""

    USAGE = "usage"
    REQUEST = "request"
    LIMIT = "limit"
    TARGET = "target"
    BOUNDS = "bounds"
    REPLICAS = "replicas"
    EVENT = "event"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line:
    """Values over x; a `step` holds until the next, as requests and replica counts do."""

    label: str
    x: Numbers
    y: Numbers
    role: Role = Role.OTHER
    step: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Band:
    """The area between two values, as p50 to p95 of usage."""

    label: str
    x: Numbers
    low: Numbers
    high: Numbers
    role: Role = Role.USAGE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bars:
    """A bar from zero at each x, as a histogram has them; `edges` has one value more than `heights`."""

    label: str
    edges: Numbers
    heights: Numbers
    role: Role = Role.USAGE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """Single values, each with a name of its own (policies in a comparison)."""

    label: str
    x: Numbers
    y: Numbers
    names: Sequence[str] = ()
    role: Role = Role.OTHER


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Marks:
    """Moments on the x axis: OOM kills, evictions, resizes; `names` say of each what happened."""

    label: str
    x: Numbers
    names: Sequence[str] = ()
    role: Role = Role.EVENT


Layer = Line | Band | Bars | Points | Marks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chart:
    """Axes and what is drawn on them."""

    title: str
    x: Axis
    y: Axis
    layers: Sequence[Layer] = ()

    def scales(self) -> tuple[Scale, Scale]:
        """Return both axes with ranges that show every layer."""
        xs = [part for layer in self.layers for part in _x_of(layer)]
        ys = [part for layer in self.layers for part in _y_of(layer)]
        return settle(self.x, *_range(xs)), settle(self.y, *_range(ys))


def runs(valid: npt.NDArray[np.bool_]) -> Iterator[slice]:
    """Return the stretches without a gap."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], valid, [False])).astype(np.int8)))
    for start, end in edges.reshape(-1, 2).tolist():
        yield slice(start, end)


def thin(x: Numbers, y: Numbers, columns: int) -> tuple[Numbers, Numbers]:
    """Return fewer points that draw the same line: per column of x the first, lowest, highest and last.

    Peaks survive, which they would not if every n-th point were kept.
    """
    if len(x) <= 4 * columns or columns < 1:
        return x, y
    edges = np.linspace(0, len(x), columns + 1).astype(np.int64)[:-1]
    ends = np.append(edges[1:], len(x))
    kept: set[int] = set()
    for start, end in zip(edges.tolist(), ends.tolist(), strict=True):
        part = y[start:end]
        kept.update((start, start + int(part.argmin()), start + int(part.argmax()), end - 1))
    order = np.array(sorted(kept))
    return x[order], y[order]


def as_steps(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Return the corners of a line that holds each value until the next."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


def _x_of(layer: Layer) -> list[Numbers]:
    return [layer.edges] if isinstance(layer, Bars) else [layer.x]


def _y_of(layer: Layer) -> list[Numbers]:
    match layer:
        case Band():
            return [layer.low, layer.high]
        case Bars():
            return [layer.heights]
        case Marks():
            return []
        case _:
            return [layer.y]


def _range(parts: Sequence[Numbers]) -> tuple[float | None, float | None]:
    finite = [part[np.isfinite(part)] for part in parts]
    finite = [part for part in finite if part.size]
    if not finite:
        return None, None
    return min(float(part.min()) for part in finite), max(float(part.max()) for part in finite)
