"""The kubelets: run what is bound to their nodes, report status, restart, resize in place, let go.

One object serves all nodes of the simulation. It hears of pods through the world, starts processes in the kernel
model, and writes pod status straight into the store. Everything that takes time (pulling, starting, backing off,
stopping) is a timer of the event loop.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.storage.objects import StoreKey
from kubetide.embedded.sim.load.model import LoadModel
from kubetide.embedded.sim.load.profile import Profile, WorkloadKey, from_annotations
from kubetide.embedded.sim.node.containers import (
    COMPLETED,
    ERROR,
    OOM_KILLED,
    SimContainer,
    is_sidecar,
    oom_adjust,
    resources_of,
    running_containers,
)
from kubetide.embedded.sim.node.hosts import SimHost
from kubetide.embedded.sim.node.kernel import Kernel
from kubetide.embedded.sim.node.limits import GroupLimits
from kubetide.embedded.sim.node.podruns import PodRun, pod_status
from kubetide.embedded.sim.node.resizes import Resizes
from kubetide.embedded.sim.world import PODS, World, key_of, phase_of, stable_hash
from kubetide.errors import InvalidInput

NAME = "kubelet"
PULL_SECONDS = 1.0
STOP_SECONDS = 1.0
SYNC_SECONDS = 1.0
"""How long a container is seen as terminated before it is started again or reported to wait."""


class Kubelets:
    """All kubelets of the simulation."""

    def __init__(
        self,
        world: World,
        kernel: Kernel,
        hosts: dict[str, SimHost],
        *,
        monotonic: Callable[[], float],
        workload_of: Callable[[Raw], WorkloadKey],
    ) -> None:
        self._world = world
        self._kernel = kernel
        self._hosts = hosts
        self._monotonic = monotonic
        self._workload_of = workload_of
        self._runs: dict[str, PodRun] = {}
        self._by_node: dict[str, dict[str, PodRun]] = {}
        self._by_row: dict[int, tuple[PodRun, SimContainer]] = {}
        self._addresses: dict[str, int] = {}
        self._model: LoadModel | None = None
        self.limits = GroupLimits(kernel, hosts)
        self._resizes = Resizes(self, world, kernel, hosts, monotonic=monotonic)
        self.stopped_nodes: set[str] = set()
        self.version = 0
        """Counts the changes of pods: processes, what they hold, readiness, labels; for those who cache."""

    def attach(self, model: LoadModel) -> None:
        """Start working with a load model, which is told of every process."""
        self._model = model
        self._world.on(PODS, self._pod_changed)

    @property
    def model(self) -> LoadModel:
        if self._model is None:
            raise RuntimeError("the kubelets have no model yet")
        return self._model

    def adopt(self, node: str) -> None:
        """Start again what was on a node before the whole cluster was stopped."""
        for pod in self._world.all(PODS):
            if pod["spec"].get("nodeName") == node and phase_of(pod) not in ("Succeeded", "Failed"):
                if pod["metadata"]["uid"] in self._runs:
                    continue
                if pod["metadata"].get("deletionTimestamp"):
                    self._remove(key_of(pod), pod["metadata"]["uid"])
                else:
                    self._admit(pod, node)

    def disconnect(self, node: str) -> None:
        """Cut a node off: its pods go on running, get no requests and are not reported on."""
        self.stopped_nodes.add(node)
        for run in self.runs_on(node):
            for container in run.containers:
                if container.row is not None:
                    self.model.set_ready(container.row, False)

    def reconnect(self, node: str) -> None:
        """Let a node take part again: it catches up with what was decided meanwhile."""
        self.stopped_nodes.discard(node)
        for run in self.runs_on(node):
            pod = self._world.get(PODS, run.key)
            if pod is None or pod["metadata"]["uid"] != run.uid:
                self._forget(run.uid)
            elif pod["metadata"].get("deletionTimestamp"):
                self._begin_stop(run, pod)
            else:
                for container in run.containers:
                    if container.row is not None:
                        self.model.set_ready(container.row, container.ready)
                self.report(run)
        self.adopt(node)

    def pods(self, node: str) -> Raw:
        """Return what the kubelet's `/pods` endpoint answers: a PodList of the pods on its node."""
        runs = self._by_node.get(node, {})
        items = [pod for run in runs.values() if (pod := self._world.get(PODS, run.key)) is not None]
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}

    def runs_on(self, node: str) -> list[PodRun]:
        return list(self._by_node.get(node, {}).values())

    def runs(self) -> list[PodRun]:
        """Return every pod that has a place on a node, oldest first."""
        return list(self._runs.values())

    # -- pods come and go

    def _pod_changed(self, old: Raw | None, new: Raw | None) -> None:
        if new is None:
            if old is not None:
                self._forget(old["metadata"]["uid"])
            return
        node = new["spec"].get("nodeName") or ""
        if node not in self._hosts or node in self.stopped_nodes:
            return
        uid = new["metadata"]["uid"]
        run = self._runs.get(uid)
        if run is None:
            if new["metadata"].get("deletionTimestamp"):
                asyncio.get_running_loop().call_later(0, self._remove, key_of(new), uid)
            elif phase_of(new) == "Pending":
                self._admit(new, node)
            return
        if old is not None and old["metadata"].get("labels") != new["metadata"].get("labels"):
            self.version += 1
        if new["metadata"].get("deletionTimestamp"):
            self._begin_stop(run, new)
        elif old is None or old["spec"] is not new["spec"]:
            self._resizes.consider(run, new)

    def _admit(self, pod: Raw, node: str) -> None:
        host = self._hosts[node]
        metadata = pod["metadata"]
        qos = (pod.get("status") or {}).get("qosClass") or "BestEffort"
        self._addresses[node] = self._addresses.get(node, 0) + 1
        number = self._addresses[node]
        workload = self._workload_of(pod)
        profile = self.model.profile_of(workload)
        try:
            profile = from_annotations(profile, metadata.get("annotations"))
        except InvalidInput as error:
            self._world.record(pod, "InvalidAnnotation", str(error), kind="Warning", component=NAME)
        run = PodRun(
            key=key_of(pod), uid=metadata["uid"], node=node, group=host.paths.pod(qos, metadata["uid"]), qos=qos,
            workload=workload, profile=profile,
            containers=[
                SimContainer(
                    name=spec["name"], image=spec.get("image") or "", allocated=resources_of(spec),
                    actual=resources_of(spec), sidecar=is_sidecar(spec),
                )
                for spec in running_containers(pod["spec"])
            ],
            start_time=self._world.stamp(),
            pod_ip=f"10.{200 + host.machine.index // 256}.{host.machine.index % 256}.{number % 254 + 1}",
        )  # fmt: skip
        self._runs[run.uid] = run
        self._by_node.setdefault(node, {})[run.uid] = run
        self.after(run, PULL_SECONDS, self._start)
        self.report(run)

    def after(self, run: PodRun, seconds: float, action: Callable[[PodRun], None]) -> None:
        run.timers = [timer for timer in run.timers if not timer.cancelled() and timer.when() > self._now()]
        run.timers.append(asyncio.get_running_loop().call_later(seconds, action, run))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _start(self, run: PodRun) -> None:
        pod = self._world.get(PODS, run.key)
        if pod is None or run.stopping:
            return
        host = self._hosts[run.node]
        self._kernel.advance(self._monotonic())
        self.limits.apply_to_pod(run)
        for container in run.containers:
            if not container.running and container.waiting == "ContainerCreating":
                self._launch(run, container)
        self.limits.apply_to_tiers(host, self.runs_on(host.machine.name))
        run.phase = "Running"
        self.after(run, run.profile.start_seconds, self._become_ready)
        names = ", ".join(container.name for container in run.containers)
        self._world.record(pod, "Started", f"Started container {names}", component=NAME)
        self.report(run)

    def _launch(self, run: PodRun, container: SimContainer) -> None:
        host = self._hosts[run.node]
        digest = stable_hash([run.uid, container.name, container.restarts])
        container.container_id = f"{host.runtime}://{digest:016x}{digest * 0x9E3779B97F4A7C15 % 2**192:048x}"
        path = host.paths.container(run.group, container.container_id)
        requests = container.allocated.get("requests")
        row = self._kernel.start(
            host.machine, path, oom_adjust=oom_adjust(run.qos, requests, host.machine.memory_bytes)
        )
        self.version += 1
        container.row = row
        container.waiting = ""
        container.started_at = self._world.stamp()
        container.started_second = self._monotonic()
        self.limits.apply_to_container(run, container)
        self._by_row[row] = (run, container)
        profile = run.profile
        workers = profile.containers or (run.containers[0].name,)
        if container.name not in workers:
            profile = replace(Profile(), start_seconds=profile.start_seconds)
        self.model.start(
            row, workload=run.workload if container.name in workers else ("", ""), pod=run.key.name, profile=profile,
            now=self._monotonic(), seed=digest & 0xFFFFFFFF,
        )  # fmt: skip

    def _become_ready(self, run: PodRun) -> None:
        if run.stopping or self._world.get(PODS, run.key) is None:
            return
        for container in run.containers:
            if container.row is not None:
                container.ready = True
                self.model.set_ready(container.row, run.node not in self.stopped_nodes)
        self.report(run)

    # -- processes end

    def workload_at(self, row: int) -> WorkloadKey | None:
        """Return whose container has a row of the kernel's table."""
        found = self._by_row.get(row)
        return found[0].workload if found is not None else None

    def kill(self, row: int, *, scope: str) -> None:
        """The kernel OOM killed a process."""
        found = self._by_row.get(row)
        if found is None:
            return
        run, container = found
        pod = self._world.get(PODS, run.key)
        if pod is not None:
            self._world.record(
                pod, "OOMKilling", f"Memory of the {scope} ran out: killed container {container.name}",
                kind="Warning", component=NAME,
            )  # fmt: skip
        self._ended(run, container, reason=OOM_KILLED, exit_code=137)

    def complete(self, row: int) -> None:
        """A batch container has done its work."""
        found = self._by_row.get(row)
        if found is not None:
            self._ended(*found, reason=COMPLETED, exit_code=0)

    def crash(self, key: StoreKey) -> None:
        """Let the first running container of a pod fail."""
        for run in self._runs.values():
            if run.key == key:
                for container in run.containers:
                    if container.running:
                        self._ended(run, container, reason=ERROR, exit_code=1)
                        return

    def stop_process(self, run: PodRun, container: SimContainer) -> None:
        row = container.row
        if row is None:
            return
        self._kernel.advance(self._monotonic())
        group = self._kernel.group_of(row)
        self.model.stop(row)
        self._by_row.pop(row, None)
        self._kernel.stop(row)
        self.version += 1
        machine = self._hosts[run.node].machine
        machine.tree.remove(group)
        container.row = None

    def _ended(self, run: PodRun, container: SimContainer, *, reason: str, exit_code: int) -> None:
        self.stop_process(run, container)
        container.end(reason=reason, exit_code=exit_code, now=self._world.stamp())
        pod = self._world.get(PODS, run.key)
        policy = (pod or {}).get("spec", {}).get("restartPolicy") or "Always"
        if policy == "Always" or container.sidecar or (policy == "OnFailure" and exit_code != 0):
            container.returning = True
            delay = container.next_backoff(self._monotonic())
            if delay > 0:
                self.after(run, SYNC_SECONDS, lambda run: self._back_off(run, container))
            self.after(run, max(delay, SYNC_SECONDS), lambda run: self.restart(run, container))
        elif all(c.settled for c in run.containers if not c.sidecar):
            failed = any((c.finished or {}).get("exitCode") for c in run.containers if not c.sidecar)
            run.phase = "Failed" if failed else "Succeeded"
        self.report(run)
        if run.phase in ("Failed", "Succeeded"):
            self._forget(run.uid)

    def _back_off(self, run: PodRun, container: SimContainer) -> None:
        """Report that a dead container waits; that it was terminated has been seen by then."""
        if run.stopping or run.uid not in self._runs or container.running:
            return
        container.last, container.waiting = container.finished, "CrashLoopBackOff"
        pod = self._world.get(PODS, run.key)
        if pod is not None:
            message = f"Back-off restarting failed container {container.name}"
            self._world.record(pod, "BackOff", message, kind="Warning", component=NAME)
        self.report(run)

    def restart(self, run: PodRun, container: SimContainer) -> None:
        if run.stopping or run.uid not in self._runs or container.running:
            return
        container.restarts += 1
        container.last = container.finished or container.last
        container.finished = None
        container.returning = False
        self._kernel.advance(self._monotonic())
        self._launch(run, container)
        self.after(run, run.profile.start_seconds, self._become_ready)
        self.report(run)

    def _begin_stop(self, run: PodRun, pod: Raw) -> None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds")
        seconds = min(STOP_SECONDS, 30.0 if grace is None else float(grace))
        if run.stopping:
            if seconds <= 0:
                self._finish_stop(run)
            return
        run.stopping = True
        self.version += 1
        for timer in run.timers:
            timer.cancel()
        run.timers = []
        for container in run.containers:
            container.ready = False
            if container.row is not None:
                self.model.set_ready(container.row, False)
        self._world.record(
            pod, "Killing", "Stopping container " + ", ".join(c.name for c in run.containers), component=NAME
        )
        self.after(run, seconds, self._finish_stop)

    def _finish_stop(self, run: PodRun) -> None:
        self._remove(run.key, run.uid)

    def _remove(self, key: StoreKey, uid: str) -> None:
        pod = self._world.get(PODS, key)
        self._forget(uid)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        if pod["metadata"].get("finalizers"):
            self._world.put(PODS, pod, metadata={**pod["metadata"], "deletionGracePeriodSeconds": 0})
            return
        self._world.remove(PODS, key)

    def _forget(self, uid: str) -> None:
        run = self._runs.pop(uid, None)
        if run is None:
            return
        self.version += 1
        for timer in run.timers:
            timer.cancel()
        self._by_node[run.node].pop(uid, None)
        for container in run.containers:
            self.stop_process(run, container)
        host = self._hosts.get(run.node)
        if host is not None:
            group = host.machine.tree.find(run.group)
            if group is not None:
                host.machine.tree.remove(group)
            self.limits.apply_to_tiers(host, self.runs_on(host.machine.name))
            self._kernel.changed(host.machine)
        self._resizes.retry(run.node)

    # -- status

    def report(self, run: PodRun) -> None:
        """Write the pod's status, if it differs; everything that changes a pod here ends with it."""
        self.version += 1
        pod = self._world.get(PODS, run.key)
        if pod is not None and pod["metadata"]["uid"] == run.uid and run.node not in self.stopped_nodes:
            host_ip = f"192.168.0.{self._hosts[run.node].machine.index % 250 + 1}"
            self._world.put(PODS, pod, status=pod_status(run, pod, now=self._world.stamp(), host_ip=host_ip))
