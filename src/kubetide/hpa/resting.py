"""Looks after the autoscalers at rest: each by itself, or all that are due at a time together.

`RestingAlone` says whether one rests by its target and by what is followed and listed anyway, without an observation of
its own: most reconciles need no more. `RestingAutoscalers` does it for many without a task or a request for any.

What is followed anyway says whether an autoscaler, its target and its pods are what they were; the list of usage that
all share says, on arrays, how far each is from its target (`hpa.core.quick.together`). One about which anything else is
to be found out or done is handed back, to be reconciled by itself; so is everybody while the list has yet to be asked
for. Here nothing is written and nobody is waited for but the lease of the built-in controller.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

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
from kubetide.hpa.core.quick.filing import NamespaceSamples
from kubetide.hpa.core.quick.rest import Asked, Rest, Resting, resting_on
from kubetide.hpa.core.quick.rows import Row, ask_alone, row_of, used_by
from kubetide.hpa.core.samples import resource_reading, without_impossible
from kubetide.hpa.core.takeover import wrote_ever
from kubetide.hpa.metrics_cache import MetricsReader
from kubetide.hpa.observer import Observer
from kubetide.hpa.own_writes import OwnWrites
from kubetide.hpa.reconciler import HpaState
from kubetide.hpa.settings import HpaSettings
from kubetide.hpa.telemetry import DecisionHistory, HpaTelemetry
from kubetide.kube.cache.informer import Informer
from kubetide.kube.scale import ScaleTarget
from kubetide.log import get_logger

log = get_logger("hpa")

CANNOT_TELL = "cannot tell whether it rests"

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
        selector = selector_of(rest.seen.scale.selector)
        usage = await self.metrics.usage(key.namespace, selector, request)
        if usage is None or not usage.is_readable:
            return None
        samples = usage.samples(key.namespace)
        row = state.row = row_of(rest, selector, samples, state.row)
        asked = ask_alone(row, used_by(row, samples, at_most=self.capacity().smallest.get(rest.resource)))
        now, options, memory = self._clock.now(), self._options, state.memory
        if asked is None:
            return None
        shrinks = asked.proposal < rest.current and options.guard
        if shrinks and not is_recent(*samples.span(), now, options.max_usage_age):
            return None
        resting = resting_on(rest, asked, memory, options, now=now)
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


class RestingAutoscalers:
    """Ends the reconciles of autoscalers that find everything as it was."""

    def __init__(
        self,
        clock: Clock,
        settings: HpaSettings,
        *,
        hpas: Informer[HorizontalPodAutoscaler],
        built_in: BuiltInWatch,
        own_writes: OwnWrites,
        history: DecisionHistory,
        instruments: HpaTelemetry,
        alone: RestingAlone,
    ) -> None:
        self._clock = clock
        self._options = settings.options
        self._sync_period = settings.sync_period
        self._status_interval = settings.status_interval
        self._alone = alone
        self._hpas = hpas
        self._built_in = built_in
        self._own_writes = own_writes
        self._history = history
        self._instruments = instruments

    def may_look_after(self, state: HpaState) -> bool:
        """Return whether an autoscaler can be looked after here until something about it changes."""
        return self._alone.applies and state.rest is not None and state.target_followed

    async def may_act(self) -> bool:
        """Return whether nothing speaks against acting, for all who are looked after here."""
        stance = await self._built_in.stance_of_all()
        return stance.acts and not stance.warn

    def reconcile(self, due: Mapping[ObjectKey, HpaState]) -> Set[ObjectKey]:
        """Reconcile those that are due; return those for which that was all."""
        started, now = self._clock.monotonic(), self._clock.now()
        rested: dict[ObjectKey, int] = {}
        for look, asked in self._asked(due):
            try:
                if asked is not None and self._rests(look, asked, now):
                    rested[look.key] = look.rest.side
            except Exception as error:  # one must not keep the others from their reconcile, and may still have its own
                log.exception(CANNOT_TELL, autoscaler=str(look.key), error=str(error))
        if rested:
            self._instruments.rested(rested.values(), (self._clock.monotonic() - started) / len(due))
        return rested.keys()

    def _asked(self, due: Mapping[ObjectKey, HpaState]) -> Iterable[tuple["_Look", Asked | None]]:
        """Return what usage asks of those that are due, worked out for all of them at once.

        For these alone: where samples wake autoscalers, there is another list of usage for almost every slot.
        """
        looks, used, capacity = list[_Look](), list[int](), self._alone.capacity()
        for key, state in due.items():
            try:
                if (found := self._look_at(key, state, capacity)) is not None:
                    looks.append(found[0])
                    used.append(found[1])
            except Exception as error:  # as above
                log.exception(CANNOT_TELL, autoscaler=str(key), error=str(error))
        if not looks:
            return ()
        # NumPy is not loaded before there is something to compute with it.
        from kubetide.hpa.core.quick.together import ask_together

        return zip(looks, ask_together([look.row for look in looks], used), strict=True)

    def _look_at(self, key: ObjectKey, state: HpaState, capacity: Capacity) -> tuple["_Look", int] | None:
        """Return an autoscaler that is as it was, and what its pods use; None if it is not, or nobody knows."""
        hpa, rest = self._hpas.store.get(key), state.rest
        if hpa is None or rest is None or rest.seen.hpa is not hpa or wrote_ever(hpa.metadata.managed_fields):
            return None
        if rest.seen.scale is None or self._own_writes.is_behind(key, hpa, self._hpas.latest_version):
            return None
        request = MetricsRequest(max_age=self._sync_period, before=state.used)
        usage = self._alone.metrics.known_usage(key.namespace, request)
        if usage is None or not usage.is_readable:
            return None
        samples = usage.samples(key.namespace)
        row = state.row = row_of(rest, selector_of(rest.seen.scale.selector), samples, state.row)
        look = _Look(key, state, hpa, rest, request, samples, row)
        return look, used_by(row, samples, at_most=capacity.smallest.get(rest.resource))

    def _rests(self, look: "_Look", asked: Asked, now: datetime) -> bool:
        """End the reconcile of one, if it can be ended here; return whether it was."""
        state, rest, memory = look.state, look.rest, look.state.memory
        if not state.may_stay(asked, self._status_interval, now):
            return False
        shrinks, span = rest.side < 0 and self._options.guard, look.samples.span
        if shrinks and not is_recent(*span(), now, self._options.max_usage_age):
            return False
        if look.hpa.status.current_replicas != rest.current or not self._alone.observer.finds_unchanged(look.key, rest):
            return False
        resting = resting_on(rest, asked, memory, self._options, now=now)
        # The decision itself is made when somebody asks for it, from the samples of its pods: the list would be kept
        # for as long as anybody rests on it.
        again = partial(self._alone.again, rest, look.row.keep(look.samples), memory, now)
        if resting is None or resting.side != rest.side or resting.reasons != rest.reasons:
            return False
        if self._history.rested(look.key, now, resting, again) is None:
            return False
        state.memory, state.used = resting.found.memory, look.request.used
        return True


class _Look(NamedTuple):
    """One autoscaler that is due, as long as it is looked at."""

    key: ObjectKey
    state: HpaState
    hpa: HorizontalPodAutoscaler
    rest: Rest
    request: MetricsRequest
    samples: NamespaceSamples
    row: Row
