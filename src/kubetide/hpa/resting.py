"""Looks after the autoscalers at rest: each by itself, or all that are due at a moment together.

`RestingAlone` says whether one rests by its target and by what is followed and listed anyway, without an observation of
its own: most reconciles need no more. `RestingTogether` does it for all that are due at a moment with one wake-up, one
list of usage and one look at who else is scaling.

Moments come about by themselves: whoever rests joins the nearest moment within its jitter that is not full yet, and
makes one where there is none. Few autoscalers end up at one moment, thousands at a hundred. One about which anything
else is to be found out or decided is handed to the queue, to be reconciled by itself.
"""

import asyncio
import math
import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from kubetide import tracing
from kubetide.api.objects.capacity import Capacity
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.metrics import PodMetrics
from kubetide.clock import Clock
from kubetide.hpa.builtin_controller import BuiltInWatch
from kubetide.hpa.core.annotations import SelectionStrategy
from kubetide.hpa.core.claims import selector_of
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.decide import decide
from kubetide.hpa.core.describe import MetricsRequest
from kubetide.hpa.core.evaluate import is_recent
from kubetide.hpa.core.observation import Conclusion, Memory, ScaleDecision
from kubetide.hpa.core.quick.rest import Asked, Rest, Resting, resting_on
from kubetide.hpa.core.quick.rows import Row, ask_alone, row_of, used_by
from kubetide.hpa.core.samples import resource_reading, without_impossible
from kubetide.hpa.core.takeover import wrote_ever
from kubetide.hpa.metrics_cache import MetricsReader, UsageList
from kubetide.hpa.observer import Observer
from kubetide.hpa.own_writes import OwnWrites
from kubetide.hpa.reconciler import HpaState, Reconciler
from kubetide.hpa.settings import HpaSettings
from kubetide.hpa.telemetry import DecisionHistory, HpaTelemetry
from kubetide.kube.cache.informer import Informer
from kubetide.kube.control.controller import KeyedLoop
from kubetide.kube.control.range_fence import acting_for
from kubetide.kube.control.reconcile import Result
from kubetide.kube.scale import ScaleTarget
from kubetide.log import get_logger

log = get_logger("hpa")

CANNOT_TELL = "cannot tell whether it rests"
JITTER = (0.9, 1.1)
"""Between these shares of its period the next reconcile of an autoscaler comes."""
AT_A_MOMENT = 10
"""So many share a moment before there is another one: to wake up costs as much as ten of them."""
MOMENTS = 100
"""Where there are more than fill these, moments hold more: a sync period has about so many."""
ARRAYS_FROM = 40
"""From so many at a moment on, what usage asks of them is computed on arrays."""
WRITES_IN_A_ROW = 8
"""So many statuses of a moment are written one after the other before they are shared between workers."""
_FOR_ANYBODY: AbstractContextManager[None] = nullcontext()

Again = Callable[[], tuple[ScaleDecision, Conclusion]]
"""Makes a decision that was not made, because it could only be the last one again."""


