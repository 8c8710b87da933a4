"""Deployments: a ReplicaSet per pod template, and a rollout from the old ones to the new."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.adoption import OwnerController
from kubetide.embedded.sim.controllers.progress import ReplicaCounts, counts_in, judge
from kubetide.embedded.sim.controllers.replicas import wanted_replicas
from kubetide.embedded.sim.world import (
    DEPLOYMENTS,
    REPLICA_SETS,
    key_of,
    owner_reference,
    stable_hash,
    with_condition,
)
from kubetide.errors import InvalidInput

# How far a rolling update may go in one step: pure arithmetic on replica counts.


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One ReplicaSet of a Deployment: what it should have and what it has available."""

    name: str
    wanted: int
    available: int


def scaled(value: Any, total: int, *, round_up: bool) -> int:
    """Return an int-or-percent field as a number of pods."""
    if value is None:
        value = "25%"
    if isinstance(value, int):
        return value
    text = str(value)
    if not text.endswith("%") or not text[:-1].isdecimal():
        raise InvalidInput(f"{text!r} is neither a number nor a percentage")
    product = int(text[:-1]) * total
    return -(-product // 100) if round_up else product // 100


def limits(surge: Any, unavailable: Any, replicas: int) -> tuple[int, int]:
    """Return how many pods may be there above, and missing below, the wanted count."""
    up = scaled(surge, replicas, round_up=True)
    down = scaled(unavailable, replicas, round_up=False)
    if up == 0 and down == 0:
        down = 1
    return up, min(down, replicas)


def step(new: Revision, old: list[Revision], *, replicas: int, surge: int, unavailable: int) -> dict[str, int]:
    """Return the next wanted count of each revision, oldest of `old` first; only changes are in it."""
    changes: dict[str, int] = {}
    total = new.wanted + sum(revision.wanted for revision in old)
    wanted_new = new.wanted
    if new.wanted > replicas:
        wanted_new = replicas
    elif new.wanted < replicas:
        wanted_new += max(0, min(replicas + surge - total, replicas - new.wanted))
    if wanted_new != new.wanted:
        changes[new.name] = wanted_new
        total += wanted_new - new.wanted
    floor = replicas - unavailable
    removable = total - floor - max(0, wanted_new - new.available)
    left = {revision.name: revision.wanted for revision in old}
    for revision in old:  # pods that serve nobody go first, they cost no availability
        broken = min(revision.wanted - min(revision.wanted, revision.available), max(0, removable))
        left[revision.name] -= broken
        removable -= broken
    spare = new.available + sum(min(left[r.name], r.available) for r in old) - floor
    removable = min(removable, spare)
    for revision in old:
        gone = min(left[revision.name], max(0, removable))
        left[revision.name] -= gone
        removable -= gone
    for revision in old:
        if left[revision.name] != revision.wanted:
            changes[revision.name] = left[revision.name]
    return changes


HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Deployments(OwnerController):
    """Rolls templates out."""

    name = "deployment-controller"
    resource, dependents, kind = DEPLOYMENTS, REPLICA_SETS, "Deployment"

    def watch(self) -> None:
        self._timed: set[StoreKey] = set()
        super().watch()

    async def reconcile(self, key: StoreKey) -> None:
        deployment = self.world.get(DEPLOYMENTS, key)
        if deployment is None:
            return
        self._claims.settle(deployment)
        if not deployment["metadata"].get("deletionTimestamp"):
            sets = self.world.children(deployment["metadata"]["uid"], REPLICA_SETS)
            paused = bool(deployment["spec"].get("paused"))
            new = find_new(deployment, sets)
            if new is None and not paused:
                new = await self._create_set(deployment, sets)
                sets = [*sets, new]
            if new is not None:
                self._mark_revision(deployment, new, sets)
                self._scale(deployment, new, sets, paused=paused)
                await self._forget_old(deployment, new, sets)
        self._write_status(key)

    async def _create_set(self, deployment: Raw, sets: list[Raw]) -> Raw:
        template = deployment["spec"]["template"]
        digest = template_hash(template)
        metadata = deployment["metadata"]
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: digest}
        selector = deployment["spec"].get("selector") or {}
        match = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}}
        body: Raw = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "annotations": {REVISION: str(_next_revision(sets))},
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": {
                "replicas": 0,
                "minReadySeconds": deployment["spec"].get("minReadySeconds") or 0,
                "selector": match,
                "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
            },
        }
        return await self.world.create(REPLICA_SETS, body)

    def _mark_revision(self, deployment: Raw, new: Raw, sets: list[Raw]) -> None:
        """A template that comes back is the newest revision again; the deployment carries its number."""
        revision = int((new["metadata"].get("annotations") or {}).get(REVISION, 0))
        others = [rs for rs in sets if rs["metadata"]["name"] != new["metadata"]["name"]]
        if revision < _next_revision(others):
            revision = _next_revision(others)
            current = self.world.get(REPLICA_SETS, key_of(new))
            if current is not None:
                annotations = {**(current["metadata"].get("annotations") or {}), REVISION: str(revision)}
                self.world.put(REPLICA_SETS, current, metadata={**current["metadata"], "annotations": annotations})
        current = self.world.get(DEPLOYMENTS, key_of(deployment))
        if current is not None:
            annotations = {**(current["metadata"].get("annotations") or {}), REVISION: str(revision)}
            self.world.put(DEPLOYMENTS, current, metadata={**current["metadata"], "annotations": annotations})

    def _scale(self, deployment: Raw, new: Raw, sets: list[Raw], *, paused: bool) -> None:
        replicas = wanted_replicas(deployment)
        old = [rs for rs in sets if rs["metadata"]["name"] != new["metadata"]["name"] and wanted_replicas(rs) > 0]
        if not old:
            self._set_replicas(deployment, new, replicas)
            return
        if paused:
            return
        strategy = deployment["spec"].get("strategy") or {}
        if strategy.get("type") == "Recreate":
            for replica_set in old:
                self._set_replicas(deployment, replica_set, 0)
            if not any(
                (rs.get("status") or {}).get("replicas")
                for rs in sets
                if rs["metadata"]["name"] != new["metadata"]["name"]
            ):
                self._set_replicas(deployment, new, replicas)
            return
        rolling = strategy.get("rollingUpdate") or {}
        surge, unavailable = limits(rolling.get("maxSurge"), rolling.get("maxUnavailable"), replicas)
        by_name = {rs["metadata"]["name"]: rs for rs in sets}
        old.sort(key=lambda rs: (rs["metadata"]["creationTimestamp"], rs["metadata"]["name"]))
        changes = step(
            _revision(new), [_revision(rs) for rs in old], replicas=replicas, surge=surge, unavailable=unavailable
        )
        for name, count in changes.items():
            self._set_replicas(deployment, by_name[name], count)

    def _set_replicas(self, deployment: Raw, replica_set: Raw, count: int) -> None:
        current = self.world.get(REPLICA_SETS, key_of(replica_set))
        if current is None or wanted_replicas(current) == count:
            return
        before = wanted_replicas(current)
        self.world.put_spec(REPLICA_SETS, current, {**current["spec"], "replicas": count})
        verb = "up" if count > before else "down"
        name = current["metadata"]["name"]
        self.world.record(
            deployment, "ScalingReplicaSet", f"Scaled {verb} replica set {name} from {before} to {count}",
            component=self.name,
        )  # fmt: skip

    async def _forget_old(self, deployment: Raw, new: Raw, sets: list[Raw]) -> None:
        limit = deployment["spec"].get("revisionHistoryLimit")
        idle = [
            rs
            for rs in sets
            if rs["metadata"]["name"] != new["metadata"]["name"]
            and not wanted_replicas(rs)
            and not (rs.get("status") or {}).get("replicas")
        ]
        idle.sort(key=lambda rs: int((rs["metadata"].get("annotations") or {}).get(REVISION, 0)))
        for replica_set in idle[: max(0, len(idle) - (10 if limit is None else int(limit)))]:
            await self.world.delete(REPLICA_SETS, key_of(replica_set))

    def _write_status(self, key: StoreKey) -> None:
        deployment = self.world.get(DEPLOYMENTS, key)
        if deployment is None:
            return
        sets = self.world.children(deployment["metadata"]["uid"], REPLICA_SETS)
        new = find_new(deployment, sets)
        wanted = wanted_replicas(deployment)
        total, ready, available = (
            sum(int((rs.get("status") or {}).get(field) or 0) for rs in sets)
            for field in ("replicas", "readyReplicas", "availableReplicas")
        )
        updated = int(((new or {}).get("status") or {}).get("replicas") or 0)
        rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
        _, missing = limits(rolling.get("maxSurge"), rolling.get("maxUnavailable"), wanted)
        now = self.world.stamp()
        old_status = deployment.get("status") or {}
        enough = available >= wanted - missing
        set_name = new["metadata"]["name"] if new is not None else ""
        conditions = with_condition(
            old_status.get("conditions"),
            {
                "type": "Available",
                "status": "True" if enough else "False",
                "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
                "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
                "lastUpdateTime": now,
                "lastTransitionTime": now,
            },
        )
        seconds = deployment["spec"].get("progressDeadlineSeconds")
        progressing, wait = judge(
            next((c for c in old_status.get("conditions") or () if c.get("type") == "Progressing"), None),
            was=counts_in(old_status),
            now_has=ReplicaCounts(total=total, updated=updated, ready=ready, available=available),
            wanted=wanted,
            replica_set=set_name,
            paused=bool(deployment["spec"].get("paused")),
            deadline=timedelta(seconds=int(seconds)) if seconds is not None else None,
            now=self.world.now(),
        )
        if wait is not None:
            self._judge_later(key, wait)
        conditions = with_condition(conditions, progressing)
        conditions = [_keep_update_time(c, old_status.get("conditions") or []) for c in conditions]
        status: Raw = {"observedGeneration": deployment["metadata"].get("generation", 0), "conditions": conditions}
        counts = {
            "replicas": total, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": available,
            "unavailableReplicas": max(0, max(total, wanted) - available),
        }  # fmt: skip
        status |= {name: count for name, count in counts.items() if count}
        self.world.put(DEPLOYMENTS, deployment, status=status)

    def _judge_later(self, key: StoreKey, wait: timedelta) -> None:
        """Look again when the deadline is over; one timer per deployment is enough, it sets the next itself."""
        if key in self._timed:
            return
        self._timed.add(key)

        def look() -> None:
            self._timed.discard(key)
            self.enqueue(key)

        # A moment more: times in conditions are whole seconds.
        asyncio.get_running_loop().call_later(wait.total_seconds() + 1, look)


