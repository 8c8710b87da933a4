"""Checkpoints in the API: read when a VPA is first seen, written once per interval, deleted when their VPA is gone.

Three rules keep history safe:

- a VPA whose checkpoints could not be read yet is not written, and not recommended for either;
- a checkpoint that cannot be read is kept and reported, and nothing is written over it;
- a checkpoint is not replaced by one that holds fewer samples, unless the model has forgotten old ones on purpose or
  the stored ones have outlived the length of history.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.scheme import VPA_CHECKPOINTS, VPAS
from kubetide.api.objects.vpa import VerticalPodAutoscalerCheckpoint
from kubetide.api.values.patch import JsonPatch
from kubetide.api.values.shard_selector import ShardSelector
from kubetide.clock import Clock
from kubetide.errors import InvalidInput, KubetideError
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ApiError, NotFound
from kubetide.log import get_logger
from kubetide.vpa.core.scope import checkpoint_name
from kubetide.vpa.recommender.core.adaptive.saved import State, read_state, state_text
from kubetide.vpa.recommender.core.checkpoint import (
    WINDOWS_ANNOTATION,
    Checkpoint,
    UnreadableCheckpoint,
    read_checkpoint,
    status_body,
    windows_text,
)
from kubetide.vpa.recommender.core.entities import Mark, Restored, StoredCheckpoint, VpaState
from kubetide.vpa.recommender.core.oom import Floor, floor_text, read_floor

log = get_logger("vpa.checkpoints")

FLOOR_ANNOTATION = "kubetide.io/oom-floor"
STATE_ANNOTATION = "kubetide.io/adaptive-state"
REFRESH = timedelta(hours=1)
"""How old `lastUpdateTime` of a checkpoint may become that has nothing new to say."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint as it was found."""

    content: Checkpoint
    updated: datetime | None
    floor: Floor | None
    learned: State | None = None
    learned_problem: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """All checkpoints of one VPA: those that can be used, and what is wrong with the others."""

    loaded: tuple[Loaded, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def oldest(self) -> datetime | None:
        """When the first of them was written; None when there is none, or nobody knows."""
        written = [one.updated for one in self.loaded]
        known = [at for at in written if at is not None]
        return min(known) if known and len(known) == len(written) else None


class CheckpointStore:
    """Reads, writes and deletes checkpoint objects."""

    def __init__(self, client: Client, *, clock: Clock, keep_for: timedelta) -> None:
        self._client = client
        self._clock = clock
        self._keep_for = keep_for
        self._owners: dict[ObjectKey, tuple[str, str]] = {}
        self._blocked: dict[ObjectKey, str] = {}

    async def read(self, namespace: str, wanted: Mapping[str, VpaState]) -> dict[str, Found]:
        """Return what is stored for VPAs of one namespace, by name, and note it; raises when the list fails."""
        listing = await self._client.list(VPA_CHECKPOINTS, namespace=namespace)
        loaded: dict[str, list[Loaded]] = {name: [] for name in wanted}
        problems: dict[str, dict[str, str]] = {name: {} for name in wanted}
        for rejected in listing.rejected:
            # Its spec cannot be read either, so every VPA whose checkpoint could have this name hears of it.
            self._blocked[rejected.key] = str(rejected.error)
            for name in wanted:
                if rejected.key.name.startswith(f"{name}-"):
                    problems[name][rejected.key.name] = str(rejected.error)
        for item in listing.items:
            name = item.spec.vpa_object_name
            key = ObjectKey(namespace, item.metadata.name)
            self._owners[key] = (name, item.spec.container_name)
            if name not in wanted:
                continue
            try:
                loaded[name].append(self._take(wanted[name], key, item))
            except UnreadableCheckpoint as error:
                self.block(key, str(error))
                problems[name][key.name] = str(error)
        return {name: Found(tuple(loaded[name]), problems[name]) for name in wanted}

    def _take(self, vpa: VpaState, key: ObjectKey, item: VerticalPodAutoscalerCheckpoint) -> Loaded:
        content = read_checkpoint(item)
        status = item.status
        assert status is not None
        annotations = item.metadata.annotations or {}
        now, written = self._clock.now(), status.last_update_time
        if written is not None and written > now:
            # Whoever wrote it did not know the time, so nobody knows which OOM kills it knows of.
            written = None
        restored, floor = Restored(written, content.with_windows), read_floor(annotations.get(FLOOR_ANNOTATION, ""))
        vpa.checkpoints[content.container] = StoredCheckpoint(
            content.count, now, written, bool(annotations), floor=floor, restored=restored
        )
        self._blocked.pop(key, None)
        learned, problem, text = None, "", annotations.get(STATE_ANNOTATION)
        try:
            learned = read_state(text) if text else None
        except InvalidInput as error:
            problem = f"Checkpoint {key.name}: {STATE_ANNOTATION}: {error}; learning begins anew"
        return Loaded(content, written, floor, learned, problem)

    def block(self, key: ObjectKey, problem: str) -> None:
        """Never write over this object: what it holds could not be used."""
        self._blocked[key] = problem

    def holds(self, vpa: VpaState, container: str, mark: Mark, floor: Floor | None) -> bool:
        """Return whether this very content was stored within the last hour."""
        stored = vpa.checkpoints.get(container)
        if stored is None or stored.updated is None or self._clock.now() - stored.updated >= REFRESH:
            return False
        return stored.mark == mark and stored.floor == floor

    async def write(
        self,
        vpa: VpaState,
        contents: Sequence[Checkpoint],
        floors: Mapping[str, Floor],
        learned: Callable[[ObjectKey, str], State | None] = lambda vpa, container: None,
    ) -> None:
        """Store the checkpoints of one VPA, with what was learned of its containers."""
        for one in contents:
            if self._may_write(vpa, one):
                await self._write(vpa, one, floors.get(one.container), learned(vpa.key, one.container))

    def _may_write(self, vpa: VpaState, one: Checkpoint) -> bool:
        key = ObjectKey(vpa.key.namespace, checkpoint_name(vpa.key.name, one.container))
        owner = self._owners.get(key)
        if key in self._blocked:
            return False
        if owner is not None and owner != (vpa.key.name, one.container):
            log.debug("checkpoint name belongs to another container", checkpoint=str(key), owner="/".join(owner))
            return False
        stored = vpa.checkpoints.get(one.container)
        if stored is None or one.count >= stored.count or self._clock.now() - stored.since >= self._keep_for:
            return True
        if not stored.complained:
            stored.complained = True
            log.warning("checkpoint holds more than the model, keeping it", checkpoint=str(key), stored=stored.count)
        return False

    async def _write(self, vpa: VpaState, one: Checkpoint, floor: Floor | None, learned: State | None) -> None:
        now, namespace = self._clock.now().replace(microsecond=0), vpa.key.namespace
        name = checkpoint_name(vpa.key.name, one.container)
        notes = {WINDOWS_ANNOTATION: windows_text(one, now=now)}
        if floor is not None:
            notes[FLOOR_ANNOTATION] = floor_text(floor)
        if learned is not None:
            notes[STATE_ANNOTATION] = state_text(learned)
        status = status_body(one, now=now)
        stored = vpa.checkpoints.get(one.container)
        try:
            await self._patch(namespace, name, status, notes, annotated=stored is None or stored.annotated)
        except NotFound:
            body = {
                "apiVersion": VPA_CHECKPOINTS.api_version,
                "kind": VPA_CHECKPOINTS.kind,
                "metadata": {"name": name, "namespace": namespace, "annotations": notes},
                "spec": {"vpaObjectName": vpa.key.name, "containerName": one.container},
                "status": status,
            }
            await self._client.create(VPA_CHECKPOINTS, body, namespace=namespace)
        restored = stored.restored if stored is not None else None
        vpa.checkpoints[one.container] = StoredCheckpoint(
            one.count, now, now, annotated=True, mark=one.mark, floor=floor, restored=restored
        )
        self._owners[ObjectKey(namespace, name)] = (vpa.key.name, one.container)

    async def _patch(
        self, namespace: str, name: str, status: Mapping[str, Any], notes: Mapping[str, str], *, annotated: bool
    ) -> None:
        replace_status = {"op": "add", "path": "/status", "value": status}
        each = [
            {"op": "add", "path": f"/metadata/annotations/{key.replace('/', '~1')}", "value": value}
            for key, value in notes.items()
        ]
        whole = [{"op": "add", "path": "/metadata/annotations", "value": dict(notes)}]
        first, second = (each, whole) if annotated else (whole, each)
        try:
            patch = JsonPatch([replace_status, *first])
            await self._client.send_patch(VPA_CHECKPOINTS, name, patch, namespace=namespace)
        except NotFound:
            raise
        except ApiError as error:
            if error.status not in (400, 422):
                raise
            # Somebody added or removed the annotations since we looked.
            patch = JsonPatch([replace_status, *second])
            await self._client.send_patch(VPA_CHECKPOINTS, name, patch, namespace=namespace)

    async def collect_garbage(
        self,
        namespace: str | None,
        *,
        ignored: Iterable[str],
        exists: Callable[[ObjectKey], bool],
        owned: Callable[[str], bool] = lambda namespace: True,
        shard: ShardSelector | None = None,
    ) -> int:
        """Delete checkpoints whose VPA is gone, whoever served it.

        Ignored namespaces and those of other replicas are left alone; `shard` keeps the latter from being read.
        """
        skipped, deleted = set(ignored), 0
        listing = await self._client.list(
            VPA_CHECKPOINTS,
            namespace=namespace,
            shard_selector="" if shard is None else shard.query,
            foreign=None if shard is None else lambda uid, key: not shard.matches(uid, key.namespace, key.name),
        )
        for item in listing.items:
            meta = item.metadata
            vpa = ObjectKey(meta.namespace, item.spec.vpa_object_name)
            # What was given up while the list was read is looked at last: of it nothing is known any more.
            if meta.namespace in skipped or exists(vpa) or not owned(meta.namespace):
                continue
            # The local copy may lag behind: only the server's own word deletes history.
            try:
                await self._client.get(VPAS, vpa.name, namespace=vpa.namespace)
                continue
            except NotFound:
                pass
            try:
                await self._client.delete(VPA_CHECKPOINTS, meta.name, namespace=meta.namespace, uid=meta.uid or None)
                deleted += 1
            except NotFound:
                pass
            self._owners.pop(ObjectKey(meta.namespace, meta.name), None)
            self._blocked.pop(ObjectKey(meta.namespace, meta.name), None)
        return deleted


async def each(
    items: Iterable[T], workers: int, work: Callable[[T], Awaitable[None]], *, deadline: float, clock: Clock
) -> list[T]:
    """Run `work` on all items with that many workers; past the deadline each worker still does one. Return the rest.

    An error of one item is logged and does not keep the others from being written.
    """
    queue = list(items)
    queue.reverse()

    async def worker() -> None:
        done = 0
        while queue and (done == 0 or clock.monotonic() < deadline):
            item = queue.pop()
            done += 1
            try:
                await work(item)
            except KubetideError as error:
                log.warning("write failed", error=str(error), kind=type(error).__name__)

    async with asyncio.TaskGroup() as group:
        for _ in range(max(1, min(workers, len(queue)))):
            group.create_task(worker())
    queue.reverse()
    return queue
