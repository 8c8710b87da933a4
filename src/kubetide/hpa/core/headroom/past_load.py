"""What Prometheus is asked for the past demand of a target, and what its answers mean.

Demand is counted in full replicas, as it is live (`hpa.core.headroom.learner`):

| metric                       | question                                                    | full replica         |
|------------------------------|-------------------------------------------------------------|----------------------|
| Resource, ContainerResource  | usage of all pods whose names are those of the target's     | the request of a pod |
| of cpu and memory            |                                                             | now, or averageValue |
| all others                   | `kubetide.io/hpa-headroom-query`, which counts in replicas  |                      |

The names of pods are told by the kind of the target, in the alphabet that Kubernetes makes names from: it has no vowels
but words have, so that `web` does not take the pods of `web-api` for its own. The request of then is not known, and
need not be: it is work that is compared, and the pods that will do it are those of now. `and` with the series itself
leaves out pods that are gone, whose rate would go on for as long as its window.

Beside the demand goes what the plain rule would have asked for, which fills replicas to the target only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import ContainerResourceMetricSource, HpaSpec, MetricSpec, ResourceMetricSource
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.api.values.promql import literal, quoted
from kubetide.api.values.quantity import milli_value
from kubetide.errors import InvalidInput, QuantityError
from kubetide.hpa.core.describe import describe, source_of
from kubetide.hpa.core.pods import pod_requests
from kubetide.hpa.core.samples import MetricFailure

_MADE_UP: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_POD_NAMES: Final = {
    "Deployment": f"-{_MADE_UP}{{1,10}}-{_MADE_UP}{{5}}",
    "ReplicaSet": f"-{_MADE_UP}{{5}}",
    "ReplicationController": f"-{_MADE_UP}{{5}}",
    "StatefulSet": "-[0-9]+",
}
_USAGE: Final = {
    "cpu": "irate({series}[5m]) and {series}",
    "memory": "{series}",
}
_SERIES: Final = {"cpu": "container_cpu_usage_seconds_total", "memory": "container_memory_working_set_bytes"}
_MOST_DEMAND: Final = 1e6
"""Full replicas; more is no demand but a mistake in a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMetric:
    """One question: its answer divided by `full` are full replicas, and the plain rule fills each up to `fill`."""

    query: str
    full: float
    fill: float


@dataclass(frozen=True, slots=True)
class PastStep:
    """What a step of the past kept busy, and how many replicas the plain rule would have wanted for it."""

    step: int
    demand: float
    wanted: float


def past_metrics(
    namespace: str, spec: HpaSpec, metrics: Sequence[MetricSpec], pods: Sequence[Pod], compat: HpaCompat, query: str
) -> tuple[PastMetric, ...]:
    """Return what to ask; raise InvalidInput where the past of a metric cannot be asked for."""
    if query:
        return (PastMetric(query=query, full=1.0, fill=min(_fill(metric) for metric in metrics)),)
    return tuple(_of_pods(namespace, spec, metric, pods, compat) for metric in metrics)


def past_steps(
    metrics: Sequence[PastMetric], answers: Sequence[Mapping[int, float]], *, first: int, last: int
) -> Iterator[PastStep]:
    """Return the steps at which all metrics have an answer, of the busiest; others are gaps."""
    for step in range(first, last + 1):
        demands = [answer.get(step, -1.0) / metric.full for metric, answer in zip(metrics, answers, strict=True)]
        if min(demands) >= 0 and max(demands) <= _MOST_DEMAND:
            wanted = max(demand / metric.fill for metric, demand in zip(metrics, demands, strict=True))
            yield PastStep(step, max(demands), wanted)


def _of_pods(namespace: str, spec: HpaSpec, metric: MetricSpec, pods: Sequence[Pod], compat: HpaCompat) -> PastMetric:
    kind, name = spec.scale_target_ref.kind, spec.scale_target_ref.name
    source = _source(metric)
    if source is None or source.name not in _USAGE:
        raise InvalidInput(f"{describe(metric)} has no past that can be asked for")
    if kind not in _POD_NAMES:
        raise InvalidInput(f"the names of the pods of a {kind} are not known")
    container = source.container if isinstance(source, ContainerResourceMetricSource) else ""
    matchers = [
        f"namespace={quoted(namespace)}",
        f"pod=~{quoted(literal(name) + _POD_NAMES[kind])}",
        f"container={quoted(container)}" if container else 'container!="",container!="POD"',
    ]
    series = f"{_SERIES[source.name]}{{{','.join(matchers)}}}"
    # Two Prometheuses that scrape the same pods answer with two series for each.
    query = f"sum(max by (pod, container) ({_USAGE[source.name].format(series=series)}))"
    return PastMetric(query=query, full=_full(source, pods, compat, container), fill=_fill(metric))


def _full(
    source: ResourceMetricSource | ContainerResourceMetricSource, pods: Sequence[Pod], compat: HpaCompat, container: str
) -> float:
    """Return how much one full replica uses: in cores, or in bytes."""
    try:
        if source.target.average_value is not None:
            full = milli_value(source.target.average_value) / 1000
        else:
            requests = pod_requests(pods, source.name, compat, container).values()
            full = sum(requests) / max(1, len(requests)) / 1000
    except (MetricFailure, QuantityError) as error:
        raise InvalidInput(str(error)) from error
    if full <= 0:
        raise InvalidInput(f"a replica that uses {full:g} of {source.name} is never full")
    return full


def _fill(metric: MetricSpec) -> float:
    """Return up to which share of a full replica the plain rule fills it."""
    source = _source(metric)
    if source is None or source.target.average_value is not None or not source.target.average_utilization:
        return 1.0
    return max(1, source.target.average_utilization) / 100


def _source(metric: MetricSpec) -> ResourceMetricSource | ContainerResourceMetricSource | None:
    try:
        source = source_of(metric)
    except MetricFailure as error:
        raise InvalidInput(str(error)) from error
    return source if isinstance(source, ResourceMetricSource | ContainerResourceMetricSource) else None
