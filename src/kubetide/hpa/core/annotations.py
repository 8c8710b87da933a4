"""What a user may ask of kubetide for one autoscaler, by annotations under `kubetide.io/`.

| annotation                         | value                        | effect                                          |
|------------------------------------|------------------------------|-------------------------------------------------|
| kubetide.io/managed-by             | kubetide, or anything else   | act although others may; or leave it alone      |
| kubetide.io/hpa-dry-run            | true, false                  | compute and publish, write nothing              |
| kubetide.io/hpa-sync-period        | 1s to 1h                     | how often this one is evaluated                 |
| kubetide.io/hpa-rollout-aware      | true, false                  | pods of a rollout do not move the target        |
| kubetide.io/hpa-fallback           | last-known-good, or a count  | what a failed metric proposes                   |
| kubetide.io/hpa-selection-strategy | LabelSelector, OwnerReference | which pods count: all matched, or those owned   |
| kubetide.io/hpa-fallback-max-age   | a duration, default 10m      | how long the last known good proposal is good   |
| kubetide.io/hpa-headroom           | learned, learned-below, off  | headroom from the target's own forecast errors  |
| kubetide.io/hpa-headroom-query     | PromQL                       | the past demand of the target, in full replicas |
| kubetide.io/learned                | on, off                      | off: nothing learned decides (the kill switch)  |

A value that cannot be used has no effect and is named in an event.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TypeVar

from kubetide.api.objects.hpa import HorizontalPodAutoscaler, HpaSpec
from kubetide.durations import parse_duration
from kubetide.errors import InvalidInput

T = TypeVar("T")

PREFIX = "kubetide.io/"
MANAGED_BY = "kubetide.io/managed-by"
DRY_RUN = "kubetide.io/hpa-dry-run"
SYNC_PERIOD = "kubetide.io/hpa-sync-period"
ROLLOUT_AWARE = "kubetide.io/hpa-rollout-aware"
SELECTION_STRATEGY = "kubetide.io/hpa-selection-strategy"
FALLBACK = "kubetide.io/hpa-fallback"
FALLBACK_MAX_AGE = "kubetide.io/hpa-fallback-max-age"
HEADROOM = "kubetide.io/hpa-headroom"
HEADROOM_QUERY = "kubetide.io/hpa-headroom-query"
LEARNED = "kubetide.io/learned"
HEADROOM_STATE = "kubetide.io/hpa-headroom-state"
"""Written by kubetide itself: what was learned so far."""

KUBETIDE = "kubetide"
LAST_KNOWN_GOOD = "last-known-good"
SHORTEST_PERIOD = timedelta(seconds=1)
LONGEST_PERIOD = timedelta(hours=1)
DEFAULT_MAX_AGE = timedelta(minutes=10)
LONGEST_QUERY = 4096


class HeadroomMode(StrEnum):
    """How far learned headroom may move a proposal: only up, or down too."""

    LEARNED = "learned"
    LEARNED_BELOW = "learned-below"


class SelectionStrategy(StrEnum):
    """Which of the pods that the target's selector matches are counted; the names are those of KEP-5325."""

    LABEL_SELECTOR = "LabelSelector"
    OWNER_REFERENCE = "OwnerReference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """What stands in for a metric that fails: a fixed count, or what it said last if that is not too old."""

    count: int | None = None
    max_age: timedelta = DEFAULT_MAX_AGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What the annotations of one autoscaler say, and which of their values are invalid."""

    managed_by: str | None = None
    dry_run: bool | None = None
    sync_period: timedelta | None = None
    rollout_aware: bool | None = None
    selection: SelectionStrategy | None = None
    fallback: Fallback | None = None
    headroom: HeadroomMode | None = None
    headroom_query: str | None = None
    killed: str = ""
    """Who forbids the learned headroom that is asked for, in words."""
    problems: tuple[str, ...] = field(default=())

    @property
    def headroom_stands(self) -> str:
        """Return whether learned headroom is on, and who says so, in words."""
        if self.headroom is not None:
            return f"{self.headroom}, by annotation {HEADROOM}"
        return f"off, by {self.killed}" if self.killed else "off"


NO_OVERRIDES = Overrides()


