"""The scheduler: takes pods without a node, in order of priority and age, and binds each to the best one.

A pod that fits nowhere stays Pending with the condition PodScheduled=False, reason Unschedulable and the scheduler's
message; it is tried again whenever room may have appeared. A pod of higher priority may preempt: the fewest, least
important pods that make room on one node are deleted.
"""

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.controllers.base import SimController
from kubetide.embedded.sim.placement import (
    Amounts,
    SchedulerNode,
    amounts_of,
    choose,
    is_resizing,
    pod_amounts,
    why_not,
)
from kubetide.embedded.sim.world import NODES, PODS, World, condition_of, is_active, key_of, phase_of, with_condition

NAME = "default-scheduler"
_ALL = StoreKey("", "")


class Scheduler(SimController):
    """Keeps the books of every node and binds what is waiting."""

    name = NAME

    def __init__(self, world: World) -> None:
        self.nodes: dict[str, SchedulerNode] = {}
        self._amounts: dict[str, tuple[str, Amounts]] = {}
        self._waiting: dict[StoreKey, None] = {}
        self._stuck: dict[StoreKey, None] = {}
        super().__init__(world)

    def watch(self) -> None:
        self.world.on(NODES, self._node_changed)
        self.world.on(PODS, self._pod_changed)

    def _node_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None:
            if old is not None:
                self.nodes.pop(old["metadata"]["name"], None)
            return
        name = new["metadata"]["name"]
        spec, status = new.get("spec") or {}, new.get("status") or {}
        state = self.nodes.get(name)
        if state is None:
            state = self.nodes[name] = SchedulerNode(name=name, labels={}, taints=[], allocatable={})
            self.nodes = dict(sorted(self.nodes.items()))
            for pod in self.world.all(PODS):
                if pod["spec"].get("nodeName") == name:
                    self._account(None, pod)
        if old is not None and old.get("spec") == new.get("spec") and _same_capacity(old, new):
            return
        state.labels = new["metadata"].get("labels") or {}
        state.taints = spec.get("taints") or []
        state.unschedulable = bool(spec.get("unschedulable"))
        state.allocatable = amounts_of(status.get("allocatable"))
        state.ready = condition_of(new, "Ready") in ("True", "")
        self._retry()

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        self._account(old, new)
        if new is not None and not new["spec"].get("nodeName") and is_active(new):
            if (old is None or _gates(old) != _gates(new)) and not _gates(new) and _mine(new):
                self._waiting[key_of(new)] = None
                self.enqueue(_ALL)
        elif old is not None and (new is None or not is_active(new)):
            self._waiting.pop(key_of(old), None)
            self._stuck.pop(key_of(old), None)

    def _account(self, old: Raw | None, new: Raw | None) -> None:
        pod = new if new is not None else old
        if pod is None:
            return
        uid = pod["metadata"]["uid"]
        node = pod["spec"].get("nodeName") or ""
        holds = new is not None and bool(node) and phase_of(new) not in ("Succeeded", "Failed")
        known = self._amounts.get(uid)
        changed = old is None or old["spec"] is not pod["spec"] or is_resizing(old) or is_resizing(pod)
        if known is not None and (not holds or changed):
            state = self.nodes.get(known[0])
            if state is not None:
                state.release(uid, known[1])
            del self._amounts[uid]
            known = None
            if not holds:
                self._retry()
        if holds and known is None and node in self.nodes:
            amounts = pod_amounts(pod)
            self.nodes[node].promise(uid, pod, amounts)
            self._amounts[uid] = (node, amounts)

    def _retry(self) -> None:
        if self._stuck:
            self._waiting |= self._stuck
            self._stuck = {}
            self.enqueue(_ALL)

    async def reconcile(self, key: StoreKey) -> None:
        """Place all that waits: who comes first depends on who else is there, so the queue has one key for all."""
        waiting, self._waiting = self._waiting, {}
        for pod in sorted(waiting, key=self._order):
            self._place(pod)

    def _order(self, key: StoreKey) -> tuple[int, str, StoreKey]:
        pod = self.world.get(PODS, key)
        if pod is None:
            return 0, "", key
        return -int(pod["spec"].get("priority") or 0), pod["metadata"]["creationTimestamp"], key

    def _place(self, key: StoreKey) -> None:
        pod = self.world.get(PODS, key)
        if pod is None or pod["spec"].get("nodeName") or not is_active(pod):
            return
        amounts = pod_amounts(pod)
        node, message = choose(pod, amounts, self.nodes.values())
        if node is not None:
            self._bind(pod, node.name)
            return
        self._stuck[key] = None
        self._refuse(pod, message)
        self._preempt(pod, amounts)

    def _bind(self, pod: Raw, node: str) -> None:
        world = self.world
        status = pod.get("status") or {}
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": world.stamp(),
        }
        new_status = {**status, "conditions": with_condition(_without_scheduled(status), scheduled)}
        world.put(PODS, pod, spec={**pod["spec"], "nodeName": node}, status=new_status)
        metadata = pod["metadata"]
        world.record(
            pod,
            "Scheduled",
            f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}",
            component=NAME,
        )

    def _refuse(self, pod: Raw, message: str) -> None:
        status = pod.get("status") or {}
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": self.world.stamp(),
        }
        conditions = with_condition(status.get("conditions"), condition)
        if conditions != status.get("conditions"):
            self.world.put(PODS, pod, status={**status, "phase": "Pending", "conditions": conditions})
            self.world.record(pod, "FailedScheduling", message, kind="Warning", component=NAME)

    def _preempt(self, pod: Raw, amounts: Amounts) -> None:
        """Delete less important pods where that makes room, on the node where the fewest must go."""
        priority = int(pod["spec"].get("priority") or 0)
        if priority <= 0 or pod["spec"].get("preemptionPolicy") == "Never":
            return
        best: list[Raw] | None = None
        for node in self.nodes.values():
            if any(other["metadata"].get("deletionTimestamp") for other in node.pods.values()):
                continue
            victims = _victims(pod, amounts, node, priority, self._amounts)
            if victims and (best is None or len(victims) < len(best)):
                best = victims
        for victim in best or ():
            self.world.record(
                victim, "Preempted", f"Preempted by pod {pod['metadata']['uid']}", kind="Normal", component=NAME
            )
            deleted = {
                **victim["metadata"],
                "deletionTimestamp": self.world.stamp(),
                "deletionGracePeriodSeconds": int(victim["spec"].get("terminationGracePeriodSeconds") or 30),
            }
            self.world.put(PODS, victim, metadata=deleted)


