"""Answers of metrics.k8s.io: the usage of pods and nodes that are there and were heard of lately.

Pods and nodes come from the cluster, numbers from readings: what was deleted is gone at once, and a name in a reading
that is not the name of a pod on that node is never shown.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.metrics_answers import usage_table
from kubetide.api.values.media_types import ACCEPTED, wanted_form
from kubetide.api.values.selectors import Operator, Selector, parse_field_selector, parse_selector
from kubetide.clock import Clock
from kubetide.errors import SelectorError
from kubetide.metrics.cluster_view import ClusterView, PlacedPod, ReachableNode
from kubetide.metrics.core.readings import NodeReading, PodKey, PodReading, Readings
from kubetide.metrics.core.rendering import as_list, as_object, node_metrics, pod_head, pod_metrics
from kubetide.metrics.core.requests import USAGE, Question
from kubetide.metrics.core.statuses import Refused, bad_request, not_found

_KINDS = {"pods": "PodMetrics", "nodes": "NodeMetrics"}
_FIELDS = ("metadata.name", "metadata.namespace")
MOVED = 0.02
"""Watchers hear of a pod when its usage has moved by this share since they last did."""


Chooser = Callable[[PlacedPod | ReachableNode], bool]


@dataclass(slots=True)
class _Page:
    """The pods of one reading as they stand in lists, as of one version of the cluster's pods."""

    reading: NodeReading
    changes: int = -1
    pods: dict[PodKey, tuple[PlacedPod, bytes]] = field(default_factory=dict)


class UsageApi:
    """Reads of pods and nodes."""

    def __init__(self, view: ClusterView, readings: Readings, clock: Clock) -> None:
        self._view = view
        self._readings = readings
        self._clock = clock
        self._prepared: dict[str, _Page] = {}
        self._heads: dict[PodKey, tuple[PlacedPod, bytes]] = {}

    def answer(self, question: Question, query: Mapping[str, str], accept: str) -> bytes:
        """Return the answer as JSON; raises Refused."""
        form = wanted_form(accept)
        if form is None:
            raise Refused(406, "NotAcceptable", ACCEPTED)
        now = self._clock.now()
        kind = _KINDS[question.resource]
        if question.name:
            item = self._one(question, now)
            if item is None:
                name = f"{question.namespace}/{question.name}" if question.namespace else question.name
                raise not_found(USAGE, question.resource, name)
            return _table([item]) if form == "table" else as_object(kind, item)
        chosen = _chooser(query)
        found = self._pods(question.namespace, chosen, now) if question.resource == "pods" else self._nodes(chosen, now)
        return _table(found) if form == "table" else as_list(kind, found)

    def changes(self, reading: NodeReading, namespace: str, sent: dict[PodKey, PodReading]) -> list[bytes]:
        """Return the pods of a reading that have moved since they were `sent`, as a watch shows them."""
        found = []
        for key, (_, item) in self._page(reading).items():
            measured = reading.pods.get(key)
            if measured is None or (namespace and key[0] != namespace) or not _moved(sent.get(key), measured):
                continue
            sent[key] = measured
            found.append(b'{"type":"MODIFIED","object":%b}\n' % as_object("PodMetrics", item))
        return found

    def _one(self, question: Question, now: datetime) -> bytes | None:
        if question.resource == "nodes":
            return next(iter(self._nodes(lambda node: node.metadata.name == question.name, now)), None)
        pod = self._view.pod(question.namespace, question.name)
        reading = self._readings.node(pod.spec.node_name, now=now) if pod is not None else None
        if pod is None or reading is None:
            return None
        prepared = self._page(reading).get((question.namespace, question.name))
        return None if prepared is None else prepared[1]

    def _pods(self, namespace: str, chosen: Chooser | None, now: datetime) -> list[bytes]:
        if not namespace:
            pages = [self._page(reading) for reading in self._readings.live(now=now)]
            if chosen is None:
                return [item for page in pages for _, item in page.values()]
            return [item for page in pages for pod, item in page.values() if chosen(pod)]
        pods = self._view.pods.store.in_namespace(namespace)
        found = []
        for pod in pods if chosen is None else filter(chosen, pods):
            reading = self._readings.node(pod.spec.node_name, now=now)
            prepared = None if reading is None else self._page(reading).get((namespace, pod.metadata.name))
            if prepared is not None:
                found.append(prepared[1])
        return found

    def _nodes(self, chosen: Chooser | None, now: datetime) -> list[bytes]:
        found = []
        for node in self._view.nodes.store:
            if chosen is not None and not chosen(node):
                continue
            reading = self._readings.node(node.metadata.name, now=now)
            if reading is not None and reading.usage is not None:
                found.append(node_metrics(node.metadata.labels, reading))
        return found

    def _head(self, key: PodKey, pod: PlacedPod) -> bytes:
        known = self._heads.get(key)
        if known is None or known[0] is not pod:
            if len(self._heads) > 2 * len(self._view.pods.store) + 1024:
                self._heads.clear()
            known = self._heads[key] = (pod, pod_head(*key, pod.metadata.labels))
        return known[1]

    def _page(self, reading: NodeReading) -> dict[PodKey, tuple[PlacedPod, bytes]]:
        """Return the pods of a reading that are on that node, each as it stands in a list."""
        page = self._prepared.get(reading.node)
        if page is None or page.reading is not reading:
            page = self._prepared[reading.node] = _Page(reading)
            if len(self._prepared) > 2 * len(self._readings) + 16:
                self._prepared = {reading.node: page}
        changes = self._view.pods.store.changes
        if page.changes == changes:
            return page.pods
        # Once per pod of the cluster and reading: what a list of a hundred thousand pods takes is taken here.
        find, node, pods = self._view.pods.store.get, reading.node, page.pods
        for key, measured in reading.pods.items():
            pod = find(ObjectKey(*key))
            if pod is None or pod.spec.node_name != node or measured.uid not in ("", pod.metadata.uid):
                pods.pop(key, None)
            elif (known := pods.get(key)) is None or known[0] is not pod:
                pods[key] = (pod, pod_metrics(self._head(key, pod), measured))
        page.changes = changes
        return page.pods


