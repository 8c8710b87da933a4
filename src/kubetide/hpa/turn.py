"""What goes into a turn of an autoscaler, what comes out of it, and how it can end badly."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from kubetide.api.core import Pod
from kubetide.api.events import Event
from kubetide.api.hpa import HorizontalPodAutoscaler, HpaStatus
from kubetide.hpa.annotations import Fallback
from kubetide.hpa.behavior import Limited, Rules
from kubetide.hpa.choice import Choice
from kubetide.hpa.evaluate import MetricResult
from kubetide.hpa.memory import Memory
from kubetide.hpa.pods import ReadinessRules
from kubetide.hpa.samples import ErrorKind, Reading
from kubetide.hpa.stabilization import Stabilized
from kubetide.hpa.status import Conditions


class TurnError(StrEnum):
    """How a turn can end badly."""

    INVALID_API_VERSION = "invalid_api_version"
    NO_MAPPING = "no_mapping"
    GET_SCALE = "get_scale"
    COMPUTE_REPLICAS = "compute_replicas"
    PARTIAL_METRICS = "partial_metrics"
    UPDATE_SCALE = "update_scale"
    UPDATE_STATUS = "update_status"


@dataclass(frozen=True, slots=True)
class Problem:
    """The error a turn ends with."""

    kind: TurnError
    message: str

    @property
    def label(self) -> str:
        """The telemetry label: only a target that cannot be read at all is the user's fault."""
        return "spec" if self.kind is TurnError.INVALID_API_VERSION else "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The cluster-wide settings that enter a decision."""

    tolerance: float = 0.1
    configurable_tolerance: bool = False
    downscale_window: timedelta = timedelta(minutes=5)
    readiness: ReadinessRules = field(default_factory=ReadinessRules)
    guard: bool = True
    """Refuse to shrink on samples that cannot be true or are too old."""
    max_usage_age: timedelta = timedelta(minutes=5)
    """How long after the end of its window usage may still shrink a target; 0 for any age."""


class ScaleView(msgspec.Struct, frozen=True):
    """The scale of the target: wanted and observed size, and its pods' selector as text."""

    replicas: int
    observed: int
    selector: str


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """All that one turn looks at."""

    hpa: HorizontalPodAutoscaler
    scale: ScaleView | None
    scale_problem: Problem | None = None
    pods: Sequence[Pod] = ()
    """The pods of the namespace that the selector matches."""
    claimed_by: tuple[str, ...] = ()
    """Keys of all autoscalers that claim one of these pods."""
    readings: tuple[Reading, ...] = ()
    """One per metric, in order; empty where metrics are not needed."""
    passed_over: frozenset[str] = frozenset()
    fallback: Fallback | None = None


class ScaleDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn wants, why, and everything it looked at on the way.

    A Struct, because a decision is built up in steps and there are hundreds a second: replacing fields is cheap.
    """

    hpa: HorizontalPodAutoscaler
    at: datetime
    current: int | None
    desired: int
    rescale: bool = False
    why: str = ""
    """The reason of the rescale, as people read it."""
    rule: str
    """Which rule had the last word on the size."""
    conditions: Conditions
    metrics: tuple[dict[str, Any], ...] | None = None
    memory: Memory
    events: tuple[Event, ...] = ()
    problem: Problem | None = None
    ends: bool = False
    """The turn ended early: the wanted size stays as the status has it."""
    results: tuple[MetricResult, ...] = ()
    choice: Choice | None = None
    proposal: int | None = None
    stabilized: Stabilized | None = None
    limited: Limited | None = None
    rules: Rules | None = None
    held: int | None = None
    """What the care after a restart put into the window."""
    scale: ScaleView | None = None
    passed_over: frozenset[str] = frozenset()
    pods_seen: int = 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a decision: the status to save, what to say before and after, and what to remember."""

    status: HpaStatus
    memory: Memory
    events: tuple[Event, ...] = ()
    events_after_save: tuple[Event, ...] = ()
    problem: Problem | None = None
    save_error_counts: bool = True
    """A failure to save is the error of the turn; in a turn that ended early it is only logged."""
    action: str = "none"


def reconciliation_labels(outcome: Outcome, problem: Problem | None) -> tuple[str, str]:
    """Return the telemetry labels `action` and `error` of a turn."""
    return outcome.action, problem.label if problem is not None else "none"


def computation_labels(hpa: HorizontalPodAutoscaler, results: Sequence[MetricResult]) -> Iterator[tuple[str, str, str]]:
    """Return the labels `metric_type`, `action`, `error` of each metric; the status before the turn is the measure."""
    before = hpa.status.current_replicas
    for result in results:
        if result.proposal is None or result.failure is not None:
            unknown = result.failure is not None and result.failure.kind is ErrorKind.UNKNOWN_TYPE
            yield result.type, "none", "spec" if unknown else "internal"
            continue
        replicas = result.proposal.replicas
        action = "scale_up" if replicas > before else "scale_down" if replicas < before else "none"
        yield result.type, action, "none"
