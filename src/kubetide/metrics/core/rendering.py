"""PodMetrics and NodeMetrics as JSON, prepared so that a list of a hundred thousand pods is a join of bytes.

The part of a pod that does not change (its metadata, the names of its containers) is made once per version of the pod;
the numbers are filled in when the first reader asks for a reading, and kept for the others.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from kubetide.durations import format_duration
from kubetide.metrics.core.readings import NodeReading, PodReading

Raw = dict[str, Any]
API_VERSION = "metrics.k8s.io/v1beta1"

_encode = msgspec.json.encode


def pod_head(namespace: str, name: str, labels: Mapping[str, str] | None) -> bytes:
    """Return the part of a PodMetrics that stays the same from reading to reading."""
    return b'{"metadata":{"name":"%b","namespace":"%b"%b' % (name.encode(), namespace.encode(), _labels(labels))


def pod_metrics(head: bytes, reading: PodReading) -> bytes:
    """Return the PodMetrics of one reading as it stands in a list."""
    containers = [
        b'{"name":"%b","usage":{"cpu":"%dn","memory":"%dKi"}}'
        % (each.encode(), usage.cpu_nanos, -(-usage.memory_bytes // 1024))
        for each, usage in reading.containers.items()
    ]
    shown = containers[0] if len(containers) == 1 else b",".join(containers)
    return b'%b%b,"containers":[%b]}' % (head, _times(reading.at, reading.window), shown)


def node_metrics(labels: Mapping[str, str] | None, reading: NodeReading) -> bytes:
    """Return the NodeMetrics of one reading that has a usage, as it stands in a list."""
    assert reading.usage is not None
    head = b'{"metadata":{"name":"%b"%b' % (reading.node.encode(), _labels(labels))
    usage = b'{"cpu":"%dn","memory":"%dKi"}' % (reading.usage.cpu_nanos, -(-reading.usage.memory_bytes // 1024))
    return b'%b%b,"usage":%b}' % (head, _times(reading.at, reading.window), usage)


def as_object(kind: str, item: bytes) -> bytes:
    """Return an item of a list as an object of its own."""
    return b'{"kind":"%b","apiVersion":"%b",%b' % (kind.encode(), API_VERSION.encode(), item[1:])


def as_list(kind: str, items: Iterable[bytes]) -> bytes:
    """Return items as a list."""
    head = b'{"kind":"%bList","apiVersion":"%b","metadata":{},"items":[' % (kind.encode(), API_VERSION.encode())
    return b"".join((head, b",".join(items), b"]}"))


def _labels(labels: Mapping[str, str] | None) -> bytes:
    return b',"labels":' + _encode(labels) if labels else b""


@lru_cache(maxsize=16384)
def _times(at: datetime, window: timedelta) -> bytes:
    """Return the end of the metadata, and what follows it: the pods of a node share one time and one window."""
    stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    when = f',"creationTimestamp":"{stamp}"}},"timestamp":"{stamp}","window":"{format_duration(window)}"'
    return when.encode()