class RestingAlone:
    """Finds out how a reconcile ends for one autoscaler about which nothing changed but its usage."""

    def __init__(
        self,
        clock: Clock,
        settings: HpaSettings,
        observer: Observer,
        metrics: MetricsReader,
        capacity: Callable[[], Capacity],
    ) -> None:
        self._clock = clock
        self._options = settings.options
        # Who owns a pod and how old it is in a rollout is found out for each by itself.
        self.applies = not settings.rollout_aware and settings.selection_strategy is SelectionStrategy.LABEL_SELECTOR
        self.observer = observer
        self.metrics = metrics
        self.capacity = capacity

    async def look(
        self, key: ObjectKey, rest: Rest, state: HpaState, target: ScaleTarget | None, request: MetricsRequest
    ) -> tuple[Resting, Again] | None:
        """Return how the reconcile ends, and how its decision would be made; None where that has to be found out."""
        if not self.applies or not self.observer.finds_same(key, rest, target) or rest.seen.scale is None:
            return None
        usage = await self.metrics.usage(key.namespace, selector_of(rest.seen.scale.selector), request)
        return self.judge(key, rest, state, usage, *self.row(key, rest, state, usage)) if usage is not None else None

    def row(self, key: ObjectKey, rest: Rest, state: HpaState, usage: UsageList) -> tuple[Row, int]:
        """Return where its samples stand in a list of usage, and what they come to."""
        samples = usage.samples(key.namespace)
        selector = selector_of(rest.seen.scale.selector if rest.seen.scale is not None else "")
        row = state.row = row_of(rest, selector, samples, state.row)
        return row, used_by(row, samples, at_most=self.capacity().smallest.get(rest.resource))

    def judge(
        self,
        key: ObjectKey,
        rest: Rest,
        state: HpaState,
        usage: UsageList,
        row: Row,
        used: int,
        asked: Asked | None = None,
    ) -> tuple[Resting, Again] | None:
        """Return the same of one whose usage is known; `asked` is what it asks for, where that is known too."""
        if not usage.is_readable or (asked := asked or ask_alone(row, used)) is None:
            return None
        samples, now, options, memory = usage.samples(key.namespace), self._clock.now(), self._options, state.memory
        shrinks = asked.proposal < rest.current and options.guard
        if shrinks and not is_recent(*samples.span(), now, options.max_usage_age):
            return None
        resting = resting_on(rest, asked, memory, options, now=now)
        # The decision itself is made when somebody asks for it, from the samples of its pods: the list would be kept
        # for as long as anybody rests on it.
        return (resting, partial(self.again, rest, row.keep(samples), memory, now)) if resting is not None else None

    def again(
        self, rest: Rest, samples: Callable[[], Sequence[PodMetrics]], memory: Memory, now: datetime
    ) -> tuple[ScaleDecision, Conclusion]:
        """Return the decision that was not made, because it could only be the last one again."""
        before, pods = rest.seen, rest.seen.pods
        reading = resource_reading(samples(), rest.resource)
        reading = without_impossible(reading, rest.resource, pods, self.capacity())
        decision = decide(replace(before, readings=(reading,)), memory, self._options, now=now)
        return decision, conclude(decision)


