"""One reconcile of one autoscaler.

    observe the scale, the pods and the metrics -> decide -> write the scale -> conclude -> write the status

Whether anything may be written is decided in `hpa.core.takeover`, before each write. Memory is that of the conclusion:
where nothing was written, nothing was done that would have to be remembered.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kubetide import tracing
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.clock import Clock
from kubetide.hpa.builtin_controller import BuiltInWatch
from kubetide.hpa.core import events
from kubetide.hpa.core.annotations import NO_OVERRIDES, Overrides, SelectionStrategy, overrides_of, with_proposed_fields
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.decide import decide
from kubetide.hpa.core.describe import MetricsRequest, Used
from kubetide.hpa.core.headroom.learner import LearnedCount
from kubetide.hpa.core.observation import Conclusion, HpaProblem, Memory, Observation, ScaleDecision
from kubetide.hpa.core.quick.rest import (
    Asked,
    Rest,
    Resting,
    has_moved,
    rest_after_write,
    rest_of,
    same_but_for_status,
    status_at_rest,
    still_at_rest,
)
from kubetide.hpa.core.quick.rows import Row
from kubetide.hpa.core.takeover import WARN_EVERY, Stance, wrote_ever
from kubetide.hpa.headroom.kept import KeptHeadroom
from kubetide.hpa.headroom.store import HeadroomStore
from kubetide.hpa.observer import FoundScale, Observed, Observer
from kubetide.hpa.own_writes import OwnWrites
from kubetide.hpa.scale_writer import ScaleOutdated
from kubetide.hpa.settings import HpaSettings
from kubetide.hpa.status_writer import DecisionWriter
from kubetide.hpa.telemetry import DecisionHistory, HpaTelemetry
from kubetide.kube.cache.informer import Informer
from kubetide.kube.scale import ScaleTarget
from kubetide.log import get_logger

if TYPE_CHECKING:
    from kubetide.hpa.resting import Again, RestingAlone

log = get_logger("hpa")


@dataclass(slots=True)
class HpaState:
    """What is kept of one autoscaler between reconciles."""

    memory: Memory
    due: float
    uid: str = ""
    added_at: float = 0.0
    used: Used = field(default_factory=dict)
    warned_at: datetime | None = None
    problems: tuple[str, ...] = ()
    headroom: KeptHeadroom = field(default_factory=KeptHeadroom)
    headroom_stands: str | None = None
    strategy: SelectionStrategy | None = None
    saved_at: datetime | None = None
    """When the status was written last; None before the first time."""
    rest: Rest | None = None
    """What the last reconcile rested on, if it left everything as it is."""
    target_followed: bool = False
    """The scale of the target was known without asking for it."""
    moment: float | None = None
    """When it is due together with others at rest; None while it is reconciled by itself."""
    row: Row | None = None

    def may_stay(self, shown: Asked, interval: timedelta, now: datetime) -> bool:
        """Return whether the status may stay as it is."""
        if shown.same:
            return True
        return shown.near and self.saved_at is not None and now - self.saved_at < interval


class Reconciler:
    """Observes, decides, applies."""

    def __init__(
        self,
        clock: Clock,
        settings: HpaSettings,
        *,
        observer: Observer,
        headrooms: HeadroomStore,
        built_in: BuiltInWatch,
        writer: DecisionWriter,
        own_writes: OwnWrites,
        history: DecisionHistory,
        instruments: HpaTelemetry,
        hpas: Informer[HorizontalPodAutoscaler],
        alone: "RestingAlone",
    ) -> None:
        """`hpas` has autoscalers as they are now: one that is deleted while it is decided about changes nothing."""
        self._hpas = hpas
        self._clock = clock
        self._sync_period = settings.sync_period
        self._proposed_fields = settings.proposed_fields
        self._hurries = settings.watch_usage
        self._options = settings.options
        self._status_interval = settings.status_interval
        self._observer = observer
        self._headrooms = headrooms
        self._built_in = built_in
        self._writer = writer
        self._own_writes = own_writes
        self._history = history
        self._instruments = instruments
        self._alone = alone

    async def reconcile(self, hpa: HorizontalPodAutoscaler, state: HpaState) -> timedelta:
        """Observe, decide, apply; return the period until the next reconcile."""
        started = self._clock.monotonic()
        # Who rests has no annotations, and as the same object has none now.
        used: Used = {}
        rest, found = state.rest, await self._observer.scale_of(hpa)
        unchanged = rest is not None and rest.seen.hpa is hpa
        if rest is not None and unchanged and await self._rests_alone(hpa, state, rest, found, used, started):
            return self._sync_period
        overrides = overrides_of(hpa.metadata.annotations)
        if self._proposed_fields:
            overrides = with_proposed_fields(overrides, hpa.spec)
        period = overrides.sync_period or self._sync_period
        request = MetricsRequest(max_age=period, overrides=overrides, before=state.used, used=used)
        seen = await self._observer.observe(hpa, request, found)
        state.used = request.used or state.used
        state.target_followed = not seen.fresh
        if seen.observation.announced:
            state.rest = None
        if state.rest is not None and await self._rests(hpa, state, state.rest, seen, started):
            return period
        seen, decision = await self._decide(hpa, state, overrides, period, seen, request)
        try:
            stance, outcome, problem, rescaled = await self._act(hpa, state, overrides, decision, seen)
        except ScaleOutdated:
            # Whoever wrote meanwhile may be the built-in controller: whether to act is asked anew as well.
            seen = await self._observer.observe(hpa, request, await self._observer.scale_of(hpa, live=True))
            decision = self._decision(seen.observation, state)
            stance, outcome, problem, rescaled = await self._act(hpa, state, overrides, decision, seen)
        state.memory = outcome.memory
        state.rest = None
        if stance.acts and not stance.warn and overrides is NO_OVERRIDES and problem is None:
            state.rest = self._rest_on(seen.observation, decision, outcome)
        key = key_of(hpa)
        self._history.add(key, decision, outcome, problem, stance=stance, wrote=rescaled)
        self._instruments.reconciled(key, decision, outcome, problem, self._clock.monotonic() - started)
        if tracing.is_on():
            tracing.annotate(
                current=decision.current,
                desired=decision.desired,
                rule=decision.rule,
                reason=decision.why or "; ".join(one.message for one in decision.conditions),
                action=outcome.action,
                wrote=rescaled,
                acts=stance.acts,
                problem=None if problem is None else problem.message,
            )
        if problem is not None:
            log.debug(
                "reconcile ended with a problem", autoscaler=str(key), kind=str(problem.kind), error=problem.message
            )
        return period

    async def _act(
        self,
        hpa: HorizontalPodAutoscaler,
        state: HpaState,
        overrides: Overrides,
        decision: ScaleDecision,
        seen: Observed,
    ) -> tuple[Stance, Conclusion, HpaProblem | None, bool]:
        """Apply a decision where it is ours to act; raise ScaleOutdated, with nothing written, as the writer does."""
        stance = await self._built_in.stance(hpa, overrides, seen.target, rescale=decision.rescale)
        self._announce(hpa, state, stance, overrides)
        if stance.acts and self._is_there(hpa):
            return stance, *await self._apply(hpa, state, decision, seen)
        outcome = replace(conclude(decision), memory=decision.memory, action="none")
        return stance, outcome, outcome.problem, False

    def _is_there(self, hpa: HorizontalPodAutoscaler) -> bool:
        found = self._hpas.store.get(key_of(hpa))
        return found is not None and found.metadata.uid == hpa.metadata.uid

    async def _decide(
        self,
        hpa: HorizontalPodAutoscaler,
        state: HpaState,
        overrides: Overrides,
        period: timedelta,
        seen: Observed,
        request: MetricsRequest,
    ) -> tuple[Observed, ScaleDecision]:
        decision = self._decision(seen.observation, state)
        learned = self._headrooms.learn(state.headroom, overrides, period, seen.observation, decision)
        if learned is not None:
            decision = self._decision(seen.observation, state, learned)
        if decision.rescale and not seen.fresh and not (self._hurries and learned is None):
            # What was followed may be a moment old: before a write the scale is read, and all is decided anew.
            seen = await self._observer.observe(hpa, request, await self._observer.scale_of(hpa, live=True))
            decision = self._decision(seen.observation, state, learned)
        if state.headroom.silent:
            decision = replace(decision, headroom_silent=state.headroom.silent)
        return seen, decision

    async def _rests_alone(
        self,
        hpa: HorizontalPodAutoscaler,
        state: HpaState,
        rest: Rest,
        scale: FoundScale,
        used: Used,
        started: float,
    ) -> bool:
        """End a reconcile that finds everything at rest by what is known anyway; return whether it did."""
        if wrote_ever(hpa.metadata.managed_fields):
            return False
        request = MetricsRequest(max_age=self._sync_period, before=state.used, used=used)
        found = await self._alone.look(key_of(hpa), rest, state, scale.target, request)
        if found is None or not await self.end_at_rest(hpa, state, rest, *found, None, started):
            return False
        state.used, state.target_followed = used, not scale.fresh
        return True

    async def _rests(
        self, hpa: HorizontalPodAutoscaler, state: HpaState, rest: Rest, seen: Observed, started: float
    ) -> bool:
        """End a reconcile that was observed to find everything at rest; return whether it did."""
        now, memory = self._clock.now(), state.memory
        resting = still_at_rest(rest, seen.observation, memory, self._options, now=now)
        again = partial(self._again, seen.observation, memory, now)
        return resting is not None and await self.end_at_rest(hpa, state, rest, resting, again, seen.target, started)

    async def end_at_rest(
        self,
        hpa: HorizontalPodAutoscaler,
        state: HpaState,
        rest: Rest,
        resting: Resting,
        again: "Again",
        target: ScaleTarget | None,
        started: float,
    ) -> bool:
        """End a reconcile at rest, with nothing to write but usage; return False if the built-in controller is about.

        The decision itself is made, by `again`, when somebody asks for it.
        """
        now = self._clock.now()
        stance = await self._built_in.stance(hpa, NO_OVERRIDES, target, rescale=False)
        if not stance.acts or stance.warn:
            return False
        key, problem = key_of(hpa), None
        may_stay = resting.reasons == rest.reasons and state.may_stay(resting.asked, self._status_interval, now)
        if not may_stay and self._is_there(hpa):
            problem = await self._show(hpa, state, rest, resting, now)
        if state.rest is rest and resting.side != rest.side:
            state.rest = replace(rest, side=resting.side)
        seconds = self._clock.monotonic() - started
        if problem is not None:
            decision, outcome = again()
            self._history.add(key, decision, outcome, problem, stance=stance, wrote=False)
            self._instruments.reconciled(key, decision, outcome, problem, seconds)
        elif self._history.rested(key, now, resting, again) is None:
            return True  # forgotten while its status was written
        else:
            self._instruments.rested_alone(resting.side, seconds)
        state.memory = resting.found.memory
        tracing.annotate(
            current=rest.current,
            desired=rest.current,
            rule=resting.found.rule,
            reason="at rest",
            action="none",
            wrote=False,
            problem=None if problem is None else problem.message,
        )
        return True

    def _rest_on(self, seen: Observation, decision: ScaleDecision, outcome: Conclusion) -> Rest | None:
        """Return what the next reconcile has to find unchanged: what was seen, with the status as written meanwhile."""
        current = self._hpas.store.get(key_of(seen.hpa))
        if current is not None and current is not seen.hpa:
            if not same_but_for_status(seen.hpa, current):
                return None
            seen = replace(seen, hpa=current)
        return rest_of(seen, decision, outcome, self._options, now=decision.at)

    async def _show(
        self, hpa: HorizontalPodAutoscaler, state: HpaState, rest: Rest, resting: Resting, now: datetime
    ) -> HpaProblem | None:
        """Write the status of an autoscaler at rest, and note what it rests on then."""
        status = status_at_rest(rest, resting, self._options, now=now)
        overdue = state.saved_at is None or now - state.saved_at >= self._status_interval
        moved = rest.shown is not None and not resting.asked.same and (overdue or has_moved(rest, resting))
        saved, problem = await self._writer.save(hpa, status, at=now, saved_at=state.saved_at, moved=moved)
        key = key_of(hpa)
        if problem is not None:
            self._own_writes.clear(key)
            state.rest = None
        elif saved is not None:
            state.saved_at = now
            self._take(key, saved)
            current = self._hpas.store.get(key)
            state.rest = rest_after_write(rest, resting, status, current) if current is not None else None
        return problem

    def _again(self, seen: Observation, memory: Memory, now: datetime) -> tuple[ScaleDecision, Conclusion]:
        decision = decide(seen, memory, self._options, now=now)
        return decision, conclude(decision)

    def _decision(self, seen: Observation, state: HpaState, learned: LearnedCount | None = None) -> ScaleDecision:
        seen = seen if learned is None else replace(seen, learned=learned)
        return decide(seen, state.memory, self._options, now=self._clock.now())

    async def _apply(
        self, hpa: HorizontalPodAutoscaler, state: HpaState, decision: ScaleDecision, seen: Observed
    ) -> tuple[Conclusion, HpaProblem | None, bool]:
        key = key_of(hpa)
        written = await self._writer.apply(decision, seen.target, followed=not seen.fresh, saved_at=state.saved_at)
        if written.saved is not None:
            state.saved_at = decision.at
            self._take(key, written.saved)
        elif written.save_failed:
            # What was saved may no longer be what the server has: the cache decides again.
            self._own_writes.clear(key)
        if (saved := await self._headrooms.save(state.headroom, hpa)) is not None:
            self._take(key, saved)
        return written.outcome, written.problem, written.rescaled

    def _take(self, key: ObjectKey, saved: HorizontalPodAutoscaler) -> None:
        self._own_writes.saved(key, saved)
        self._hpas.written(saved)

    def _announce(self, hpa: HorizontalPodAutoscaler, state: HpaState, stance: Stance, overrides: Overrides) -> None:
        """Publish what changed since the last reconcile: invalid annotations, the built-in controller, switches."""
        if overrides.problems != state.problems:
            state.problems = overrides.problems
            for text in overrides.problems:
                self._writer.publish((events.failed(hpa, events.Reason.INVALID_ANNOTATION, text),))
        self._warn(hpa, state, stance)
        if state.headroom_stands not in (None, overrides.headroom_stands):
            self._writer.publish((events.headroom_changed(hpa, overrides.headroom_stands),))
        state.headroom_stands = overrides.headroom_stands
        strategy = self._observer.strategy(overrides)
        if state.strategy not in (None, strategy):
            self._writer.publish((events.strategy_changed(hpa, strategy),))
        state.strategy = strategy

    def _warn(self, hpa: HorizontalPodAutoscaler, state: HpaState, stance: Stance) -> None:
        if not stance.warn:
            if stance.acts:
                state.warned_at = None
            return
        if stance.acts:
            self._instruments.fights.inc()
        now = self._clock.now()
        if state.warned_at is None or (stance.acts and now - state.warned_at >= WARN_EVERY):
            state.warned_at = now
            self._writer.publish((events.built_in_active(hpa, stance.why, acting=stance.acts),))
            log.warning(
                "built-in controller is at work", autoscaler=str(key_of(hpa)), sign=stance.why, acts=stance.acts
            )
