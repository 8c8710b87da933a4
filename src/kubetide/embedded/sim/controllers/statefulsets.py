"""StatefulSets: pods with names, made in order, replaced from the highest ordinal down.

Each template is kept as a ControllerRevision, which pods carry in a label.
"""

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers import revisions
from kubetide.embedded.sim.controllers.adoption import OwnerController, selects
from kubetide.embedded.sim.controllers.replicas import count_available, pod_from, wanted_replicas
from kubetide.embedded.sim.controllers.revisions import REVISION_LABEL
from kubetide.embedded.sim.world import (
    PODS,
    PVCS,
    STATEFUL_SETS,
    is_active,
    is_ready,
    key_of,
    phase_of,
)


def _could_take(owner: Raw, pod: Raw) -> bool:
    """Whether a pod has the name of one of the set's own."""
    name, _, ordinal = str(pod["metadata"]["name"]).rpartition("-")
    return name == owner["metadata"]["name"] and ordinal.isdigit() and selects(owner, pod)


class StatefulSets(OwnerController):
    """Keeps ordinals 0 … n−1 alive."""

    name = "statefulset-controller"
    resource, kind = STATEFUL_SETS, "StatefulSet"
    fits = staticmethod(_could_take)

    async def reconcile(self, key: StoreKey) -> None:
        owner = self.world.get(STATEFUL_SETS, key)
        if owner is None:
            return
        self._claims.settle(owner)
        if not owner["metadata"].get("deletionTimestamp"):
            await revisions.record(self.world, owner)
            await self._advance(owner)
            await revisions.forget_old(self.world, owner, self.world.children(owner["metadata"]["uid"], PODS))
        self._write_status(key)

    async def _advance(self, owner: Raw) -> None:
        spec = owner["spec"]
        first = int((spec.get("ordinals") or {}).get("start") or 0)
        wanted = range(first, first + wanted_replicas(owner))
        revision = revisions.revision_name(owner)
        pods = {ordinal_of(pod): pod for pod in self.world.children(owner["metadata"]["uid"], PODS)}
        in_order = spec.get("podManagementPolicy") != "Parallel"
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is not None and phase_of(pod) in ("Failed", "Succeeded"):
                await self.world.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
                return
            if pod is None:
                await self._create(owner, ordinal, revision)
            if in_order and (pod is None or not is_ready(pod) or not is_active(pod)):
                return
        for ordinal in sorted(pods, reverse=True):
            if ordinal not in wanted:
                pod = pods[ordinal]
                if is_active(pod):
                    await self.world.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
                if in_order:
                    return
        await self._update(spec, pods, wanted, revision)

    async def _update(self, spec: Raw, pods: dict[int, Raw], wanted: range, revision: str) -> None:
        strategy = spec.get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
        for ordinal in reversed(wanted):
            pod = pods.get(ordinal)
            if ordinal < partition or pod is None:
                return
            if not is_active(pod):
                return
            if (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) != revision:
                await self.world.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
                return
            if not is_ready(pod):
                return

    async def _create(self, owner: Raw, ordinal: int, revision: str) -> None:
        name = f"{owner['metadata']['name']}-{ordinal}"
        labels = {
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
            REVISION_LABEL: revision,
        }
        namespace = owner["metadata"]["namespace"]
        for claim in owner["spec"].get("volumeClaimTemplates") or ():
            claim_name = f"{claim['metadata']['name']}-{name}"
            if self.world.get(PVCS, StoreKey(namespace, claim_name)) is None:
                body = {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {**claim["metadata"], "name": claim_name, "namespace": namespace},
                    "spec": claim.get("spec") or {},
                }
                await self.world.create(PVCS, body)
        pod = pod_from(owner, owner["spec"]["template"], name=name, labels=labels)
        pod["spec"] = {**pod["spec"], "hostname": name, "subdomain": owner["spec"].get("serviceName") or ""}
        await self.world.create(PODS, pod)
        message = f"create Pod {name} in StatefulSet {owner['metadata']['name']} successful"
        self.world.record(owner, "SuccessfulCreate", message, component=self.name)

    def _write_status(self, key: StoreKey) -> None:
        owner = self.world.get(STATEFUL_SETS, key)
        if owner is None:
            return
        pods = [pod for pod in self.world.children(owner["metadata"]["uid"], PODS) if is_active(pod)]
        revision = revisions.revision_name(owner)
        updated = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) == revision]
        ready = [pod for pod in pods if is_ready(pod)]
        available, wait = count_available(ready, int(owner["spec"].get("minReadySeconds") or 0), self.world.now())
        before = owner.get("status") or {}
        done = len(updated) == wanted_replicas(owner) == len(ready)
        current = revision if done else before.get("currentRevision") or revision
        status = {
            "observedGeneration": owner["metadata"].get("generation", 0),
            "replicas": len(pods),
            "readyReplicas": len(ready),
            "availableReplicas": available,
            "updatedReplicas": len(updated),
            "currentReplicas": len(updated) if current == revision else len(pods) - len(updated),
            "currentRevision": current,
            "updateRevision": revision,
            "collisionCount": 0,
        }
        self.world.put(STATEFUL_SETS, owner, status=status)
        if wait is not None:
            self.enqueue_after(key, wait)


def ordinal_of(pod: Raw) -> int:
    """Return the number at the end of a pod's name."""
    tail = str(pod["metadata"]["name"]).rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1
