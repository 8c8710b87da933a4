"""What the machinery shows of itself: requests, queues, informers, leadership, events.

The names are those that Kubernetes components use, so that existing dashboards find them. A client announces what is
built on it; queues, informers and electors are then read when somebody asks, and cost nothing in between. They are
held weakly: an informer that its component has dropped is no longer shown.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubetide.kube.cache.informer import Informer
from kubetide.kube.control.leader_election import LeaderElector
from kubetide.kube.control.reconcile import Reconciled
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.control.shards import ShardMembership
from kubetide.kube.control.workqueue import WorkQueue
from kubetide.telemetry import Telemetry

SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class Reconciles:
    """Counts reconciliations by result, and their time."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._count = telemetry.counts(
            "controller_runtime_reconcile_total", "Reconciliations by controller and result.", ("controller", "result")
        )
        self._seconds = telemetry.durations(
            "controller_runtime_reconcile_time_seconds", "How long one reconciliation took.", ("controller",), SECONDS
        )

    def outcome(self, controller: str, outcome: Reconciled) -> None:
        """Note a reconciliation: with the controller's name bound, the `observe` of Workers."""
        self._count.add(controller, "error" if outcome.error is not None else "success")
        self._seconds.add(outcome.seconds, controller)


class Instruments:
    """The telemetry of one process's machinery."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._requests = telemetry.counts(
            "rest_client_requests_total", "Requests to the API server, by status code and method.", ("code", "method")
        )
        self._latency = telemetry.durations(
            "rest_client_request_duration_seconds", "How long requests to the API server took.", ("verb",), SECONDS
        )
        self._machinery = _Machinery()
        telemetry.register(self._machinery)

    def request(self, method: str, status: int, seconds: float) -> None:
        """Note a request: the `observe` of a Client."""
        self._requests.add(str(status) if status else "<error>", method)
        self._latency.add(seconds, method)

    def of(self, component: str) -> Callable[[object], None]:
        """Return the `announce` of a component's client: what is built on it is shown under its name."""

        def watch(part: object) -> None:
            self._machinery.parts[part] = component

        return watch


@dataclass(slots=True)
class _Caches:
    """What the informers of one component and resource come to together."""

    objects: int = 0
    rejected: int = 0
    lists: int = 0
    stale_seconds: float | None = None

    def add(self, informer: Informer[Any]) -> None:
        self.objects += len(informer.store)
        self.rejected += len(informer.rejected)
        self.lists += informer.relists
        age = informer.staleness()
        if age is not None:
            self.stale_seconds = max(self.stale_seconds or 0.0, age.total_seconds())


class _Machinery(Collector):
    """Reads the state of the parts when asked."""

    def __init__(self) -> None:
        self.parts: WeakKeyDictionary[object, str] = WeakKeyDictionary()

    def collect(self) -> Iterator[Metric]:
        leading = GaugeMetricFamily(
            "leader_election_master_status", "1 while this process leads, else 0.", labels=["name"]
        )
        ranges = GaugeMetricFamily("kubetide_shard_ranges", "Ranges of namespaces owned here.", labels=["name"])
        members = GaugeMetricFamily("kubetide_shard_members", "Replicas that share the work.", labels=["name"])
        moved = CounterMetricFamily("kubetide_shard_range_moves", "Ranges taken, given up and lost.", labels=["name"])
        dropped = CounterMetricFamily("kubetide_events_dropped", "Events that were not written.", labels=["component"])
        queues: defaultdict[str, list[WorkQueue[Any]]] = defaultdict(list)
        caches: defaultdict[tuple[str, str], _Caches] = defaultdict(_Caches)
        for part, component in list(self.parts.items()):
            if isinstance(part, WorkQueue):
                queues[part.name].append(part)
            elif isinstance(part, LeaderElector):
                leading.add_metric([part.lease_name], float(part.is_leader))
            elif isinstance(part, ShardMembership):
                ranges.add_metric([part.group], len(part.held))
                members.add_metric([part.group], part.live)
                moved.add_metric([part.group], part.handed_over)
            elif isinstance(part, EventRecorder):
                dropped.add_metric([part.component], part.dropped)
            elif isinstance(part, Informer):
                caches[component, str(part.resource)].add(part)
        yield from (leading, ranges, members, moved, dropped)
        yield from _queues(queues)
        yield from _caches(caches)


def _queues(queues: dict[str, list[WorkQueue[Any]]]) -> Iterator[Metric]:
    """Show queues by name: one that took the place of another may stand beside it for a moment."""
    depth = GaugeMetricFamily("workqueue_depth", "Keys that wait for a worker.", labels=["name"])
    unfinished = GaugeMetricFamily("workqueue_unfinished_work_seconds", "Work under way, in all.", labels=["name"])
    longest = GaugeMetricFamily(
        "workqueue_longest_running_processor_seconds", "The longest work under way.", labels=["name"]
    )
    running = GaugeMetricFamily("kubetide_workqueue_running_keys", "Keys being worked on.", labels=["name"])
    delayed = GaugeMetricFamily("kubetide_workqueue_delayed_keys", "Keys that wait for a time.", labels=["name"])
    for name, found in queues.items():
        seconds = [each for queue in found for each in queue.under_way()]
        depth.add_metric([name], sum(len(queue) for queue in found))
        unfinished.add_metric([name], sum(seconds))
        longest.add_metric([name], max(seconds, default=0.0))
        running.add_metric([name], sum(queue.running for queue in found))
        delayed.add_metric([name], sum(queue.delayed for queue in found))
    yield from (depth, unfinished, longest, running, delayed)


def _caches(caches: dict[tuple[str, str], _Caches]) -> Iterator[Metric]:
    labels = ["component", "resource"]
    objects = GaugeMetricFamily("kubetide_informer_objects", "Objects in the cache.", labels=labels)
    stale = GaugeMetricFamily(
        "kubetide_informer_staleness_seconds", "Since the server last answered or sent an event.", labels=labels
    )
    rejected = GaugeMetricFamily(
        "kubetide_informer_rejected_objects", "Objects that cannot be read; the last good one counts.", labels=labels
    )
    lists = CounterMetricFamily("kubetide_informer_lists", "Whole lists read.", labels=labels)
    for key, found in caches.items():
        objects.add_metric(key, found.objects)
        rejected.add_metric(key, found.rejected)
        lists.add_metric(key, found.lists)
        if found.stale_seconds is not None:
            stale.add_metric(key, found.stale_seconds)
    yield from (objects, stale, rejected, lists)
