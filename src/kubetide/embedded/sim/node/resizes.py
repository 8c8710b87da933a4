"""Carries out in-place resizes on simulated nodes: judges, allocates, and a moment later writes the cgroups."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.node.containers import COMPLETED, memory_limit
from kubetide.embedded.sim.node.hosts import SimHost
from kubetide.embedded.sim.node.kernel import Kernel
from kubetide.embedded.sim.node.podruns import PodRun
from kubetide.embedded.sim.placement import Amounts, amounts_of
from kubetide.embedded.sim.world import NODES, PODS, World

if TYPE_CHECKING:
    from kubetide.embedded.sim.node.kubelet import Kubelets
from dataclasses import dataclass
from typing import Literal

from kubetide.embedded.sim.node.containers import SimContainer, resources_of, running_containers

# In-place resize: whether new resources can be had now, later, or never, and what must restart for them.

Verdict = Literal["Infeasible", "Deferred", "Granted"]


@dataclass(frozen=True, slots=True)
class ResizeDecision:
    """The kubelet's answer, with the sentence that goes into the condition."""

    verdict: Verdict
    message: str = ""


def wanted_resources(pod: Raw) -> dict[str, Raw]:
    """Return the resources the spec asks for, by container."""
    return {container["name"]: resources_of(container) for container in running_containers(pod["spec"])}


def decide_resize(wanted: dict[str, Raw], *, allocatable: Amounts, others: Amounts) -> ResizeDecision:
    """Judge a pod's new requests against its node; `others` is what the other pods on it hold."""
    total: Amounts = {}
    for resources in wanted.values():
        for name, value in amounts_of(resources.get("requests")).items():
            total[name] = total.get(name, 0) + value
    for name, value in total.items():
        capacity = allocatable.get(name, 0)
        if value > capacity:
            return ResizeDecision(
                "Infeasible", f"Node didn't have enough capacity: {name}, requested: {value}, capacity: {capacity}"
            )
    for name, value in total.items():
        used, capacity = others.get(name, 0), allocatable.get(name, 0)
        if used + value > capacity:
            return ResizeDecision(
                "Deferred",
                f"Node didn't have enough resource: {name}, requested: {value}, used: {used}, capacity: {capacity}",
            )
    return ResizeDecision("Granted")


def needs_restart(spec: Raw, before: Raw, after: Raw) -> bool:
    """Whether a changed resource is declared to need a restart of the container."""
    policies = {rule.get("resourceName"): rule.get("restartPolicy") for rule in spec.get("resizePolicy") or ()}
    for resource in ("cpu", "memory"):
        changed = any(
            (before.get(part) or {}).get(resource) != (after.get(part) or {}).get(resource)
            for part in ("requests", "limits")
        )
        if changed and policies.get(resource) == "RestartContainer":
            return True
    return False


def held_by(containers: list[SimContainer]) -> Amounts:
    """Return what a pod's containers hold: what they were allocated."""
    total: Amounts = {}
    for container in containers:
        for name, value in amounts_of(container.allocated.get("requests")).items():
            total[name] = total.get(name, 0) + value
    return total


NAME = "kubelet"
RESIZE_SECONDS = 1.0


class Resizes:
    """The part of the kubelets that changes pods while they run."""

    def __init__(
        self,
        kubelets: "Kubelets",
        world: World,
        kernel: Kernel,
        hosts: dict[str, SimHost],
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._kubelets = kubelets
        self._world = world
        self._kernel = kernel
        self._hosts = hosts
        self._monotonic = monotonic

    def consider(self, run: PodRun, pod: Raw) -> None:
        """Compare what the spec asks for with what the pod was allocated, and act on the difference."""
        wanted = wanted_resources(pod)
        if all(container.allocated == wanted.get(container.name, {}) for container in run.containers):
            if run.resize in ("Deferred", "Infeasible"):
                run.resize = ""
                self._kubelets.report(run)
            return
        node = self._world.get(NODES, StoreKey("", run.node))
        allocatable = amounts_of(((node or {}).get("status") or {}).get("allocatable"))
        others: Amounts = {}
        for other in self._kubelets.runs_on(run.node):
            if other is not run:
                for name, value in held_by(other.containers).items():
                    others[name] = others.get(name, 0) + value
        decision = decide_resize(wanted, allocatable=allocatable, others=others)
        if decision.verdict != "Granted":
            if run.resize != decision.verdict or run.resize_message != decision.message:
                run.resize, run.resize_message = decision.verdict, decision.message
                self._world.record(pod, f"Resize{decision.verdict}", decision.message, kind="Warning", component=NAME)
                self._kubelets.report(run)
            return
        for container in run.containers:
            container.allocated = wanted.get(container.name, {})
        run.resize, run.resize_message = "InProgress", ""
        self._kubelets.report(run)
        self._kubelets.after(run, RESIZE_SECONDS, self._carry_out)

    def _carry_out(self, run: PodRun) -> None:
        pod = self._world.get(PODS, run.key)
        if pod is None or run.stopping or run.resize != "InProgress":
            return
        self._kernel.advance(self._monotonic())
        specs = {spec["name"]: spec for spec in running_containers(pod["spec"])}
        blocked = ""
        for container in run.containers:
            if container.actual == container.allocated:
                continue
            limit = memory_limit(container.allocated.get("limits"))
            if container.row is not None and limit is not None and float(self._kernel.anon[container.row]) > limit:
                blocked = f"attempting to set memory limit ({limit}) below current usage"
                continue
            before, container.actual = container.actual, container.allocated
            if container.running and needs_restart(specs[container.name], before, container.actual):
                self._kubelets.stop_process(run, container)
                container.end(reason=COMPLETED, exit_code=0, now=self._world.stamp())
                container.last = container.finished
                self._kubelets.restart(run, container)
            self._kubelets.limits.apply_to_container(run, container)
        self._kubelets.limits.apply_to_pod(run)
        self._kubelets.limits.apply_to_tiers(self._hosts[run.node], self._kubelets.runs_on(run.node))
        if blocked:
            run.resize_message = blocked
            self._kubelets.after(run, 10 * RESIZE_SECONDS, self._carry_out)
        else:
            run.resize, run.resize_message = "", ""
            self._world.record(pod, "ResizeCompleted", "Pod resize completed", component=NAME)
        self._kubelets.report(run)
        self.retry(run.node)

    def retry(self, node: str) -> None:
        """Look again at what had to wait for room on a node."""
        for run in self._kubelets.runs_on(node):
            if run.resize == "Deferred":
                pod = self._world.get(PODS, run.key)
                if pod is not None:
                    self.consider(run, pod)
