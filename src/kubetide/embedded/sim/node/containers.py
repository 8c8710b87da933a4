"""The life of one container on a simulated node, and how it looks in a pod's status.

    waiting (ContainerCreating) → running → ready
                                   └→ terminated → waiting (CrashLoopBackOff) → running …      restartPolicy permitting
                                                 └→ terminated for good

A container that dies is restarted at once the first time, then after 10 s, 20 s, 40 s … up to 5 min; ten minutes of
running make it young again.
"""

from dataclasses import dataclass, field
from typing import Any

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.sim.placement import Amounts, amounts_of

BACKOFF_FIRST = 10.0
BACKOFF_MOST = 300.0
BACKOFF_RESET = 600.0
OOM_KILLED = "OOMKilled"
COMPLETED = "Completed"
ERROR = "Error"


@dataclass(slots=True)
class SimContainer:
    """One container: its spec's part, its process if it runs, its history."""

    name: str
    image: str
    allocated: Raw
    """Resources (requests and limits) the kubelet has granted."""
    actual: Raw
    """Resources that are in force in its cgroup."""
    row: int | None = None
    container_id: str = ""
    started_at: str = ""
    started_second: float = 0.0
    ready: bool = False
    restarts: int = 0
    backoff: float = 0.0
    waiting: str = "ContainerCreating"
    finished: Raw | None = None
    last: Raw | None = None
    returning: bool = False
    """Dead, and to be started again."""
    limits: Amounts = field(default_factory=dict)
    sidecar: bool = False
    """An init container that runs as long as the pod."""

    @property
    def running(self) -> bool:
        return self.row is not None

    @property
    def settled(self) -> bool:
        """Whether it has ended for good."""
        return not self.running and not self.waiting and not self.returning

    def end(self, *, reason: str, exit_code: int, now: str) -> None:
        """Note that the process is gone."""
        self.finished = {
            "exitCode": exit_code,
            "reason": reason,
            "startedAt": self.started_at,
            "finishedAt": now,
            "containerID": self.container_id,
        }
        self.row = None
        self.ready = False

    def next_backoff(self, second: float) -> float:
        """Return how long to wait before the next start, and make the one after that longer."""
        if second - self.started_second >= BACKOFF_RESET:
            self.backoff = 0.0
        delay = self.backoff
        self.backoff = min(BACKOFF_MOST, max(BACKOFF_FIRST, self.backoff * 2))
        return delay

    def status(self) -> Raw:
        """Return the container's entry in the pod status."""
        state: Raw
        if self.running:
            state = {"running": {"startedAt": self.started_at}}
        elif self.waiting:
            state = {"waiting": {"reason": self.waiting}}
        else:
            state = {"terminated": self.finished}
        result: Raw = {
            "name": self.name,
            "state": state,
            "lastState": {"terminated": self.last} if self.last is not None else {},
            "ready": self.ready,
            "restartCount": self.restarts,
            "image": self.image,
            "imageID": f"sim://{self.image}",
            "started": self.running,
        }
        if self.container_id:
            result["containerID"] = self.container_id
        if self.allocated.get("requests"):
            result["allocatedResources"] = self.allocated["requests"]
        if self.actual:
            result["resources"] = self.actual
        return result


def is_sidecar(container: Raw) -> bool:
    """Whether an init container keeps running beside the others."""
    return bool(container.get("restartPolicy") == "Always")


def running_containers(spec: Raw) -> list[Raw]:
    """Return the containers of a pod that run side by side: its own, then its native sidecars."""
    return [*(spec.get("containers") or ()), *filter(is_sidecar, spec.get("initContainers") or ())]


def resources_of(container: Raw) -> Raw:
    """Return requests and limits of a container spec, only what is there."""
    resources = container.get("resources") or {}
    return {part: dict(resources[part]) for part in ("requests", "limits") if resources.get(part)}


def cpu_shares(requests: Any) -> int:
    """Return the cgroup shares of a CPU request, as the kubelet computes them."""
    return shares_of(amounts_of(requests).get("cpu", 0))


def shares_of(millis: int) -> int:
    """Return the cgroup shares of so many millicores."""
    return max(2, min(262_144, millis * 1024 // 1000))


def cpu_quota_us(limits: Any) -> int | None:
    """Return the quota of a CPU limit for a period of 100 ms, or None without a limit."""
    millis = amounts_of(limits).get("cpu", 0)
    return max(1000, millis * 100) if millis > 0 else None


def memory_limit(limits: Any) -> int | None:
    """Return the memory limit in bytes, or None."""
    return amounts_of(limits).get("memory") or None


def oom_adjust(qos: str, requests: Any, node_memory: float) -> float:
    """Return the kubelet's oom_score_adj: who asked for little is OOM killed first."""
    if qos == "Guaranteed":
        return -997.0
    if qos == "BestEffort":
        return 1000.0
    asked = amounts_of(requests).get("memory", 0)
    return min(999.0, max(2.0, 1000 - 1000 * asked / node_memory))
