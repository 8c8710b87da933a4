"""Demand of services from a recording: a metric that was recorded as load, or what their pods used.

A pod is as large as its containers request together; of the pods of a workload the median counts. What pods used
saturates at what they had, so it understates demand in times of trouble; a metric of arrivals does not.
Samples more often than every 15 s are averaged, up to a minute they are held, beyond that they lie on straight lines
between neighbours. Between samples that are further apart than three intervals nothing is known.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

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
_MOST_CELLS = 16_000_000
"""Steps times services in memory at once, as far as one service alone does not need more."""
_Found = tuple[list[str], list[tuple[Ints, Floats]], list[float]]
"""Services, their demand in cores with its times, and the cores of a pod."""
_Replicas = dict[str, tuple[Floats, Floats]]
"""By service: from which seconds on how many replicas were wanted."""


def services_of(source: Recording | Samples, names: Container[str] | None = None) -> Services:
    """Return services of a recording, all or those named: from recorded load, from CPU usage where there is none."""
    found: _Found = [], [], []
    for part in _parts(source):
        for name, series, cores in zip(*part, strict=True):
            if names is None or name in names:
                found[0].append(name)
                found[1].append(series)
                found[2].append(cores)
    return _services(source, found, _replicas_of(source))


def service_groups(source: Recording | Samples) -> Iterator[Services]:
    """Yield the services of a recording in groups: of a large fleet, a month in steps of 15 s fills any memory."""
    counts = _replicas_of(source)
    for names, series, cores in _parts(source):
        begin = 0
        while begin < len(names):
            first, last = int(series[begin][0][0]), int(series[begin][0][-1])
            end = begin + 1
            while end < len(names):
                first, last = min(first, int(series[end][0][0])), max(last, int(series[end][0][-1]))
                if (last - first) // STEP_SECONDS * (end + 1 - begin) > _MOST_CELLS:
                    break
                end += 1
            part = slice(begin, end)
            yield _services(source, (names[part], series[part], cores[part]), counts)
            begin = end


def _parts(source: Recording | Samples) -> Iterator[_Found]:
    """Yield services block by block, those with recorded load first; raise InvalidInput where there are none."""
    if isinstance(source, Samples):
        subject, parts = "samples", iter([_from_samples(source)])
    else:
        subject, parts = str(source.path), _of_recording(source)
    found = False
    for part in parts:
        if part[0]:
            found = True
            yield part
    if not found:
        raise InvalidInput("has neither load nor CPU usage to count replicas from", subject=subject)


def _of_recording(recording: Recording) -> Iterator[_Found]:
    load = _from_load(recording)
    yield load
    # Demand that was recorded is better than usage, which saturates; services without it are counted by usage.
    known = set(load[0])
    for part in _from_usage(recording):
        rest = [(name, one, size) for name, one, size in zip(*part, strict=True) if name not in known]
        yield [name for name, _, _ in rest], [one for _, one, _ in rest], [size for _, _, size in rest]


def _replicas_of(source: Recording | Samples) -> _Replicas:
    return {} if isinstance(source, Samples) else recorded_replicas(source)


def _services(source: Recording | Samples, found: _Found, counts: _Replicas) -> Services:
    names, series, cores = found
    interval = source.interval_seconds if isinstance(source, Samples) else source.manifest.interval_seconds
    # On multiples of 15 s, so that the steps of a service do not depend on who is beside it.
    start = min(int(times[0]) for times, _ in series) // STEP_SECONDS * STEP_SECONDS
    end = max(int(times[-1]) for times, _ in series)
    lines = max(1, (end - start + interval) // STEP_SECONDS)
    demand = np.full((lines, len(names)), np.nan)
    skip = np.zeros(len(names), dtype=np.int64)
    for place, (times, values) in enumerate(series):
        stretch = resampled(times, values, interval)
        at = (int(times[0]) - start) // STEP_SECONDS
        stretch = stretch[: lines - at]
        demand[at : at + stretch.size, place] = stretch / cores[place]
        # A week or more is counted from its fourth day on: what learns a day's shape has seen three.
        skip[place] = at + (3 * _DAY_LINES if stretch.size > 7 * _DAY_LINES else 0)
    nothing = np.zeros(0), np.zeros(0)
    return Services(
        names=tuple(names),
        demand=demand,
        start_seconds=start,
        pod_cores=np.array(cores),
        skip=skip,
        recorded=tuple(counts.get(name, nothing) for name in names),
    )


def recorded_replicas(recording: Recording) -> _Replicas:
    """Return by service from which seconds on how many replicas were wanted."""
    rows = recording.rows("replicas")
    found: dict[str, dict[int, float]] = {}
    for namespace, workload, time, wanted in zip(
        *(rows[name] for name in ("namespace", "workload", "time", "wanted")), strict=True
    ):
        if wanted is not None:
            found.setdefault(f"{namespace}/{workload}", {})[time // 1_000_000] = float(wanted)
    series = {}
    for name, by_time in found.items():
        ordered = sorted(by_time.items())
        series[name] = (np.array([float(at) for at, _ in ordered]), np.array([count for _, count in ordered]))
    return series


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
    sizes = _pod_cores(*_requested(recording)) if found else {}
    return list(found), series, [sizes.get(name, recording.manifest.pod_cores) for name in found]


def _from_usage(recording: Recording) -> Iterator[_Found]:
    who, interval = recording.containers, recording.manifest.interval_seconds
    sizes = _pod_cores(*_requested(recording))
    for block in recording.blocks:
        names = [who.service_of(member) for member in np.flatnonzero(who.block == block).tolist()]
        yield _summed(names, sizes, recording.grids(block), interval, recording.manifest.pod_cores)


def _from_samples(samples: Samples) -> _Found:
    asked = [samples.sizes[at][-1][1] if samples.sizes.get(at) else None for at in range(len(samples.workloads))]
    names = [service_name(each) for each in samples.workloads]
    interval = samples.interval_seconds
    sizes = _pod_cores(names, samples.workloads, asked)
    return _summed(names, sizes, samples.grids(interval_seconds=interval), interval, 1.0)


def _requested(recording: Recording) -> tuple[list[str], list[str], list[float | None]]:
    """Return of every container its service, what is sized together with it, and the cores it requested last."""
    who, rows = recording.containers, recording.rows("sizes")
    pairs = zip(rows["container_id"], rows["cpu_request_millis"], strict=True)
    requests = {container: millis / 1000.0 for container, millis in pairs if millis}
    everyone = range(len(who))
    return [who.service_of(at) for at in everyone], [who.unit_of(at) for at in everyone], [*map(requests.get, everyone)]


def _pod_cores(services: Sequence[str], units: Sequence[str], requests: Sequence[float | None]) -> dict[str, float]:
    """Return by service the cores that one of its pods requests: the medians of its containers, added up."""
    asked: dict[tuple[str, str], list[float]] = {}
    for service, unit, cores in zip(services, units, requests, strict=True):
        if cores:
            asked.setdefault((service, unit), []).append(cores)
    found: dict[str, float] = {}
    for (service, _), each in asked.items():
        found[service] = found.get(service, 0.0) + sorted(each)[len(each) // 2]
    return found


def service_name(workload: str) -> str:
    """Return the service of a container of a workload: NAMESPACE/NAME."""
    parts = workload.split("/")
    return f"{parts[0]}/{parts[2]}" if len(parts) == 4 else workload


def _summed(
    workloads: Sequence[str],
    sizes: Mapping[str, float],
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
            names.append(name)
            series.append((times[there], totals[there, number]))
            cores.append(sizes.get(name, default_cores))
    return names, series, cores


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
