"""PodDisruptionBudgets: how many of their pods may be disturbed right now.

    allowed = healthy − needed, at least 0
    needed  = minAvailable (a percentage of the expected pods, rounded up), or expected − maxUnavailable

Expected is the sum of what the pods' controllers want. A pod that was just evicted is not counted as healthy for up
to two minutes, so that a budget cannot be spent twice before the pod is gone.
"""

from datetime import datetime, timedelta

from kubetide.api.values.codec import convert
from kubetide.api.values.selectors import LabelSelector, selector_from
from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.controllers.deployments import scaled
from kubetide.embedded.sim.controllers.replicas import wanted_replicas
from kubetide.embedded.sim.world import (
    DEPLOYMENTS,
    PDBS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    controller_of,
    is_ready,
    phase_of,
    with_condition,
)
from kubetide.errors import InvalidInput

_FORGET_AFTER = timedelta(minutes=2)
_CONTROLLERS = {
    "ReplicaSet": REPLICA_SETS,
    "StatefulSet": STATEFUL_SETS,
    "ReplicationController": REPLICATION_CONTROLLERS,
    "Deployment": DEPLOYMENTS,
}


class Budgets(SimController):
    """Keeps budgets counted."""

    name = "disruption-controller"

    def watch(self) -> None:
        self.watch_with_pods(PDBS)

    async def reconcile(self, key: StoreKey) -> None:
        budget = self.world.get(PDBS, key)
        if budget is None:
            return
        spec = budget.get("spec") or {}
        raw = spec.get("selector")
        try:
            selector = selector_from(convert(raw, LabelSelector)) if raw is not None else None
        except InvalidInput:
            selector = None
        pods = [
            pod
            for pod in self.world.all(PODS, key.namespace)
            if selector is not None
            and selector.matches(pod["metadata"].get("labels") or {})
            and phase_of(pod) not in ("Succeeded", "Failed")
        ]
        before = budget.get("status") or {}
        disrupted, wait = self._still_disrupted(before.get("disruptedPods") or {}, pods)
        healthy = sum(
            is_ready(pod) and not pod["metadata"].get("deletionTimestamp") and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )
        expected, needed = self._needed(spec, pods)
        allowed = max(0, healthy - needed) if expected else 0
        now = self.world.stamp()
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
            "observedGeneration": budget["metadata"].get("generation", 0),
            "lastTransitionTime": now,
        }
        status: Raw = {
            "observedGeneration": budget["metadata"].get("generation", 0),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": needed,
            "expectedPods": expected,
            "conditions": with_condition(before.get("conditions"), condition),
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        self.world.put(PDBS, budget, status=status)
        if wait is not None:
            self.enqueue_after(key, wait)

    def _still_disrupted(self, disrupted: dict[str, str], pods: list[Raw]) -> tuple[dict[str, str], float | None]:
        present = {pod["metadata"]["name"]: pod for pod in pods}
        kept: dict[str, str] = {}
        wait: float | None = None
        for name, since in disrupted.items():
            pod = present.get(name)
            left = (_FORGET_AFTER - (self.world.now() - datetime.fromisoformat(since))).total_seconds()
            if pod is not None and not pod["metadata"].get("deletionTimestamp") and left > 0:
                kept[name] = since
                wait = left if wait is None else min(wait, left)
        return kept, wait

    def _needed(self, spec: Raw, pods: list[Raw]) -> tuple[int, int]:
        expected = self._expected(pods)
        if spec.get("maxUnavailable") is not None:
            return expected, max(0, expected - scaled(spec["maxUnavailable"], expected, round_up=True))
        minimum = spec.get("minAvailable")
        if isinstance(minimum, int):
            return len(pods), minimum
        return expected, scaled(1 if minimum is None else minimum, expected, round_up=True)

    def _expected(self, pods: list[Raw]) -> int:
        total = 0
        seen: set[str] = set()
        for pod in pods:
            owner = controller_of(pod)
            if owner is None:
                total += 1
            elif owner["uid"] not in seen:
                seen.add(owner["uid"])
                resource = _CONTROLLERS.get(owner.get("kind", ""))
                namespace = pod["metadata"]["namespace"]
                found = self.world.get(resource, StoreKey(namespace, owner["name"])) if resource else None
                total += wanted_replicas(found) if found is not None else 1
        return total
