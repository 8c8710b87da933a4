"""Outcomes of a replay as a table for people, and as JSON or CSV for programs."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kubetide.recording.reader import Recording
from kubetide.replay.runs import Outcome

SHOWN = {
    "memory_cost": ("memory: cost", "{:.2f}"),
    "memory_footprint": ("memory: footprint to the clairvoyant", "{:.2f}"),
    "overruns": ("memory: overruns", "{:.1%}"),
    "memory_slack": ("memory: slack", "{:.0%}"),
    "cpu_cost": ("CPU: cost", "{:.2f}"),
    "cpu_footprint": ("CPU: footprint to the work done", "{:.2f}"),
    "work_above": ("CPU: work above the request", "{:.1%}"),
    "cpu_slack": ("CPU: slack", "{:.0%}"),
    "throttled_work": ("CPU: work that was throttled when recorded", "{:.1%}"),
    "under": ("samples above a request", "{:.1%}"),
    "changes": ("changes per container-week", "{:.1f}"),
    "restarts": ("changes that need a restart, per container-week", "{:.1f}"),
    "money": ("money for sizes", "{:.2f}"),
    "replica_cost": ("replicas: cost", "{:.2f}"),
    "services": ("replicas: services counted", "{:.0f}"),
    "replica_hours": ("replicas: replica-hours", "{:.0f}"),
    "replicas_to_minimum": ("replicas: replica-hours to the minimum", "{:.2f}"),
    "late": ("replicas: late work", "{:.2%}"),
    "lost": ("replicas: lost work", "{:.2%}"),
    "under_seconds": ("replicas: under-provisioned s/day", "{:.0f}"),
    "reversals": ("replicas: reversals per hour", "{:.1f}"),
    "replica_money": ("money for replicas", "{:.2f}"),
}
"""Figures of the table, in order; the others are in JSON and CSV."""
_WITH_INTERVAL = frozenset({"memory_cost", "cpu_cost", "replica_cost", "overruns"})


def table(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: a figure each, a column per policy; figures that no policy has are left out."""
    shown = [name for name in SHOWN if any(_known(each.figures.get(name)) for each in outcomes)]
    rows = [[SHOWN[name][0], *(_cell(outcome, name) for outcome in outcomes)] for name in shown]
    return ["", *(outcome.policy for outcome in outcomes)], rows


def _cell(outcome: Outcome, name: str) -> str:
    value, form = outcome.figures.get(name), SHOWN[name][1]
    if value is None or not _known(value):
        return "–"
    text = form.format(value)
    if name in _WITH_INTERVAL and name in outcome.intervals:
        low, high = outcome.intervals[name]
        text += f" ({form.format(low)}–{form.format(high)})"
    return text


def _known(value: float | None) -> bool:
    return value is not None and value == value


def why_nothing(path: Path, outcomes: Sequence[Outcome], period_seconds: int | None = None) -> str | None:
    """Return why no policy has anything to show; None where one has."""
    return None if any(map(_has_figures, outcomes)) else _why(path, period_seconds)


def silent(path: Path, outcomes: Sequence[Outcome], period_seconds: int | None = None) -> list[str]:
    """Return a line for every policy that has nothing to show."""
    reason = _why(path, period_seconds)
    return [f"{each.policy}: {reason}" for each in outcomes if not _has_figures(each)]


def _has_figures(outcome: Outcome) -> bool:
    return any(_known(value) and name != "cells" for name, value in outcome.figures.items())


def _why(path: Path, period_seconds: int | None) -> str:
    about = Recording(path).manifest
    if not about.rows.get("usage") and not about.rows.get("load"):
        return "holds neither usage nor load"
    hours, period = (about.end - about.start) / 3600.0, period_seconds or about.period_seconds
    return (
        f"nothing can be counted in its {hours:.3g} hours: periods of {period / 3600.0:.3g} hours count after the "
        "warm-up, with a size in force; give a shorter --period (current needs recorded requests)"
    )


def as_json(outcomes: Sequence[Outcome]) -> bytes:
    """Return all figures and intervals."""
    content = [
        {
            "policy": each.policy,
            "figures": {name: value if _known(value) else None for name, value in each.figures.items()},
            "intervals": {name: list(pair) for name, pair in each.intervals.items()},
            "workloads": len(each.workloads),
        }
        for each in outcomes
    ]
    return msgspec.json.format(msgspec.json.encode({"outcomes": content}), indent=2)


def as_csv(outcomes: Sequence[Outcome]) -> str:
    """Return one line per policy and figure, with its interval."""
    target = io.StringIO()
    writer: Any = csv.writer(target, lineterminator="\n")
    writer.writerow(["policy", "figure", "value", "low", "high"])
    for each in outcomes:
        for name, value in each.figures.items():
            low, high = each.intervals.get(name, ("", ""))
            writer.writerow([each.policy, name, value if _known(value) else "", low, high])
    return target.getvalue()
