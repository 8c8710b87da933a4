"""Charts of a container's usage: a band from p50 to p95, with request, limit, recommendation and OOM kills."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from kubetide.charts import Axis, Band, Chart, Line, Marks, Role, Unit
from kubetide.charts.chart import Layer, Numbers
from kubetide.recommend.core.rows import Row
from kubetide.recommend.core.workloads import Usage
from kubetide.vpa.core.policy import CPU, MEMORY

POINTS = 120


def charts(
    usage: Usage, row: Row, *, points: int = POINTS, targets: Mapping[str, int] = MappingProxyType({})
) -> tuple[Chart, Chart]:
    """Return the charts of CPU and memory; samples are folded into `points` intervals.

    `targets` are utilization targets of an HPA in percent: lines at that share of the request.
    """
    new = row.recommended
    ends = np.array([usage.start, usage.start + (len(usage.cpu) - 1) * usage.step], dtype=np.float64)
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
            ("HPA target", Role.OTHER, _share(_scaled(row.current.cpu_request_millis), targets.get(CPU))),
        ),
        np.zeros(0),
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
            ("HPA target", Role.OTHER, _share(row.current.memory_request_bytes, targets.get(MEMORY))),
        ),
        kills,
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
    kills: Numbers,
) -> Chart:
    layers: list[Layer] = [Band(label="usage p50 to p95", x=band[0], low=band[1], high=band[2])]
    layers += [
        Line(label=label, x=ends, y=np.full(2, float(value)), role=role, dashed=role is Role.LIMIT)
        for label, role, value in lines
        if value is not None
    ]
    if kills.size:
        layers.append(Marks(label="OOM kills", x=kills))
    return Chart(title=title, x=Axis(unit=Unit.TIME), y=Axis(unit=unit, low=0.0), layers=layers)


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
