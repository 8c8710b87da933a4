"""How much of what prod pods requested they will not use: the basis of the mid tier.

    pod       sum over prod pods of max(request - peak * m, 0); young, ending and finished pods count nothing
    priority  max(sum of prod requests - m * (system + prod + none peaks), 0)
    min       the smaller of both, per resource; an error of either is an error

m = (100 + safety margin) / 100. The peak is p95 for CPU and p98 for memory: memory cannot be throttled, so its
prediction is more careful. A predictor is made per report and asked once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from kubetide.api.objects.core import Pod
from kubetide.api.qos import qos
from kubetide.api.values.quantity import ZERO
from kubetide.errors import KubetideError
from kubetide.node.core.prediction.peak import SYSTEM, Peak, class_model

CPU_PERCENTILE = "p95"
MEMORY_PERCENTILE = "p98"


class NoPrediction(KubetideError):
    """There is no model, or a pod was given twice."""


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """What could be lent out."""

    cpu_millis: int
    memory_bytes: int


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


@dataclass(slots=True)
class PodPredictor:
    """Sums what single prod pods leave unused."""

    predictions: Predictions
    now: datetime
    margin_percent: int
    cold_start: timedelta
    _seen: set[str] = field(default_factory=set)
    _cpu: int = 0
    _memory: int = 0

    def add_pod(self, pod: Pod) -> None:
        if not _is_prod(pod):
            return
        uid = pod.metadata.uid
        if uid in self._seen:
            raise NoPrediction(f"pod {uid} was added twice")
        self._seen.add(uid)
        created = pod.metadata.creation_timestamp
        if _is_ending(pod) or (created is not None and self.now - created <= self.cold_start):
            return
        peak = _peak(self.predictions, uid)
        factor = _factor(self.margin_percent)
        requested = _requested(pod)
        self._cpu += max(requested.cpu_millis - _scaled(peak.cpu_millis, factor), 0)
        self._memory += max(requested.memory_bytes - _scaled(peak.memory_bytes, factor), 0)

    def result(self) -> Reclaimable:
        return Reclaimable(self._cpu, self._memory)


@dataclass(slots=True)
class PriorityPredictor:
    """Compares what prod pods requested with the peak of system, prod and unclassified pods together."""

    predictions: Predictions
    margin_percent: int
    _cpu: int = 0
    _memory: int = 0

    def add_pod(self, pod: Pod) -> None:
        if _is_prod(pod) and not _is_ending(pod):
            requested = _requested(pod)
            self._cpu += requested.cpu_millis
            self._memory += requested.memory_bytes

    def result(self) -> Reclaimable:
        factor = _factor(self.margin_percent)
        peaks = [_peak(self.predictions, model) for model in (SYSTEM, class_model(qos.PROD), class_model(qos.NONE))]
        cpu = _scaled(sum(peak.cpu_millis for peak in peaks), factor)
        memory = _scaled(sum(peak.memory_bytes for peak in peaks), factor)
        return Reclaimable(max(self._cpu - cpu, 0), max(self._memory - memory, 0))


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


def _factor(margin_percent: int) -> float:
    return (100 + margin_percent) / 100.0
