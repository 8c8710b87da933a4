"""The recommender's loop: look, learn, recommend, write, remember, forget.

    LoadVPAs → LoadPods → LoadMetrics → UpdateVPAs → MaintainCheckpoints → GarbageCollect

A step that fails is logged and the loop goes on with what it has. What could not be read counts as unknown, not as
gone: a failed list changes nothing, a VPA whose history is not there yet keeps its last recommendation, and one whose
target cannot be read just now keeps its selector.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import LEASES, VPA_CHECKPOINTS, VPAS
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.kube.control.leader_election import Leadership
from kubetide.kube.control.recorder import EventRecorder
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.recommender.checkpoint_store import CheckpointStore
from kubetide.vpa.recommender.core.feeding import OpenWindows, PodFeed, Refused, feed, feed_oom, gather, missed
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.oom import Oom, raised
from kubetide.vpa.recommender.core.plausible import Bounds, RefusalReason
from kubetide.vpa.recommender.core.trace import trace, trace_from_checkpoints
from kubetide.vpa.recommender.core.tracking import left_alone, memory_floors, options_of, tuning_of
from kubetide.vpa.recommender.observer import Observer
from kubetide.vpa.recommender.prometheus import Prometheus, PrometheusHistory, PrometheusHttp, load_history
from kubetide.vpa.recommender.settings import DEFAULT_LEASE, OLD_LEASE, PROMETHEUS, RecommenderSettings
from kubetide.vpa.recommender.status_writer import Checkpoints, Statuses
from kubetide.vpa.recommender.telemetry import RecommenderTelemetry
from kubetide.vpa.recommender.vpa_watch import VpaWatch

log = get_logger("vpa.recommender")

METRICS_CLIENT = "default-metrics-client"
STALLED_LOOPS = 5
"""Intervals that may pass without the end of a loop before the process is taken for stuck."""
KINDS = ("vpa", "vpas", "verticalpodautoscaler", "verticalpodautoscalers")
"""What `explain` answers to."""


class Recommender:
    """Watches usage and keeps the recommendation of every VPA it serves."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: RecommenderSettings,
        telemetry: Telemetry,
        recorder: EventRecorder,
        rng: random.Random,
        *,
        prometheus: Prometheus | None = None,
    ) -> None:
        self.name = "recommender"
        self.settings = settings.checked()
        self.options = options_of(settings)
        self._client = client
        self._clock = clock
        self._telemetry = RecommenderTelemetry(telemetry)
        self._leadership = Leadership(
            client,
            clock=clock,
            enabled=settings.leader_elect,
            lease_name=settings.lease_name,
            namespace=settings.leader_elect_resource_namespace,
            rng=rng,
            lease_duration=settings.leader_elect_lease_duration,
            renew_deadline=settings.leader_elect_renew_deadline,
            retry_period=settings.leader_elect_retry_period,
        )
        self._observer = Observer(client, clock=clock, settings=settings, rng=rng)
        self._vpas = VpaWatch(client, clock=clock, settings=settings, recorder=recorder, rng=rng)
        self._history: PrometheusHistory | None = None
        if settings.storage == PROMETHEUS:
            source = prometheus or PrometheusHttp(settings, telemetry, clock)
            self._history = PrometheusHistory(source, settings, clock=clock, rng=rng)
        self._last_activity: datetime | None = None
        self._begin()

    def _begin(self) -> None:
        """Start from nothing, as after a restart: whoever led in between wrote what has to be known."""
        settings = self.settings
        self.model = Model(tuning_of(settings))
        keep_for = settings.memory_aggregation_interval * settings.memory_aggregation_interval_count
        self._store = CheckpointStore(self._leadership.writer, clock=self._clock, keep_for=keep_for)
        self._windows = OpenWindows()
        self._held: list[Oom] = []
        # A shard that followed all pods would save nothing.
        self._feed = PodFeed(track_all=not settings.memory_saver and settings.shard_of[1] == 1)
        self._vpas.begin(self.model, self._store, self._windows)
        self._observer.begin()
        self._statuses = Statuses(
            self._leadership.writer,
            self._vpas,
            self.model,
            clock=self._clock,
            settings=settings,
            options=self.options,
            telemetry=self._telemetry,
        )
        self._checkpoints = Checkpoints(self._store, self._vpas, self.model, clock=self._clock, settings=settings)
        self._loops = 0

    # ------------------------------------------------------------------ life

    def ready(self) -> bool:
        """Whether the first loop has ended."""
        return self._loops > 0

    def healthy(self) -> bool:
        """Whether a loop ended lately; while another process leads there is nothing to complain about."""
        if self._last_activity is None:
            return True
        return self._clock.now() - self._last_activity <= STALLED_LOOPS * self.settings.interval

    async def run(self) -> None:
        """Recommend whenever this process leads, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.watch_cluster(), name="recommender/watch")
            await self.synced()
            await self._leadership.run(self._lead)

    async def watch_cluster(self) -> None:
        """Keep the copies of the cluster fresh until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._vpas.run(), name="recommender/vpas")
            group.create_task(self._observer.run(), name="recommender/observer")

    async def synced(self) -> None:
        """Wait until the copies are complete."""
        await self._vpas.wait_synced()
        await self._observer.pods.wait_synced()
        await self._observer.nodes.wait_synced()

    async def _lead(self) -> None:
        """Read history, then run once per interval, the first time one interval from now."""
        await self._wait_for_predecessor()
        self._begin()
        if self._history is not None:
            self._tell_refused(await load_history(self._history, self.model, self._bounds({})))
        self._last_activity = self._clock.now()
        try:
            started = self._clock.monotonic()
            while True:
                spent = self._clock.monotonic() - started
                await asyncio.sleep(max(0.0, self.settings.interval.total_seconds() - spent))
                started = self._clock.monotonic()
                await self.run_once()
        finally:
            self._last_activity = None

    async def _wait_for_predecessor(self) -> None:
        """Wait while a recommender from before version 1.3 holds its own lease: two must never write."""
        settings = self.settings
        while settings.leader_elect and settings.lease_name == DEFAULT_LEASE:
            try:
                lease = await self._client.get(LEASES, OLD_LEASE, namespace=settings.leader_elect_resource_namespace)
            except NotFound:
                return
            except KubetideError as error:
                log.warning("the old lease cannot be read", lease=OLD_LEASE, error=str(error))
            else:
                spec = lease.spec
                until = (spec.renew_time or self._clock.now()) + timedelta(seconds=spec.lease_duration_seconds)
                if not spec.holder_identity or until <= self._clock.now():
                    return
                log.info("an older recommender is still active", lease=OLD_LEASE, holder=spec.holder_identity)
            await asyncio.sleep(settings.leader_elect_lease_duration.total_seconds())

    async def run_once(self) -> None:
        """Run one loop."""
        async with self._telemetry.step("total", self._clock):
            async with self._step("LoadVPAs", self.settings.step_timeout):
                await self._vpas.load()
            async with self._step("LoadPods"):
                self._load_pods()
            async with self._step("LoadMetrics", self.settings.step_timeout):
                await self._load_metrics()
            async with self._step("UpdateVPAs"):
                await self._statuses.update()
            async with self._step("MaintainCheckpoints"):
                await self._maintain_checkpoints()
            async with self._step("GarbageCollect"):
                self._collect_garbage()
        self._telemetry.aggregates.set(self.model.aggregate_count())
        self._loops += 1
        self._last_activity = self._clock.now()

    @asynccontextmanager
    async def _step(self, name: str, timeout: timedelta | None = None) -> AsyncIterator[None]:
        """Time a step, bound it, and keep its failure from ending the loop."""
        try:
            async with (
                self._telemetry.step(name, self._clock),
                asyncio.timeout(None if timeout is None else timeout.total_seconds()),
            ):
                yield
        except TimeoutError:
            log.warning("step took too long", step=name)
        except KubetideError as error:
            log.warning("step failed", step=name, error=str(error), kind=type(error).__name__)

    # ------------------------------------------------------------------ pods and usage

    def _load_pods(self) -> None:
        now = self._clock.now()
        # With tracking limited to matched pods, a change of VPAs may make any pod interesting.
        again = not self._feed.track_all
        self._feed.sync(self.model, self._observer.pods.store.values(), now=now, all_again=again)
        for source, count in self._feed.take_sources().items():
            self._telemetry.reads.labels(source).inc(count)
        self._windows.claim(self.model)
        self._telemetry.quality.release(self.model.fold_departed(now=now))
        early = [*self._held, *self._observer.take_early()]
        self._held = [oom for oom in early if self._history_unknown(oom)]
        ready = [oom for oom in early if not self._history_unknown(oom)]
        for oom in list(missed(ready, self.model, self._store.restored)):
            self._take_oom(oom, now)

    def _history_unknown(self, oom: Oom) -> bool:
        """Tell whether a checkpoint that is not read yet may know of a kill already."""
        pod = self.model.pods.get(ObjectKey(oom.namespace, oom.pod))
        return pod is not None and any(not self._vpas.tracked[key].history for key in pod.labels.vpas)

    async def _load_metrics(self) -> None:
        now = self._clock.now()
        try:
            usage = await self._observer.usage(self.model)
        except KubetideError:
            self._telemetry.responses.labels("true", METRICS_CLIENT).inc()
            raise
        else:
            self._telemetry.responses.labels("false", METRICS_CLIENT).inc()
            batch = gather(
                self.model, usage, now=now, init=self._feed.init_containers, bounds=self._bounds(self._feed.nodes)
            )
            self._tell_refused(batch.refused)
            if self._held:
                # Their kills come first, or they would be too old for the window that these samples open.
                batch = batch.without(self._rows(self._held))
            slots = self.model.containers.aggregate[batch.rows]
            fed = feed(self.model, batch)
            quality = self._telemetry.quality
            quality.judge(CPU, slots[fed.cpu], batch.cpu[fed.cpu] / 1000.0)
            quality.judge(MEMORY, slots[fed.memory], batch.memory[fed.memory].astype(float))
            if batch.unknown and self._feed.track_all:
                log.debug("usage of unknown containers", containers=batch.unknown)
        finally:
            for oom in self._observer.take():
                self._take_oom(oom, now)

    def _bounds(self, nodes: Mapping[ObjectKey, str]) -> Bounds:
        return Bounds(self._observer.nodes.capacity, nodes, self.settings.max_sample_skew)

    def _tell_refused(self, refused: Mapping[RefusalReason, Refused]) -> None:
        for reason, found in refused.items():
            self._telemetry.refused.labels(reason.value).inc(found.count)
            log.warning("samples cannot be true, refused", reason=reason, count=found.count, example=found.example)

    def _rows(self, ooms: Iterable[Oom]) -> Iterator[int]:
        for oom in ooms:
            pod = self.model.pods.get(ObjectKey(oom.namespace, oom.pod))
            if pod is not None and oom.container in pod.containers:
                yield pod.containers[oom.container]

    def _take_oom(self, oom: Oom, now: datetime) -> None:
        if oom.at - now > self.settings.max_sample_skew:
            # The kill is true, its date is not: dated ahead it would keep every later sample out.
            oom = replace(oom, at=now)
        counted = feed_oom(self.model, oom, now=now)
        if counted is None:
            if self._feed.track_all:
                log.debug("out of memory in an unknown container", pod=f"{oom.namespace}/{oom.pod}")
            return
        pod = self.model.pods[ObjectKey(oom.namespace, oom.pod)]
        row = pod.containers[oom.container]
        log.info("out of memory", pod=f"{oom.namespace}/{oom.pod}", container=oom.container, counted=counted)
        table = self.model.containers
        self._telemetry.quality.judge(MEMORY, table.aggregate[[row]], table.oom_peak[[row]], oom=True)
        if not self.settings.oom_floor:
            return
        needed, half_life = float(table.oom_need(row, oom.memory_bytes)), self.settings.oom_floor_half_life
        for vpa in pod.labels.vpas.values():
            floors = self._vpas.tracked[vpa.key].floors
            floors[oom.container] = raised(floors.get(oom.container), needed, at=oom.at, half_life=half_life)

    # ------------------------------------------------------------------ checkpoints and garbage

    async def _maintain_checkpoints(self) -> None:
        if self._history is None:
            await self._checkpoints.write()
        await self._checkpoints.collect_garbage()

    def _collect_garbage(self) -> None:
        dropped = self.model.collect_garbage(now=self._clock.now(), has_controller=self._vpas.resolves)
        if dropped is None:
            return
        for one in dropped:
            for key in one.labels.vpas:
                self._store.allow_less(key, one.container)
        self._telemetry.quality.release([one.slot for one in dropped])
        self._observer.seen.keep(self._observer.pods.store.keys())

    # ------------------------------------------------------------------ explaining

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return how the recommendation of a VPA came about."""
        vpa = self.model.vpas.get(ObjectKey.parse(key)) if kind.lower() in KINDS else None
        if vpa is None:
            return None
        tracked, now = self._vpas.tracked[vpa.key], self._clock.now()
        return trace(
            self.model,
            vpa,
            self.options,
            now=now,
            estimation=tracked.estimation,
            memory_floors=memory_floors(tracked, self.settings, now),
            excluded=left_alone(tracked, self.settings),
        )


async def recompute(client: Client, clock: Clock, settings: RecommenderSettings, key: ObjectKey) -> dict[str, Any]:
    """Say what a recommendation would be from what is stored; the running windows of a recommender are missing."""
    vpa = await client.get(VPAS, key.name, namespace=key.namespace)
    stored = await client.list(VPA_CHECKPOINTS, namespace=key.namespace)
    return trace_from_checkpoints(vpa, stored.items, now=clock.now(), options=options_of(settings))
