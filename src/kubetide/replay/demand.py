"""Demand of services from a recording: a metric that was recorded as load, or what their pods used.

What pods used saturates at what they had, so it understates demand in times of trouble; a metric of arrivals does not.
Samples more often than every 15 s are averaged, up to a minute they are held, beyond that they lie on straight lines
between neighbours. Between samples that are further apart than three intervals nothing is known.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from kubetide.errors import InvalidInput
from kubetide.recording.core.layout import Grid
from kubetide.recording.reader import Recording
from kubetide.replay.core.services import STEP_SECONDS, Services
from kubetide.replay.samples import Samples
from kubetide.stats.buckets import Floats, Ints

_DAY_LINES = 86400 // STEP_SECONDS
DEMAND_METRIC = "demand_cores"
"""The metric whose values are cores' worth of arriving work."""
_Found = tuple[list[str], list[tuple[Ints, Floats]], list[float]]
"""Services, their demand in cores with its times, and the cores of a pod."""


def services_of(source: Recording | Samples) -> Services:
    """Return the services of a recording, from load where it is recorded and from CPU usage otherwise."""
    if isinstance(source, Samples):
        subject, interval = "samples", source.interval_seconds
        names, series, cores = _from_samples(source)
    else:
        subject, interval = str(source.path), source.manifest.interval_seconds
        names, series, cores = _from_load(source)
        if not names:
            names, series, cores = _from_usage(source)
    if not names:
        raise InvalidInput("has neither load nor CPU usage to count replicas from", subject=subject)
    start = min(int(times[0]) for times, _ in series)
    end = max(int(times[-1]) for times, _ in series)
    lines = (end - start + interval) // STEP_SECONDS
    demand = np.full((lines, len(names)), np.nan)
    skip = np.zeros(len(names), dtype=np.int64)
    for place, (times, values) in enumerate(series):
        stretch = resampled(times, values, interval)
        at = (int(times[0]) - start) // STEP_SECONDS
        stretch = stretch[: lines - at]
        demand[at : at + stretch.size, place] = stretch / cores[place]
        # A week or more is counted from its fourth day on: what learns a day's shape has seen three.
        skip[place] = at + (3 * _DAY_LINES if stretch.size > 7 * _DAY_LINES else 0)
    return Services(names=tuple(names), demand=demand, start_seconds=start, pod_cores=np.array(cores), skip=skip)


def _from_load(recording: Recording) -> _Found:
    rows = recording.rows("load")
    found: dict[str, list[tuple[int, float]]] = {}
    for namespace, workload, metric, time, value in zip(
        *(rows[name] for name in ("namespace", "workload", "metric", "time", "value")), strict=True
    ):
        if metric == DEMAND_METRIC and value is not None:
            found.setdefault(f"{namespace}/{workload}", []).append((time // 1_000_000, value))
    series = []
    for name in found:
        ordered = dict(sorted(found[name]))
        series.append((np.array(list(ordered), dtype=np.int64), np.array(list(ordered.values()))))
    return list(found), series, [recording.manifest.pod_cores] * len(found)


def _from_usage(recording: Recording) -> _Found:
    who, interval = recording.containers, recording.manifest.interval_seconds
    requests = _requests(recording)
    every: _Found = [], [], []
    for block in recording.blocks:
        members = np.flatnonzero(who.block == block).tolist()
        names = [f"{who.namespace[m]}/{who.workload[m]}" for m in members]
        asked = [requests.get(member) for member in members]
        found = _summed(names, asked, recording.grids(block), interval, recording.manifest.pod_cores)
        every = every[0] + found[0], every[1] + found[1], every[2] + found[2]
    return every


def _from_samples(samples: Samples) -> _Found:
    asked = [samples.sizes[at][-1][1] if samples.sizes.get(at) else None for at in range(len(samples.workloads))]
    names = [service_name(each) for each in samples.workloads]
    interval = samples.interval_seconds
    return _summed(names, asked, samples.grids(interval_seconds=interval), interval, 1.0)


def service_name(workload: str) -> str:
    """Return the service of a container of a workload: NAMESPACE/NAME."""
    parts = workload.split("/")
    return f"{parts[0]}/{parts[2]}" if len(parts) == 4 else workload


def _summed(
    workloads: Sequence[str],
    requests: Sequence[float | None],
    grids: Iterable[Grid],
    interval: int,
    default_cores: float,
) -> _Found:
    """Return what the pods of each workload used together, and the cores that one of them asks for."""
    numbers: dict[str, int] = {}
    group = np.array([numbers.setdefault(name, len(numbers)) for name in workloads])
    parts, starts = [], []
    for grid in grids:
        known = ~np.isnan(grid.cpu)
        total, seen = np.zeros((len(grid.cpu), len(numbers))), np.zeros((len(grid.cpu), len(numbers)))
        lines = np.arange(len(grid.cpu))[:, None]
        np.add.at(total, (lines, group), np.where(known, grid.cpu, 0.0))
        np.add.at(seen, (lines, group), known)
        parts.append(np.where(seen > 0, total, np.nan))
        starts.append(grid.start_seconds + np.arange(len(grid.cpu)) * interval)
    times, totals = np.concatenate(starts), np.concatenate(parts)
    names: list[str] = []
    series: list[tuple[Ints, Floats]] = []
    cores: list[float] = []
    for name, number in numbers.items():
        there = ~np.isnan(totals[:, number])
        if there.any():
            asked = sorted(each for each, mine in zip(requests, workloads, strict=True) if each and mine == name)
            names.append(name)
            series.append((times[there], totals[there, number]))
            cores.append(asked[len(asked) // 2] if asked else default_cores)
    return names, series, cores


def _requests(recording: Recording) -> dict[int, float]:
    rows = recording.rows("sizes")
    pairs = zip(rows["container_id"], rows["cpu_request_millis"], strict=True)
    return {container: millis / 1000.0 for container, millis in pairs if millis}


def resampled(times: Ints, values: Floats, interval: int) -> Floats:
    """Return a series in steps of 15 s from its first sample on; NaN in gaps."""
    lines = (int(times[-1] - times[0]) + interval) // STEP_SECONDS
    if interval < STEP_SECONDS:
        line = (times - times[0]) // STEP_SECONDS
        number = np.bincount(line, minlength=lines)[:lines]
        total = np.bincount(line, weights=values, minlength=lines)[:lines]
        return np.where(number > 0, total / np.maximum(number, 1), np.nan)
    wanted = times[0] + np.arange(lines) * STEP_SECONDS
    before = np.searchsorted(times, wanted, side="right") - 1
    if interval <= 60:
        return np.where(wanted - times[before] < interval, values[before], np.nan)
    middles = times + (interval - STEP_SECONDS) / 2.0
    right = np.clip(np.searchsorted(middles, wanted, side="right"), 1, max(times.size - 1, 1))
    left = right - 1
    right = np.minimum(right, times.size - 1)
    width = np.maximum(middles[right] - middles[left], 1.0)
    share = np.clip((wanted - middles[left]) / width, 0.0, 1.0)
    drawn = values[left] + (values[right] - values[left]) * share
    return np.where(wanted - times[before] < 3 * interval, drawn, np.nan)