def _moved(before: PodReading | None, now: PodReading) -> bool:
    """Return whether a container has come, gone, or changed its usage by more than MOVED."""
    if before is None or before.containers.keys() != now.containers.keys():
        return True
    return any(
        abs(new - old) > MOVED * old
        for name, usage in now.containers.items()
        for old, new in (
            (before.containers[name].cpu_nanos, usage.cpu_nanos),
            (before.containers[name].memory_bytes, usage.memory_bytes),
        )
    )


def _chooser(query: Mapping[str, str]) -> Chooser | None:
    """Return what a label and a field selector choose; None for everything."""
    try:
        labels: Selector | None = parse_selector(text) if (text := query.get("labelSelector", "")) else None
        fields = parse_field_selector(query.get("fieldSelector", ""))
    except SelectorError as error:
        raise bad_request(str(error)) from error
    for path, _, _ in fields:
        if path not in _FIELDS:
            raise bad_request(f'field label not supported: "{path}"')
    if labels is None and not fields:
        return None
    only = labels.requirements[0] if labels is not None and len(labels.requirements) == 1 else None
    if only is not None and only.operator is Operator.IN and not fields:
        # How autoscalers that were woken together ask for their pods: many values, looked up for every pod there is.
        key, values = only.key, frozenset(only.values)
        return lambda obj: (obj.metadata.labels or {}).get(key) in values

    def chosen(obj: PlacedPod | ReachableNode) -> bool:
        meta = obj.metadata
        values = {"metadata.name": meta.name, "metadata.namespace": meta.namespace}
        return (labels is None or labels.matches(meta.labels)) and all(
            (values[path] == value) == equal for path, equal, value in fields
        )

    return chosen


def _table(items: Iterable[bytes]) -> bytes:
    return msgspec.json.encode(usage_table([msgspec.json.decode(item) for item in items]))
