"""The horizontal autoscaler: which autoscalers there are, and when each of them is reconciled.

The next reconcile comes one sync period after the last one ended, give or take a tenth, whether it failed or not:
windows and periods are measured by the clock, never in reconciles. A new autoscaler, a changed spec or a changed
`kubetide.io/` annotation is handled at once. What one reconcile does is in `hpa.reconciler`.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.meta import ObjectKey, key_of
from kubetide.api.objects.scheme import HPAS, PODS
from kubetide.clock import Clock
from kubetide.hpa.announced_counts import AnnouncedCounts
from kubetide.hpa.builtin_controller import BuiltInWatch
from kubetide.hpa.core.annotations import asks_for_a_reconcile
from kubetide.hpa.core.claims import Claims
from kubetide.hpa.core.observation import ScaleDecision, memory_for
from kubetide.hpa.core.takeover import FIELD_MANAGER, stance_notes, wrote_ever
from kubetide.hpa.core.trace import shown_time
from kubetide.hpa.headroom.store import HeadroomStore
from kubetide.hpa.metrics_cache import MetricsReader, WholeCluster
from kubetide.hpa.observer import LABEL_INDEX, Observer, PodCache, pod_labels
from kubetide.hpa.own_writes import OwnWrites
from kubetide.hpa.pod_owners import PodOwners
from kubetide.hpa.reconciler import HpaState, Reconciler
from kubetide.hpa.resting import JITTER, RestingAlone, RestingTogether
from kubetide.hpa.scale_cache import ScaleWatch
from kubetide.hpa.scale_writer import ScaleWriter
from kubetide.hpa.settings import HpaSettings
from kubetide.hpa.slim import slim_pod
from kubetide.hpa.status_writer import DecisionWriter
from kubetide.hpa.telemetry import QUEUE_NAME, DecisionHistory, HpaTelemetry
from kubetide.hpa.usage_watch import UsageWatch
from kubetide.kube.cache.informer import Informer
from kubetide.kube.cache.nodes import NodeSizes
from kubetide.kube.cache.versions import went_back
from kubetide.kube.client.client import Client
from kubetide.kube.control.controller import Controller, KeyedLoop
from kubetide.kube.control.core.ranges import Division, ShardMode
from kubetide.kube.control.leader_election import Leadership
from kubetide.kube.control.range_fence import acting_for
from kubetide.kube.control.reconcile import STOP_GRACE, Result
from kubetide.kube.control.recorder import Recorder
from kubetide.kube.control.shards import ShardMembership
from kubetide.kube.scale import ScaleClient
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry

if TYPE_CHECKING:
    from kubetide.hpa.headroom.past_loads import PastLoads

log = get_logger("hpa")

SLACK_SECONDS = 0.01
"""Timers may fire this much early."""
SPREAD_OVER = 1000
"""At a start, this many autoscalers and more are spread over a whole sync period."""
_FOR_ANYBODY: AbstractContextManager[None] = nullcontext()


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
        past: "PastLoads | None" = None,
    ) -> None:
        """`past` shows the load before today, for headroom that is to be learned."""
        self._clock, self._settings, self._rng = clock, settings, rng
        leadership = _leadership(client, clock, settings, rng)
        writer = leadership.writer
        namespace = settings.namespace or None
        # Where replicas share the autoscalers, the frame says what is ours.
        self._shard = None if settings.shards is ShardMode.AUTO else settings.shard_selector
        self._hpas = Informer(client, HPAS, clock=clock, namespace=namespace, shard=settings.shard_selector)
        self._pods = Informer(
            client,
            PODS,
            clock=clock,
            namespace=namespace,
            shard=settings.namespace_shard,
            indexes={LABEL_INDEX: pod_labels},
            slim=slim_pod,
        )
        self._nodes = NodeSizes(client, clock=clock)
        self._loop = KeyedLoop(QUEUE_NAME, self.reconcile, clock=clock, workers=settings.workers)
        writer.announce(self._loop.queue)
        self._claims, self._history = Claims(), DecisionHistory(settings.history)
        self._instruments = HpaTelemetry(telemetry, self._history, autoscalers=lambda: len(self._states))
        scales = ScaleClient(writer)
        self._metrics = MetricsReader(
            writer,
            clock,
            settings,
            tally=self._instruments,
            cluster_wide=WholeCluster(clock, settings, self._hpas.store, self._pods.store),
            capacity=lambda: self._nodes.capacity,
        )
        targets = ScaleWatch(client, clock, settings)
        pods, owners = PodCache(self._pods.store), PodOwners(writer, clock, rng)
        self._own_writes, self._built_in = OwnWrites(), BuiltInWatch(writer, clock, settings)
        announced, about = AnnouncedCounts(client, clock, settings), (scales, clock, settings, pods, self._claims)
        observer = Observer(*about, self._metrics, targets, owners=owners, announced=announced)
        alone = RestingAlone(clock, settings, observer, self._metrics, lambda: self._nodes.capacity)
        self._states: dict[ObjectKey, HpaState] = {}
        self._reconciler = Reconciler(
            clock,
            settings,
            observer=observer,
            headrooms=HeadroomStore(writer, clock, settings, past),
            built_in=self._built_in,
            writer=DecisionWriter(
                writer,
                ScaleWriter(scales, rng, field_manager=FIELD_MANAGER),
                recorder,
                status_interval=settings.status_interval,
                behind=self._loop.behind,
            ),
            own_writes=self._own_writes,
            history=self._history,
            instruments=self._instruments,
            hpas=self._hpas,
            alone=alone,
        )
        self._resting = RestingTogether(
            clock,
            settings,
            rng,
            states=self._states,
            keys=self._loop,
            hpas=self._hpas,
            built_in=self._built_in,
            own_writes=self._own_writes,
            history=self._history,
            instruments=self._instruments,
            alone=alone,
            reconciler=self._reconciler,
            fenced=settings.shards is ShardMode.AUTO,
        )
        self._forced: set[ObjectKey] = set()
        self._compat = str(settings.options.compat.version)
        self._hpas.add_handler(self._on_change)
        self._usage_watch = self._make_watch(client, telemetry) if settings.watch_usage else None
        super().__init__(
            "hpa",
            clock=clock,
            caches=(self._hpas, self._pods, self._nodes, *announced.caches),
            loops=(self._loop, self._resting.loop, *(() if past is None else (past.loop,))),
            leadership=leadership,
            sharded=(self._hpas, self._pods, targets),
            background=(
                lambda: targets.run(self._hpas.store, self._claims),
                *(() if self._usage_watch is None else (self._usage_watch.run,)),
            ),
        )

    def notes(self) -> Sequence[str]:
        """Return where it does not act, or not alone."""
        # What was decided before the lease was lost is no longer true of this process.
        if not self.leading:
            return super().notes()
        stances = stance_notes(record.stance for _, record in self._history.records())
        return (*super().notes(), *stances, *self._shard_notes(), *self._watch_notes())

    def _make_watch(self, client: Client, telemetry: Telemetry) -> UsageWatch:
        return UsageWatch(
            client,
            self._clock,
            self._settings,
            telemetry,
            self._rng,
            hpas=self._hpas.store,
            pods=self._pods.store,
            claims=self._claims,
            wake=self._wake,
        )

    async def _wake(self, keys: list[ObjectKey]) -> None:
        """Reconcile autoscalers now, with usage that is read for all of them before: no worker waits for it."""
        if not self.leading:
            return
        await self._metrics.refresh_usage((key.namespace, self._claims.selector(key)) for key in keys)
        for key in keys:
            self._add_now(key, urgent=True)

    def _watch_notes(self) -> tuple[str, ...]:
        problem = self._usage_watch.problem if self._usage_watch is not None else ""
        return ("usage is polled, not watched",) if problem else ()

    def _shard_notes(self) -> tuple[str, ...]:
        if self._hpas.server_shards is not False:
            return ()
        mine = self._settings.shard or "auto"
        return (f"shard {mine}: the API server does not filter by shard, so all objects are read",)

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

    async def run(self) -> None:
        """Work until cancelled. What the metrics APIs were asked ends with the controller, not with who asked."""
        async with self._metrics:
            await super().run()

    async def started_leading(self) -> None:
        """Begin with empty memory, as after a restart, and with every autoscaler there is."""
        self._states.clear()
        self._resting.reset()
        self._own_writes.reset()
        await self._begin([hpa for hpa in self._hpas.store.values() if self._is_ours(hpa)])

    async def started_owning(self, ranges: frozenset[int]) -> None:
        """Begin with the autoscalers of ranges, as after a restart."""
        found = [(hpa, hpa.metadata) for hpa in self._hpas.store.values()]
        await self._begin([hpa for hpa, meta in found if self._division.range_of(meta.namespace, meta.uid) in ranges])

    async def stops_owning(self, ranges: frozenset[int]) -> None:
        """Let the reconciles of ranges end, which write scale and status, and forget them."""
        with suppress(TimeoutError):  # what takes longer is held back by the fence
            async with asyncio.timeout(STOP_GRACE.total_seconds()):
                await self._loop.queue.until_done(lambda key: self._range_of(key) in ranges)
        for key in [key for key in self._states if self._range_of(key) in ranges]:
            self._forget(key)

    def _range_of(self, key: ObjectKey) -> int:
        state = self._states.get(key)  # whoever is being reconciled has one
        return self._division.range_of(key.namespace, state.uid if state is not None else "")

    async def _begin(self, hpas: Sequence[HorizontalPodAutoscaler]) -> None:
        log.info("autoscaling", autoscalers=len(hpas), compat=self._compat)
        if any(wrote_ever(hpa.metadata.managed_fields) for hpa in hpas):
            await self._built_in.compare_versions()
        spread = self._settings.sync_period.total_seconds() * min(1.0, len(hpas) / SPREAD_OVER)
        for hpa in hpas:
            key = key_of(hpa)
            self._claims.register(key)
            self._forced.add(key)
            self._loop.add_after(key, self._rng.uniform(0.0, spread) if len(hpas) > 1 else 0.0)
            self._instruments.added()

    def _is_ours(self, hpa: HorizontalPodAutoscaler) -> bool:
        meta = hpa.metadata
        mine = self.owns(meta.namespace, meta.uid)
        return mine and (self._shard is None or self._shard.matches(meta.uid, meta.namespace))

    def _on_change(self, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        if new is None:
            if old is not None:
                # Its memory goes at its next reconcile; one of the same name made before that inherits it.
                key = key_of(old)
                self._claims.forget(key)
                self._own_writes.clear(key, old.metadata.uid)
                if self.acting_since(key.namespace, old.metadata.uid) is None:
                    self._forget(key)
            return
        key = key_of(new)
        self._claims.register(key)
        if old is not None and went_back(new.metadata.resource_version, old.metadata.resource_version):
            # A server that was restored from a backup has lost our write, and a later version may never come.
            self._own_writes.clear(key)
        if self._is_ours(new) and (old is None or self._own_writes.is_waiting(key) or asks_for_a_reconcile(old, new)):
            self._add_now(key)

    def _add_now(self, key: ObjectKey, *, urgent: bool = False) -> None:
        if self.leading_since is None:
            return
        self._forced.add(key)
        if (state := self._states.get(key)) is not None:
            state.added_at = self._clock.monotonic()
        self._loop.add(key, urgent=urgent)
        self._instruments.added()

    def _forget(self, key: ObjectKey) -> None:
        self._states.pop(key, None)
        self._history.forget(key)
        self._instruments.forget(key)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Look after one autoscaler, and return when to do so again."""
        hpa, cache_version = self._hpas.store.get(key), self._hpas.latest_version
        uid = hpa.metadata.uid if hpa is not None else ""
        if not self.owns(key.namespace, uid):
            self._forget(key)  # made anew under the same name, it may be another replica's
            return Result()
        if self._own_writes.must_wait(key, hpa, cache_version):
            # The event that shows our own write asks for a reconcile as soon as it comes.
            self._forced.add(key)
            self._instruments.stale()
            return Result(requeue_after=self._settings.sync_period)
        forced = key in self._forced
        self._forced.discard(key)
        if hpa is None:
            self._own_writes.clear(key)
            self._forget(key)
            return Result()
        started = self._clock.monotonic()
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = HpaState(memory_for(hpa, self.acting_since(key.namespace, uid)), started)
        elif not forced and started < state.due - SLACK_SECONDS:
            # A reconcile that was asked for earlier has moved this one.
            return Result(requeue_after=timedelta(seconds=state.due - started) if state.moment is None else None)
        state.moment, state.uid = None, uid
        waited = started - (state.added_at or state.due)
        state.added_at = 0.0
        period = self._settings.sync_period
        try:
            with _FOR_ANYBODY if self._shards is None else acting_for(uid):
                period = await self._reconciler.reconcile(self._own_writes.latest(key, hpa, cache_version), state)
        except Exception as error:
            log.exception("reconcile failed", autoscaler=str(key), error=str(error))
            self._instruments.broken(self._clock.monotonic() - started)
        ended = self._clock.monotonic()
        self._instruments.worked(waited, ended - started)
        self._instruments.added()
        delay = period.total_seconds() * self._rng.uniform(*JITTER)
        state.due = ended + delay
        if period == self._settings.sync_period and self._resting.keep(key, state, ended):
            return Result()
        return Result(requeue_after=timedelta(seconds=delay))


def _leadership(
    client: Client, clock: Clock, settings: HpaSettings, rng: random.Random
) -> Leadership | ShardMembership:
    namespace, identity = settings.leader_elect_resource_namespace, settings.identity
    if settings.shards is ShardMode.AUTO:
        group, division = settings.leader_elect_resource_name, Division(split=frozenset(settings.shards_split))
        return ShardMembership(
            client, clock=clock, group=group, namespace=namespace, rng=rng, identity=identity, division=division
        )
    name, enabled = settings.lease_name, settings.leader_elect
    return Leadership(
        client, clock=clock, enabled=enabled, lease_name=name, namespace=namespace, rng=rng, identity=identity
    )