def _victims(
    pod: Raw, amounts: Amounts, node: SchedulerNode, priority: int, known: dict[str, tuple[str, Amounts]]
) -> list[Raw]:
    lesser = [other for other in node.pods.values() if int(other["spec"].get("priority") or 0) < priority]
    lesser.sort(key=lambda other: (int(other["spec"].get("priority") or 0), other["metadata"]["name"]))
    trial = SchedulerNode(
        name=node.name, labels=node.labels, taints=node.taints, allocatable=node.allocatable,
        unschedulable=node.unschedulable, ready=node.ready, used=dict(node.used), pods=dict(node.pods),
    )  # fmt: skip
    gone: list[Raw] = []
    for other in lesser:
        uid = other["metadata"]["uid"]
        trial.release(uid, known[uid][1])
        gone.append(other)
        if not why_not(pod, amounts, trial):
            return gone
    return []


def _mine(pod: Raw) -> bool:
    return (pod["spec"].get("schedulerName") or NAME) == NAME


def _gates(pod: Raw) -> list[Raw]:
    return pod["spec"].get("schedulingGates") or []


def _without_scheduled(status: Raw) -> list[Raw]:
    return [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]


def _same_capacity(old: Raw, new: Raw) -> bool:
    one, two = old.get("status") or {}, new.get("status") or {}
    return (
        one.get("allocatable") == two.get("allocatable")
        and condition_of(old, "Ready") == condition_of(new, "Ready")
        and old["metadata"].get("labels") == new["metadata"].get("labels")
    )
