"""Nodes that stop answering: their pods are not ready, and after five minutes they are given up and replaced.

A node whose Ready condition is not true gets the taints `node.kubernetes.io/unreachable`. Its pods lose readiness at
once; those that do not tolerate the taint longer are deleted after their toleration, 300 s unless they say otherwise.
The kubelet of the node finishes the deletion when it is back.
"""

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.world import NODES, PODS, condition_of, is_active, is_ready, key_of, with_condition

UNREACHABLE = "node.kubernetes.io/unreachable"
DEFAULT_TOLERATION_SECONDS = 300.0


class NodeLifecycle(SimController):
    """Watches which nodes answer."""

    name = "node-lifecycle-controller"

    def watch(self) -> None:
        self._down_since: dict[str, float] = {}
        self.world.on(NODES, self._changed)

    def _changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is not None and (old is None or condition_of(old, "Ready") != condition_of(new, "Ready")):
            self.enqueue(key_of(new))

    async def reconcile(self, key: StoreKey) -> None:
        node = self.world.get(NODES, key)
        if node is None:
            return
        if condition_of(node, "Ready") in ("True", ""):
            self._down_since.pop(key.name, None)
            self._set_taints(node, tainted=False)
            return
        now = self.world.clock.monotonic()
        since = self._down_since.setdefault(key.name, now)
        self._set_taints(node, tainted=True)
        wait: float | None = None
        for pod in self.world.all(PODS):
            if pod["spec"].get("nodeName") != key.name or not is_active(pod):
                continue
            pod = self._mark_unready(pod)
            tolerated = toleration_seconds(pod)
            if tolerated is None:
                continue
            left = since + tolerated - now
            if left <= 0:
                message = f"Marking for deletion Pod {'/'.join(key_of(pod))}"
                self.world.record(pod, "TaintManagerEviction", message, component=self.name)
                await self.world.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
            else:
                wait = left if wait is None else min(wait, left)
        if wait is not None:
            self.enqueue_after(key, wait)

    def _set_taints(self, node: Raw, *, tainted: bool) -> None:
        spec = node.get("spec") or {}
        others = [taint for taint in spec.get("taints") or () if taint.get("key") != UNREACHABLE]
        own = [{"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")] if tainted else []
        changed = {name: value for name, value in spec.items() if name != "taints"}
        if others or own:
            changed["taints"] = others + own
        self.world.put_spec(NODES, node, changed)

    def _mark_unready(self, pod: Raw) -> Raw:
        if not is_ready(pod):
            return pod
        condition = {
            "type": "Ready",
            "status": "False",
            "reason": "NodeNotReady",
            "lastProbeTime": None,
            "lastTransitionTime": self.world.stamp(),
        }
        status = {**pod["status"], "conditions": with_condition(pod["status"].get("conditions"), condition)}
        return self.world.put(PODS, pod, status=status)


def toleration_seconds(pod: Raw) -> float | None:
    """Return how long a pod stays on a node that does not answer; None: without limit."""
    for toleration in pod["spec"].get("tolerations") or ():
        if toleration.get("key") in (UNREACHABLE, None, "") and toleration.get("effect") in ("NoExecute", None, ""):
            seconds = toleration.get("tolerationSeconds")
            return None if seconds is None else float(seconds)
    return DEFAULT_TOLERATION_SECONDS
