"""What a replay looks like: the same charts for the HTML report and, small, for the terminal.

Every comparison has two axes: what a policy reserves, and what goes wrong. Left is cheaper, down is safer, and the
clairvoyant stands in the corner that nobody can pass.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from kubetide.charts import Axis, Chart, Line, Marks, Points, Role, Unit
from kubetide.charts.page import Section, Table
from kubetide.replay.core.spec import PolicySpec, built_in
from kubetide.replay.report import table
from kubetide.replay.runs import Options, Outcome
from kubetide.replay.worst import Followed, FollowedService, follow, follow_services, worst_services, worst_workloads

CLAIRVOYANT = "oracle"
_LEAST_SHARE = 0.001
WORST = 3
"""Workloads and services shown per policy."""
_TRADES = (
    ("Memory: footprint against overruns", "memory_footprint", "overruns", "footprint, clairvoyant = 1", "overruns"),
    ("CPU: footprint against work above the request", "cpu_footprint", "work_above", "reserved ÷ used", "work above"),
    ("Replicas: replica-hours against late work", "replicas_to_minimum", "late", "replica-hours ÷ minimum", "late"),
    ("Money against overruns", "money", "overruns", "money for sizes", "overruns"),
    ("Money against late work", "replica_money", "late", "money for replicas", "late"),
)


def with_clairvoyant(policies: Sequence[PolicySpec]) -> list[PolicySpec]:
    """Return the policies, with the clairvoyant behind them where sizes are compared without it."""
    limit = built_in(CLAIRVOYANT)
    assert limit is not None
    compared = [policy for policy in policies if policy.sizes is not None]
    return [*policies, limit] if compared and all(each.name != CLAIRVOYANT for each in policies) else list(policies)


def trade_offs(outcomes: Sequence[Outcome]) -> list[Chart]:
    """Return what policies reserve against what goes wrong; a chart each where there is anything to compare."""
    charts = []
    for title, across, down, x_label, y_label in _TRADES:
        placed = [
            (each.policy, x, y)
            for each in outcomes
            if (x := each.figures.get(across, np.nan)) == x and (y := each.figures.get(down, np.nan)) == y
        ]
        if not placed:
            continue
        layers = [
            Points(
                label=label,
                x=np.array([x for _, x, _ in part]),
                y=np.array([y for _, _, y in part]),
                names=[name for name, _, _ in part],
                role=role,
            )
            for label, role, part in (
                ("policies", Role.USAGE, [each for each in placed if each[0] != CLAIRVOYANT]),
                ("clairvoyant: the limit", Role.LIMIT, [each for each in placed if each[0] == CLAIRVOYANT]),
            )
            if part
        ]
        unit = Unit.MONEY if "money" in across else Unit.NUMBER
        # Where nothing goes wrong, a millionth of it is not to fill the chart.
        high = None if max(y for _, _, y in placed) > _LEAST_SHARE else _LEAST_SHARE
        y_axis = Axis(unit=Unit.RATIO, label=y_label, high=high)
        charts.append(Chart(title=title, x=Axis(unit=unit, label=x_label), y=y_axis, layers=layers))
    return charts


def workload_charts(each: Followed) -> list[Chart]:
    """Return memory and CPU of a workload: usage, the request it had, the request it would have had."""
    time = Axis(unit=Unit.TIME)
    charts = []
    for resource, unit, used, old, new in (
        ("memory", Unit.BYTES, each.memory, each.old_memory, each.new_memory),
        ("CPU", Unit.CORES, each.cpu, each.old_cpu, each.new_cpu),
    ):
        if np.isnan(used).all():
            continue
        layers: list[Line | Marks] = [Line(label="usage", x=each.times, y=used, role=Role.USAGE)]
        if each.policy != "current" and not np.isnan(old).all():
            layers.append(Line(label="old request", x=each.times, y=old, role=Role.REQUEST, step=True, dashed=True))
        layers.append(Line(label=f"request by {each.policy}", x=each.times, y=new, role=Role.TARGET, step=True))
        if resource == "memory":
            layers += [
                Marks(label=label, x=at, role=role)
                for label, at, role in (
                    ("overrun", each.overruns, Role.EVENT),
                    ("recorded OOM kill", each.oom_kills, Role.LIMIT),
                )
                if at.size
            ]
        charts.append(Chart(title=f"{each.workload}: {resource}", x=time, y=Axis(unit=unit), layers=layers))
    return charts


def service_chart(each: FollowedService) -> Chart:
    """Return the replica timeline of a service beside its demand."""
    layers = [Line(label="demand in pods", x=each.times, y=each.demand, role=Role.USAGE)]
    if each.recorded.size:
        # What was recorded last held until the end.
        at = np.append(each.recorded_times, max(float(each.times[-1]), float(each.recorded_times[-1])))
        counts = np.append(each.recorded, each.recorded[-1])
        layers.append(Line(label="recorded replicas", x=at, y=counts, role=Role.REQUEST, step=True, dashed=True))
    layers.append(Line(label=f"replicas by {each.policy}", x=each.times, y=each.replicas, role=Role.TARGET, step=True))
    return Chart(title=each.service, x=Axis(unit=Unit.TIME), y=Axis(unit=Unit.COUNT), layers=layers)


def sections(
    path: Path, policies: Sequence[PolicySpec], outcomes: Sequence[Outcome], options: Options
) -> list[Section]:
    """Return the report of a replay; the worst workloads are replayed once more to be followed."""
    headings, rows = table(outcomes)
    parts = [
        Section(
            heading="Policies side by side",
            text=[
                "Open loop: usage is as recorded, whatever a policy would have changed. Intervals: 95 %, by workload."
            ],
            table=Table(headings=headings, rows=rows),
            charts=trade_offs(outcomes),
        )
    ]
    followed = follow(path, policies, _chosen(outcomes, worst_workloads), options)
    services = _chosen(outcomes, worst_services)
    timelines = follow_services(path, policies, services) if any(services.values()) else []
    for outcome in outcomes:
        charts = [chart for each in followed if each.policy == outcome.policy for chart in workload_charts(each)]
        if charts:
            text = ["Of all pods of a workload the highest usage and request. Requests change when the policy says so."]
            parts.append(Section(heading=f"Worst workloads under {outcome.policy}", text=text, charts=charts))
        charts = [service_chart(each) for each in timelines if each.policy == outcome.policy]
        if charts:
            parts.append(Section(heading=f"Replicas of the worst services under {outcome.policy}", charts=charts))
    return parts


def _chosen(outcomes: Sequence[Outcome], worst: Callable[[Outcome, int], list[str]]) -> dict[str, list[str]]:
    """Return the worst of each policy that could be put in force: the clairvoyant is not one."""
    return {each.policy: worst(each, WORST) for each in outcomes if each.policy != CLAIRVOYANT}
