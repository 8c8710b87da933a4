"""ReplicaSets and ReplicationControllers: keep as many pods as asked for.

Too few: create. Too many: delete first those that serve least: not on a node, then not running, then not ready, then
lower deletion cost, then from the fullest node, then the youngest.
"""

from collections import Counter
from datetime import datetime

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.adoption import OwnerController, selects
from kubetide.embedded.sim.world import (
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    is_active,
    is_ready,
    key_of,
    owner_reference,
    phase_of,
)

_COST = "controller.kubernetes.io/pod-deletion-cost"


def _could_take(owner: Raw, pod: Raw) -> bool:
    return is_active(pod) and selects(owner, pod)


class ReplicaController(OwnerController):
    """One controller for both kinds; they differ in name only."""

    name = "replicaset-controller"
    resource, kind = REPLICA_SETS, "ReplicaSet"
    fits = staticmethod(_could_take)

    async def reconcile(self, key: StoreKey) -> None:
        owner = self.world.get(self.resource, key)
        if owner is None:
            return
        self._claims.settle(owner)
        uid = owner["metadata"]["uid"]
        pods = self.world.children(uid, PODS)
        active = [pod for pod in pods if is_active(pod)]
        if not owner["metadata"].get("deletionTimestamp"):
            surplus = len(active) - wanted_replicas(owner)
            if surplus < 0:
                for _ in range(-surplus):
                    pod = await self.world.create(PODS, pod_from(owner, owner["spec"]["template"]))
                    self._tell(owner, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
            elif surplus > 0:
                for pod in choose_victims(active, surplus):
                    await self.world.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
                    self._tell(owner, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
        self._write_status(key)

    def _tell(self, owner: Raw, reason: str, message: str) -> None:
        self.world.record(owner, reason, message, component=self.name)

    def _write_status(self, key: StoreKey) -> None:
        owner = self.world.get(self.resource, key)
        if owner is None:
            return
        active = [pod for pod in self.world.children(owner["metadata"]["uid"], PODS) if is_active(pod)]
        grace = int(owner["spec"].get("minReadySeconds") or 0)
        status: Raw = {"replicas": len(active), "fullyLabeledReplicas": len(active)}
        ready = [pod for pod in active if is_ready(pod)]
        available, wait = count_available(ready, grace, self.world.now())
        if ready:
            status["readyReplicas"] = len(ready)
        if available:
            status["availableReplicas"] = available
        status["observedGeneration"] = owner["metadata"].get("generation", 0)
        self.world.put(self.resource, owner, status=status)
        if wait is not None:
            self.enqueue_after(key, wait)


class ReplicationControllers(ReplicaController):
    """The older kind."""

    name = "replication-controller"
    resource, kind = REPLICATION_CONTROLLERS, "ReplicationController"


def wanted_replicas(owner: Raw) -> int:
    """Return the replica count of a spec; left out means one."""
    replicas = (owner.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def pod_from(owner: Raw, template: Raw, *, name: str = "", labels: dict[str, str] | None = None) -> Raw:
    """Return a pod to create for `owner` from a template; without a name it gets a generated one."""
    meta = template.get("metadata") or {}
    owned = owner["metadata"]
    metadata: Raw = {
        "namespace": owned["namespace"],
        "labels": {**(meta.get("labels") or {}), **(labels or {})},
        "ownerReferences": [owner_reference(owner)],
    }
    if name:
        metadata["name"] = name
    else:
        metadata["generateName"] = f"{owned['name']}-"
    if meta.get("annotations"):
        metadata["annotations"] = meta["annotations"]
    if meta.get("finalizers"):
        metadata["finalizers"] = meta["finalizers"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}


def choose_victims(pods: list[Raw], count: int) -> list[Raw]:
    """Return the `count` pods that serve least."""
    nodes = Counter(pod["spec"].get("nodeName") or "" for pod in pods)

    def rank(pod: Raw) -> tuple[bool, bool, bool, int, int, str, str]:
        node = pod["spec"].get("nodeName") or ""
        annotations = pod["metadata"].get("annotations") or {}
        try:
            cost = int(annotations.get(_COST, 0))
        except ValueError:
            cost = 0
        created = pod["metadata"].get("creationTimestamp") or ""
        youngest_first = "".join(chr(0x10FFFF - ord(letter)) for letter in created)
        return (
            bool(node), phase_of(pod) == "Running", is_ready(pod), cost, -nodes[node], youngest_first,
            pod["metadata"]["name"],
        )  # fmt: skip

    return sorted(pods, key=rank)[:count]


def count_available(ready: list[Raw], min_ready_seconds: int, now: datetime) -> tuple[int, float | None]:
    """Return how many have been ready long enough, and after how many seconds the next one will have been."""
    if not min_ready_seconds:
        return len(ready), None
    available = 0
    wait: float | None = None
    for pod in ready:
        age = (now - ready_since(pod)).total_seconds()
        if age >= min_ready_seconds:
            available += 1
        else:
            wait = min(min_ready_seconds - age if wait is None else wait, min_ready_seconds - age)
    return available, wait


def ready_since(pod: Raw) -> datetime:
    """Return when the pod's Ready condition last changed."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("lastTransitionTime"):
            return datetime.fromisoformat(condition["lastTransitionTime"])
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
