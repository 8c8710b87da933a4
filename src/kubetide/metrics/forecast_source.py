"""Forecasts of CPU as an external metric, and for KEDA: what pods will use before the next ones can be there.

    /apis/external.metrics.k8s.io/v1beta1/namespaces/NS/kubetide-cpu-forecast?labelSelector=app=web

is the largest use in cores, of all pods of the namespace that the selector chooses, expected within five minutes.
"""

from collections.abc import Mapping
from typing import Any

from kubetide.api.objects.metrics_answers import number_text
from kubetide.api.values.selectors import parse_selector
from kubetide.clock import Clock
from kubetide.errors import SelectorError, Unavailable
from kubetide.metrics.cluster_view import ClusterView
from kubetide.metrics.core.readings import Readings
from kubetide.metrics.core.requests import EXTERNAL, Question
from kubetide.metrics.core.statuses import bad_request
from kubetide.metrics.core.usage_forecasts import ForecastKey, UsageForecasts

METRIC = "kubetide-cpu-forecast"


class CpuForecasts:
    """Follows the usage of pods that somebody wants forecast."""

    name = "forecasts"

    def __init__(self, view: ClusterView, readings: Readings, clock: Clock) -> None:
        self._view = view
        self._readings = readings
        self._clock = clock
        self._forecasts = UsageForecasts()

    async def learn_all(self) -> None:
        """Take the usage of this step for everything that is followed."""
        now = self._clock.now()
        for key in self._forecasts.wanted(now=now.timestamp()):
            usage = self.usage(key)
            if usage:
                self._forecasts.learn(key, sum(usage), now=now.timestamp())

    def usage(self, key: ForecastKey) -> list[float]:
        """Return the cores that each of the pods uses, of those whose nodes report."""
        now, selector = self._clock.now(), parse_selector(key.selector)
        found = []
        for pod in self._view.pods.store.in_namespace(key.namespace):
            meta = pod.metadata
            if selector.matches(meta.labels):
                reading = self._readings.pod(pod.spec.node_name, (meta.namespace, meta.name), meta.uid, now=now)
                if reading is not None:
                    found.append(sum(one.cpu_nanos for one in reading.containers.values()) / 1e9)
        return found

    def ask(self, key: ForecastKey) -> float | None:
        """Return a forecast in cores; None while too little is known."""
        return self._forecasts.ask(key, now=self._clock.now().timestamp())

    async def names(self, group: str, via: str) -> Mapping[str, bool]:
        """Return the one metric."""
        return {METRIC: True} if group == EXTERNAL else {}

    async def values(self, question: Question, query: Mapping[str, str], via: str) -> list[dict[str, Any]] | None:
        """Return the forecast for the pods that the selector chooses."""
        if question.group != EXTERNAL or question.metric != METRIC:
            return None
        selector = query.get("labelSelector", "")
        try:
            parse_selector(selector)
        except SelectorError as error:
            raise bad_request(str(error)) from error
        value = self.ask(ForecastKey(question.namespace, selector))
        if value is None:
            raise Unavailable("too little is known of these pods: forecasts begin 5 minutes after the first question")
        stamp = f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}"
        return [{"metricName": METRIC, "metricLabels": {}, "timestamp": stamp, "value": number_text(value)}]