def _keep_update_time(condition: Raw, old: list[Raw]) -> Raw:
    for before in old:
        same = all(before.get(field) == condition.get(field) for field in ("type", "status", "reason", "message"))
        if same:
            return before
    return condition


def _revision(replica_set: Raw) -> Revision:
    available = int((replica_set.get("status") or {}).get("availableReplicas") or 0)
    return Revision(name=replica_set["metadata"]["name"], wanted=wanted_replicas(replica_set), available=available)


def _next_revision(sets: list[Raw]) -> int:
    numbers = [int((rs["metadata"].get("annotations") or {}).get(REVISION, 0)) for rs in sets]
    return max(numbers, default=0) + 1


def find_new(deployment: Raw, sets: list[Raw]) -> Raw | None:
    """Return the ReplicaSet made from the deployment's present template."""
    digest = template_hash(deployment["spec"]["template"])
    for replica_set in sets:
        if (replica_set["metadata"].get("labels") or {}).get(HASH_LABEL) == digest:
            return replica_set
    for replica_set in sets:  # made by another controller with another hash
        if _plain(replica_set["spec"]["template"]) == _plain(deployment["spec"]["template"]):
            return replica_set
    return None


def _plain(template: Raw) -> Raw:
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH_LABEL}
    kept = {key: value for key, value in metadata.items() if key not in ("labels", "creationTimestamp")}
    return {"metadata": {**kept, "labels": labels}, "spec": template.get("spec")}


def template_hash(template: Raw) -> str:
    """Return ten letters that stand for a pod template."""
    value = stable_hash(_plain(template))
    letters = []
    for _ in range(10):
        value, rest = divmod(value, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return "".join(letters)
