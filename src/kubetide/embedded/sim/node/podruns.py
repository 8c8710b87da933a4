"""A pod on a simulated node, and the status that reports it."""

import asyncio
from dataclasses import dataclass, field

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.load.profile import Profile, WorkloadKey
from kubetide.embedded.sim.node.containers import SimContainer
from kubetide.embedded.sim.world import with_condition

_RESIZE_CONDITIONS = ("PodResizePending", "PodResizeInProgress")


@dataclass(slots=True)
class PodRun:
    """A pod on its node."""

    key: StoreKey
    uid: str
    node: str
    group: str
    qos: str
    workload: WorkloadKey
    profile: Profile
    containers: list[SimContainer]
    start_time: str
    pod_ip: str
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    stopping: bool = False
    resize: str = ""
    resize_message: str = ""
    phase: str = "Pending"
    cpu_millis: int = 0
    """What it holds of its node's CPU, for the weight of its tier."""


def pod_status(run: PodRun, pod: Raw, *, now: str, host_ip: str) -> Raw:
    """Return the status of a pod as its kubelet sees it; what others wrote into it stays."""
    old = pod.get("status") or {}
    finished = run.phase in ("Succeeded", "Failed")
    ready = bool(run.containers) and all(container.ready for container in run.containers)
    why = {} if ready else {"reason": "PodCompleted" if finished else "ContainersNotReady"}
    conditions = [c for c in old.get("conditions") or () if c.get("type") not in _RESIZE_CONDITIONS]
    for kind, value, extra in (
        ("Initialized", True, {}),
        ("Ready", ready, why),
        ("ContainersReady", ready, why),
    ):
        condition = {"type": kind, "status": "True" if value else "False", "lastProbeTime": None}
        conditions = with_condition(conditions, {**condition, "lastTransitionTime": now, **extra})
    status: Raw = {
        **old,
        "phase": run.phase,
        "hostIP": host_ip,
        "podIP": run.pod_ip,
        "podIPs": [{"ip": run.pod_ip}],
        "startTime": run.start_time,
        "qosClass": run.qos,
        "containerStatuses": [container.status() for container in run.containers if not container.sidecar],
    }
    if any(container.sidecar for container in run.containers):
        status["initContainerStatuses"] = [container.status() for container in run.containers if container.sidecar]
    generation = pod["metadata"].get("generation")
    if generation is not None and run.resize != "Deferred":
        status["observedGeneration"] = generation
    status.pop("resize", None)
    if run.resize:
        status["resize"] = run.resize
        resizing = _resize_condition(run, now)
        before = [c for c in old.get("conditions") or () if c.get("type") == resizing["type"]]
        conditions += with_condition(before, resizing)
    status["conditions"] = conditions
    return status


def _resize_condition(run: PodRun, now: str) -> Raw:
    """Return the condition of a resize: pending with its reason (deferred, infeasible), or in progress."""
    condition: Raw = {
        "type": "PodResizeInProgress" if run.resize == "InProgress" else "PodResizePending",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    if run.resize != "InProgress":
        condition["reason"] = run.resize
    elif run.resize_message:
        condition["reason"] = "Error"
    if run.resize_message:
        condition["message"] = run.resize_message
    return condition
