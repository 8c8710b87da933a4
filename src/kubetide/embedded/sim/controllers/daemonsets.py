"""DaemonSets: one pod on every node that fits, bound where it is made."""

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers import revisions
from kubetide.embedded.sim.controllers.adoption import OwnerController
from kubetide.embedded.sim.controllers.deployments import scaled, template_hash
from kubetide.embedded.sim.controllers.replicas import pod_from
from kubetide.embedded.sim.controllers.revisions import REVISION_LABEL
from kubetide.embedded.sim.placement import SchedulerNode, why_not
from kubetide.embedded.sim.world import (
    DAEMON_SETS,
    NODES,
    PODS,
    condition_of,
    is_active,
    is_ready,
    key_of,
)

_TOLERATED = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
    for name, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
]


class DaemonSets(OwnerController):
    """Puts a pod on each node."""

    name = "daemonset-controller"
    resource, kind = DAEMON_SETS, "DaemonSet"

    def watch(self) -> None:
        super().watch()
        self.world.on(NODES, self._node_changed)

    def _node_changed(self, old: Raw | None, new: Raw | None) -> None:
        if old is not None and new is not None and _placement(old) == _placement(new):
            return
        for owner in self.world.all(DAEMON_SETS):
            self.enqueue(key_of(owner))

    async def reconcile(self, key: StoreKey) -> None:
        owner = self.world.get(DAEMON_SETS, key)
        if owner is None:
            return
        self._claims.settle(owner)
        wanted = self._wanted_nodes(owner)
        if not owner["metadata"].get("deletionTimestamp"):
            await revisions.record(self.world, owner)
            await self._advance(owner, wanted)
            await revisions.forget_old(self.world, owner, self.world.children(owner["metadata"]["uid"], PODS))
        self._write_status(key, wanted)

    def _wanted_nodes(self, owner: Raw) -> list[str]:
        template = owner["spec"]["template"]
        spec = {**(template.get("spec") or {})}
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *_TOLERATED]
        pod = {"metadata": {"namespace": owner["metadata"]["namespace"]}, "spec": spec}
        names = []
        for node in self.world.all(NODES):
            state = SchedulerNode(
                name=node["metadata"]["name"],
                labels=node["metadata"].get("labels") or {},
                taints=(node.get("spec") or {}).get("taints") or [],
                allocatable={},
            )
            if not why_not(pod, {}, state):
                names.append(state.name)
        return names

    async def _advance(self, owner: Raw, wanted: list[str]) -> None:
        template = owner["spec"]["template"]
        revision = template_hash(template)
        by_node: dict[str, list[Raw]] = {}
        for pod in self.world.children(owner["metadata"]["uid"], PODS):
            by_node.setdefault(pod["spec"].get("nodeName") or "", []).append(pod)
        for node, pods in by_node.items():
            active = [pod for pod in pods if is_active(pod)]
            surplus = active if node not in wanted else active[1:]
            for pod in surplus:
                await self.world.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
        for node in wanted:
            if not by_node.get(node):
                pod = pod_from(owner, template, labels={REVISION_LABEL: revision})
                tolerations = [*(pod["spec"].get("tolerations") or ()), *_TOLERATED]
                pod["spec"] = {**pod["spec"], "nodeName": node, "tolerations": tolerations}
                await self.world.create(PODS, pod)
        if (owner["spec"].get("updateStrategy") or {}).get("type") != "OnDelete":
            await self._update(owner, wanted, revision)

    async def _update(self, owner: Raw, wanted: list[str], revision: str) -> None:
        rolling = (owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        value = rolling.get("maxUnavailable")
        allowed = max(1, scaled(1 if value is None else value, len(wanted), round_up=True))
        pods = [pod for pod in self.world.children(owner["metadata"]["uid"], PODS) if is_active(pod)]
        missing = len(wanted) - sum(is_ready(pod) for pod in pods)
        for pod in pods:
            old = (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) != revision
            if old and (missing < allowed or not is_ready(pod)):
                missing += is_ready(pod)
                await self.world.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])

    def _write_status(self, key: StoreKey, wanted: list[str]) -> None:
        owner = self.world.get(DAEMON_SETS, key)
        if owner is None:
            return
        revision = template_hash(owner["spec"]["template"])
        pods = [pod for pod in self.world.children(owner["metadata"]["uid"], PODS) if is_active(pod)]
        here = [pod for pod in pods if pod["spec"].get("nodeName") in wanted]
        ready = sum(condition_of(pod, "Ready") == "True" for pod in here)
        status = {
            "currentNumberScheduled": len(here),
            "desiredNumberScheduled": len(wanted),
            "numberMisscheduled": len(pods) - len(here),
            "numberReady": ready,
            "numberAvailable": ready,
            "numberUnavailable": len(wanted) - ready,
            "updatedNumberScheduled": sum(
                (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) == revision for pod in here
            ),
            "observedGeneration": owner["metadata"].get("generation", 0),
        }
        self.world.put(DAEMON_SETS, owner, status=status)


def _placement(node: Raw) -> tuple[Raw | None, Raw | None]:
    return node.get("spec"), node["metadata"].get("labels")
