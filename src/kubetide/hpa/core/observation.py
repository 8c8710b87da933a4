"""What goes into a reconcile of an autoscaler, what comes out of it, and how it can end badly."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from kubetide.api.objects.core import Pod
from kubetide.api.objects.events import Event
from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaSpec, HpaStatus
from kubetide.api.objects.hpa_compat import HpaCompat
from kubetide.hpa.core.annotations import Fallback
from kubetide.hpa.core.behavior import (
    Limited,
    Rules,
    ScaleEvent,
    ScaleEvents,
    limit_by_rules,
    limit_plain,
    longest_period,
    remember_event,
)
from kubetide.hpa.core.choice import Choice
from kubetide.hpa.core.evaluate import MetricResult
from kubetide.hpa.core.headroom.learner import LearnedCount
from kubetide.hpa.core.pods import ReadinessRules
from kubetide.hpa.core.samples import ErrorKind, Reading
from kubetide.hpa.core.stabilization import (
    Recommendation,
    Recommendations,
    Stabilized,
    stabilize,
    stabilize_both_ways,
)
from kubetide.hpa.core.status import Conditions
from kubetide.hpa.core.zero import minimum_of

# What one autoscaler remembers between reconciles, and how careful it is after a restart.


class AfterStart(msgspec.Struct, frozen=True, kw_only=True):
    """Care after a restart, for one autoscaler."""

    held: Recommendation | None = None
    """Size and time of the first proposal that stood."""
    over: bool = False
    """The held size has left its window for good."""
    looked_back: bool = False
    """The status was searched for a recent rescale."""
    last_scale: datetime | None = None
    """When the status said the last rescale was, if shrinking still has to wait for it."""

    def held_for(self, current: int, window: timedelta, *, now: datetime, edge_counts: bool) -> int | None:
        """Return what enters the maximum of the window for shrinking."""
        if self.held is None or self.over or window <= timedelta(0):
            return None
        cutoff = now - window
        if self.held.at > cutoff or (edge_counts and self.held.at == cutoff):
            return min(self.held.replicas, current)
        return None

    def holds_down(self, rules: Rules, *, now: datetime) -> bool:
        """Return whether forgotten rescales could still forbid shrinking."""
        return self.last_scale is not None and now < self.last_scale + longest_period(rules.down)


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one autoscaler remembers. No list of recommendations is not the same as an empty one."""

    recommendations: Recommendations | None = None
    ups: ScaleEvents = ()
    downs: ScaleEvents = ()
    after_start: AfterStart | None = None
    """None: the object is younger than this process, or the rule is off."""
    last_good: Mapping[str, Recommendation] = msgspec.field(default_factory=dict)
    """What each metric proposed when it last worked."""
    first_failures: Mapping[str, datetime] = msgspec.field(default_factory=dict)
    """Since when each external metric with a fallback of its own has failed."""

    def seeded(self, current: int, now: datetime) -> "Memory":
        """Begin the list of recommendations with the present size, if there is none."""
        if self.recommendations is not None:
            return self
        return replace(self, recommendations=(Recommendation(current, now),))

    def looking_back(self, hpa: HorizontalPodAutoscaler, current: int, rules: Rules | None, now: datetime) -> "Memory":
        """In the first reconcile after a start, learn from the status what may have been done lately."""
        start = self.after_start
        if start is None or start.looked_back:
            return self
        start = replace(start, looked_back=True)
        scaled = hpa.status.last_scale_time
        if rules is None or scaled is None:
            return replace(self, after_start=start)
        periods = max(longest_period(rules.up), longest_period(rules.down))
        if now - scaled >= periods:
            return replace(self, after_start=start)
        memory = replace(self, after_start=replace(start, last_scale=scaled))
        before, after = hpa.status.current_replicas, hpa.status.desired_replicas
        if before != after and current == after:
            event = ScaleEvent(abs(after - before), scaled)
            if after > before:
                return replace(memory, ups=(*memory.ups, event))
            return replace(memory, downs=(*memory.downs, event))
        return memory

    def holding(self, proposal: int, current: int, now: datetime) -> "Memory":
        """Remember the first proposal after a start that stood."""
        start = self.after_start
        if start is None or start.held is not None:
            return self
        return replace(self, after_start=replace(start, held=Recommendation(max(current, proposal), now)))

    def letting_go(self, held: int | None) -> "Memory":
        """Drop the held size once it no longer counts."""
        start = self.after_start
        if held is not None or start is None or start.held is None or start.over:
            return self
        return replace(self, after_start=replace(start, over=True))

    def rescaled(self, previous: int, replicas: int, rules: Rules | None, now: datetime) -> "Memory":
        """Remember a rescale that worked; without `behavior` nothing will ever ask for it."""
        if rules is None:
            return self
        if replicas > previous:
            ups = remember_event(self.ups, replicas - previous, longest_period(rules.up), now=now)
            return replace(self, ups=ups)
        downs = remember_event(self.downs, previous - replicas, longest_period(rules.down), now=now)
        return replace(self, downs=downs)


