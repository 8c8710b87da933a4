"""What was decided lately: traces and a short history for people, counters under the upstream names for Prometheus."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kubetide.api.objects.meta import ObjectKey
from kubetide.hpa.core.observation import (
    Conclusion,
    HpaProblem,
    ScaleDecision,
    computation_labels,
    reconciliation_labels,
)
from kubetide.hpa.core.quick.rest import Resting
from kubetide.hpa.core.samples import RefusalReason
from kubetide.hpa.core.takeover import Stance
from kubetide.hpa.core.trace import HistoryLine, line_of, shown_line, trace_of
from kubetide.telemetry import Telemetry

BUCKETS = tuple(0.001 * 2**i for i in range(15))
QUEUE_NAME = "horizontalpodautoscaler"
_PREFIX = "horizontal_pod_autoscaler_controller"
_WRITTEN = ("autoscaling", "horizontalpodautoscalers")
_ACTIONS = {-1: "scale_down", 0: "none", 1: "scale_up"}
_QUEUE_BUCKETS = tuple(10.0**i for i in range(-8, 2))


class Record(msgspec.Struct):
    """The last decision about one autoscaler, and lines about those before."""

    decision: ScaleDecision
    outcome: Conclusion
    problem: HpaProblem | None
    stance: Stance
    past: deque[HistoryLine] = msgspec.field(default_factory=deque)
    again: Callable[[], tuple[ScaleDecision, Conclusion]] | None = None
    """How the last decision is made: at rest it is not, until somebody asks."""


class DecisionHistory:
    """Decisions by autoscaler. Traces are made when somebody asks, not every reconcile."""

    def __init__(self, length: int) -> None:
        self.heard: Callable[[ObjectKey, ScaleDecision], None] | None = None
        """Called with every decision, acted on or not."""
        self._length = length
        self._records: dict[ObjectKey, Record] = {}

    def add(
        self,
        key: ObjectKey,
        decision: ScaleDecision,
        outcome: Conclusion,
        problem: HpaProblem | None,
        *,
        stance: Stance,
        wrote: bool,
    ) -> None:
        """Keep a decision as the last one."""
        known = self._records.get(key)
        past = known.past if known is not None else deque(maxlen=max(1, self._length))
        past.append(line_of(decision, problem, wrote=wrote))
        self._records[key] = Record(decision, outcome, problem, stance, past)
        if self.heard is not None:
            self.heard(key, decision)

    def rested(
        self, key: ObjectKey, now: datetime, resting: Resting, again: Callable[[], tuple[ScaleDecision, Conclusion]]
    ) -> Record | None:
        """Note a reconcile that left everything as the last one had; return that, or None if there was none."""
        record = self._records.get(key)
        if record is None or not record.past:
            return None
        found = resting.found
        line = replace(
            record.past[-1],
            at=now,
            wrote=False,
            proposal=resting.asked.proposal,
            stabilized=found.stabilized.replicas,
            rule=found.rule,
            why=resting.why,
        )
        record.past.append(line)
        record.again = again
        return record

    def forget(self, key: ObjectKey) -> None:
        """Drop all that is known of an autoscaler."""
        self._records.pop(key, None)

    def trace(self, key: ObjectKey) -> dict[str, Any] | None:
        """Return the last decision with its history, or None."""
        record = self._records.get(key)
        if record is None:
            return None
        if record.again is not None:
            (record.decision, record.outcome), record.again = record.again(), None
        return {
            **trace_of(record.decision, record.outcome, record.problem),
            "acts": record.stance.acts,
            "stance": record.stance.why,
            "history": [shown_line(line) for line in record.past],
        }

    def records(self) -> Iterator[tuple[ObjectKey, Record]]:
        """Return the last decision about every autoscaler."""
        return iter(tuple(self._records.items()))


class HpaTelemetry:
    """The controller's own telemetry."""

    def __init__(self, telemetry: Telemetry, history: DecisionHistory, *, autoscalers: Callable[[], int]) -> None:
        """`autoscalers` counts those there are."""
        self._reconciles = telemetry.durations(
            f"{_PREFIX}_reconciliation_duration_seconds",
            "How long a reconcile took.",
            ("action", "error"),
            BUCKETS,
            counted_as=(f"{_PREFIX}_reconciliations_total", "Reconciles of autoscalers."),
        )
        self._metrics = telemetry.durations(
            f"{_PREFIX}_metric_computation_duration_seconds",
            "How long a metric took.",
            ("action", "error", "metric_type"),
            BUCKETS,
            counted_as=(f"{_PREFIX}_metric_computation_total", "Metrics computed."),
        )
        self.fights = telemetry.counter(
            "kubetide_hpa_built_in_controller_conflicts_total",
            "Reconciles in which kubetide acted although the built-in controller had just written.",
        )
        self._asked = telemetry.counts(
            "kubetide_hpa_metrics_requests_total", "Requests to the metrics APIs.", ("api", "error")
        )
        self._shared = telemetry.counts(
            "kubetide_hpa_metrics_shared_total",
            "Answers of the metrics APIs that were used again.",
            ("api",),
        )
        self._refused = telemetry.counts(
            "kubetide_hpa_refused_samples_total", "Samples of pods that cannot be true, by why.", ("reason",)
        )
        for reason in RefusalReason:
            self._refused.show(reason.value)
        name = ("name",)
        self._adds = telemetry.counts("workqueue_adds_total", "Keys added to the queue.", name)
        self._retries = telemetry.counts("workqueue_retries_total", "Keys added again after a reconcile.", name)
        self._waited = telemetry.durations(
            "workqueue_queue_duration_seconds", "How long a key waited.", name, _QUEUE_BUCKETS
        )
        self._worked = telemetry.durations(
            "workqueue_work_duration_seconds", "How long a key was worked on.", name, _QUEUE_BUCKETS
        )
        for shown in (self._adds, self._retries, self._waited, self._worked):
            shown.show(QUEUE_NAME)
        self._stale = telemetry.counts(
            f"{_PREFIX}_stale_sync_skips_total",
            "Reconciles that waited because the cache had not seen our own last write.",
            ("group", "resource"),
        )
        self._stale.show(*_WRITTEN)
        self._desired: dict[ObjectKey, int] = {}
        telemetry.register(_Sizes(history, self._desired, autoscalers))

    def reconciled(
        self,
        key: ObjectKey,
        decision: ScaleDecision,
        outcome: Conclusion,
        problem: HpaProblem | None,
        seconds: float,
    ) -> None:
        """Count a reconcile and the metrics in it."""
        self._reconciles.add(seconds, *reconciliation_labels(outcome, problem))
        results = decision.results
        for kind, action, error in computation_labels(decision.hpa, results):
            self._metrics.add(seconds / len(results), action, error, kind)
        if outcome.desired is not None:
            self._desired[key] = outcome.desired

    def rested(self, sides: Iterable[int], seconds: float) -> None:
        """Count autoscalers with one resource metric found at rest, by what it asks for, and how long each took."""
        for side, count in Counter(sides).items():
            self._reconciles.add(seconds, "none", "none", times=count)
            self._metrics.add(seconds, _ACTIONS[side], "none", "Resource", times=count)

    def rested_alone(self, side: int, seconds: float) -> None:
        """Count one autoscaler with one resource metric found at rest, by what it asks for."""
        self._reconciles.add(seconds, "none", "none")
        self._metrics.add(seconds, _ACTIONS[side], "none", "Resource")

    def forget(self, key: ObjectKey) -> None:
        """Drop the series of an autoscaler that is gone."""
        self._desired.pop(key, None)

    def stale(self) -> None:
        """Count a reconcile that waited for the cache."""
        self._stale.add(*_WRITTEN)

    def broken(self, seconds: float) -> None:
        """Count a reconcile that ended in an error nobody thought of."""
        self._reconciles.add(seconds, "none", "internal")

    def asked(self, api: str, error: str) -> None:
        """Count a request to a metrics API."""
        self._asked.add(api, error)

    def shared(self, api: str) -> None:
        """Count an answer that came from another reconcile."""
        self._shared.add(api)

    def refused(self, reason: str) -> None:
        """Count a sample that cannot be true."""
        self._refused.add(reason)

    def added(self, times: int = 1) -> None:
        """Count a key that was put into the queue; for upstream each one is a retry too, so both grow alike."""
        self._adds.add(QUEUE_NAME, times=times)
        self._retries.add(QUEUE_NAME, times=times)

    def worked(self, waited: float, seconds: float, times: int = 1) -> None:
        """Note how long a key waited for its reconcile, and how long that took."""
        self._waited.add(max(0.0, waited), QUEUE_NAME, times=times)
        self._worked.add(seconds, QUEUE_NAME, times=times)


