"""What nodes know of containers beyond their usage, for kubetide's own components: `podsignals` of metrics.k8s.io.

    GET …/podsignals                                          list: need of memory, peaks and throttling of CPU
    GET …/podsignals?watch=true&fieldSelector=memoryAlarm=true  the pods whose memory is running out

The watch is level-based. It opens with all pods that are in alarm, repeats each as often as its node does, and ends
each with DELETED, so that whoever begins to listen knows at once what somebody else knew before. Signals are a resource
of their own, because who may read usage need not read them; pods count where the cluster says that they run.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kubetide.api.values.codec import encode
from kubetide.clock import Clock
from kubetide.durations import format_duration
from kubetide.metrics.cluster_view import ClusterView
from kubetide.metrics.core.readings import ContainerAlarm, NodeAlarms, NodeReading, PodKey, PodReading, Readings
from kubetide.metrics.core.rendering import API_VERSION
from kubetide.metrics.core.requests import Question
from kubetide.metrics.core.statuses import bad_request

Raw = dict[str, Any]

ALARMED = "memoryAlarm=true"
HEARTBEAT_LINE = encode({"type": "BOOKMARK", "object": {"kind": "PodSignals", "apiVersion": API_VERSION}}) + b"\n"


class SignalsApi:
    """Reads of signals."""

    def __init__(self, view: ClusterView, readings: Readings, clock: Clock) -> None:
        self._view = view
        self._readings = readings
        self._clock = clock

    def answer(self, question: Question, query: Mapping[str, str]) -> bytes:
        """Return the signals of the pods of a namespace, or of all; raises Refused."""
        wanted = query.get("fieldSelector", "")
        if wanted not in ("", ALARMED) or query.get("labelSelector"):
            raise bad_request(f"signals can be selected by the field selector {ALARMED} only")
        now = self._clock.now()
        if wanted:
            items = [one for alarms in self._readings.alarms(now=now) for one in self._alarmed(alarms).values()]
        else:
            items = [item for reading in self._readings.live(now=now) for item in self._of(reading)]
        if question.namespace:
            items = [item for item in items if item["metadata"]["namespace"] == question.namespace]
        return encode({"kind": "PodSignalsList", "apiVersion": API_VERSION, "metadata": {}, "items": items})

    def opening(self, namespace: str) -> list[bytes]:
        """Return what a watch opens with: all pods in alarm."""
        found = [self._alarmed(alarms) for alarms in self._readings.alarms(now=self._clock.now())]
        return [*_lines("ADDED", (item for items in found for item in items.values()), namespace), HEARTBEAT_LINE]

    def changes(self, now: NodeAlarms, before: NodeAlarms | None, namespace: str) -> list[bytes]:
        """Return what a watch shows when a node has told its alarms."""
        there = self._alarmed(now)
        over = {} if before is None else self._alarmed(before)
        lines = _lines("MODIFIED", there.values(), namespace)
        return lines + _lines("DELETED", (item for key, item in over.items() if key not in there), namespace)

    def _of(self, reading: NodeReading) -> list[Raw]:
        return [
            _item(key, one.uid, one.at, window=one)
            for key, one in reading.pods.items()
            if one.details and self._runs(reading.node, key, one.uid)
        ]

    def _alarmed(self, alarms: NodeAlarms) -> dict[PodKey, Raw]:
        by_pod: dict[PodKey, list[ContainerAlarm]] = {}
        for one in alarms.alarms:
            if self._runs(alarms.node, one.pod, one.uid):
                by_pod.setdefault(one.pod, []).append(one)
        return {key: _item(key, found[0].uid, alarms.at, alarms=found) for key, found in by_pod.items()}

    def _runs(self, node: str, key: PodKey, uid: str) -> bool:
        pod = self._view.pod(*key)
        return pod is not None and pod.spec.node_name == node and pod.metadata.uid == uid


def _item(
    key: PodKey, uid: str, at: datetime, *, window: PodReading | None = None, alarms: Iterable[ContainerAlarm] = ()
) -> Raw:
    containers: list[Raw] = []
    if window is not None:
        for name, one in zip(window.containers, window.details, strict=True):
            numbers = {
                "memoryNeedBytes": one.need,
                "cpuPeakNanocores": one.peak,
                "cpuThrottledRatio": one.throttled,
            }
            containers.append(
                {"name": name, **{name: number for name, number in numbers.items() if number is not None}}
            )
    for alarm in alarms:
        numbers = {
            "needBytes": alarm.need,
            "limitBytes": alarm.limit,
            "growthBytesPerSecond": alarm.growth,
            "pressureRatio": alarm.pressure,
            "limitHits": alarm.hits,
        }
        told = {name: number for name, number in numbers.items() if number is not None}
        containers.append({"name": alarm.container, "memoryAlarm": told})
    return {
        "metadata": {"name": key[1], "namespace": key[0], "uid": uid},
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        **({} if window is None else {"window": format_duration(window.window)}),
        "containers": containers,
    }


def _lines(kind: str, items: Iterable[Raw], namespace: str) -> list[bytes]:
    return [
        encode({"type": kind, "object": {"kind": "PodSignals", "apiVersion": API_VERSION, **item}}) + b"\n"
        for item in items
        if not namespace or item["metadata"]["namespace"] == namespace
    ]
