"""Who answers for custom and external metrics: several sources behind one API, asked one after the other.

A source that fails is one metric's failure: names of the others are listed, and their metrics answered. A metric that
nobody has is 404; one that nobody has while somebody could not be asked is 503, for it may be theirs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kubetide.api.objects.metrics_answers import number_text, value_in_v1beta1
from kubetide.api.objects.sample_frames import SIGNALS
from kubetide.api.values.codec import encode
from kubetide.api.values.selectors import parse_selector
from kubetide.clock import Clock
from kubetide.errors import KubetideError, SelectorError
from kubetide.log import get_logger
from kubetide.metrics.cluster_view import ClusterView, PlacedPod
from kubetide.metrics.core.readings import Readings
from kubetide.metrics.core.requests import CUSTOM, EXTERNAL, Question
from kubetide.metrics.core.statuses import Refused, bad_request, not_found, unavailable

Raw = dict[str, Any]

log = get_logger("metrics.values")

PREFIX = "kubetide_"
"""Before the names of node signals, so that they meet no metric of an application."""

_SIGNAL_NAMES = {f"pods/{PREFIX}{signal}": True for signal in SIGNALS}


class ValueSource(Protocol):
    """Knows some metrics."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    async def names(self, group: str, via: str) -> Mapping[str, bool]:
        """Return the metrics it has, as discovery names them, and whether each is namespaced; `via` as for values."""
        ...

    async def values(self, question: Question, query: Mapping[str, str], via: str) -> list[Raw] | None:
        """Return values in the newest version, or None where the metric is not its own; raises where it cannot say."""
        ...


class MergedValues:
    """One group of metrics from all sources."""

    def __init__(self, group: str, sources: Sequence[ValueSource]) -> None:
        self._group = group
        self._sources = tuple(sources)
        self._problems: dict[str, str] = {}

    async def names(self, via: str) -> Mapping[str, bool]:
        """Return the metrics of all sources that can be asked."""
        found: dict[str, bool] = {}
        for source in reversed(self._sources):
            try:
                found.update(await source.names(self._group, via))
            except KubetideError as error:
                self._note(source.name, str(error))
            else:
                self._problems.pop(source.name, None)
        return found

    async def answer(self, question: Question, query: Mapping[str, str], via: str) -> bytes:
        """Return the values of the first source that has the metric."""
        failures: list[str] = []
        for source in self._sources:
            try:
                values = await source.values(question, query, via)
            except Refused:
                raise
            except KubetideError as error:
                self._note(source.name, str(error))
                failures.append(f"{source.name}: {error}")
                continue
            if values is not None:
                return _rendered(question, values)
        if failures:
            raise unavailable(f"{question.metric}: {'; '.join(failures)}")
        raise not_found(question.group, question.metric, question.name or question.namespace)

    def _note(self, source: str, problem: str) -> None:
        if self._problems.get(source) != problem:
            self._problems[source] = problem
            log.warning("source of metrics does not answer", source=source, group=self._group, error=problem)


def _rendered(question: Question, values: list[Raw]) -> bytes:
    older = question.group == CUSTOM and question.version == "v1beta1"
    kind = "ExternalMetricValueList" if question.group == EXTERNAL else "MetricValueList"
    return encode(
        {
            "kind": kind,
            "apiVersion": f"{question.group}/{question.version}",
            "metadata": {},
            "items": [value_in_v1beta1(one) for one in values] if older else values,
        }
    )


def chosen_pods(view: ClusterView, question: Question, query: Mapping[str, str]) -> list[PlacedPod]:
    """Return the pods that a question is about: the one it names, or those that its selector chooses."""
    if question.name != "*":
        pod = view.pod(question.namespace, question.name)
        return [] if pod is None else [pod]
    try:
        selector = parse_selector(query.get("labelSelector", ""))
    except SelectorError as error:
        raise bad_request(str(error)) from error
    return [pod for pod in view.pods.store.in_namespace(question.namespace) if selector.matches(pod.metadata.labels)]


class NodeSignals:
    """What agents report about pods beyond their usage: throttling, pressure, growth, OOM kills."""

    name = "node signals"

    def __init__(self, view: ClusterView, readings: Readings, clock: Clock) -> None:
        self._view = view
        self._readings = readings
        self._clock = clock

    async def names(self, group: str, via: str) -> Mapping[str, bool]:
        """Return the signals as metrics of pods."""
        return _SIGNAL_NAMES if group == CUSTOM else {}

    async def values(self, question: Question, query: Mapping[str, str], via: str) -> list[Raw] | None:
        """Return a signal of the pods that were heard of lately; what a node does not say is missing, not zero."""
        signal = question.metric.removeprefix(PREFIX)
        if (
            question.group != CUSTOM
            or question.resource != "pods"
            or signal == question.metric
            or signal not in SIGNALS
        ):
            return None
        if query.get("metricLabelSelector"):
            # Signals have no labels, so that no selector of labels chooses any.
            return []
        now = self._clock.now()
        found = []
        for pod in chosen_pods(self._view, question, query):
            meta = pod.metadata
            reading = self._readings.pod(pod.spec.node_name, (meta.namespace, meta.name), meta.uid, now=now)
            value = reading.signal(signal) if reading is not None else None
            if reading is not None and value is not None:
                found.append(
                    {
                        "describedObject": described("Pod", "/v1", meta.namespace, meta.name),
                        "metric": {"name": question.metric, "selector": None},
                        "timestamp": f"{reading.at:%Y-%m-%dT%H:%M:%SZ}",
                        "windowSeconds": round(reading.window.total_seconds()),
                        "value": number_text(value),
                    }
                )
        if not found and question.name != "*":
            raise not_found(CUSTOM, question.metric, question.name)
        return found


def described(kind: str, api_version: str, namespace: str, name: str) -> Raw:
    """Return the reference to what a value is about."""
    return {"kind": kind, "namespace": namespace, "name": name, "apiVersion": api_version}
