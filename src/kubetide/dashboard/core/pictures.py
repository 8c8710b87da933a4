"""The charts of the dashboard: what was seen, beside what is asked for, recommended and allowed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from kubetide.api.objects.resources import CPU, MEMORY
from kubetide.charts import Axis, Bars, Chart, Line, Marks, Role, Unit
from kubetide.charts.chart import Layer, Numbers
from kubetide.dashboard.core.history import Series
from kubetide.dashboard.core.model import Entry

_UNITS = {CPU: Unit.CORES, MEMORY: Unit.BYTES}
NO_DECISIONS: Mapping[float, str] = MappingProxyType({})
_FAR = 1.5
"""A bound this many times above all lines would flatten the rest; it is told, not drawn."""


def fleet_chart(resource: str, series: Series, log: Sequence[Entry] = ()) -> Chart:
    """Return what all workloads request, use and should request over time."""
    layers: list[Layer] = [
        Line(label="requested", x=series.times, y=series[f"{resource}_asked"], role=Role.REQUEST, step=True),
        Line(
            label="recommended", x=series.times, y=series[f"{resource}_best"], role=Role.TARGET, step=True, dashed=True
        ),
        Line(label="used", x=series.times, y=series[f"{resource}_used"], role=Role.USAGE),
    ]
    kills = np.array([entry.at.timestamp() for entry in log if "OOM-killed" in entry.text], dtype=np.float64)
    if resource == MEMORY and kills.size:
        layers.append(Marks(label="OOM kills", x=kills))
    title = "CPU, cores" if resource == CPU else "Memory"
    return Chart(title=title, x=Axis(unit=Unit.TIME), y=Axis(unit=_UNITS[resource], low=0.0), layers=layers)


def workload_chart(resource: str, series: Series) -> Chart:
    """Return what all pods of a workload use, request and should request over time."""
    return replace(fleet_chart(resource, series), title="CPU of all pods" if resource == CPU else "Memory of all pods")


def replica_chart(series: Series, bounds: tuple[int, int] | None, decided: Mapping[float, str] = NO_DECISIONS) -> Chart:
    """Return how many replicas there were, within which bounds, and when and why somebody decided to change it."""
    layers: list[Layer] = [
        Line(label="replicas", x=series.times, y=series["pods"], role=Role.REPLICAS, step=True),
    ]
    if bounds is not None:
        layers += [
            _level(label, series.times, float(value), role=Role.BOUNDS)
            for label, value in (("minimum", bounds[0]), ("maximum", bounds[1]))
        ]
    if decided:
        times = np.array(list(decided), dtype=np.float64)
        layers.append(Marks(label="decisions", x=times, names=tuple(decided.values()), role=Role.OTHER))
    return Chart(title="Replicas", x=Axis(unit=Unit.TIME), y=Axis(unit=Unit.COUNT, low=0.0), layers=layers)


def with_bounds(chart: Chart, times: Numbers, bounds: Mapping[str, float]) -> Chart:
    """Return a chart of usage with the bounds of a recommendation, where they are near enough to be drawn."""
    highest = max(
        (float(np.nanmax(layer.y)) for layer in chart.layers if isinstance(layer, Line) and layer.y.size), default=0.0
    )
    added = [
        _level(label, times, value, role=Role.BOUNDS)
        for label, value in bounds.items()
        if highest <= 0 or value <= _FAR * highest
    ]
    return replace(chart, layers=[*chart.layers, *added])


def histogram_chart(container: str, resource: str, trace: Mapping[str, Any]) -> Chart | None:
    """Return the histogram of a recommender's trace with the percentile it goes by; None where it is empty."""
    buckets = trace.get("histogram") or []
    if not buckets:
        return None
    scale = 1000.0 if resource == CPU else 1.0
    edges = np.array([buckets[0][0], *(bucket[1] for bucket in buckets)], dtype=np.float64) / scale
    heights = np.array([bucket[2] for bucket in buckets], dtype=np.float64)
    target = (trace.get("bounds") or {}).get("target") or {}
    layers: list[Layer] = [Bars(label="share of samples", edges=edges, heights=heights)]
    for label, value, role in (
        (f"p{100 * float(target.get('percentile', 0)):.0f}", target.get("measured"), Role.REQUEST),
        ("recommended", target.get("result"), Role.TARGET),
    ):
        if value is not None:
            layers.append(Marks(label=label, x=np.array([float(value) / scale]), role=role))
    return Chart(
        title=f"{container}: {resource} samples of the recommender",
        x=Axis(unit=_UNITS[resource]),
        y=Axis(unit=Unit.RATIO, low=0.0),
        layers=layers,
    )


def within(series: Series, seconds: float | None) -> Series:
    """Return the last part of what was seen; all of it where no length is given."""
    if seconds is None or not series.times.size:
        return series
    kept = series.times >= series.times[-1] - seconds
    return Series(series.times[kept], {name: values[kept] for name, values in series.fields.items()})


def _level(label: str, times: Numbers, value: float, *, role: Role) -> Line:
    ends = times[[0, -1]] if times.size else np.zeros(0)
    return Line(label=label, x=ends, y=np.full(ends.size, value), role=role, dashed=True)
