"""What the machinery shows of itself: requests, queues, informers, leadership, events.

The names are those that Kubernetes components use, so that existing dashboards find them. Queues, informers and
electors are read when somebody asks, and cost nothing in between.
"""

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubetide.kube.informer import Informer
from kubetide.kube.leader import LeaderElector
from kubetide.kube.reconcile import Outcome
from kubetide.kube.recorder import EventRecorder
from kubetide.kube.workqueue import WorkQueue
from kubetide.telemetry import Telemetry

SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class Instruments:
    """The telemetry of one process's machinery."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._requests = telemetry.counter(
            "rest_client_requests_total", "Requests to the API server, by status code and method.", ("code", "method")
        )
        self._latency = telemetry.histogram(
            "rest_client_request_duration_seconds", "How long requests to the API server took.", ("verb",), SECONDS
        )
        self._reconciles = telemetry.counter(
            "controller_runtime_reconcile_total", "Reconciliations by controller and result.", ("controller", "result")
        )
        self._reconcile_seconds = telemetry.histogram(
            "controller_runtime_reconcile_time_seconds", "How long one reconciliation took.", ("controller",), SECONDS
        )
        self._machinery = _Machinery()
        telemetry.register(self._machinery)

    def request(self, method: str, status: int, seconds: float) -> None:
        """Note a request: the `observe` of a Client."""
        self._requests.labels(str(status) if status else "<error>", method).inc()
        self._latency.labels(method).observe(seconds)

    def outcome(self, controller: str, outcome: Outcome[Any]) -> None:
        """Note a reconciliation: with the controller's name bound, the `observe` of Workers."""
        self._reconciles.labels(controller, "error" if outcome.error is not None else "success").inc()
        self._reconcile_seconds.labels(controller).observe(outcome.seconds)

    def watch_queue(self, queue: WorkQueue[Any]) -> None:
        """Show a queue."""
        self._machinery.queues.append(queue)

    def watch_informer(self, informer: Informer[Any]) -> None:
        """Show an informer."""
        self._machinery.informers.append(informer)

    def watch_elector(self, elector: LeaderElector) -> None:
        """Show an elector."""
        self._machinery.electors.append(elector)

    def watch_recorder(self, recorder: EventRecorder) -> None:
        """Show a recorder."""
        self._machinery.recorders.append(recorder)


class _Machinery(Collector):
    """Reads the state of the parts when asked."""

    def __init__(self) -> None:
        self.queues: list[WorkQueue[Any]] = []
        self.informers: list[Informer[Any]] = []
        self.electors: list[LeaderElector] = []
        self.recorders: list[EventRecorder] = []

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("workqueue_depth", "Keys that wait for a worker.", labels=["name"])
        running = GaugeMetricFamily("workqueue_unfinished_keys", "Keys being worked on.", labels=["name"])
        for queue in self.queues:
            depth.add_metric([queue.name], len(queue))
            running.add_metric([queue.name], queue.running)
        yield depth
        yield running
        yield from self._informers()
        leading = GaugeMetricFamily(
            "leader_election_master_status", "1 while this process leads, else 0.", labels=["name"]
        )
        for elector in self.electors:
            leading.add_metric([elector.lease_name], float(elector.is_leader))
        yield leading
        dropped = CounterMetricFamily("kubetide_events_dropped", "Events that were not written.", labels=["component"])
        for recorder in self.recorders:
            dropped.add_metric([recorder.component], recorder.dropped)
        yield dropped

    def _informers(self) -> Iterator[Metric]:
        label = ["resource"]
        objects = GaugeMetricFamily("kubetide_informer_objects", "Objects in the local copy.", labels=label)
        stale = GaugeMetricFamily(
            "kubetide_informer_staleness_seconds", "Since the server last said anything.", labels=label
        )
        rejected = GaugeMetricFamily(
            "kubetide_informer_rejected_objects", "Objects that cannot be read; the last good one counts.", labels=label
        )
        lists = CounterMetricFamily("kubetide_informer_lists", "Whole lists read.", labels=label)
        for informer in self.informers:
            name = [str(informer.resource)]
            objects.add_metric(name, len(informer.store))
            rejected.add_metric(name, len(informer.rejected))
            lists.add_metric(name, informer.relists)
            age = informer.staleness()
            if age is not None:
                stale.add_metric(name, age.total_seconds())
        yield from (objects, stale, rejected, lists)
