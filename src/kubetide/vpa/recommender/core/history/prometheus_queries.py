"""Questions to Prometheus about past usage, and what its answers mean.

    CPU      rate(container_cpu_usage_seconds_total{SEL}[RES])       cores
    memory   container_memory_working_set_bytes{SEL}                 bytes
    labels   the configured query; a plain selector is asked over the whole history, one value per step

The range is asked in slices (`kubetide.stats.prometheus_ranges`), oldest first, so that the model ends up as if the
samples had arrived live.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kubetide.stats.buckets import Floats, Ints
from kubetide.stats.prometheus_ranges import PrometheusAnswer, read_any, read_results
from kubetide.vpa.recommender.settings import RecommenderSettings, prometheus_duration

FIRST_SLICE_POINTS = 200


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one container, oldest first: times in microseconds."""

    namespace: str
    pod: str
    container: str
    times: Ints
    values: Floats


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


def history_range(settings: RecommenderSettings, now: float) -> tuple[int, int, int]:
    """Return start, end and step in seconds."""
    length = prometheus_duration(settings.history_length).total_seconds()
    step = max(1, int(prometheus_duration(settings.history_resolution).total_seconds()))
    return int(now - length), int(now), step


def read_series(body: bytes, settings: RecommenderSettings) -> list[Series]:
    """Return the usage of containers in a matrix; PrometheusAnswer when it is something else."""
    names = (settings.container_namespace_label, settings.container_pod_name_label, settings.container_name_label)
    found = []
    for one in read_any(body):
        for name in names:
            if name not in one.labels:
                raise PrometheusAnswer(f"a usage series has no label {name!r}; it has {sorted(one.labels)}")
        namespace, pod, container = (one.labels[name] for name in names)
        found.append(Series(namespace, pod, container, one.times, one.values))
    return found


def read_labels(body: bytes, settings: RecommenderSettings) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """Return pod labels by namespace and pod; of several series the one with the latest sample counts."""
    found: dict[tuple[str, str], tuple[float, dict[str, str]]] = {}
    prefix = settings.pod_label_prefix
    for one in read_results(body, "matrix", "vector"):
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
