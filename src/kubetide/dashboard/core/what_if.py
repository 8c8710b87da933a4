"""What a workload would get with other numbers: percentile and margin of the recommender, target of the autoscaler.

Sizes come from the estimator of the replay on what was measured, replica counts from its closed loop on the demand
that the usage stands for: what is shown here is what `kubetide replay` would say about the same samples. The loop runs
over the last hours only, so that an answer takes a fraction of a second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kubetide.charts import Axis, Chart, Line, Role, Unit
from kubetide.recommend.core.money import Prices
from kubetide.recommend.core.patches import patch
from kubetide.recommend.core.rows import Row, rows
from kubetide.recommend.core.sizing import Options
from kubetide.recommend.core.workloads import Usage, Workload, key_of
from kubetide.replay.core.services import STEP_SECONDS, LoadFigures, Services, replay_services
from kubetide.replay.core.spec import Replicas, Sizes, maker_of
from kubetide.stats.buckets import Floats

NAME = "what-if"
MOST_STEPS = 2880
"""Steps of 15 s that the loop runs over: half a day."""
_SHORT_GAP = 3
_MIN_CPU_MILLIS, _MIN_MEMORY_BYTES = 25.0, 250.0 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What is to be tried."""

    percentile: float = 0.9
    margin: float = 0.15
    target: int | None = None
    """Of CPU utilization in percent; None where no autoscaler goes by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How an autoscaler would have fared: mean and most replicas, shares of demand that came too late or was lost."""

    target: int
    mean: float
    most: int
    changes: int
    late: float
    lost: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What it would come to."""

    numbers: Numbers
    rows: tuple[Row, ...]
    patch: Mapping[str, Any] | None
    """None where nothing would change."""
    counts: Counts | None = None
    chart: Chart | None = None


def what_if(
    workload: Workload,
    usage: Mapping[str, Usage],
    numbers: Numbers,
    *,
    bounds: tuple[int, int] = (1, 200),
    prices: Prices | None = None,
) -> Answer:
    """Return what these numbers would have recommended from what was measured of each container."""
    share = len(workload.containers)
    sizes = Sizes(
        estimator="vpa",
        numbers={
            "target_cpu": numbers.percentile,
            "target_memory": numbers.percentile,
            "margin": numbers.margin,
            "min_cpu_millis": _MIN_CPU_MILLIS / share,
            "min_memory_bytes": _MIN_MEMORY_BYTES / share,
        },
    )
    tried = Workload(
        api_version=workload.api_version,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        replicas=workload.replicas,
        containers=workload.containers,
        pods=workload.pods,
        nodes=workload.nodes,
        utilization={} if numbers.target is None else {"cpu": numbers.target},
    )
    found = rows(
        [tried],
        {key_of(tried, name): series for name, series in usage.items()},
        Options(estimator=NAME, estimators={NAME: maker_of(sizes)}),
        prices=prices,
    )
    changed = [row for row in found if row.recommended is not None and row.recommended != row.current]
    counts, chart = _counted(workload, usage, numbers, bounds)
    return Answer(
        numbers=numbers,
        rows=tuple(found),
        patch=patch(sorted(changed, key=lambda row: row.position)) if changed else None,
        counts=counts,
        chart=chart,
    )


def _counted(
    workload: Workload, usage: Mapping[str, Usage], numbers: Numbers, bounds: tuple[int, int]
) -> tuple[Counts | None, Chart | None]:
    cores = sum(one.requests.cpu_millis or 0 for one in workload.containers) / 1000
    if numbers.target is None or not usage or cores <= 0:
        return None, None
    start, demand = _demand(list(usage.values()), cores)
    if not demand.size:
        return None, None
    services = Services(
        names=(workload.name,),
        demand=demand[:, None],
        start_seconds=start,
        pod_cores=np.array([cores]),
        skip=np.zeros(1, dtype=np.int64),
    )
    played = replay_services(services, Replicas(target=numbers.target, min=bounds[0], max=bounds[1]), keep=True)
    replicas = np.array([counts[0] for counts in played.counts], dtype=np.float64)
    times = start + STEP_SECONDS * np.arange(demand.size, dtype=np.float64)
    needed = Line(label="pods' worth of demand", x=times, y=demand, role=Role.USAGE)
    would = Line(label=f"replicas at {numbers.target} %", x=times, y=replicas, role=Role.TARGET, step=True)
    chart = Chart(
        title="Replicas it would have had", x=Axis(unit=Unit.TIME), y=Axis(unit=Unit.COUNT, low=0.0),
        layers=[needed, would],
    )  # fmt: skip
    return _figures(numbers.target, played, replicas), chart


def _figures(target: int, played: LoadFigures, replicas: Floats) -> Counts:
    work = float(played.work[0])
    return Counts(
        target=target,
        mean=float(replicas.mean()),
        most=int(replicas.max()),
        changes=int(played.changes[0]),
        late=float(played.late[0]) / work if work else 0.0,
        lost=float(played.lost[0]) / work if work else 0.0,
    )


def _held(values: Floats) -> Floats:
    """Return values with short gaps closed by what was before: samples do not come on the second."""
    last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(values.size), -1))
    near = (last >= 0) & (np.arange(values.size) - last <= _SHORT_GAP)
    return np.where(near, values[np.maximum(last, 0)], np.nan)


def _demand(usage: list[Usage], cores: float) -> tuple[int, Floats]:
    """Return when it begins, and the CPU of all pods in pods' worth, every 15 s: a value holds until the next."""
    first = usage[0]
    lines = min(len(each.cpu) for each in usage)
    total = np.zeros(lines)
    for each in usage:
        total += np.nansum(each.cpu[:lines], axis=1)
    known = np.any([np.isfinite(each.cpu[:lines]).any(axis=1) for each in usage], axis=0)
    total = _held(np.where(known, total, np.nan) / cores)
    repeats = max(1, round(first.step / STEP_SECONDS))
    even = np.repeat(total, repeats) if first.step >= STEP_SECONDS else total[:: max(1, STEP_SECONDS // first.step)]
    seconds = STEP_SECONDS if first.step >= STEP_SECONDS else first.step * max(1, STEP_SECONDS // first.step)
    kept = even[-MOST_STEPS:]
    return first.start + (even.size - kept.size) * seconds, kept
