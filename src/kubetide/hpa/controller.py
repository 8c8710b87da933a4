"""The horizontal autoscaler: observes, decides, applies, each autoscaler about once per sync period.

    reconcile = look at the scale, the pods and the metrics -> decide -> write the scale -> conclude -> write the status

The next reconcile comes one sync period after the last one ended, give or take a tenth, whether it failed or not:
windows and periods are measured by the clock, never in reconciles. A new autoscaler, a changed spec or a changed
`kubetide.io/` annotation is handled at once. Whether anything may be written is decided in `hpa.core.takeover`, before
each write.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.scheme import HPAS, PODS
from kubetide.clock import Clock
from kubetide.hpa.builtin_controller import BuiltInWatch
from kubetide.hpa.core import events
from kubetide.hpa.core.annotations import SelectionStrategy, overrides_of, same_overrides
from kubetide.hpa.core.claims import Claims
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.decide import decide
from kubetide.hpa.core.describe import MetricsRequest, Used
from kubetide.hpa.core.headroom.learner import LearnedCount
from kubetide.hpa.core.observation import Memory, Observation, ScaleDecision, memory_for
from kubetide.hpa.core.takeover import FIELD_MANAGER, WARN_EVERY, Stance, stance_notes, wrote_ever
from kubetide.hpa.core.trace import shown_time
from kubetide.hpa.headroom_store import HeadroomStore, KeptHeadroom
from kubetide.hpa.metrics_cache import MetricsReader
from kubetide.hpa.observer import LABEL_INDEX, Observer, PodCache, pod_labels
from kubetide.hpa.own_writes import OwnWrites
from kubetide.hpa.pod_owners import PodOwners
from kubetide.hpa.scale_cache import ScaleWatch
from kubetide.hpa.scale_writer import ScaleWriter
from kubetide.hpa.settings import HpaSettings
from kubetide.hpa.slim import slim_pod
from kubetide.hpa.status_writer import DecisionWriter, Recorder, Written
from kubetide.hpa.telemetry import QUEUE_NAME, DecisionHistory, HpaTelemetry
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.nodes import NodeSizes
from kubetide.kube.cache.store import NAMESPACE
from kubetide.kube.cache.versions import newer, went_back
from kubetide.kube.client.client import Client
from kubetide.kube.control.controller import Controller, KeyedLoop
from kubetide.kube.control.leader_election import Leadership
from kubetide.kube.control.reconcile import Result
from kubetide.kube.scale import ScaleClient
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry

log = get_logger("hpa")

JITTER = (0.9, 1.1)
SLACK_SECONDS = 0.01
"""Timers may fire this much early."""
CLUSTER_FROM = 4
"""With autoscalers in more namespaces than this, and in most of the cluster, one list of usage serves all."""
SPREAD_OVER = 1000
"""At a start, this many autoscalers and more are spread over a whole sync period."""


@dataclass(slots=True)
class _State:
    """What the controller keeps of one autoscaler between reconciles."""

    memory: Memory
    used: Used = field(default_factory=dict)
    due: float = 0.0
    added_at: float = 0.0
    warned_at: datetime | None = None
    problems: tuple[str, ...] = ()
    headroom: KeptHeadroom = field(default_factory=KeptHeadroom)
    strategy: SelectionStrategy | None = None
    saved: HorizontalPodAutoscaler | None = None
    """The object as our last status write left it."""
    overdue: bool = False
    """The cache had a sync period to show that write and did not: what was saved stands in for it."""


class HpaController(Controller):
    """Scales the targets of all autoscalers of a cluster."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: HpaSettings,
        telemetry: Telemetry,
        recorder: Recorder,
        rng: random.Random,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._rng = rng
        leadership = Leadership(
            client,
            clock=clock,
            enabled=settings.leader_elect,
            lease_name=settings.lease_name,
            namespace=settings.leader_elect_resource_namespace,
            rng=rng,
            identity=settings.identity,
        )
        writer = leadership.writer
        namespace = settings.namespace or None
        self._hpas = Informer(client, HPAS, clock=clock, namespace=namespace)
        self._pods = Informer(
            client, PODS, clock=clock, namespace=namespace, indexes={LABEL_INDEX: pod_labels}, slim=slim_pod
        )
        self._nodes = NodeSizes(client, clock=clock)
        self._loop = KeyedLoop(QUEUE_NAME, self.reconcile, clock=clock, workers=settings.workers)
        writer.announce(self._loop.queue)
        self._claims = Claims()
        self._history = DecisionHistory(settings.history)
        self._instruments = HpaTelemetry(telemetry, self._history, autoscalers=lambda: len(self._states))
        scales = ScaleClient(writer)
        metrics = MetricsReader(
            writer,
            clock,
            settings,
            tally=self._instruments,
            cluster_wide=self._reads_whole_cluster,
            capacity=lambda: self._nodes.capacity,
        )
        targets = ScaleWatch(client, clock, settings)
        pods, owners = PodCache(self._pods.store), PodOwners(writer, clock, rng)
        self._observer = Observer(scales, clock, settings, pods, self._claims, metrics, targets, owners=owners)
        self._writer = DecisionWriter(writer, ScaleWriter(scales, rng, field_manager=FIELD_MANAGER), recorder)
        self._built_in = BuiltInWatch(writer, clock, settings)
        self._states: dict[ObjectKey, _State] = {}
        self._forced: set[ObjectKey] = set()
        self._own_writes = OwnWrites()
        self._waiting: set[ObjectKey] = set()
        """Autoscalers whose last reconcile was skipped because the cache was behind our own write."""
        self._options = settings.options
        self._headrooms = HeadroomStore(writer, clock, self._options.downscale_window)
        self._shard = settings.shard_selector
        self._whole_cluster = False
        self._scope_until = 0.0
        self._hpas.add_handler(self._on_change)
        super().__init__(
            "hpa",
            clock=clock,
            caches=(self._hpas, self._pods, self._nodes),
            loops=(self._loop,),
            leadership=leadership,
            background=(lambda: targets.run(self._hpas.store),),
        )

    def notes(self) -> Sequence[str]:
        """Tell where it does not act, or not alone."""
        # What was decided before the lease was lost is no longer true of this process.
        return super().notes() or (
            stance_notes(record.stance for _, record in self._history.records()) if self.leading else ()
        )

    def on_decision(self, heard: Callable[[ObjectKey, ScaleDecision], None]) -> None:
        """Call `heard` with every decision from now on, acted on or not."""
        self._history.heard = heard

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return the last decision about an autoscaler with its trace and history."""
        if kind not in ("hpa", "horizontalpodautoscaler", "horizontalpodautoscalers"):
            return None
        found = ObjectKey.parse(key)
        trace = self._history.trace(found)
        state = self._states.get(found)
        if trace is not None and state is not None and state.due:
            ahead = timedelta(seconds=state.due - self._clock.monotonic())
            trace["nextReconcile"] = shown_time(self._clock.now() + ahead)
        return trace

    async def started_leading(self) -> None:
        """Begin with empty memory, as after a restart, and with every autoscaler there is."""
        self._states.clear()
        self._waiting.clear()
        self._own_writes = OwnWrites()
        hpas = [hpa for hpa in self._hpas.store.values() if self._is_ours(hpa)]
        compat = str(self._options.compat.version)
        log.info("autoscaling", autoscalers=len(hpas), compat=compat)
        taken_over = any(wrote_ever(hpa.metadata.managed_fields) for hpa in hpas)
        # Taking over from the built-in controller should not change how autoscalers behave.
        if taken_over and (difference := await self._built_in.compare_versions()):
            log.warning("autoscalers were handled by another release", difference=difference, compat=compat)
        spread = self._settings.sync_period.total_seconds() * min(1.0, len(hpas) / SPREAD_OVER)
        for hpa in hpas:
            key = key_of(hpa)
            self._claims.register(key)
            self._forced.add(key)
            self._loop.add_after(key, self._rng.uniform(0.0, spread) if len(hpas) > 1 else 0.0)
            self._instruments.added()

    def _is_ours(self, hpa: HorizontalPodAutoscaler) -> bool:
        meta = hpa.metadata
        return self._shard is None or self._shard.matches(meta.uid, meta.namespace)

    def _on_change(self, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        if new is None:
            if old is not None:
                # Its memory goes at its next reconcile; one of the same name made before that inherits it.
                key = key_of(old)
                self._claims.forget(key)
                self._own_writes.clear(key, old.metadata.uid)
                if self.leading_since is None:
                    self._forget(key)
            return
        key = key_of(new)
        self._claims.register(key)
        if old is not None and went_back(new.metadata.resource_version, old.metadata.resource_version):
            # A server that was restored from a backup has lost our write, and a later version may never come.
            self._own_writes.clear(key)
            if (state := self._states.get(key)) is not None:
                state.saved = None
        if self._is_ours(new) and (old is None or key in self._waiting or _asks_for_a_reconcile(old, new)):
            self._add_now(key)

    def _add_now(self, key: ObjectKey) -> None:
        if self.leading_since is None:
            return
        self._forced.add(key)
        if (state := self._states.get(key)) is not None:
            state.added_at = self._clock.monotonic()
        self._loop.add(key)
        self._instruments.added()

    def _forget(self, key: ObjectKey) -> None:
        self._states.pop(key, None)
        self._waiting.discard(key)
        self._history.forget(key)
        self._instruments.forget(key)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Look after one autoscaler, and return when to do so again."""
        hpa, state = self._hpas.store.get(key), self._states.get(key)
        behind = self._is_behind(key, hpa, state)
        if behind and key not in self._waiting and not (state is not None and state.overdue):
            # The event that shows our own write asks for a reconcile as soon as it comes.
            self._waiting.add(key)
            self._forced.add(key)
            self._instruments.stale()
            return Result(requeue_after=self._settings.sync_period)
        self._waiting.discard(key)
        forced = key in self._forced
        self._forced.discard(key)
        if hpa is None:
            self._own_writes.clear(key)
            self._forget(key)
            return Result()
        started = self._clock.monotonic()
        if state is None:
            state = self._states[key] = _State(memory_for(hpa, self.leading_since), due=started)
        elif not forced and started < state.due - SLACK_SECONDS:
            # A reconcile that was asked for earlier has moved this one.
            return Result(requeue_after=timedelta(seconds=state.due - started))
        if behind and state.saved is not None:
            # A watch that brings nothing must not stop an autoscaler for good.
            hpa, state.overdue = state.saved, True
        waited = started - (state.added_at or state.due)
        state.added_at = 0.0
        period = self._settings.sync_period
        try:
            period = await self._reconcile(key, hpa, state, started)
        except Exception as error:
            log.exception("reconcile failed", autoscaler=str(key), error=str(error))
            self._instruments.broken(self._clock.monotonic() - started)
        ended = self._clock.monotonic()
        self._instruments.worked(waited, ended - started)
        delay = period.total_seconds() * self._rng.uniform(*JITTER)
        state.due = ended + delay
        self._instruments.added()
        return Result(requeue_after=timedelta(seconds=delay))

    async def _reconcile(
        self, key: ObjectKey, hpa: HorizontalPodAutoscaler, state: _State, started: float
    ) -> timedelta:
        """Observe, decide, apply; return the period until the next reconcile."""
        overrides = overrides_of(hpa.metadata.annotations)
        period = overrides.sync_period or self._settings.sync_period
        request = MetricsRequest(max_age=period, overrides=overrides, before=state.used)
        seen = await self._observer.observe(hpa, request)
        state.used = request.used or state.used
        decision = decide(seen.observation, state.memory, self._options, now=self._clock.now())
        learned = self._headrooms.learn(state.headroom, overrides.headroom, period, seen.observation, decision)
        if learned is not None:
            decision = self._decide_learned(seen.observation, state, learned)
        if decision.rescale and not seen.fresh:
            # What was followed may be a moment old: before a write the scale is read, and all is decided anew.
            seen = await self._observer.observe(hpa, request, live=True)
            decision = self._decide_learned(seen.observation, state, learned)
        stance = await self._built_in.stance(hpa, overrides, seen.target, rescale=decision.rescale)
        self._warn(hpa, state, stance, overrides.problems)
        strategy = self._observer.strategy(overrides)
        if state.strategy not in (None, strategy):
            self._writer.publish((events.strategy_changed(hpa, strategy),))
        state.strategy = strategy
        if stance.acts:
            written = await self._writer.apply(decision, seen.target)
            outcome, problem, wrote = written.outcome, written.problem, written.rescaled
            self._remember_write(key, state, written)
            self._remember_save(key, state, await self._headrooms.save(state.headroom, hpa))
        else:
            # Nothing is written, so nothing was done that would have to be remembered.
            outcome = replace(conclude(decision), memory=decision.memory, action="none")
            problem, wrote = outcome.problem, False
        state.memory = outcome.memory
        self._history.add(key, decision, outcome, problem, stance=stance, wrote=wrote)
        self._instruments.reconciled(key, decision, outcome, problem, self._clock.monotonic() - started)
        if problem is not None:
            log.debug(
                "reconcile ended with a problem", autoscaler=str(key), kind=str(problem.kind), error=problem.message
            )
        return period

    def _decide_learned(self, seen: Observation, state: _State, learned: LearnedCount | None) -> ScaleDecision:
        seen = replace(seen, learned=learned)
        return decide(seen, state.memory, self._options, now=self._clock.now())

    def _is_behind(self, key: ObjectKey, hpa: HorizontalPodAutoscaler | None, state: _State | None) -> bool:
        """Tell whether the cache, or the object in it where its event was lost, is older than our last status write."""
        if not self._own_writes.seen_by(key, self._hpas.latest_version):
            return True
        if hpa is None or state is None or state.saved is None:
            return False
        if newer(state.saved.metadata.resource_version, hpa.metadata.resource_version):
            return True
        state.saved = None
        return False

    def _remember_write(self, key: ObjectKey, state: _State, written: Written) -> None:
        if written.saved is not None:
            self._remember_save(key, state, written.saved)
        elif written.save_failed:
            # What was saved may no longer be what the server has: the cache decides again.
            state.saved, state.overdue = None, False
            self._own_writes.clear(key)

    def _remember_save(self, key: ObjectKey, state: _State, saved: HorizontalPodAutoscaler | None) -> None:
        if saved is not None:
            state.saved, state.overdue = saved, False
            self._own_writes.wrote(key, saved.metadata.uid, saved.metadata.resource_version)

    def _warn(self, hpa: HorizontalPodAutoscaler, state: _State, stance: Stance, problems: tuple[str, ...]) -> None:
        if problems != state.problems:
            state.problems = problems
            self._writer.publish(events.failed(hpa, events.Reason.INVALID_ANNOTATION, text) for text in problems)
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

    def _reads_whole_cluster(self) -> bool:
        """Tell whether one list of the whole cluster reads less than one list per namespace with autoscalers."""
        now = self._clock.monotonic()
        if now >= self._scope_until:
            self._scope_until = now + self._settings.sync_period.total_seconds()
            self._whole_cluster = self._most_namespaces_have_autoscalers()
        return self._whole_cluster

    def _most_namespaces_have_autoscalers(self) -> bool:
        namespaces = self._hpas.store.index_values(NAMESPACE)
        if self._settings.namespace or len(namespaces) <= CLUSTER_FROM:
            return False
        return 2 * len(namespaces) > len(self._pods.store.index_values(NAMESPACE))


def _asks_for_a_reconcile(old: HorizontalPodAutoscaler, new: HorizontalPodAutoscaler) -> bool:
    if old.metadata.uid != new.metadata.uid or old.metadata.generation != new.metadata.generation:
        return True
    # API servers before 1.37 keep no generation for autoscalers, so the spec itself is compared.
    if old.spec != new.spec:
        return True
    return not same_overrides(old.metadata.annotations, new.metadata.annotations)
