"""The recommender's loop: load VPAs, learn from pods and usage, recommend, publish.

    LoadVPAs → LoadPods → LoadMetrics → DeleteRemovedPods → UpdateVPAs → MaintainCheckpoints → GarbageCollect

A step that fails is logged and the loop goes on with what it has. What could not be read counts as unknown, not as
gone: a failed list changes nothing, a VPA whose history is not there yet keeps its last recommendation, and one whose
target cannot be read just now keeps its selector.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from kubetide import tracing
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import LEASES, VPA_CHECKPOINTS, VPAS
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.kube.control.controller import Controller, PeriodicLoop
from kubetide.kube.control.core.ranges import NO_RANGES, range_of, selector_of
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.control.sharing import leadership_of
from kubetide.kube.handover import compare_deployed
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry
from kubetide.vpa.core.scope import group_value, is_group, scope_of, vpa_name
from kubetide.vpa.recommender.checkpoint_publisher import CheckpointPublisher
from kubetide.vpa.recommender.checkpoint_store import CheckpointStore
from kubetide.vpa.recommender.cluster_room import ClusterRoom
from kubetide.vpa.recommender.core.adaptive.learned import LearnedSizes
from kubetide.vpa.recommender.core.coordination.coordinated import CoordinatedSizes
from kubetide.vpa.recommender.core.decisions import left_alone, memory_floors, options_of, tuning_of
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.groups import members
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.trace import trace, trace_from_checkpoints, with_ceilings
from kubetide.vpa.recommender.fleet_store import FleetStore
from kubetide.vpa.recommender.learn import Learner
from kubetide.vpa.recommender.load import VpaLoader
from kubetide.vpa.recommender.object_metrics import VpaObjectMetrics
from kubetide.vpa.recommender.observer import Observer
from kubetide.vpa.recommender.prometheus import Prometheus, PrometheusHistory, PrometheusHttp
from kubetide.vpa.recommender.publish import StatusPublisher
from kubetide.vpa.recommender.settings import DEFAULT_LEASE, OLD_LEASE, PROMETHEUS, RecommenderSettings
from kubetide.vpa.recommender.telemetry import RecommenderTelemetry

log = get_logger("vpa.recommender")

KINDS = ("vpa", "vpas", "verticalpodautoscaler", "verticalpodautoscalers")
"""What `explain` answers to."""


class Recommender(Controller):
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
        self.settings = settings.checked()
        self.options = options_of(settings)
        self._client = client
        self._clock = clock
        self._telemetry = RecommenderTelemetry(telemetry)
        leadership = leadership_of(client, settings, clock=clock, rng=rng, lease_name=settings.lease_name)
        self._writer = leadership.writer
        self._observer = Observer(client, clock=clock, settings=settings, rng=rng)
        self._vpas = VpaLoader(
            client, clock=clock, settings=settings, recorder=recorder, rng=rng, owns=self._learns_about
        )
        self._room = ClusterRoom(client, clock=clock, settings=settings, rng=rng)
        self._busy = asyncio.Lock()
        self._served_ranges = NO_RANGES
        self._history: PrometheusHistory | None = None
        if settings.storage == PROMETHEUS:
            source = prometheus or PrometheusHttp(settings, telemetry, clock)
            self._history = PrometheusHistory(source, settings, clock=clock, rng=rng)
        super().__init__(
            "recommender",
            clock=clock,
            caches=(self._vpas, self._observer, self._room),
            loops=(PeriodicLoop("recommender", self.run_once, clock=clock, interval=settings.interval),),
            leadership=leadership,
            sharded=(*self._vpas.sharded, self._observer.pods),
        )
        self._begin()
        telemetry.register(VpaObjectMetrics(self._served, by_name=settings.recommendation_metrics))

    def _begin(self) -> None:
        """Start from nothing, as after a restart: whoever led in between wrote what has to be known."""
        settings, clock = self.settings, self._clock
        self.model = Model(tuning_of(settings), settings.followed)
        keep_for = settings.memory_aggregation_interval * settings.memory_aggregation_interval_count
        store = CheckpointStore(self._writer, clock=clock, keep_for=keep_for)
        pods = self._observer.pods.store.get
        learned = self._learned = LearnedSizes(self.model, self.options, pods)
        coordinated = self._coordinated = CoordinatedSizes(self.model, self.options, pods, self._observer.starts.get)
        self._fleets = FleetStore(self._writer, settings, learned)
        self._vpas.begin(self.model, store, learned)
        self._observer.begin()
        self._learner = Learner(
            self.model,
            self._observer,
            clock=clock,
            settings=settings,
            telemetry=self._telemetry,
            learned=learned,
            coordinated=coordinated,
        )
        self._statuses = StatusPublisher(
            self._writer,
            self._vpas,
            self.model,
            clock=clock,
            settings=settings,
            options=self.options,
            telemetry=self._telemetry,
            pods=pods,
            learned=learned,
            coordinated=coordinated,
            room=self._room,
        )
        self._checkpoints = CheckpointPublisher(
            store, self._vpas, self.model, clock=clock, settings=settings, learned=learned
        )
        self._looped = False
        self._served_ranges = NO_RANGES

    def _served(self) -> list[VerticalPodAutoscaler]:
        """Return the VPAs that this recommender recommends for, as they are now."""
        found = [self._vpas.get(key) for key, state in self.model.vpas.items() if state.group is None]
        return [vpa for vpa in found if vpa is not None]

    # ------------------------------------------------------------------ life

    def ready(self) -> bool:
        """Whether the first loop of this term has ended."""
        return self._looped

    async def started_leading(self) -> None:
        """Start from nothing and read history; the first loop comes one interval later."""
        settings = self.settings
        log.info("recommending", compat=settings.compat, feature_gates=list(settings.feature_gates))
        await compare_deployed(
            self._client,
            self.name,
            program="vpa-recommender",
            namespace=settings.leader_elect_resource_namespace,
            follows=str(settings.followed.version),
        )
        await self._wait_for_predecessor()
        self._begin()
        if self._history is not None and self._shards is None:
            await self._learner.read_history(self._history)

    # Where replicas share the VPAs. One that is taken over begins as after a restart: with what its last owner saved.

    def _learns_about(self, namespace: str) -> bool:
        # Until what was learned is saved, a range that is about to pass on is still looked after.
        return self._shards is None or range_of(namespace) in self._served_ranges

    async def _take_over(self) -> None:
        """Begin with the ranges that were taken since the last loop."""
        taken = frozenset(self._owned) - self._served_ranges
        if self._history is not None and taken:
            await self._learner.read_history(self._history, lambda namespace: range_of(namespace) in taken)
        self._served_ranges |= taken

    async def stops_owning(self, ranges: frozenset[int]) -> None:
        """Write statuses and checkpoints of ranges, as far as they may still be written, and forget them."""

        def leaves(namespace: str) -> bool:
            return range_of(namespace) in ranges

        async with self._busy:
            served = self._served_ranges & ranges
            if served and self._shards is not None and served <= self._shards.held:
                await self._statuses.update(leaves)
                if self._history is None:
                    await self._checkpoints.write(leaves)
            self._vpas.forget({key for key in self.model.vpas if leaves(key.namespace)})
            self._learner.forget_namespaces(leaves)
            self._served_ranges -= ranges

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
        async with self._busy:
            if self._shards is not None:
                await self._take_over()
            await self._run_once()

    async def _run_once(self) -> None:
        hour_ended = False
        async with self._telemetry.step("total", self._clock):
            async with self._step("LoadVPAs", self.settings.step_timeout):
                await self._vpas.load()
                if self._history is None and any(vpa.choice.learned for vpa in self.model.vpas.values()):
                    await self._fleets.load()
            async with self._step("LoadPods"):
                self._learner.load_pods()
                hour_ended = self._learned.begin_loop(self._clock.now())
                self._vpas.announce(self._coordinated.begin_loop(self._clock.now()))
                self._checkpoints.note_restored(self._statuses)
                self._learner.take_early()
                if not self._looped:
                    self._announce_cold_start()
            async with self._step("LoadMetrics", self.settings.step_timeout):
                await self._learner.load_metrics()
            async with self._step("DeleteRemovedPods"):
                self._learner.delete_removed_pods()
            async with self._step("UpdateVPAs"):
                self._vpas.announce(self._coordinated.decide(self._clock.now(), self._observer.nodes.capacity))
                await self._statuses.update()
            async with self._step("MaintainCheckpoints"):
                if hour_ended:
                    self._checkpoints.hour_ended()
                if self._history is None:
                    await self._checkpoints.write()
                mine = None if self._shards is None else selector_of(self._served_ranges)
                await self._checkpoints.collect_garbage(self._learns_about, mine)
                # What fleets have learned is one object: the replica that owns its namespace writes it.
                if hour_ended and self._history is None and self.owns(self.settings.leader_elect_resource_namespace):
                    await self._fleets.write()
            async with self._step("GarbageCollect"):
                self._learner.collect_garbage()
        aggregates = self.model.aggregate_count()
        self._telemetry.aggregates.set(aggregates)
        tracing.annotate(vpas=len(self.model.vpas), aggregates=aggregates)
        self._looped = True

    def _announce_cold_start(self) -> None:
        """Log how much the first loops have to write, and how long that takes: for VPAs that nothing is known of."""
        vpas = self.model.vpas.values()
        statuses = sum(vpa.loaded and vpa.recommendation is None for vpa in vpas)
        missing = 0
        if self._history is None:
            missing = sum(len(vpa.fed().keys() - vpa.checkpoints.keys()) for vpa in vpas)
        if statuses or missing:
            pace = self._client.qps
            seconds = {"seconds": round((statuses + missing) / pace)} if pace else {}
            log.info("cold start", statuses=statuses, checkpoints=missing, requests_per_second=pace, **seconds)

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

    # ------------------------------------------------------------------ explaining

    def explain(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return how the recommendation of a VPA came about."""
        vpa = self.model.vpas.get(ObjectKey.parse(key)) if kind.lower() in KINDS else None
        if vpa is None:
            return None
        found = self._trace(vpa) | {"compat": str(self.settings.followed.version)}
        if (learned := self._learned.explain(vpa)) is not None:
            found["learned"] = learned
        if (coordination := self._coordinated.explain(vpa)) is not None:
            found["coordination"] = coordination
        if vpa.is_scoped:
            found["scope"] = vpa.scope
            found["containers"] = []
            found["groups"] = {one.group: self._trace(one)["containers"] for one in members(self.model, vpa)}
        return found

    def _trace(self, vpa: VpaState) -> dict[str, Any]:
        now = self._clock.now()
        found = trace(
            self.model,
            vpa,
            self.options,
            now=now,
            memory_floors=memory_floors(vpa, self.settings, now),
            excluded=left_alone(vpa, self.settings),
            learned=self._statuses.overlay,
        )
        for container in found["containers"]:
            name = container["name"]
            slots = [labels.aggregates[name] for labels in vpa.label_sets.values() if name in labels.aggregates]
            if (effect := self._learner.effect_of(slots)) is not None:
                container["signals"] = effect
        found["problems"] = list(vpa.tuning_problems)
        if vpa.capped:
            found["ceilings"] = list(vpa.capped)
            with_ceilings(found["containers"], vpa.allowed)
        return found


async def recompute(client: Client, clock: Clock, settings: RecommenderSettings, key: ObjectKey) -> dict[str, Any]:
    """Return what a recommendation would be from what is stored; the running windows of a recommender are missing."""
    vpa = await client.get(VPAS, key.name, namespace=key.namespace)
    stored = await client.list(VPA_CHECKPOINTS, namespace=key.namespace)
    now, options = clock.now(), options_of(settings)
    found = trace_from_checkpoints(vpa, stored.items, now=now, options=options)
    named = {item.spec.vpa_object_name for item in stored.items}
    groups = sorted(name for name in named if is_group(name) and vpa_name(name) == key.name)
    if groups and scope_of(vpa):
        parts = [trace_from_checkpoints(vpa, stored.items, now=now, options=options, name=name) for name in groups]
        by_value = {group_value(name): part["containers"] for name, part in zip(groups, parts, strict=True)}
        found |= {"scope": scope_of(vpa), "containers": [], "groups": by_value}
    return found | {"compat": str(settings.followed.version)}
