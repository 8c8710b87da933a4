"""Questions to Prometheus about past usage, and what its answers mean.

    CPU      rate(container_cpu_usage_seconds_total{SEL}[RES])       cores
    memory   container_memory_working_set_bytes{SEL}                 bytes
    labels   the configured query; a plain selector is asked over the whole history, one value per step

Prometheus refuses ranges of more than 11,000 points, and an answer must fit memory, so the range is asked in slices
(`slices`) whose size follows the number of series seen so far. Slices do not overlap and come oldest first, so the
model ends up as if the samples had arrived live.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from kubetide.errors import KubetideError
from kubetide.stats.buckets import Floats, Ints
from kubetide.vpa.recommender.settings import RecommenderSettings, prometheus_duration

MAX_POINTS = 11_000
SAMPLES_PER_SLICE = 2_000_000
FIRST_SLICE_POINTS = 200


class PrometheusAnswer(KubetideError):
    """Prometheus answered something that cannot be used."""


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one container, oldest first: times in microseconds."""

    namespace: str
    pod: str
    container: str
    times: Ints
    values: Floats


@dataclass(frozen=True, slots=True)
class LabelledSeries:
    """Samples of any series, oldest first: times in microseconds."""

    labels: Mapping[str, str]
    times: Ints
    values: Floats


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the range: `points` steps from `start` to `end`, both included, in seconds."""

    start: int
    end: int
    points: int


class _Result(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: list[_Result] = []


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: str = ""
    error: str = ""
    error_type: str = ""
    data: _Data | None = None


_DECODER = msgspec.json.Decoder(_Answer)
_LATEST_SECONDS = 253_402_300_800.0
"""The year 10000: later times are none, and in microseconds they would not fit 64 bits."""


def selector(settings: RecommenderSettings) -> str:
    """Return the matchers of the usage metrics."""
    pod, container = settings.container_pod_name_label, settings.container_name_label
    parts = [f'job="{settings.prometheus_cadvisor_job_name}"'] if settings.prometheus_cadvisor_job_name else []
    parts += [f'{pod}=~".+"', f'{container}!="POD"', f'{container}!=""']
    if settings.vpa_object_namespace:
        parts.append(f'{settings.container_namespace_label}="{settings.vpa_object_namespace}"')
    return ", ".join(parts)


def cpu_query(settings: RecommenderSettings) -> str:
    """Return the range query for cores used."""
    return f"rate({settings.history_cpu_metric}{{{selector(settings)}}}[{settings.history_resolution}])"


def memory_query(settings: RecommenderSettings) -> str:
    """Return the range query for bytes used."""
    return f"{settings.history_memory_metric}{{{selector(settings)}}}"


def label_query(settings: RecommenderSettings) -> str:
    """Return the instant query for pod labels."""
    query = settings.metric_for_pod_labels
    if query.rstrip().endswith("]"):
        return query
    return f"({query})[{settings.history_length}:{settings.history_resolution}]"


def slices(start: int, end: int, step: int, points: int) -> Iterator[Slice]:
    """Split a range into slices of at most `points` steps."""
    at = start
    while at <= end:
        last = min(at + (points - 1) * step, end)
        count = (last - at) // step + 1
        yield Slice(at, at + (count - 1) * step, count)
        at += count * step


def slice_points(series: int) -> int:
    """Return how many steps to ask for when that many series answer."""
    if series <= 0:
        return MAX_POINTS
    return max(1, min(MAX_POINTS, SAMPLES_PER_SLICE // series))


def history_range(settings: RecommenderSettings, now: float) -> tuple[int, int, int]:
    """Return start, end and step in seconds."""
    length = prometheus_duration(settings.history_length).total_seconds()
    step = max(1, int(prometheus_duration(settings.history_resolution).total_seconds()))
    return int(now - length), int(now), step


def read_series(body: bytes, settings: RecommenderSettings) -> list[Series]:
    """Return the usage of containers in a matrix; PrometheusAnswer when it is something else."""
    names = (settings.container_namespace_label, settings.container_pod_name_label, settings.container_name_label)
    found = []
    results = _results(body, "matrix")
    for one, numbers in zip(results, _numbers(results), strict=True):
        for name in names:
            if name not in one.metric:
                raise PrometheusAnswer(f"a usage series has no label {name!r}; it has {sorted(one.metric)}")
        namespace, pod, container = (one.metric[name] for name in names)
        found.append(Series(namespace, pod, container, *numbers))
    return found


def read_any(body: bytes) -> list[LabelledSeries]:
    """Return the series of a matrix with their labels; PrometheusAnswer when it is something else."""
    results = _results(body, "matrix")
    return [LabelledSeries(one.metric, *numbers) for one, numbers in zip(results, _numbers(results), strict=True)]


def _numbers(results: Sequence[_Result]) -> Iterator[tuple[Ints, Floats]]:
    """Return the times and values of each series that are numbers, oldest first.

    All series are converted at once: an answer has hundreds of short ones, and a call of NumPy costs as much as many
    samples.
    """
    flat = [pair for one in results for pair in one.values]
    seconds = np.array([at for at, _ in flat], dtype=np.float64)
    if (np.abs(seconds) > _LATEST_SECONDS).any():
        raise PrometheusAnswer(f"a sample is dated {seconds[np.abs(seconds).argmax()]:g} seconds from 1970")
    times = np.rint(seconds * 1_000_000).astype(np.int64)
    try:
        values = np.array([float(text) for _, text in flat], dtype=np.float64)
    except ValueError as error:
        raise PrometheusAnswer(f"a sample is no number: {error}") from error
    good = np.isfinite(values)
    clean = bool(good.all())
    backwards = times[1:] < times[:-1]
    begin = 0
    for one in results:
        end = begin + len(one.values)
        mine, numbers = times[begin:end], values[begin:end]
        if not clean:
            mine, numbers = mine[good[begin:end]], numbers[good[begin:end]]
        if backwards[begin : max(begin, end - 1)].any():
            order = np.argsort(mine, kind="stable")
            mine, numbers = mine[order], numbers[order]
        yield mine, numbers
        begin = end


def read_labels(body: bytes, settings: RecommenderSettings) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """Return pod labels by namespace and pod; of several series the one with the latest sample counts."""
    found: dict[tuple[str, str], tuple[float, dict[str, str]]] = {}
    prefix = settings.pod_label_prefix
    for one in _results(body, "matrix", "vector"):
        namespace = one.metric.get(settings.pod_namespace_label)
        pod = one.metric.get(settings.pod_name_label)
        if namespace is None or pod is None:
            raise PrometheusAnswer(
                f"a label series lacks {settings.pod_namespace_label!r} or {settings.pod_name_label!r}"
            )
        last = one.values[-1][0] if one.values else (one.value[0] if one.value is not None else 0.0)
        labels = {name.removeprefix(prefix): text for name, text in one.metric.items() if name.startswith(prefix)}
        if (namespace, pod) not in found or last > found[namespace, pod][0]:
            found[namespace, pod] = (last, labels)
    return {key: labels for key, (_, labels) in found.items()}


def _results(body: bytes, *kinds: str) -> Sequence[_Result]:
    try:
        answer = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PrometheusAnswer(f"the answer is not Prometheus' JSON: {error}") from error
    if answer.status != "success" or answer.data is None:
        raise PrometheusAnswer(f"{answer.error_type or 'error'}: {answer.error or answer.status}")
    if answer.data.result_type not in kinds:
        raise PrometheusAnswer(f"the answer is a {answer.data.result_type}, not a {' or '.join(kinds)}")
    return answer.data.result
