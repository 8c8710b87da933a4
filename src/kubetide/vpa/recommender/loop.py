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

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import LEASES, VPA_CHECKPOINTS, VPAS
from kubetide.clock import Clock
from kubetide.errors import KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import NotFound
from kubetide.kube.control.controller import Controller, PeriodicLoop
from kubetide.kube.control.leader_election import Leadership
from kubetide.kube.control.recorder import EventRecorder
from kubetide.kube.handover import compare_deployed
from kubetide.log import get_logger
from kubetide.telemetry import Telemetry
from kubetide.vpa.core.scope import group_value, is_group, scope_of, vpa_name
from kubetide.vpa.recommender.checkpoint_store import CheckpointStore
from kubetide.vpa.recommender.core.decisions import left_alone, memory_floors, options_of, tuning_of
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.groups import members
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.trace import trace, trace_from_checkpoints
from kubetide.vpa.recommender.learn import Learner
from kubetide.vpa.recommender.load import VpaLoader
from kubetide.vpa.recommender.observer import Observer
from kubetide.vpa.recommender.prometheus import Prometheus, PrometheusHistory, PrometheusHttp
from kubetide.vpa.recommender.publish import CheckpointPublisher, StatusPublisher
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
        leadership = Leadership(
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
        self._writer = leadership.writer
        self._observer = Observer(client, clock=clock, settings=settings, rng=rng)
        self._vpas = VpaLoader(client, clock=clock, settings=settings, recorder=recorder, rng=rng)
        self._history: PrometheusHistory | None = None
        if settings.storage == PROMETHEUS:
            source = prometheus or PrometheusHttp(settings, telemetry, clock)
            self._history = PrometheusHistory(source, settings, clock=clock, rng=rng)
        super().__init__(
            "recommender",
            clock=clock,
            caches=(self._vpas, self._observer),
            loops=(PeriodicLoop("loop", self.run_once, clock=clock, interval=settings.interval),),
            leadership=leadership,
        )
        self._begin()

    def _begin(self) -> None:
        """Start from nothing, as after a restart: whoever led in between wrote what has to be known."""
        settings, clock = self.settings, self._clock
        self.model = Model(tuning_of(settings), settings.followed)
        keep_for = settings.memory_aggregation_interval * settings.memory_aggregation_interval_count
        store = CheckpointStore(self._writer, clock=clock, keep_for=keep_for)
        self._vpas.begin(self.model, store)
        self._observer.begin()
        self._learner = Learner(self.model, self._observer, clock=clock, settings=settings, telemetry=self._telemetry)
        self._statuses = StatusPublisher(
            self._writer,
            self._vpas,
            self.model,
            clock=clock,
            settings=settings,
            options=self.options,
            telemetry=self._telemetry,
            pods=self._observer.pods.store.get,
        )
        self._checkpoints = CheckpointPublisher(store, self._vpas, self.model, clock=clock, settings=settings)
        self._looped = False

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
        if self._history is not None:
            await self._learner.read_history(self._history)

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
                self._learner.load_pods()
                self._checkpoints.note_restored(self._statuses)
                self._learner.take_early()
                if not self._looped:
                    self._announce_cold_start()
            async with self._step("LoadMetrics", self.settings.step_timeout):
                await self._learner.load_metrics()
            async with self._step("DeleteRemovedPods"):
                self._learner.delete_removed_pods()
            async with self._step("UpdateVPAs"):
                await self._statuses.update()
            async with self._step("MaintainCheckpoints"):
                if self._history is None:
                    await self._checkpoints.write()
                await self._checkpoints.collect_garbage()
            async with self._step("GarbageCollect"):
                self._learner.collect_garbage()
        self._telemetry.aggregates.set(self.model.aggregate_count())
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
        if vpa.is_scoped:
            found["scope"] = vpa.scope
            found["containers"] = []
            found["groups"] = {one.group: self._trace(one)["containers"] for one in members(self.model, vpa)}
        return found

    def _trace(self, vpa: VpaState) -> dict[str, Any]:
        now = self._clock.now()
        return trace(
            self.model,
            vpa,
            self.options,
            now=now,
            memory_floors=memory_floors(vpa, self.settings, now),
            excluded=left_alone(vpa, self.settings),
        )


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
