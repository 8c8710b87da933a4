"""Carries out in-place resizes on simulated nodes: judges, allocates, and a moment later writes the cgroups."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kubetide.embedded.objects import StoreKey
from kubetide.embedded.sim.containers import COMPLETED, memory_limit
from kubetide.embedded.sim.hosts import SimHost
from kubetide.embedded.sim.kernel import Kernel
from kubetide.embedded.sim.placement import Amounts, amounts_of
from kubetide.embedded.sim.podruns import PodRun
from kubetide.embedded.sim.resizing import decide_resize, held_by, needs_restart, wanted_resources
from kubetide.embedded.sim.world import NODES, PODS, World
from kubetide.embedded.status import Raw

if TYPE_CHECKING:
    from kubetide.embedded.sim.kubelet import Kubelets

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
        specs = {spec["name"]: spec for spec in pod["spec"].get("containers") or ()}
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