def with_proposed_fields(found: Overrides, spec: HpaSpec) -> Overrides:
    """Return the overrides with what fields say that Kubernetes does not have yet; annotations win over them."""
    problems = list(found.problems)
    seconds, strategy = spec.sync_period_seconds, spec.selection_strategy
    period = selection = None
    if seconds is not None:
        whole = isinstance(seconds, int) and not isinstance(seconds, bool)
        if whole and SHORTEST_PERIOD.total_seconds() <= seconds <= LONGEST_PERIOD.total_seconds():
            period = timedelta(seconds=seconds)
        else:
            problems.append("spec.syncPeriodSeconds: must be a whole number from 1 to 3600")
    if strategy is not None:
        try:
            selection = _selection(str(strategy))
        except InvalidInput as problem:
            problems.append(f"spec.selectionStrategy: {problem}")
    return replace(
        found,
        sync_period=found.sync_period or period,
        selection=found.selection or selection,
        problems=tuple(problems),
    )


def overrides_of(annotations: Mapping[str, str] | None) -> Overrides:
    """Read the annotations; what is invalid is left out and named in `problems`."""
    if not annotations or not any(name.startswith(PREFIX) for name in annotations):
        return NO_OVERRIDES
    problems: list[str] = []

    def read(name: str, parse: Callable[[str], T | None], *, invalid: T | None = None) -> T | None:
        text = annotations.get(name)
        try:
            return None if text is None else parse(text)
        except InvalidInput as problem:
            problems.append(f"{name}: {problem}")
            return invalid

    found = Overrides(
        managed_by=annotations.get(MANAGED_BY),
        # Whoever asks for a dry run, however badly spelt, does not want the target touched.
        dry_run=read(DRY_RUN, _flag, invalid=True),
        rollout_aware=read(ROLLOUT_AWARE, _flag),
        sync_period=read(SYNC_PERIOD, _period),
        selection=read(SELECTION_STRATEGY, _selection),
        fallback=read(FALLBACK, partial(_fallback, max_age=annotations.get(FALLBACK_MAX_AGE))),
        headroom=read(HEADROOM, _headroom),
        headroom_query=read(HEADROOM_QUERY, _query),
    )
    # However badly spelt, whoever touches the switch does not trust what was learned.
    if read(LEARNED, _switch, invalid=False) is False and found.headroom is not None:
        found = replace(found, headroom=None, killed=f"annotation {LEARNED}: {annotations[LEARNED]}")
    return replace(found, problems=tuple(problems)) if problems else found


def same_overrides(old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> bool:
    """Return whether two sets of annotations ask the same of kubetide; a change of others is not worth a reconcile."""
    return old == new or _own(old) == _own(new)


def _own(annotations: Mapping[str, str] | None) -> dict[str, str]:
    return {
        name: value for name, value in (annotations or {}).items() if name.startswith(PREFIX) and name != HEADROOM_STATE
    }


def _flag(text: str) -> bool:
    if text.lower() in ("true", "1", "yes"):
        return True
    if text.lower() in ("false", "0", "no", ""):
        return False
    raise InvalidInput(f"{text!r} is neither true nor false")


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise InvalidInput(f"{text!r} is neither on nor off")
    return text == "on"


def _period(text: str) -> timedelta:
    period = parse_duration(text)
    if not SHORTEST_PERIOD <= period <= LONGEST_PERIOD:
        raise InvalidInput(f"{text!r} is not between 1s and 1h")
    return period


def _headroom(text: str) -> HeadroomMode | None:
    try:
        return None if text == "off" else HeadroomMode(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not one of learned, learned-below, off") from error


def _query(text: str) -> str:
    if not text.strip() or len(text) > LONGEST_QUERY:
        raise InvalidInput(f"a query has 1 to {LONGEST_QUERY} characters")
    return text


def _selection(text: str) -> SelectionStrategy:
    try:
        return SelectionStrategy(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is neither {' nor '.join(SelectionStrategy)}") from None


def _fallback(text: str, *, max_age: str | None) -> Fallback:
    age = DEFAULT_MAX_AGE if max_age is None else parse_duration(max_age)
    if text == LAST_KNOWN_GOOD:
        return Fallback(max_age=age)
    if text.isascii() and text.isdigit() and len(text) < 10:
        return Fallback(count=int(text))
    raise InvalidInput(f"{text!r} is neither {LAST_KNOWN_GOOD} nor a count of replicas")


def asks_for_a_reconcile(old: HorizontalPodAutoscaler, new: HorizontalPodAutoscaler) -> bool:
    """Return whether an autoscaler became another one, or asks for something else."""
    if old.metadata.uid != new.metadata.uid or old.metadata.generation != new.metadata.generation:
        return True
    # API servers before 1.37 keep no generation for autoscalers, so the spec itself is compared.
    if old.spec != new.spec:
        return True
    return not same_overrides(old.metadata.annotations, new.metadata.annotations)
