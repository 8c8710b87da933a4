"""Last step of a loop: what the model knows into the API, as the status of every VPA.

It goes through the VPAs in parts, so that leases are renewed and watches read in between, writes only what
differs, and leaves for later what nobody decides on (`core.significance`). A VPA whose object, amounts and pods are the
same since its status was decided is not decided again.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kubetide import tracing
from kubetide.api.objects.coordination import COORDINATION_ANNOTATION
from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import VPAS
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.patch import JsonPatch, MergePatch
from kubetide.clock import Clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError, NotFound
from kubetide.log import get_logger
from kubetide.stats.buckets import Ints
from kubetide.vpa.core.learned import LIMITS_ANNOTATION
from kubetide.vpa.core.policy import Recommended
from kubetide.vpa.core.scope import GROUPS_ANNOTATION
from kubetide.vpa.recommender.checkpoint_store import each
from kubetide.vpa.recommender.cluster_room import ClusterRoom
from kubetide.vpa.recommender.core.adaptive.learned import LearnedSizes
from kubetide.vpa.recommender.core.coordination.coordinated import CoordinatedSizes
from kubetide.vpa.recommender.core.decisions import fetching, judge, left_alone, memory_floors
from kubetide.vpa.recommender.core.entities import Basis, VpaState
from kubetide.vpa.recommender.core.groups import members
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.recommend import Options, Row, recommend
from kubetide.vpa.recommender.core.significance import Cadence, requests_of
from kubetide.vpa.recommender.core.status import describe_change
from kubetide.vpa.recommender.load import VPAS_PER_TURN, VpaLoader
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.recommender.telemetry import RecommenderTelemetry, Review

log = get_logger("vpa.recommender")

MISSING_LOG_INTERVAL = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Write:
    """What has to be written about one VPA."""

    state: VpaState
    vpa: VerticalPodAutoscaler
    status: Mapping[str, Any] | None
    groups: str | None = None
    """The annotation with the groups of a scoped VPA, where the CRD has no field for them; empty: without it."""
    limits: str | None = None
    """The annotation with memory limits apart from requests; empty: without it."""
    coordination: str | None = None
    """The annotation about an HPA that the VPA is sized for; empty: without it."""

    @property
    def annotations(self) -> dict[str, str | None]:
        """Return the annotations to write; None takes one away."""
        wanted = {
            GROUPS_ANNOTATION: self.groups,
            LIMITS_ANNOTATION: self.limits,
            COORDINATION_ANNOTATION: self.coordination,
        }
        return {name: text or None for name, text in wanted.items() if text is not None}


Pods = Callable[[ObjectKey], Pod | None]
Namespaces = Callable[[str], bool]
"""Some namespaces, by their names."""


class StatusPublisher:
    """Keeps the status of every VPA equal to what the model recommends."""

    def __init__(
        self,
        client: Client,
        vpas: VpaLoader,
        model: Model,
        *,
        clock: Clock,
        settings: RecommenderSettings,
        options: Options,
        telemetry: RecommenderTelemetry,
        pods: Pods,
        learned: LearnedSizes,
        coordinated: CoordinatedSizes,
        room: ClusterRoom,
    ) -> None:
        self._client = client
        self._learned = learned
        self._coordinated = coordinated
        self._room = room
        self._vpas = vpas
        self._model = model
        self._clock = clock
        self._settings = settings
        self._options = options
        self._telemetry = telemetry
        self._dropped: set[str] = set()
        """Fields of the status that the CRD in the cluster does not know."""
        self._pods = pods
        self._cadence = Cadence(settings.waits[0])

    async def update(self, leaving: Namespaces | None = None) -> None:
        """Recommend for every VPA whose history is known, and write what changed.

        For VPAs that are about to be another replica's (`leaving`), also what could wait.
        """
        now = self._clock.now()
        deadline = self._clock.monotonic() + self._settings.step_timeout.total_seconds()
        loaded = [vpa for vpa in self._model.vpas.values() if vpa.loaded and vpa.group is None and among(vpa, leaving)]
        review, written = Review(), 0
        for part in self._parts(loaded):
            found = self.recommend([one for vpa in part for one in members(self._model, vpa) if one.loaded], now)
            patient = leaving is None
            writes = [write for vpa in part if (write := self._decide(vpa, found, now, review, patient)) is not None]
            written += len(writes)
            await self._write_all(writes, deadline)
        if leaving is not None:
            return
        tracing.annotate(recommended=len(loaded), writes=written)
        if self._settings.fetching_history_condition:
            await self._write_all(self._fetching(now), deadline)
        review.show(self._telemetry)

    def _parts(self, loaded: list[VpaState]) -> Iterator[list[VpaState]]:
        """Yield VPAs in parts; with ceilings no namespace is in two of them, because quotas are shared."""
        if self._settings.ceilings:
            loaded.sort(key=lambda vpa: vpa.key.namespace)
        start = 0
        while start < len(loaded):
            end = min(start + VPAS_PER_TURN, len(loaded))
            if self._settings.ceilings:
                namespace = loaded[end - 1].key.namespace
                while end < len(loaded) and loaded[end].key.namespace == namespace:
                    end += 1
            yield loaded[start:end]
            start = end

    def recommend(self, part: Sequence[VpaState], now: datetime) -> dict[ObjectKey, tuple[Recommended, ...]]:
        """Return what the model recommends for some VPAs, and remember it with them."""
        floors, excluded = {}, {}
        for vpa in part:
            for name, floor in memory_floors(vpa, self._settings, now).items():
                floors[vpa.key, name] = floor
            if alone := left_alone(vpa, self._settings):
                excluded[vpa.key] = alone
        found = recommend(
            self._model,
            part,
            self._options,
            memory_floors=floors,
            excluded=excluded,
            remember=True,
            learned=self.overlay,
        )
        return self._room.cap(part, found, self._pods, self._vpas.replicas) if self._settings.ceilings else found

    def overlay(self, rows: Sequence[Row], amounts: Ints) -> None:
        """Replace plain amounts by what was learned, and those by what an HPA needs."""
        self._learned.apply(rows, amounts)
        self._coordinated.apply(rows, amounts)

    def _decide(
        self,
        vpa: VpaState,
        everything: Mapping[ObjectKey, tuple[Recommended, ...]],
        now: datetime,
        review: Review,
        patient: bool,
    ) -> Write | None:
        """Decide what the status of a VPA becomes, note it, and return the write that is needed, if one is."""
        current, old = self._vpas.get(vpa.key), vpa.recommendation
        if current is None:
            return None
        found, groups = everything.get(vpa.key, ()), None
        if vpa.is_scoped:
            own = members(self._model, vpa)
            groups = {one.group or "": everything[one.key] for one in own if one.key in everything}
            for one in own:
                before, one.recommendation = one.recommendation, everything.get(one.key, ())
                review.moved(one, before, one.recommendation)
                review.hold(one)
        limits, coordination = self._learned.limits_text(vpa), self._coordinated.text(vpa)
        basis = Basis(
            current,
            found,
            vpa.pod_count,
            vpa.problem,
            vpa.contested,
            groups or {},
            vpa.choice,
            vpa.heaps,
            limits,
            (coordination, vpa.unsized, vpa.coordination.obstacle, *vpa.coordination.words),
            vpa.capped,
        )
        write = None
        # Whether confidence is low depends on the time alone, so with that condition every loop has to look.
        settled = vpa.basis is not None and vpa.basis.same_as(basis) and not self._learned.is_leaving(vpa)
        if not settled or self._settings.low_confidence_condition:
            decision = judge(
                current,
                vpa,
                found,
                aggregates=self._model.aggregates,
                settings=self._settings,
                now=now,
                groups=groups,
                dropped=self._dropped,
                may_wait=patient and self._may_wait(vpa, now),
                limits=limits,
                coordination=coordination,
            )
            vpa.conditions, vpa.recommendation = decision.conditions, decision.recommendation
            wanted = Write(vpa, current, decision.status, decision.groups, decision.limits, decision.coordination)
            if decision.status is not None or wanted.annotations:
                write = wanted
            # Only what needs no write is settled: one that fails is tried again, one that waits becomes due.
            vpa.basis = basis if write is None and not decision.waits else None
            if decision.status is None:
                vpa.waits_since = (vpa.waits_since or now) if decision.waits else None
            if groups is None:
                review.moved(vpa, old, decision.recommendation)
        review.count(vpa, unsupported=vpa.problem is not None)
        if groups is None:
            review.hold(vpa)
        if vpa.recommendation and not old and vpa.created is not None:
            self._telemetry.latency.observe(max(0.0, (now - vpa.created).total_seconds()))
        silent = vpa.said_missing is None or now - vpa.said_missing >= MISSING_LOG_INTERVAL
        if not vpa.recommendation and silent:
            vpa.said_missing = now
            log.info("no recommendation", vpa=str(vpa.key), pods=vpa.pod_count, problem=vpa.problem or "")
        return write

    def _may_wait(self, vpa: VpaState, now: datetime) -> bool:
        """Return whether a status that changes no decision can wait, and look up what decides that."""
        if not self._cadence.interval:
            return False
        if vpa.waits_since is not None and self._cadence.is_due(str(vpa.key), vpa.waits_since, now):
            return False
        for labels in vpa.label_sets.values():
            if labels.requests is None:
                found = (self._pods(key) for key in labels.pods)
                labels.requests = requests_of(pod for pod in found if pod is not None)
        return True

    def _fetching(self, now: datetime) -> list[Write]:
        writes = []
        for key, vpa in self._model.vpas.items():
            current = None if vpa.loaded else self._vpas.get(key)
            status = fetching(current, now=now) if current is not None else None
            if current is not None and status is not None:
                writes.append(Write(vpa, current, status))
        return writes

    async def _write_all(self, writes: Sequence[Write], deadline: float) -> None:
        workers = self._settings.update_worker_count
        left = await each(writes, workers, self._write, deadline=deadline, clock=self._clock)
        if left:
            log.info("statuses left for the next loop", count=len(left))
        await asyncio.sleep(0)

    async def _write(self, write: Write) -> None:
        with tracing.span("recommender/vpa"):
            if tracing.is_on():
                why = "annotations" if write.status is None else describe_change(write.vpa.status, write.status)
                tracing.annotate(vpa=write.state.key, pods=write.state.pod_count, reason=why)
            if write.status is not None:
                await self._write_status(write.state, write.vpa, write.status)
            if write.annotations:
                await self._annotate(write.vpa, write.annotations)

    async def _annotate(self, vpa: VerticalPodAutoscaler, annotations: Mapping[str, str | None]) -> None:
        body = {"metadata": {"annotations": dict(annotations)}}
        try:
            await self._client.patch(VPAS, vpa.metadata.name, MergePatch(body), namespace=vpa.metadata.namespace)
        except NotFound:
            return

    def _note_dropped(self, status: Mapping[str, Any], written: VerticalPodAutoscaler) -> None:
        """Notice fields that the CRD in the cluster drops: they are written elsewhere, or not at all, from now on."""
        has = written.status
        kept = has.recommendation.pod_recommendation if has is not None and has.recommendation is not None else None
        lost = {
            "groups": bool(status.get("groups")) and (has is None or has.groups is None),
            "podRecommendation": bool(status["recommendation"].get("podRecommendation")) and kept is None,
        }
        for name in [name for name, is_lost in lost.items() if is_lost and name not in self._dropped]:
            self._dropped.add(name)
            log.warning("the CRD of VPAs does not know a field of the status", field=name)

    async def _write_status(self, state: VpaState, vpa: VerticalPodAutoscaler, status: Mapping[str, Any]) -> None:
        meta = vpa.metadata
        # The condition of another component may have been written since this object was read: then the next loop
        # starts from there, instead of this one writing over it.
        operations: list[Mapping[str, Any]] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            written = await self._client.patch(
                VPAS, meta.name, JsonPatch(operations), namespace=meta.namespace, subresource="status"
            )
            self._note_dropped(status, written)
            state.waits_since = None
        except NotFound:
            return
        except ApiError as error:
            if error.status not in (409, 422):
                raise
            log.debug("vpa changed meanwhile, writing in the next loop", vpa=f"{meta.namespace}/{meta.name}")


def among(vpa: VpaState, namespaces: Namespaces | None) -> bool:
    """Return whether a VPA is in some namespaces; None is all of them."""
    return namespaces is None or namespaces(vpa.key.namespace)
