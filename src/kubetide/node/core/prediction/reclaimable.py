"""How much of what prod pods requested they will not use: the basis of the mid tier.

    pod       sum over prod pods of max(request - peak * m, 0); young, ending and finished pods count nothing
    priority  max(sum of prod requests - m * (system + prod + none peaks), 0)
    min       the smaller of both, per resource; an error of either is an error
    both are limited by the node: at most max(allocatable - what is not reclaimable, 0), where the latter is the sum
    of the counted peaks. An overcommitted node has nothing to give, however little its pods use.

    peak      the larger of both peaks; young and unpredicted pods count with their request

m = (100 + safety margin) / 100. The peak is p95 for CPU and p98 for memory: memory cannot be throttled, so its
prediction is more careful. A predictor is made per report and asked once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from kubetide.api.objects.core import Node, Pod, ResourceList
from kubetide.api.objects.resources import parse_list
from kubetide.api.qos import qos
from kubetide.api.values.codec import decode
from kubetide.api.values.quantity import ZERO
from kubetide.errors import KubetideError
from kubetide.node.core.prediction.peak import SYSTEM, Peak, class_model

CPU_PERCENTILE = "p95"
MEMORY_PERCENTILE = "p98"
RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"


class NoPrediction(KubetideError):
    """There is no model, or a pod was given twice."""


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """What prod pods requested and will not use: the base of mid resources."""

    cpu_millis: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class NodeLimit:
    """What the node can hold; None while it is not known."""

    allocatable: Reclaimable | None

    def of(self, found: Reclaimable, unreclaimable: Reclaimable) -> Reclaimable:
        """Return what is reclaimable within the node; raise NoPrediction while it is not known."""
        if self.allocatable is None:
            raise NoPrediction("the node's allocatable resources are not known")
        return Reclaimable(
            min(max(self.allocatable.cpu_millis - unreclaimable.cpu_millis, 0), found.cpu_millis),
            min(max(self.allocatable.memory_bytes - unreclaimable.memory_bytes, 0), found.memory_bytes),
        )


def node_limit(node: Node | None) -> NodeLimit:
    """Return what a node can hold: its allocatable resources before they were amplified."""
    if node is None:
        return NodeLimit(None)
    allocatable = _raw_allocatable(node.metadata.annotations) or node.status.allocatable
    if not allocatable:
        return NodeLimit(None)
    amounts = parse_list(allocatable)
    return NodeLimit(Reclaimable(amounts.get("cpu", ZERO).milli, amounts.get("memory", ZERO).value))


def _raw_allocatable(annotations: Mapping[str, str] | None) -> ResourceList | None:
    text = (annotations or {}).get(RAW_ALLOCATABLE)
    try:
        found = None if text is None else decode(text, dict[str, str | int | float], what=RAW_ALLOCATABLE)
        if found is not None:
            parse_list(found)
    except KubetideError:
        return None
    return found


class Predictions(Protocol):
    """Where peaks come from."""

    def predict(self, identity: str) -> Mapping[str, Peak] | None:
        """Return the peaks of a model by percentile, or None."""
        ...


class Predictor(Protocol):
    """Collects pods, then answers."""

    def add_pod(self, pod: Pod) -> None:
        """Take a pod into account; raise NoPrediction if that is not possible."""
        ...

    def result(self) -> Reclaimable:
        """Return the answer; raise NoPrediction."""
        ...

    def peak(self) -> Reclaimable:
        """Return what prod pods will use at most; raise NoPrediction."""
        ...


def _peak(predictions: Predictions, model: str) -> Peak:
    found = predictions.predict(model)
    if found is None:
        raise NoPrediction(f"no model {model}")
    return Peak(found[CPU_PERCENTILE].cpu_millis, found[MEMORY_PERCENTILE].memory_bytes)


def _scaled(value: int, factor: float) -> int:
    return int(float(value) * factor)


def _requested(pod: Pod) -> Reclaimable:
    request = qos.pod_request(pod)
    return Reclaimable(request.get("cpu", ZERO).milli, request.get("memory", ZERO).value)


def _is_prod(pod: Pod) -> bool:
    return qos.defaulted_priority(pod) in (qos.PROD, qos.NONE)


def _is_ending(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None or pod.status.phase in ("Succeeded", "Failed")


class EmptyPredictor:
    """Predicts nothing."""

    def add_pod(self, pod: Pod) -> None:
        """Ignore the pod."""

    def result(self) -> Reclaimable:
        raise NoPrediction("prediction is switched off")

    def peak(self) -> Reclaimable:
        raise NoPrediction("prediction is switched off")


@dataclass(slots=True)
class PodPredictor:
    """Sums what single prod pods leave unused."""

    predictions: Predictions
    now: datetime
    margin_percent: int
    cold_start: timedelta
    limit: NodeLimit | None = None
    _seen: set[str] = field(default_factory=set)
    _cpu: int = 0
    _memory: int = 0
    _predicted: Reclaimable = Reclaimable(0, 0)
    _requested: Reclaimable = Reclaimable(0, 0)
    """Requests of pods that cannot be predicted."""

    def add_pod(self, pod: Pod) -> None:
        if not _is_prod(pod):
            return
        uid = pod.metadata.uid
        if uid in self._seen:
            raise NoPrediction(f"pod {uid} was added twice")
        self._seen.add(uid)
        created = pod.metadata.creation_timestamp
        requested = _requested(pod)
        if created is not None and self.now - created <= self.cold_start:
            self._requested = _sum(self._requested, requested)
            return
        if _is_ending(pod):
            return
        try:
            peak = _peak(self.predictions, uid)
        except NoPrediction:
            self._requested = _sum(self._requested, requested)
            raise
        factor = _factor(self.margin_percent)
        used = Reclaimable(_scaled(peak.cpu_millis, factor), _scaled(peak.memory_bytes, factor))
        self._predicted = _sum(self._predicted, used)
        self._cpu += max(requested.cpu_millis - used.cpu_millis, 0)
        self._memory += max(requested.memory_bytes - used.memory_bytes, 0)

    def result(self) -> Reclaimable:
        found = Reclaimable(self._cpu, self._memory)
        return found if self.limit is None else self.limit.of(found, self._predicted)

    def peak(self) -> Reclaimable:
        return _sum(self._predicted, self._requested)


@dataclass(slots=True)
class PriorityPredictor:
    """Compares what prod pods requested with the peak of system, prod and unclassified pods together."""

    predictions: Predictions
    margin_percent: int
    limit: NodeLimit | None = None
    _cpu: int = 0
    _memory: int = 0

    def add_pod(self, pod: Pod) -> None:
        if _is_prod(pod) and not _is_ending(pod):
            requested = _requested(pod)
            self._cpu += requested.cpu_millis
            self._memory += requested.memory_bytes

    def result(self) -> Reclaimable:
        peak = self.peak()
        found = Reclaimable(max(self._cpu - peak.cpu_millis, 0), max(self._memory - peak.memory_bytes, 0))
        return found if self.limit is None else self.limit.of(found, peak)

    def peak(self) -> Reclaimable:
        factor = _factor(self.margin_percent)
        peaks = [_peak(self.predictions, model) for model in (SYSTEM, class_model(qos.PROD), class_model(qos.NONE))]
        return Reclaimable(
            _scaled(sum(peak.cpu_millis for peak in peaks), factor),
            _scaled(sum(peak.memory_bytes for peak in peaks), factor),
        )


@dataclass(slots=True)
class MinPredictor:
    """The more careful of two predictors, per resource."""

    pods: Predictor
    priorities: Predictor

    def add_pod(self, pod: Pod) -> None:
        self.pods.add_pod(pod)
        self.priorities.add_pod(pod)

    def result(self) -> Reclaimable:
        one, other = self.pods.result(), self.priorities.result()
        return Reclaimable(min(one.cpu_millis, other.cpu_millis), min(one.memory_bytes, other.memory_bytes))

    def peak(self) -> Reclaimable:
        one, other = self.pods.peak(), self.priorities.peak()
        return Reclaimable(max(one.cpu_millis, other.cpu_millis), max(one.memory_bytes, other.memory_bytes))


def _sum(one: Reclaimable, other: Reclaimable) -> Reclaimable:
    return Reclaimable(one.cpu_millis + other.cpu_millis, one.memory_bytes + other.memory_bytes)


def _factor(margin_percent: int) -> float:
    return (100 + margin_percent) / 100.0
