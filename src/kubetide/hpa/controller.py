"""The horizontal autoscaler: observes, decides, applies, each autoscaler about once per sync period.

    turn = look at the scale, the pods and the metrics -> decide -> write the scale -> conclude -> write the status

The next turn comes one sync period after the last one ended, give or take a tenth, whether it failed or not: windows
and periods are measured by the clock, never in turns. A new autoscaler, a changed spec or a changed `kubetide.io/`
annotation is handled at once. Whether anything may be written is decided in `hpa.takeover`, before each write.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from kubetide.api.objects.core import Pod
from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.scheme import HPAS, PODS
from kubetide.clock import Clock
from kubetide.hpa.builtin_controller import BuiltInWatch
from kubetide.hpa.core import events
from kubetide.hpa.core.annotations import same_wishes, wishes_of
from kubetide.hpa.core.claims import Claims
from kubetide.hpa.core.conclude import conclude
from kubetide.hpa.core.decide import decide
from kubetide.hpa.core.observation import Memory, Options, memory_for
from kubetide.hpa.core.pods import ReadinessRules
from kubetide.hpa.core.queries import Asker, Used
from kubetide.hpa.core.takeover import FIELD_MANAGER, WARN_EVERY, Stance, stance_notes
from kubetide.hpa.core.trace import shown_time, trace_of
from kubetide.hpa.metrics_cache import MetricsReader
from kubetide.hpa.observer import LABEL_INDEX, Observer, PodCache, pod_labels
from kubetide.hpa.scale_cache import ScaleWatch
from kubetide.hpa.scale_writer import ScaleWriter
from kubetide.hpa.settings import HpaSettings
from kubetide.hpa.slim import slim_pod
from kubetide.hpa.status_writer import Recorder, Writer
from kubetide.hpa.telemetry import QUEUE_NAME, History, Instruments
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.nodes import NodeSizes
from kubetide.kube.cache.store import NAMESPACE, Store
from kubetide.kube.cache.versions import newer, went_back
from kubetide.kube.client.client import Client
from kubetide.kube.control.leader_election import Leadership
from kubetide.kube.control.reconcile import Result, Workers
from kubetide.kube.control.workqueue import WorkQueue
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
    """What the controller keeps of one autoscaler between turns."""

    memory: Memory
    used: Used = field(default_factory=dict)
    due: float = 0.0
    added_at: float = 0.0
    warned_at: datetime | None = None
    problems: tuple[str, ...] = ()
    written: HorizontalPodAutoscaler | None = None
    """Our last status write, until the cache has seen it."""


class HpaController:
    """Scales the targets of all autoscalers of a cluster."""

    name = "hpa"

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
        self._leadership = Leadership(
            client,
            clock=clock,
            enabled=settings.leader_elect,
            lease_name=settings.leader_elect_resource_name,
            namespace=settings.leader_elect_resource_namespace,
            chance=rng,
            identity=settings.identity,
        )
        self._client = self._leadership.writer
        namespace = settings.namespace or None
        self._hpas = Informer(client, HPAS, clock=clock, namespace=namespace)
        self._pods = Informer(
            client, PODS, clock=clock, namespace=namespace, indexes={LABEL_INDEX: pod_labels}, slim=slim_pod
        )
        self._queue = self._empty_queue()
        self._claims = Claims()
        self._history = History(settings.history)
        self._instruments = Instruments(telemetry, self._history)
        scales = ScaleClient(self._client)
        self._nodes = NodeSizes(client, clock=clock)
        metrics = MetricsReader(
            self._client,
            clock,
            settings,
            tally=self._instruments,
            cluster_wide=self._reads_whole_cluster,
            capacity=lambda: self._nodes.capacity,
        )
        self._targets = ScaleWatch(client, clock, settings)
        self._observer = Observer(
            scales, clock, settings, PodCache(self._pods.store), self._claims, metrics, self._targets
        )
        writer = ScaleWriter(scales, rng, field_manager=FIELD_MANAGER)
        self._writer = Writer(self._client, writer, recorder)
        self._built_in = BuiltInWatch(self._client, clock, settings)
        self._states: dict[ObjectKey, _State] = {}
        self._forced: set[ObjectKey] = set()
        self._begin: datetime | None = None
        self._options = options_of(settings)
        self._whole_cluster = False
        self._scope_until = 0.0

    def ready(self) -> bool:
        """Whether both caches are filled; a standby is ready too."""
        return self._hpas.has_synced and self._pods.has_synced

    def healthy(self) -> bool:
        """The loop outlives every failure of an object; there is nothing that a restart would cure."""
        return True

    def notes(self) -> Sequence[str]:
        """Tell where it does not act, or not alone."""
        if not self._leadership.is_leader:
            settings = self._settings
            lease = f"{settings.leader_elect_resource_namespace}/{settings.leader_elect_resource_name}"
            return (f"stands by: does not hold the lease {lease}",)
        # What was decided before the lease was lost is no longer true of this process.
        return stance_notes(record.stance for _, record in self._history.records()) if self.leading else ()

    @property
    def leading(self) -> bool:
        """Whether this process acts."""
        return self._begin is not None and self._leadership.is_leader

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return the last decision about an autoscaler with its trace and history."""
        if kind not in ("hpa", "horizontalpodautoscaler", "horizontalpodautoscalers"):
            return None
        found = ObjectKey.parse(key)
        trace = self._history.trace(found)
        state = self._states.get(found)
        if trace is not None and state is not None and state.due:
            ahead = timedelta(seconds=state.due - self._clock.monotonic())
            trace["nextTurn"] = shown_time(self._clock.now() + ahead)
        return trace

    async def run(self) -> None:
        """Follow the cluster, and lead when it is our turn, until cancelled."""
        self._hpas.add_handler(self._on_change)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hpas.run())
            group.create_task(self._pods.run())
            group.create_task(self._nodes.run())
            group.create_task(self._targets.run(self._hpas.store))
            await self._leadership.run(self._lead)

    async def _lead(self) -> None:
        """Act until the lease is lost: begin with empty memory, as after a restart."""
        await self._hpas.wait_synced()
        await self._pods.wait_synced()
        await self._nodes.wait_synced()
        self._states.clear()
        self._queue = self._empty_queue()
        self._begin = self._clock.now()
        log.info("began to act", autoscalers=len(self._hpas.store))
        self._start_all()
        try:
            await Workers(self._queue, self.reconcile, workers=self._settings.workers).run()
        finally:
            self._begin = None

    def _empty_queue(self) -> WorkQueue[ObjectKey]:
        queue: WorkQueue[ObjectKey] = WorkQueue(clock=self._clock, name=QUEUE_NAME)
        self._client.announce(queue)
        return queue

    def _start_all(self) -> None:
        hpas = self._hpas.store.values()
        spread = self._settings.sync_period.total_seconds() * min(1.0, len(hpas) / SPREAD_OVER)
        for hpa in hpas:
            key = key_of(hpa)
            self._claims.register(key)
            self._forced.add(key)
            self._queue.add_after(key, self._rng.uniform(0.0, spread) if len(hpas) > 1 else 0.0)
            self._instruments.added()

    def _on_change(self, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        if new is None:
            if old is not None:
                # Its memory goes at its next turn; one of the same name made before that inherits it.
                self._claims.forget(key_of(old))
                if self._begin is None:
                    self._history.forget(key_of(old))
            return
        key = key_of(new)
        self._claims.register(key)
        state = self._states.get(key)
        if state is not None and state.written is not None:
            # A server that was restored from a backup has lost our write, and a later version may never come.
            restored = old is not None and went_back(_version(new), _version(old))
            if restored or not newer(_version(state.written), _version(new)):
                state.written = None
        if old is None or _asks_for_a_turn(old, new):
            self._add_now(key)

    def _add_now(self, key: ObjectKey) -> None:
        if self._begin is None:
            return
        self._forced.add(key)
        if (state := self._states.get(key)) is not None:
            state.added_at = self._clock.monotonic()
        self._queue.add(key)
        self._instruments.added()

    async def reconcile(self, key: ObjectKey) -> Result:
        """Give one autoscaler its turn, and say when the next one is."""
        hpa = self._hpas.store.get(key)
        forced = key in self._forced
        self._forced.discard(key)
        if hpa is None:
            self._states.pop(key, None)
            self._history.forget(key)
            return Result()
        started = self._clock.monotonic()
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _State(memory_for(hpa, self._begin), due=started)
        elif not forced and started < state.due - SLACK_SECONDS:
            # A turn that was asked for earlier has moved this one.
            return Result(requeue_after=timedelta(seconds=state.due - started))
        waited = started - (state.added_at or state.due)
        state.added_at = 0.0
        period = self._settings.sync_period
        try:
            period = await self._turn(key, self._freshest(hpa, state), state, started)
        except Exception as error:
            log.exception("turn failed", autoscaler=str(key), error=str(error))
            self._instruments.broken(self._clock.monotonic() - started)
        ended = self._clock.monotonic()
        self._instruments.worked(waited, ended - started)
        delay = period.total_seconds() * self._rng.uniform(*JITTER)
        state.due = ended + delay
        self._instruments.added()
        return Result(requeue_after=timedelta(seconds=delay))

    async def _turn(self, key: ObjectKey, hpa: HorizontalPodAutoscaler, state: _State, started: float) -> timedelta:
        """Observe, decide, apply; return the period until the next turn."""
        wishes = wishes_of(hpa.metadata.annotations)
        period = wishes.sync_period or self._settings.sync_period
        asker = Asker(max_age=period, wishes=wishes, before=state.used)
        seen = await self._observer.observe(hpa, asker)
        state.used = asker.used or state.used
        decision = decide(seen.observation, state.memory, self._options, now=self._clock.now())
        if decision.rescale and not seen.fresh:
            # What was followed may be a moment old: before a write the scale is read, and all is decided anew.
            seen = await self._observer.observe(hpa, asker, live=True)
            decision = decide(seen.observation, state.memory, self._options, now=self._clock.now())
        stance = await self._built_in.stance(hpa, wishes, seen.target, rescale=decision.rescale)
        self._warn(hpa, state, stance, wishes.problems)
        if stance.acts:
            written = await self._writer.apply(decision, seen.target)
            outcome, problem, wrote = written.outcome, written.problem, written.rescaled
            state.written = written.saved or state.written
        else:
            # Nothing is written, so nothing was done that would have to be remembered.
            outcome = replace(conclude(decision), memory=decision.memory, action="none")
            problem, wrote = outcome.problem, False
        state.memory = outcome.memory
        self._history.add(key, decision, outcome, problem, stance=stance, wrote=wrote)
        self._instruments.turn(decision, outcome, problem, self._clock.monotonic() - started)
        if problem is not None:
            log.debug("turn ended with a problem", autoscaler=str(key), kind=str(problem.kind), error=problem.message)
        return period

    def _freshest(self, hpa: HorizontalPodAutoscaler, state: _State) -> HorizontalPodAutoscaler:
        """Return our own last write where the cache has not caught up with it yet."""
        if state.written is not None and newer(_version(state.written), _version(hpa)):
            return state.written
        return hpa

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


def options_of(settings: HpaSettings) -> Options:
    """Return the settings that enter a decision."""
    return Options(
        tolerance=settings.tolerance,
        compat=settings.compat_rules,
        downscale_window=settings.downscale_stabilization,
        readiness=ReadinessRules(
            cpu_initialization_period=settings.cpu_initialization_period,
            initial_readiness_delay=settings.initial_readiness_delay,
        ),
        guard=settings.decision_guard,
        max_usage_age=settings.max_usage_age,
    )


async def recompute(client: Client, clock: Clock, settings: HpaSettings, key: ObjectKey) -> dict[str, Any]:
    """Decide once from what the cluster shows now, without memory and without writing; for `explain`."""
    hpa = await client.get(HPAS, key.name, namespace=key.namespace)
    listed = await client.list(PODS, namespace=key.namespace)
    store: Store[Pod] = Store({LABEL_INDEX: pod_labels})
    for pod in listed.items:
        store.put(key_of(pod), pod)
    metrics = MetricsReader(client, clock, settings)
    observer = Observer(ScaleClient(client), clock, settings, PodCache(store), Claims(), metrics)
    asker = Asker(max_age=settings.sync_period, wishes=wishes_of(hpa.metadata.annotations))
    seen = await observer.observe(hpa, asker)
    decision = decide(seen.observation, Memory(), options_of(settings), now=clock.now())
    outcome = conclude(decision)
    return {**trace_of(decision, outcome, outcome.problem), "recomputed": True, "acts": False, "history": []}


def _asks_for_a_turn(old: HorizontalPodAutoscaler, new: HorizontalPodAutoscaler) -> bool:
    if old.metadata.uid != new.metadata.uid or old.metadata.generation != new.metadata.generation:
        return True
    # API servers keep no generation for autoscalers, so the spec itself is compared.
    if old.spec != new.spec:
        return True
    return not same_wishes(old.metadata.annotations, new.metadata.annotations)


def _version(hpa: HorizontalPodAutoscaler) -> str:
    return hpa.metadata.resource_version
