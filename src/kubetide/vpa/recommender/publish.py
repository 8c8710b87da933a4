"""Last step of a loop: what the model knows into the API, as the status and the checkpoints of every VPA.

Both go through the VPAs in parts, so that leases are renewed and watches read in between, and both write only what
differs, and leave for later what nobody decides on (`core.significance`). A VPA whose object, amounts and pods are the
same since its status was decided is not decided again.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import VPAS
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.patch import JsonPatch, MergePatch
from kubetide.clock import Clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError, NotFound
from kubetide.log import get_logger
from kubetide.vpa.core.policy import Recommended
from kubetide.vpa.core.scope import GROUPS_ANNOTATION
from kubetide.vpa.recommender.checkpoint_store import CheckpointStore, each
from kubetide.vpa.recommender.core.checkpoint import Checkpoint, checkpoints
from kubetide.vpa.recommender.core.decisions import fetching, judge, left_alone, may_save, memory_floors
from kubetide.vpa.recommender.core.entities import Basis, Mark, VpaState
from kubetide.vpa.recommender.core.groups import members
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.oom import Floor
from kubetide.vpa.recommender.core.recommend import Options, recommend
from kubetide.vpa.recommender.core.significance import Cadence, moved, requests_of
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


Pods = Callable[[ObjectKey], Pod | None]
Contents = Mapping[str, Sequence[Checkpoint]]


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
    ) -> None:
        self._client = client
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

    async def update(self) -> None:
        """Recommend for every VPA whose history is known, and write what changed."""
        now = self._clock.now()
        deadline = self._clock.monotonic() + self._settings.step_timeout.total_seconds()
        loaded = [vpa for vpa in self._model.vpas.values() if vpa.loaded and vpa.group is None]
        review = Review()
        for start in range(0, len(loaded), VPAS_PER_TURN):
            part = loaded[start : start + VPAS_PER_TURN]
            found = self.recommend([one for vpa in part for one in members(self._model, vpa) if one.loaded], now)
            writes = [write for vpa in part if (write := self._decide(vpa, found, now, review)) is not None]
            await self._write_all(writes, deadline)
        if self._settings.fetching_history_condition:
            await self._write_all(self._fetching(now), deadline)
        review.show(self._telemetry)

    def recommend(self, part: Sequence[VpaState], now: datetime) -> dict[ObjectKey, tuple[Recommended, ...]]:
        """Return what the model recommends for some VPAs, and remember it with them."""
        floors, excluded = {}, {}
        for vpa in part:
            for name, floor in memory_floors(vpa, self._settings, now).items():
                floors[vpa.key, name] = floor
            if alone := left_alone(vpa, self._settings):
                excluded[vpa.key] = alone
        return recommend(self._model, part, self._options, memory_floors=floors, excluded=excluded, remember=True)

    def _decide(
        self, vpa: VpaState, everything: Mapping[ObjectKey, tuple[Recommended, ...]], now: datetime, review: Review
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
        basis = Basis(current, found, vpa.pod_count, vpa.problem, vpa.contested, groups or {})
        write = None
        # Whether confidence is low depends on the time alone, so with that condition every loop has to look.
        settled = vpa.basis is not None and vpa.basis.same_as(basis)
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
                may_wait=self._may_wait(vpa, now),
            )
            vpa.conditions, vpa.recommendation = decision.conditions, decision.recommendation
            if decision.status is not None or decision.groups is not None:
                write = Write(vpa, current, decision.status, decision.groups)
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
        if write.status is not None:
            await self._write_status(write.state, write.vpa, write.status)
        if write.groups is not None:
            await self._write_groups(write.vpa, write.groups)

    async def _write_groups(self, vpa: VerticalPodAutoscaler, text: str) -> None:
        body = {"metadata": {"annotations": {GROUPS_ANNOTATION: text or None}}}
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


class CheckpointPublisher:
    """Keeps the checkpoints of every VPA equal to the model, oldest first."""

    def __init__(
        self, store: CheckpointStore, vpas: VpaLoader, model: Model, *, clock: Clock, settings: RecommenderSettings
    ) -> None:
        self._store = store
        self._vpas = vpas
        self._model = model
        self._clock = clock
        self._settings = settings
        self._cadence = Cadence(settings.waits[1])
        self._collected = clock.now()

    def note_restored(self, statuses: StatusPublisher) -> None:
        """Note what the checkpoints of VPAs that were just read lead to, before anything new is added to them."""
        loaded = (vpa for vpa in self._model.vpas.values() if vpa.loaded and vpa.saved is None)
        fresh = [vpa for vpa in loaded if vpa.checkpoint_written is not None]
        if self._cadence.interval and fresh:
            statuses.recommend(fresh, self._clock.now())
            for vpa in fresh:
                vpa.saved = _amounts(vpa)

    async def write(self) -> None:
        """Write what is due, as far as the time for it allows."""
        now = self._clock.now()
        deadline = self._clock.monotonic() + self._settings.checkpoints_timeout.total_seconds()
        due = self._due([vpa for vpa in self._model.vpas.values() if may_save(vpa, self._settings)], now)
        due.sort(key=lambda vpa: vpa.checkpoint_written.timestamp() if vpa.checkpoint_written is not None else 0.0)
        for start in range(0, len(due), VPAS_PER_TURN):
            part = due[start : start + VPAS_PER_TURN]
            contents = checkpoints(self._model, part, now=now, stored=self._holds)

            async def write(vpa: VpaState, contents: Contents = contents) -> None:
                await self._store.write(vpa, contents[str(vpa.key)], self._floors(vpa))
                vpa.checkpoint_written, vpa.saved = self._clock.now(), _amounts(vpa)

            workers = self._settings.update_worker_count
            left = await each(part, workers, write, deadline=deadline, clock=self._clock)
            if left:
                log.info("checkpoints left for the next loop", count=len(left) + len(due) - start - len(part))
                return
            await asyncio.sleep(0)

    def _due(self, vpas: Sequence[VpaState], now: datetime) -> list[VpaState]:
        """Return the VPAs whose turn it is, and those that a restart would recommend something else for."""
        if not self._cadence.interval:
            return list(vpas)
        differs = moved([vpa.saved or b"" for vpa in vpas], [_amounts(vpa) for vpa in vpas])
        return [vpa for vpa, is_off in zip(vpas, differs, strict=True) if is_off or self._is_due(vpa, now)]

    def _is_due(self, vpa: VpaState, now: datetime) -> bool:
        written, stored = vpa.checkpoint_written, vpa.checkpoints
        if written is None or vpa.saved is None or self._cadence.is_due(str(vpa.key), written, now):
            return True
        if any(name not in stored for name in vpa.fed()):
            return True
        return any(name in stored and stored[name].floor != floor for name, floor in self._floors(vpa).items())

    def _holds(self, key: ObjectKey, container: str, mark: Mark) -> bool:
        vpa = self._model.vpas[key]
        return self._store.holds(vpa, container, mark, self._floors(vpa).get(container))

    def _floors(self, vpa: VpaState) -> Mapping[str, Floor]:
        return vpa.floors if self._settings.oom_floor else {}

    async def collect_garbage(self) -> None:
        """Delete the checkpoints of VPAs that are gone, once per interval."""
        now = self._clock.now()
        if now - self._collected <= self._settings.checkpoints_gc_interval:
            return
        self._collected = now
        deleted = await self._store.collect_garbage(
            self._settings.vpa_object_namespace or None,
            ignored=self._settings.ignored_vpa_object_namespaces,
            exists=self._vpas.exists,
        )
        if deleted:
            log.info("deleted checkpoints of VPAs that are gone", count=deleted)


def _amounts(vpa: VpaState) -> bytes:
    return vpa.memo.amounts if vpa.memo is not None else b""