class _Sizes(Collector):
    """Wanted and present size of every target, as decided; also where nothing is written."""

    def __init__(
        self, history: DecisionHistory, standing: Mapping[ObjectKey, int], autoscalers: Callable[[], int]
    ) -> None:
        self._history = history
        self._standing = standing
        self._autoscalers = autoscalers

    def collect(self) -> Iterable[GaugeMetricFamily]:
        count = GaugeMetricFamily(f"{_PREFIX}_num_horizontal_pod_autoscalers", "Autoscalers that are looked after.")
        count.add_metric((), float(self._autoscalers()))
        standing = GaugeMetricFamily(
            f"{_PREFIX}_desired_replicas", "The count that stands.", labels=("namespace", "hpa_name")
        )
        for key, replicas in tuple(self._standing.items()):
            standing.add_metric(key, float(replicas))
        labels = ("namespace", "name")
        desired = GaugeMetricFamily("kubetide_hpa_desired_replicas", "The size that was decided on.", labels=labels)
        current = GaugeMetricFamily("kubetide_hpa_current_replicas", "The size that was found.", labels=labels)
        acting = GaugeMetricFamily("kubetide_hpa_acting", "1 where kubetide writes, 0 where it looks.", labels=labels)
        maximum, blind = 0, 0
        for key, record in self._history.records():
            maximum += record.decision.desired >= record.decision.hpa.spec.max_replicas
            blind += any(result.failure is not None for result in record.decision.results)
            desired.add_metric(key, float(record.decision.desired))
            if record.decision.current is not None:
                current.add_metric(key, float(record.decision.current))
            acting.add_metric(key, float(record.stance.acts))
        at_maximum = GaugeMetricFamily("kubetide_hpa_at_maximum", "Autoscalers that want at least their maximum.")
        at_maximum.add_metric((), float(maximum))
        without = GaugeMetricFamily("kubetide_hpa_without_metrics", "Autoscalers with a metric that cannot be read.")
        without.add_metric((), float(blind))
        return (count, standing, desired, current, acting, at_maximum, without)