class RestingTogether:
    """Ends the reconciles of autoscalers that find everything as it was, at moments that they share."""

    def __init__(
        self,
        clock: Clock,
        settings: HpaSettings,
        rng: random.Random,
        *,
        states: Mapping[ObjectKey, HpaState],
        keys: KeyedLoop[ObjectKey],
        hpas: Informer[HorizontalPodAutoscaler],
        built_in: BuiltInWatch,
        own_writes: OwnWrites,
        history: DecisionHistory,
        instruments: HpaTelemetry,
        alone: RestingAlone,
        reconciler: Reconciler,
        fenced: bool,
    ) -> None:
        """`keys` reconciles each by itself; `fenced` writes are held back where the range was lost meanwhile."""
        self._clock = clock
        self._rng = rng
        self._sync_period = settings.sync_period
        self._period = settings.sync_period.total_seconds()
        self._status_interval = settings.status_interval
        self._workers = settings.workers
        self._states = states
        self._keys = keys
        self._hpas = hpas
        self._built_in = built_in
        self._own_writes = own_writes
        self._history = history
        self._instruments = instruments
        self._alone = alone
        self._reconciler = reconciler
        self._fenced = fenced
        self._moments: list[float] = []
        self._due: dict[float, list[ObjectKey]] = {}
        self.loop = KeyedLoop("autoscalers at rest", self._reconcile, clock=clock, workers=settings.workers)

    def reset(self) -> None:
        """Forget who is due when, as after a restart."""
        self._moments.clear()
        self._due.clear()

    def keep(self, key: ObjectKey, state: HpaState, now: float) -> bool:
        """Look after an autoscaler when it is due, until something about it changes; return whether that can be."""
        if not (self._alone.applies and state.rest is not None and state.target_followed):
            return False
        state.moment = state.due = moment = self._moment(state.due, now)
        self._due[moment].append(key)
        return True

    def _moment(self, due: float, now: float) -> float:
        """Return the nearest moment with room within the jitter, or make one."""
        moments, keys = self._moments, self._due
        room = max(AT_A_MOMENT, -(-len(self._states) // MOMENTS))
        latest, found, off = now + JITTER[1] * self._period, due, math.inf
        for moment in moments[bisect_left(moments, now + JITTER[0] * self._period) :]:
            if moment > latest:
                break
            if len(keys[moment]) < room and abs(moment - due) < off:
                found, off = moment, abs(moment - due)
        if found not in keys:
            insort(moments, found)
            keys[found] = []
            self.loop.add_after(found, found - now)
        return found

    async def _reconcile(self, moment: float) -> Result:
        """Look after all that are due; who does not rest any more is reconciled by itself."""
        keys = self._due.pop(moment, None)
        if keys is None:
            return Result()  # forgotten meanwhile
        self._moments.remove(moment)
        waiting = [(key, self._states.get(key)) for key in keys]
        # What was reconciled meanwhile is due some other time.
        due = {key: state for key, state in waiting if state is not None and state.moment == moment}
        try:
            await self._end_all(due, moment)
        finally:
            # Nobody is lost, whatever happened: who is not due again yet is reconciled by itself.
            for key, state in due.items():
                self._go_on(key, state, moment, rests=False)
        return Result()

    async def _end_all(self, due: Mapping[ObjectKey, HpaState], moment: float) -> None:
        started = self._clock.monotonic()
        stance = await self._built_in.stance_of_all()
        acts = stance.acts and not stance.warn
        ends = await self._ends(due, moment) if acts else []
        now = self._clock.now()
        quiet = {end.key: end.resting.side for end in ends if end.quiet and self._ended(end, now)}
        took = (self._clock.monotonic() - started) / max(1, len(due))
        if quiet:
            self._instruments.rested(quiet.values(), took)
        loud = {end.key: end for end in ends if not end.quiet}
        tracing.annotate(due=len(due), rested=len(quiet), shown=len(loud), reason="at rest" if acts else "may not act")
        for key, state in due.items():
            if key not in loud:
                self._go_on(key, state, moment, rests=key in quiet)
        await self._show_all(iter(loud.values()), len(loud), moment)
        if ended := len(quiet) + len(loud):
            self._instruments.worked(started - moment, took, times=ended)
            self._instruments.added(ended)

    async def _ends(self, due: Mapping[ObjectKey, HpaState], moment: float) -> "list[_End]":
        """Return how the reconciles end that can be ended here."""
        looks, ends = list[_Look](), list[_End]()
        for key, state in due.items():
            try:
                if (found := await self._look_at(key, state)) is not None:
                    looks.append(found)
            except Exception as error:  # one must not keep the others from their reconcile, and may still have its own
                log.exception(CANNOT_TELL, autoscaler=str(key), error=str(error))
        for look, asked in zip(looks, _asked(looks), strict=True):
            try:
                # While usage was asked for, another worker may have begun with it.
                here = look.state.moment == moment and look.state.rest is look.rest
                if here and (end := self._end_of(look, asked)) is not None:
                    ends.append(end)
            except Exception as error:  # as above
                log.exception(CANNOT_TELL, autoscaler=str(look.key), error=str(error))
        return ends

    async def _look_at(self, key: ObjectKey, state: HpaState) -> "_Look | None":
        """Return an autoscaler that is as it was, with what its pods use; None if it is not, or nobody knows."""
        hpa, rest = self._hpas.store.get(key), state.rest
        if hpa is None or rest is None or rest.seen.hpa is not hpa or wrote_ever(hpa.metadata.managed_fields):
            return None
        if rest.seen.scale is None or self._own_writes.is_behind(key, hpa, self._hpas.latest_version):
            return None
        if hpa.status.current_replicas != rest.current:
            return None
        request = MetricsRequest(max_age=self._sync_period, before=state.used)
        metrics = self._alone.metrics
        usage = metrics.ready_usage(key.namespace, request)
        if usage is None:
            usage = await metrics.usage(key.namespace, selector_of(rest.seen.scale.selector), request)
        if usage is None or not self._alone.observer.finds_unchanged(key, rest):
            return None
        return _Look(key, state, hpa, rest, request, usage, *self._alone.row(key, rest, state, usage))

    def _end_of(self, look: "_Look", asked: Asked | None) -> "_End | None":
        state, rest = look.state, look.rest
        found = self._alone.judge(look.key, rest, state, look.usage, look.row, look.used, asked)
        if found is None:
            return None
        resting, again = found
        same = resting.reasons == rest.reasons
        quiet = same and state.may_stay(resting.asked, self._status_interval, self._clock.now())
        if not quiet and resting.asked.usage is None:
            # Arrays tell what is asked for, not the values that a status shows.
            alone = ask_alone(look.row, look.used)
            if alone is None:
                return None
            resting = replace(resting, asked=alone)
        return _End(look.key, state, look.hpa, rest, resting, again, look.request, quiet)

    def _ended(self, end: "_End", now: datetime) -> bool:
        """End a reconcile that leaves everything as it is; return False if the autoscaler was forgotten."""
        state, rest, resting = end.state, end.rest, end.resting
        if self._history.rested(end.key, now, resting, end.again) is None:
            return False
        if resting.side != rest.side:
            state.rest = replace(rest, side=resting.side)
        state.memory, state.used = resting.found.memory, end.request.used
        return True

    async def _show_all(self, ends: "Iterator[_End]", count: int, moment: float) -> None:
        """End the reconciles that have a status to write."""
        writers = min(self._workers, -(-count // WRITES_IN_A_ROW))
        if writers < 2:
            await self._show(ends, moment)
            return
        async with asyncio.TaskGroup() as group:
            for _ in range(writers):
                group.create_task(self._show(ends, moment))

    async def _show(self, ends: "Iterator[_End]", moment: float) -> None:
        for end in ends:
            key, state, shown = end.key, end.state, False
            # Nobody else may work on it meanwhile, and nobody else did since it was looked at.
            if state.moment == moment and state.rest is end.rest and self._keys.queue.begin(key):
                try:
                    shown = await self._ended_with_status(end)
                except Exception as error:
                    log.exception("reconcile failed", autoscaler=str(key), error=str(error))
                    self._instruments.broken(self._clock.monotonic() - moment)
                finally:
                    self._keys.queue.done(key)
            self._go_on(key, state, moment, rests=shown)

    async def _ended_with_status(self, end: "_End") -> bool:
        state, started = end.state, self._clock.monotonic()
        with acting_for(state.uid) if self._fenced else _FOR_ANYBODY:
            if not await self._reconciler.end_at_rest(end.hpa, state, end.rest, end.resting, end.again, None, started):
                return False
        state.used = end.request.used
        return True

    def _go_on(self, key: ObjectKey, state: HpaState, moment: float, *, rests: bool) -> None:
        """Say when an autoscaler is due next: now, by itself, where it could not be looked after here."""
        if state.moment != moment:
            return  # somebody else has reconciled it meanwhile, and said so
        state.moment = None
        if not rests:
            self._keys.add(key)
            return
        now = self._clock.monotonic()
        state.due = now + self._period * self._rng.uniform(*JITTER)
        if not self.keep(key, state, now):
            self._keys.add_after(key, state.due - now)


class _Look(NamedTuple):
    """One autoscaler that is due, as long as it is looked at."""

    key: ObjectKey
    state: HpaState
    hpa: HorizontalPodAutoscaler
    rest: Rest
    request: MetricsRequest
    usage: UsageList
    row: Row
    used: int


class _End(NamedTuple):
    """How the reconcile of one ends."""

    key: ObjectKey
    state: HpaState
    hpa: HorizontalPodAutoscaler
    rest: Rest
    resting: Resting
    again: Again
    request: MetricsRequest
    quiet: bool
    """Its status may stay as it is."""


def _asked(looks: Sequence[_Look]) -> Sequence[Asked | None]:
    """Return what usage asks of many at once; nothing where they are few, each of which is asked by itself."""
    if len(looks) < ARRAYS_FROM:
        return [None] * len(looks)
    # NumPy is not loaded before there is something to compute with it.
    from kubetide.hpa.core.quick.together import ask_together

    return ask_together([look.row for look in looks], [look.used for look in looks])
