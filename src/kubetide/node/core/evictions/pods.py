"""A pod as the evictions see it: what it is worth, what it frees, whether it may be asked for at all.

A pod says with a label that the features by priority may take it, and with an annotation which features at all; text
that cannot be read means none, because the pod's owner meant to protect it. Pods that are terminating already free
what they hold without any further eviction. One that outlives its grace period by a minute no longer counts, or a
single hanging pod would protect the node from every eviction.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubetide.api.qos import qos
from kubetide.api.values.codec import decode
from kubetide.errors import InvalidInput
from kubetide.node.core.formats.numbers import INT64_MAX
from kubetide.node.core.series import kinds
from kubetide.node.core.snapshot import PodState, Snapshot

STUCK_AFTER_GRACE = timedelta(minutes=1)
DEFAULT_GRACE = timedelta(seconds=30)
_DECIMAL = re.compile(r"[+-]?[0-9]+")
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictablePod:
    """An active pod with everything that decides whether and when it goes."""

    uid: str
    namespace: str
    name: str
    best_effort: bool = True
    priority: int | None = None
    """As the pod states it; the features for best-effort pods take a missing one as 0."""
    priority_value: int = 0
    sub_priority: int = 0
    eviction_priority: int = 0
    opted_in: bool = False
    features: frozenset[str] | None = None
    """The features that may take the pod; None: all of them."""
    request_milli: int = 0
    """Requested batch-cpu."""
    used_milli: int = 0
    cpu_known: bool = True
    memory_used: int | None = None
    class_requests: Mapping[str, int] | None = None
    """Requested batch or mid resources of its priority class; None for any other class."""
    terminating_since: datetime | None = None
    grace: timedelta = DEFAULT_GRACE

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def terminating(self) -> bool:
        """Return whether the pod is on its way out."""
        return self.terminating_since is not None

    def stuck(self, now: datetime) -> bool:
        """Return whether the pod should have been gone for more than a minute."""
        since = self.terminating_since
        return since is not None and now >= since + self.grace + STUCK_AFTER_GRACE

    @property
    def used_of_request(self) -> float:
        """Return used / requested CPU, 0 without a request."""
        return self.used_milli / self.request_milli if self.request_milli > 0 else 0.0

    def allows(self, feature: str) -> bool:
        """Return whether the pod's policy lets a feature take it."""
        return self.features is None or feature in self.features


def evictable_pods(snapshot: Snapshot) -> list[EvictablePod]:
    """Return the active pods of a node with their values."""
    return [_evictable(pod, snapshot) for pod in snapshot.pods if pod.is_active]


def _evictable(pod: PodState, snapshot: Snapshot) -> EvictablePod:
    properties = {kinds.POD_UID: pod.uid}
    cpu = snapshot.metrics.last(kinds.POD_CPU, properties)
    memory = snapshot.metrics.last(kinds.POD_MEMORY, properties)
    labels, annotations = pod.pod.metadata.labels or {}, pod.pod.metadata.annotations or {}
    value = qos.priority_value(pod.pod)
    return EvictablePod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        best_effort=pod.raw_qos == qos.BE,
        priority=pod.pod.spec.priority,
        priority_value=value,
        sub_priority=sub_priority(labels, value),
        eviction_priority=eviction_priority(annotations),
        opted_in=labels.get(qos.LABEL_EVICTION_ENABLED) == "true",
        features=allowed_features(annotations),
        request_milli=qos.extended_request(pod.pod, qos.BATCH_CPU),
        used_milli=int((cpu or 0.0) * 1000),
        cpu_known=cpu is not None,
        memory_used=None if memory is None else int(memory),
        class_requests=class_requests(pod),
        terminating_since=_leaving_since(pod, snapshot),
        grace=_grace(pod),
    )


def sub_priority(labels: Mapping[str, str], default: int) -> int:
    """Return the number of the label that orders pods of one priority; without a readable one the priority itself."""
    return _number(labels.get(qos.LABEL_SUB_PRIORITY), INT64_MAX, default)


def eviction_priority(annotations: Mapping[str, str]) -> int:
    """Return the number of the annotation that orders pods before their priority does; 0 when there is none."""
    return _number(annotations.get(qos.ANNOTATION_EVICTION_PRIORITY), _INT32_MAX, 0)


def _number(text: str | None, largest: int, default: int) -> int:
    if text is None or _DECIMAL.fullmatch(text) is None:
        return default
    value = int(text)
    return value if -largest - 1 <= value <= largest else default


def allowed_features(annotations: Mapping[str, str]) -> frozenset[str] | None:
    """Return the features that may take a pod, None for all; an unreadable policy allows none."""
    text = annotations.get(qos.ANNOTATION_EVICTION_POLICY)
    if text is None:
        return None
    try:
        return frozenset(decode(text, list[str], what=qos.ANNOTATION_EVICTION_POLICY))
    except InvalidInput:
        return frozenset()


_OF_CLASS = {qos.BATCH: (qos.BATCH_CPU, qos.BATCH_MEMORY), qos.MID: (qos.MID_CPU, qos.MID_MEMORY)}


def class_requests(pod: PodState) -> dict[str, int] | None:
    """Return what a batch or mid pod requested of its class, None for pods of other classes."""
    names = _OF_CLASS.get(pod.priority)
    return None if names is None else {name: qos.extended_request(pod.pod, name) for name in names}


def _leaving_since(pod: PodState, snapshot: Snapshot) -> datetime | None:
    deletion = pod.pod.metadata.deletion_timestamp
    if deletion is not None:
        # The API stamps the end of the grace period, not its beginning.
        return deletion - _grace(pod)
    return snapshot.evicted.get(pod.uid)


def _grace(pod: PodState) -> timedelta:
    seconds = pod.pod.metadata.deletion_grace_period_seconds
    if seconds is None:
        seconds = pod.pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE if seconds is None else timedelta(seconds=max(seconds, 0))
