"""Simulated runs as a table, as series for other tools, and as a report with charts."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kubetide.charts import Axis, Chart, Line, Marks, Points, Role, Unit
from kubetide.charts.page import Section, Table
from kubetide.errors import InvalidInput
from kubetide.recording.arrow import arrow, parquet
from kubetide.simulate.core.counting import COLUMNS
from kubetide.simulate.runs import Simulated

SHOWN = {
    "time_to_cover": ("time to cover a step", "{:.0f} s"),
    "slo_missed": ("SLO missed", "{:.2%}"),
    "pod_hours": ("pod-hours", "{:.1f}"),
    "oom_kills": ("OOM kills", "{:.0f}"),
    "evictions": ("evictions", "{:.0f}"),
    "flaps": ("flaps", "{:.0f}"),
    "core_hours": ("core-hours requested", "{:.1f}"),
    "gib_hours": ("GiB-hours requested", "{:.1f}"),
    "money": ("money", "{:.2f}"),
}
_WHOLE = frozenset({"wanted", "pods", "ready"})


def table(outcomes: Sequence[Simulated]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: a figure each, a column per policy."""
    rows = []
    for name, (label, form) in SHOWN.items():
        values = [each.figures.get(name, float("nan")) for each in outcomes]
        if any(value == value for value in values):
            rows.append([label, *(form.format(value) if value == value else "–" for value in values)])
    return ["", *(each.run.policy for each in outcomes)], rows


def as_json(outcomes: Sequence[Simulated]) -> bytes:
    """Return all figures, and the digest of what was left at the end."""
    content = [
        {
            "policy": each.run.policy,
            "seed": each.run.seed,
            "figures": {name: value if value == value else None for name, value in each.figures.items()},
            "digest": each.run.digest,
        }
        for each in outcomes
    ]
    return msgspec.json.format(msgspec.json.encode({"outcomes": content}), indent=2)


def write_series(path: Path, outcomes: Sequence[Simulated]) -> None:
    """Write one row per policy, workload and look: Parquet where the name says so, CSV otherwise."""
    try:
        if path.suffix == ".parquet":
            _write_parquet(path, outcomes)
        else:
            path.write_text(series_csv(outcomes), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", subject=str(path)) from error


def series_csv(outcomes: Sequence[Simulated]) -> str:
    """Return the series of all runs as CSV."""
    target = io.StringIO()
    writer: Any = csv.writer(target, lineterminator="\n")
    writer.writerow(["policy", "workload", *COLUMNS])
    for each in outcomes:
        for workload, columns in each.run.series.items():
            for row in zip(*(columns[name].tolist() for name in COLUMNS), strict=True):
                written = (_written(name, value) for name, value in zip(COLUMNS, row, strict=True))
                writer.writerow([each.run.policy, workload, *written])
    return target.getvalue()


def _written(name: str, value: float) -> float | int | str:
    if value != value:
        return ""
    return int(value) if name in _WHOLE else value


def _write_parquet(path: Path, outcomes: Sequence[Simulated]) -> None:
    pa = arrow()
    columns: dict[str, list[Any]] = {"policy": [], "workload": []}
    parts: dict[str, list[Any]] = {name: [np.zeros(0)] for name in COLUMNS}
    for each in outcomes:
        for workload, series in each.run.series.items():
            columns["policy"] += [each.run.policy] * series["time"].size
            columns["workload"] += [workload] * series["time"].size
            for name in COLUMNS:
                parts[name].append(series[name])
    whole = {name: np.concatenate(part) for name, part in parts.items()}
    parquet().write_table(pa.table({**columns, **whole}), str(path), compression="zstd")


def sections(outcomes: Sequence[Simulated], slo_seconds: float) -> list[Section]:
    """Return the report: figures and their trade-off, then every workload under every policy."""
    headings, rows = table(outcomes)
    parts = [
        Section(
            heading="Policies side by side",
            text=[f"Closed loop: controllers on a simulated cluster, the same load and seed. SLO: {slo_seconds:g} s."],
            table=Table(headings=headings, rows=rows),
            charts=_trade_off(outcomes),
        )
    ]
    for workload in dict.fromkeys(name for each in outcomes for name in each.run.series):
        charts = [chart for each in outcomes for chart in _charts(each, workload, slo_seconds)]
        parts.append(Section(heading=workload, charts=charts))
    return parts


def _trade_off(outcomes: Sequence[Simulated]) -> list[Chart]:
    placed = [each for each in outcomes if each.figures["slo_missed"] == each.figures["slo_missed"]]
    across = "money" if all("money" in each.figures for each in placed) else "core_hours"
    if not placed:
        return []
    points = Points(
        label="policies",
        x=np.array([each.figures[across] for each in placed]),
        y=np.array([each.figures["slo_missed"] for each in placed]),
        names=[each.run.policy for each in placed],
        role=Role.USAGE,
    )
    unit = Unit.MONEY if across == "money" else Unit.NUMBER
    x, y = Axis(unit=unit, label=SHOWN[across][0]), Axis(unit=Unit.RATIO, label="SLO missed", low=0.0)
    return [Chart(title=f"{SHOWN[across][0].capitalize()} against SLO missed", x=x, y=y, layers=[points])]


def _charts(outcome: Simulated, workload: str, slo_seconds: float) -> list[Chart]:
    series = outcome.run.series.get(workload)
    if series is None:
        return []
    run, at = outcome.run, outcome.run.start + series["time"]
    kills = np.array([run.start + each for each in run.oom_kills.get(workload, ())])
    marks = [Marks(label="OOM kill", x=kills)] if kills.size else []
    time = Axis(unit=Unit.TIME)

    def line(label: str, column: str, role: Role, *, step: bool = False, dashed: bool = False) -> Line:
        return Line(label=label, x=at, y=series[column], role=role, step=step, dashed=dashed)

    replicas = [line("ready", "ready", Role.REPLICAS, step=True)]
    if not np.isnan(series["wanted"]).all():
        replicas.insert(0, line("wanted", "wanted", Role.TARGET, step=True, dashed=True))
    charts = [
        Chart(title=f"{run.policy}: replicas", x=time, y=Axis(unit=Unit.COUNT), layers=replicas),
        Chart(
            title=f"{run.policy}: CPU",
            x=time,
            y=Axis(unit=Unit.CORES),
            layers=[line("used", "used_cores", Role.USAGE), line("requested", "asked_cores", Role.REQUEST, step=True)],
        ),
    ]
    if series["rate"].any():
        limit = Line(label="SLO", x=at[[0, -1]], y=np.array([slo_seconds, slo_seconds]), role=Role.LIMIT, dashed=True)
        layers = [line("mean latency in seconds", "latency", Role.USAGE), limit]
        charts.append(Chart(title=f"{run.policy}: latency", x=time, y=Axis(unit=Unit.NUMBER), layers=layers))
    if marks:
        scaled = [
            Line(label=label, x=at, y=series[column] * 2.0**30, role=role, step=role is Role.REQUEST)
            for label, column, role in (("used", "used_gib", Role.USAGE), ("requested", "asked_gib", Role.REQUEST))
        ]
        charts.append(Chart(title=f"{run.policy}: memory", x=time, y=Axis(unit=Unit.BYTES), layers=[*scaled, *marks]))
    return charts
