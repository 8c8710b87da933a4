"""Last step of a loop, too: what the model knows into checkpoints, as far as a restart would need it.

Checkpoints are spread over their interval. One whose loss would change a recommendation is written at once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.shard_selector import ShardSelector
from kubetide.clock import Clock
from kubetide.log import get_logger
from kubetide.vpa.recommender.checkpoint_store import CheckpointStore, each
from kubetide.vpa.recommender.core.adaptive.learned import LearnedSizes
from kubetide.vpa.recommender.core.checkpoint import Checkpoint, checkpoints
from kubetide.vpa.recommender.core.decisions import may_save
from kubetide.vpa.recommender.core.entities import Mark, VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.oom import Floor
from kubetide.vpa.recommender.core.significance import Cadence, moved
from kubetide.vpa.recommender.load import VPAS_PER_TURN, VpaLoader
from kubetide.vpa.recommender.publish import Namespaces, StatusPublisher, among
from kubetide.vpa.recommender.settings import RecommenderSettings

log = get_logger("vpa.recommender")

Contents = Mapping[str, Sequence[Checkpoint]]


class CheckpointPublisher:
    """Keeps the checkpoints of every VPA equal to the model, oldest first."""

    def __init__(
        self,
        store: CheckpointStore,
        vpas: VpaLoader,
        model: Model,
        *,
        clock: Clock,
        settings: RecommenderSettings,
        learned: LearnedSizes,
    ) -> None:
        self._store = store
        self._learned = learned
        self._hour_ended = False
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

    def hour_ended(self) -> None:
        """Note that something was learned: what was decided is not to be lost."""
        self._hour_ended = True

    async def write(self, leaving: Namespaces | None = None) -> None:
        """Write what is due, as far as time allows, or all of VPAs that are about to be another replica's."""
        now = self._clock.now()
        deadline = self._clock.monotonic() + self._settings.checkpoints_timeout.total_seconds()
        saved = [vpa for vpa in self._model.vpas.values() if may_save(vpa, self._settings) and among(vpa, leaving)]
        due = self._due(saved, now) if leaving is None else saved
        due.sort(key=lambda vpa: vpa.checkpoint_written.timestamp() if vpa.checkpoint_written is not None else 0.0)
        for start in range(0, len(due), VPAS_PER_TURN):
            part = due[start : start + VPAS_PER_TURN]
            contents = checkpoints(self._model, part, now=now, stored=self._holds)

            async def write(vpa: VpaState, contents: Contents = contents) -> None:
                await self._store.write(vpa, contents[str(vpa.key)], self._floors(vpa), self._learned.state)
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
        ended, self._hour_ended = self._hour_ended, False
        differs = moved([vpa.saved or b"" for vpa in vpas], [_amounts(vpa) for vpa in vpas])
        if ended:
            differs = [each or vpa.key in self._learned.shares for each, vpa in zip(differs, vpas, strict=True)]
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

    async def collect_garbage(self, owned: Namespaces, shard: ShardSelector | None) -> None:
        """Delete the checkpoints of VPAs that are gone, once per interval, in the namespaces that are owned."""
        now = self._clock.now()
        if now - self._collected <= self._settings.checkpoints_gc_interval:
            return
        self._collected = now
        deleted = await self._store.collect_garbage(
            self._settings.vpa_object_namespace or None,
            ignored=self._settings.ignored_vpa_object_namespaces,
            exists=self._vpas.exists,
            owned=owned,
            shard=shard,
        )
        if deleted:
            log.info("deleted checkpoints of VPAs that are gone", count=deleted)


def _amounts(vpa: VpaState) -> bytes:
    return vpa.memo.amounts if vpa.memo is not None else b""