class Normalized(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal after windows and limits, and what is remembered of it."""

    stabilized: Stabilized
    limited: Limited
    held: int | None
    """What the care after a restart put into the window."""
    memory: Memory

    @property
    def rule(self) -> str:
        """What decided: a limit that cut something off, else the window."""
        return self.limited.reason if self.limited.cut else self.stabilized.reason


def normalize(
    proposal: int, current: int, memory: Memory, spec: HpaSpec, rules: Rules | None, window: timedelta, *, now: datetime
) -> Normalized:
    """Take a proposal through windows and limits: those of `rules`, or the one `window` where there is no behavior."""
    memory = memory.holding(proposal, current, now)
    start, past = memory.after_start, memory.recommendations or ()
    minimum, maximum = minimum_of(spec), spec.max_replicas
    if rules is None:
        held = start.held_for(current, window, now=now, edge_counts=True) if start is not None else None
        stabilized = stabilize(proposal, past, window, now=now, held=held)
        limited = limit_plain(stabilized.replicas, current, minimum=minimum, maximum=maximum)
    else:
        window = rules.down_window
        held = start.held_for(current, window, now=now, edge_counts=False) if start is not None else None
        stabilized = stabilize_both_ways(
            proposal, current, past, up_window=rules.up_window, down_window=window, now=now, held=held
        )
        limited = limit_by_rules(
            stabilized.replicas,
            current,
            rules,
            memory.ups,
            memory.downs,
            minimum=minimum,
            maximum=maximum,
            now=now,
            hold_down=start is not None and start.holds_down(rules, now=now),
        )
    memory = replace(memory.letting_go(held), recommendations=stabilized.recommendations)
    return Normalized(stabilized=stabilized, limited=limited, held=held, memory=memory)


def memory_for(hpa: HorizontalPodAutoscaler, begin: datetime | None) -> Memory:
    """Return empty memory, careful if the object is older than the moment we started leading."""
    created = hpa.metadata.creation_timestamp
    if begin is None or (created is not None and created >= begin):
        return Memory()
    return Memory(after_start=AfterStart())


class ProblemKind(StrEnum):
    """How a reconcile can end badly."""

    INVALID_API_VERSION = "invalid_api_version"
    NO_MAPPING = "no_mapping"
    GET_SCALE = "get_scale"
    COMPUTE_REPLICAS = "compute_replicas"
    PARTIAL_METRICS = "partial_metrics"
    UPDATE_SCALE = "update_scale"
    UPDATE_STATUS = "update_status"


@dataclass(frozen=True, slots=True)
class HpaProblem:
    """The error a reconcile ends with."""

    kind: ProblemKind
    message: str
    in_spec: bool = False
    """The object itself is at fault, not the cluster."""

    @property
    def label(self) -> str:
        """The telemetry label."""
        return "spec" if self.in_spec or self.kind is ProblemKind.INVALID_API_VERSION else "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The cluster-wide settings that enter a decision."""

    tolerance: float = 0.1
    compat: HpaCompat = field(default_factory=HpaCompat)
    """The release to behave like."""
    external_fallback: bool = False
    """Honour the proposed `external.fallback` of metrics."""
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
    """All that one reconcile looks at."""

    hpa: HorizontalPodAutoscaler
    scale: ScaleView | None
    scale_problem: HpaProblem | None = None
    pods: Sequence[Pod] = ()
    """The pods of the namespace that the selector matches."""
    claimed_by: tuple[str, ...] = ()
    """Keys of all autoscalers that claim one of these pods."""
    readings: tuple[Reading, ...] = ()
    """One per metric, in order; empty where metrics are not needed."""
    passed_over: frozenset[str] = frozenset()
    fallback: Fallback | None = None
    learned: LearnedCount | None = None
    """What learned headroom says, where the user asked for it."""
    announced: int = 0
    """How many pods the vertical side announces for smaller ones; 0: none."""


class ScaleDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What a reconcile wants, why, and everything it looked at on the way.

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
    problem: HpaProblem | None = None
    ends: bool = False
    """The reconcile ended early: the wanted size stays as the status has it."""
    results: tuple[MetricResult, ...] = ()
    choice: Choice | None = None
    proposal: int | None = None
    stabilized: Stabilized | None = None
    limited: Limited | None = None
    rules: Rules | None = None
    held: int | None = None
    """What the care after a restart put into the window."""
    scale: ScaleView | None = None
    announced: int = 0
    """How many pods the vertical side announced."""
    passed_over: frozenset[str] = frozenset()
    pods_seen: int = 0
    compat: HpaCompat
    learned: LearnedCount | None = None
    headroom_silent: str = ""
    """Why learned headroom that is asked for has nothing to say."""


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a decision: the status to save, what to say before and after, and what to remember."""

    status: HpaStatus
    memory: Memory
    events: tuple[Event, ...] = ()
    events_after_save: tuple[Event, ...] = ()
    problem: HpaProblem | None = None
    save_error_counts: bool = True
    """A failure to save is the error of the reconcile; in a reconcile that ended early it is only logged."""
    action: str = "none"
    desired: int | None = None
    """The count that stands in the end; None where the reconcile ended early."""


def reconciliation_labels(outcome: Conclusion, problem: HpaProblem | None) -> tuple[str, str]:
    """Return the telemetry labels `action` and `error` of a reconcile."""
    return outcome.action, problem.label if problem is not None else "none"


def computation_labels(hpa: HorizontalPodAutoscaler, results: Sequence[MetricResult]) -> Iterator[tuple[str, str, str]]:
    """Return the labels `metric_type`, `action`, `error` of each metric, measured by the status before."""
    before = hpa.status.current_replicas
    for result in results:
        if result.proposal is None or result.failure is not None:
            unknown = result.failure is not None and result.failure.kind is ErrorKind.UNKNOWN_TYPE
            yield result.type, "none", "spec" if unknown else "internal"
            continue
        replicas = result.proposal.replicas
        action = "scale_up" if replicas > before else "scale_down" if replicas < before else "none"
        yield result.type, action, "none"
