"""Charts of a container's usage: a band from p50 to p95, with request, limit, recommendation and OOM kills."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kubetide.charts import Axis, Band, Chart, Line, Marks, Role, Unit
from kubetide.charts.axes import written
from kubetide.charts.chart import Layer, Numbers
from kubetide.recommend.core.rows import Row
from kubetide.recommend.core.workloads import NOTHING, Sizes, Usage
from kubetide.vpa.core.policy import CPU, MEMORY

POINTS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class VpaMarks:
    """What a VPA recommends for a container, and when its updater touched the pods, in seconds."""

    target: Sizes = NOTHING
    lower: Sizes = NOTHING
    upper: Sizes = NOTHING
    evictions: tuple[float, ...] = ()
    resizes: tuple[float, ...] = ()


_NO_MARKS = VpaMarks()


def charts(
    usage: Usage,
    row: Row,
    *,
    points: int = POINTS,
    targets: Mapping[str, int] | None = None,
    vpa: VpaMarks = _NO_MARKS,
) -> tuple[Chart, Chart]:
    """Return the charts of CPU and memory; samples are folded into `points` intervals.

    `targets` are utilization targets of an HPA in percent, if they are known: lines at that share of the request.
    """
    new, shares = row.recommended, targets or {}
    ends = np.array([usage.start, usage.start + len(usage.cpu) * usage.step], dtype=np.float64)
    kills = np.array([kill.at_seconds for kill in usage.ooms], dtype=np.float64)
    cpu = _chart(
        f"{row.workload} {row.container}: CPU",
        Unit.CORES,
        _folded(usage.cpu, usage, points),
        ends,
        (
            ("request", Role.REQUEST, _scaled(row.current.cpu_request_millis)),
            ("limit", Role.LIMIT, _scaled(row.current.cpu_limit_millis)),
            ("recommended", Role.TARGET, _scaled(new.cpu_request_millis if new else None)),
            ("HPA target", Role.OTHER, _share(_scaled(row.current.cpu_request_millis), shares.get(CPU))),
            ("VPA target", Role.BOUNDS, _scaled(vpa.target.cpu_millis)),
            ("VPA lower bound", Role.BOUNDS, _scaled(vpa.lower.cpu_millis)),
            ("VPA upper bound", Role.BOUNDS, _scaled(vpa.upper.cpu_millis)),
        ),
        _marks(vpa),
    )
    memory = _chart(
        f"{row.workload} {row.container}: memory",
        Unit.BYTES,
        _folded(usage.memory, usage, points),
        ends,
        (
            ("request", Role.REQUEST, row.current.memory_request_bytes),
            ("limit", Role.LIMIT, row.current.memory_limit_bytes),
            ("recommended", Role.TARGET, new.memory_request_bytes if new else None),
            ("HPA target", Role.OTHER, _share(row.current.memory_request_bytes, shares.get(MEMORY))),
            ("VPA target", Role.BOUNDS, vpa.target.memory_bytes),
            ("VPA lower bound", Role.BOUNDS, vpa.lower.memory_bytes),
            ("VPA upper bound", Role.BOUNDS, vpa.upper.memory_bytes),
        ),
        [*([Marks(label="OOM kills", x=kills)] if kills.size else []), *_marks(vpa)],
    )
    return cpu, memory


def replicas(usage: Usage, row: Row) -> Chart:
    """Return the chart of how many pods were measured at a time."""
    count = np.isfinite(usage.cpu).sum(axis=1).astype(np.float64)
    times = usage.start + np.arange(count.size, dtype=np.float64) * usage.step
    line = Line(label="pods", x=times, y=count, role=Role.REPLICAS, step=True)
    title = f"{row.workload} {row.container}: pods"
    return Chart(title=title, x=Axis(unit=Unit.TIME), y=Axis(unit=Unit.COUNT, low=0.0), layers=[line])


def _chart(
    title: str,
    unit: Unit,
    band: tuple[Numbers, Numbers, Numbers],
    ends: Numbers,
    lines: tuple[tuple[str, Role, float | None], ...],
    marks: Sequence[Marks],
) -> Chart:
    layers: list[Layer] = [Band(label="usage p50 to p95", x=band[0], low=band[1], high=band[2])]
    layers += [
        # With the amount: without colours it is what tells lines apart.
        Line(
            label=f"{label} {written(value, unit)}",
            x=ends,
            y=np.full(2, float(value)),
            role=role,
            dashed=_dashed(label, role),
        )
        for label, role, value in lines
        if value is not None
    ]
    layers += marks
    return Chart(title=title, x=Axis(unit=Unit.TIME), y=Axis(unit=unit, low=0.0), layers=layers)


def _dashed(label: str, role: Role) -> bool:
    return role is Role.LIMIT or (role is Role.BOUNDS and label != "VPA target")


def _marks(vpa: VpaMarks) -> list[Marks]:
    return [
        Marks(label=label, x=np.array(times, dtype=np.float64))
        for label, times in (("evictions", vpa.evictions), ("resizes", vpa.resizes))
        if times
    ]


def _folded(samples: Numbers, usage: Usage, points: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return times, p50 and p95 over the samples of all pods in each interval; NaN where there are none."""
    per = max(1, -(-len(samples) // points))
    times: list[float] = []
    low: list[float] = []
    high: list[float] = []
    for at in range(0, len(samples), per):
        part = samples[at : at + per]
        ordered = np.sort(part[np.isfinite(part)])
        times.append(usage.start + (at + min(per, len(part)) / 2) * usage.step)
        for share, into in ((0.5, low), (0.95, high)):
            place = max(0, int(np.ceil(share * ordered.size)) - 1)
            into.append(float(ordered[place]) if ordered.size else np.nan)
    return np.array(times, dtype=np.float64), np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)


def _scaled(millis: int | None) -> float | None:
    return None if millis is None else millis / 1000


def _share(request: float | None, percent: int | None) -> float | None:
    return None if request is None or percent is None else request * percent / 100
