"""Policies of sizes by name, and what they are told and asked.

    adaptive       learned sizes, memory request and limit apart
    adaptive-one   learned sizes, memory limit = request
    vpa            the recommender's target, applied every period
    krr            p95 of CPU, peak + 15 % of memory, 14 days
    peak           peak + 20 % of 7 days
    static         the peak of the first week, set once
    current        nothing changes

A policy is told one period after the other and asked in between; it is made anew for every fleet.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kubetide.errors import InvalidInput
from kubetide.stats.buckets import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The containers to size, and how they are sampled."""

    size: int
    interval_seconds: int
    period_seconds: int
    resources: frozenset[str]
    workloads: Ints | None = None
    """Which containers are of one workload and get one size; None where each is its own."""


@dataclass(frozen=True, slots=True)
class OomKill:
    """A container passed its memory limit."""

    column: int
    at_seconds: int
    limit_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """What happened in one period: samples by containers (cores, bytes), NaN where there is none."""

    starts: Ints
    """When the period began, in seconds, for each container."""
    cpu: Floats | None = None
    memory: Floats | None = None
    ooms: tuple[OomKill, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Sizes from now on, per container; None or NaN keeps what is in force."""

    cpu: Floats | None = None
    memory: Floats | None = None
    memory_limit: Floats | None = None
    cpu_bounds: tuple[Floats, Floats] | None = None
    """Below the first and above the second a size is due to change, where the policy knows such bounds."""
    memory_bounds: tuple[Floats, Floats] | None = None


class SizePolicy(Protocol):
    """Decides sizes from what it was told so far."""

    def observe(self, period: Period) -> None:
        """Take in one period."""

    def decide(self) -> Decision:
        """Return the sizes for the next period."""


def size_policy(name: str) -> Callable[[Fleet], SizePolicy]:
    """Return the maker of a policy by its name."""
    makers = _makers()
    if name not in makers:
        raise InvalidInput(f"unknown policy {name!r}, known are {', '.join(sorted(makers))}", field="--policy")
    return makers[name]


def _makers() -> Mapping[str, Callable[[Fleet], SizePolicy]]:
    from kubetide.replay.core.learned import AdaptivePolicy
    from kubetide.replay.core.plain import VpaPolicy
    from kubetide.replay.core.rules import CurrentPolicy, KrrPolicy, PeakPolicy, StaticPolicy

    return {
        "adaptive": lambda fleet: AdaptivePolicy(fleet, limit_apart=True),
        "adaptive-one": lambda fleet: AdaptivePolicy(fleet, limit_apart=False),
        "vpa": VpaPolicy,
        "krr": KrrPolicy,
        "peak": PeakPolicy,
        "static": StaticPolicy,
        "current": CurrentPolicy,
    }
