"""The recommender's loop: look, learn, recommend, write, remember, forget.

    LoadVPAs → LoadPods → LoadMetrics → UpdateVPAs → MaintainCheckpoints → GarbageCollect

A step that fails is logged and the loop goes on with what it has. What could not be read counts as unknown, not as
gone: a failed list changes nothing, a VPA whose history is not there yet keeps its last recommendation, and one whose
target cannot be read just now keeps its selector.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.meta import ObjectKey
from kubetide.api.patch import JsonPatch
from kubetide.api.scheme import LEASES, VPA_CHECKPOINTS, VPAS
from kubetide.api.vpa import VerticalPodAutoscaler
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client import Client
from kubetide.kube.errors import ApiError, NotFound
from kubetide.kube.leadership import Leadership
from kubetide.kube.recorder import EventRecorder
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry
from kubetide.vpa.policy import CPU, MEMORY, Recommended
from kubetide.vpa.recommender.checkpoint import checkpoints
from kubetide.vpa.recommender.feeding import OpenWindows, PodFeed, feed, feed_oom, gather, missed
from kubetide.vpa.recommender.floor import raised
from kubetide.vpa.recommender.history import Prometheus, PrometheusHistory, PrometheusHttp, load_history
from kubetide.vpa.recommender.model import Model, VpaState
from kubetide.vpa.recommender.observe import Observer
from kubetide.vpa.recommender.oom import Oom
from kubetide.vpa.recommender.recommend import recommend
from kubetide.vpa.recommender.telemetry import RecommenderTelemetry
from kubetide.vpa.recommender.trace import trace, trace_from_checkpoints
from kubetide.vpa.recommender.tracking import Tracked, fetching, judge, may_save, options_of, tuning_of
from kubetide.vpa.recommender.watch import VPAS_PER_TURN, VpaWatch
from kubetide.vpa.recommender.writer import CheckpointStore, each
from kubetide.vpa.settings import DEFAULT_LEASE, OLD_LEASE, PROMETHEUS, HpaConflicts, RecommenderSettings

log = get_logger("vpa.recommender")

MISSING_LOG_INTERVAL = timedelta(minutes=30)
METRICS_CLIENT = "default-metrics-client"
STALLED_LOOPS = 5
"""Intervals that may pass without the end of a loop before the process is taken for stuck."""
KINDS = ("vpa", "vpas", "verticalpodautoscaler", "verticalpodautoscalers")
"""What `explain` answers to."""

Write = tuple[VerticalPodAutoscaler, Mapping[str, Any]]


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
            chance=rng,
            lease_duration=settings.leader_elect_lease_duration,
            renew_deadline=settings.leader_elect_renew_deadline,
            retry_period=settings.leader_elect_retry_period,
        )
        self._observer = Observer(client, clock=clock, settings=settings, chance=rng)
        self._vpas = VpaWatch(client, clock=clock, settings=settings, recorder=recorder, chance=rng)
        self._history: PrometheusHistory | None = None
        if settings.storage == PROMETHEUS:
            source = prometheus or PrometheusHttp(settings, telemetry, clock)
            self._history = PrometheusHistory(source, settings, clock=clock, chance=rng)
        self._last_activity: datetime | None = None
        self._begin()

    def _begin(self) -> None:
        """Start from nothing, as after a restart: whoever led in between wrote what has to be known."""
        settings = self.settings
        self.model = Model(tuning_of(settings))
        keep_for = settings.memory_aggregation_interval * settings.memory_aggregation_interval_count
        self._store = CheckpointStore(self._leadership.writer, clock=self._clock, keep_for=keep_for)
        self._windows = OpenWindows()
        # A shard that followed all pods would save nothing.
        self._feed = PodFeed(track_all=not settings.memory_saver and settings.shard_of[1] == 1)
        self._vpas.begin(self.model, self._store, self._windows)
        self._observer.begin()
        self._last_checkpoint_gc = self._clock.now()
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

    async def _lead(self) -> None:
        """Read history, then run once per interval, the first time one interval from now."""
        await self._wait_for_predecessor()
        self._begin()
        if self._history is not None:
            await load_history(self._history, self.model)
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
                await self._update_vpas()
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
        self._windows.claim(self.model)
        early = self._observer.take_early()
        for oom in list(missed(early, self.model, lambda vpa, name: self._store.updated(vpa.key, name))):
            self._take_oom(oom, now)

    async def _load_metrics(self) -> None:
        now = self._clock.now()
        try:
            usage = await self._observer.usage(self.model)
        except KubetideError:
            self._telemetry.responses.labels("true", METRICS_CLIENT).inc()
            raise
        else:
            self._telemetry.responses.labels("false", METRICS_CLIENT).inc()
            batch = gather(self.model, usage, now=now, init=self._feed.init_containers)
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

    def _take_oom(self, oom: Oom, now: datetime) -> None:
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

    # ------------------------------------------------------------------ recommendations

    async def _update_vpas(self) -> None:
        now = self._clock.now()
        deadline = self._clock.monotonic() + self.settings.step_timeout.total_seconds()
        tracked = self._vpas.tracked
        known = [vpa for key, vpa in self.model.vpas.items() if tracked[key].history]
        counts: dict[tuple[str, ...], int] = {}
        for start in range(0, len(known), VPAS_PER_TURN):
            part = known[start : start + VPAS_PER_TURN]
            found = self._recommend(part, now)
            writes = [write for vpa in part if (write := self._judge(vpa, found[vpa.key], now, counts)) is not None]
            await self._write_all(writes, deadline)
        if self.settings.fetching_history_condition:
            await self._write_all(self._fetching(now), deadline)
        self._telemetry.set_object_counts(counts)

    def _recommend(self, part: Sequence[VpaState], now: datetime) -> dict[ObjectKey, tuple[Recommended, ...]]:
        estimations, floors, excluded = {}, {}, {}
        for vpa in part:
            tracked = self._vpas.tracked[vpa.key]
            if tracked.estimation is not None:
                estimations[vpa.key] = tracked.estimation
            for name, floor in self._floors(tracked, now).items():
                floors[vpa.key, name] = floor
            excluded[vpa.key] = self._left_alone(tracked)
        return recommend(
            self.model, part, self.options, estimations=estimations, memory_floors=floors, excluded=excluded
        )

    def _floors(self, tracked: Tracked, now: datetime) -> dict[str, int]:
        if not self.settings.oom_floor:
            return {}
        half_life = self.settings.oom_floor_half_life
        return {name: int(floor.now(now, half_life)) for name, floor in tracked.floors.items()}

    def _left_alone(self, tracked: Tracked) -> frozenset[str]:
        return frozenset(tracked.contested if self.settings.hpa_conflicts is HpaConflicts.AVOID else ())

    def _judge(
        self, vpa: VpaState, found: tuple[Recommended, ...], now: datetime, counts: dict[tuple[str, ...], int]
    ) -> Write | None:
        """Decide what a VPA says, note it, and return the write that is needed, if one is."""
        current, tracked, old = self._vpas.get(vpa.key), self._vpas.tracked[vpa.key], vpa.recommendation
        if current is None:
            return None
        verdict = judge(current, vpa, tracked, found, aggregates=self.model.aggregates, settings=self.settings, now=now)
        vpa.conditions, vpa.recommendation = verdict.conditions, verdict.recommendation
        self._telemetry.count_object(counts, vpa, unsupported=tracked.problem is not None)
        self._telemetry.note_recommendation(vpa, old, verdict.recommendation, self.model)
        if verdict.recommendation and not old and vpa.created is not None:
            self._telemetry.latency.observe(max(0.0, (now - vpa.created).total_seconds()))
        silent = tracked.said_missing is None or now - tracked.said_missing >= MISSING_LOG_INTERVAL
        if not verdict.recommendation and silent:
            tracked.said_missing = now
            log.info("no recommendation", vpa=str(vpa.key), pods=vpa.pod_count, problem=tracked.problem or "")
        return None if verdict.status is None else (current, verdict.status)

    def _fetching(self, now: datetime) -> list[Write]:
        writes = []
        for key, tracked in self._vpas.tracked.items():
            current = None if tracked.history else self._vpas.get(key)
            status = fetching(current, now=now) if current is not None else None
            if current is not None and status is not None:
                writes.append((current, status))
        return writes

    async def _write_all(self, writes: Sequence[Write], deadline: float) -> None:
        left = await each(
            writes, self.settings.update_worker_count, self._write_status, deadline=deadline, clock=self._clock
        )
        if left:
            log.info("statuses left for the next loop", count=len(left))
        await asyncio.sleep(0)

    async def _write_status(self, write: Write) -> None:
        vpa, status = write
        meta = vpa.metadata
        # The condition of another component may have been written since this object was read: then the next loop
        # starts from there, instead of this one writing over it.
        operations: list[Mapping[str, Any]] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            await self._leadership.writer.patch(
                VPAS, meta.name, JsonPatch(operations), namespace=meta.namespace, subresource="status"
            )
        except NotFound:
            return
        except ApiError as error:
            if error.status not in (409, 422):
                raise
            log.debug("vpa changed meanwhile, writing in the next loop", vpa=f"{meta.namespace}/{meta.name}")

    # ------------------------------------------------------------------ checkpoints and garbage

    async def _maintain_checkpoints(self) -> None:
        now = self._clock.now()
        if self._history is None:
            await self._write_checkpoints(now)
        if now - self._last_checkpoint_gc > self.settings.checkpoints_gc_interval:
            self._last_checkpoint_gc = now
            deleted = await self._store.collect_garbage(
                self.settings.vpa_object_namespace or None,
                ignored=self.settings.ignored_vpa_object_namespaces,
                exists=self._vpas.exists,
            )
            if deleted:
                log.info("deleted checkpoints of VPAs that are gone", count=deleted)

    async def _write_checkpoints(self, now: datetime) -> None:
        deadline = self._clock.monotonic() + self.settings.checkpoints_timeout.total_seconds()
        tracked = self._vpas.tracked
        due = [vpa for key, vpa in self.model.vpas.items() if may_save(vpa, tracked[key], self.settings)]
        due.sort(key=lambda vpa: vpa.checkpoint_written.timestamp() if vpa.checkpoint_written is not None else 0.0)
        for start in range(0, len(due), VPAS_PER_TURN):
            part = due[start : start + VPAS_PER_TURN]
            contents = checkpoints(self.model, part, now=now)

            async def write(vpa: VpaState, contents: Mapping[str, Any] = contents) -> None:
                floors = tracked[vpa.key].floors if self.settings.oom_floor else {}
                await self._store.write(vpa.key, contents[str(vpa.key)], floors)
                vpa.checkpoint_written = self._clock.now()

            left = await each(part, self.settings.update_worker_count, write, deadline=deadline, clock=self._clock)
            if left:
                log.info("checkpoints left for the next loop", count=len(left) + len(due) - start - len(part))
                return
            await asyncio.sleep(0)

    def _collect_garbage(self) -> None:
        dropped = self.model.collect_garbage(now=self._clock.now(), has_controller=self._vpas.resolves)
        if dropped is None:
            return
        for labels, container in dropped:
            for key in labels.vpas:
                self._store.allow_less(key, container)
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
            memory_floors=self._floors(tracked, now),
            excluded=self._left_alone(tracked),
        )


async def recompute(client: Client, clock: Clock, settings: RecommenderSettings, key: ObjectKey) -> dict[str, Any]:
    """Say what a recommendation would be from what is stored; the running windows of a recommender are missing."""
    vpa = await client.get(VPAS, key.name, namespace=key.namespace)
    stored = await client.list(VPA_CHECKPOINTS, namespace=key.namespace)
    return trace_from_checkpoints(vpa, stored.items, now=clock.now(), options=options_of(settings))
