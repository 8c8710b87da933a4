"""One pass over all objects of a node: what the hooks want written, without any runtime's help.

Rules are brought up to the snapshot first, so a changed NodeSLO, topology or node takes effect in the same pass.
Quotas are applied level by level (a parent's quota must not be below its children's), everything else in order: QoS
directories, then per pod the pod, its sandbox and its containers, then host applications.

CPU burst moves the quota of the same containers that normalization scales. Where burst is on, normalization
therefore writes a quota once per directory and ratio; burst keeps it from there, starting at the scaled base.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from kubetide.api.cgroups import KUBE_QOS_CLASSES
from kubetide.errors import InvalidInput
from kubetide.node.executor.plan import Batch, Plan, Write
from kubetide.node.hooks.context import Response
from kubetide.node.hooks.requests import (
    container_request,
    container_writes,
    host_app_request,
    host_app_writes,
    pod_request,
    pod_writes,
    sandbox_request,
    tier_writes,
)
from kubetide.node.hooks.rules import GROUP_IDENTITY, NORMALIZATION, Plugins, Question, kube_qos_requests
from kubetide.node.host import files
from kubetide.node.sandboxes import sandbox_directory, sandbox_id
from kubetide.node.snapshot import PodState, Snapshot


@dataclass(slots=True)
class HookDecider:
    """Turns snapshots into the writes of the hook plugins."""

    plugins: Plugins
    _scaled: dict[str, float] = field(default_factory=dict)
    _unread: dict[str, str] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)

    def refresh(self, snapshot: Snapshot) -> frozenset[str]:
        """Take over the rules of a snapshot; return the plugins whose rule changed. What cannot be read stays."""
        changed: frozenset[str] = frozenset()
        if snapshot.slo is not None:
            changed |= self.plugins.update_slo(snapshot.slo)
        for name, update, source in (
            ("topology", self.plugins.update_topology, snapshot.topology_annotations or None),
            ("node", self.plugins.update_node, (snapshot.node.metadata.annotations or {}) if snapshot.node else None),
        ):
            if source is None:
                continue
            try:
                changed |= update(source)
                self._unread.pop(name, None)
            except InvalidInput as error:
                self._unread[name] = str(error)
        return changed

    def decide(self, snapshot: Snapshot, *, tiers: bool = True, changed: Collection[str] = ()) -> Plan:
        """Return the writes for all objects; `tiers` also covers QoS directories and host applications.

        `changed` are the plugins whose rule is new: the audit names a new group identity as the reason of its values.
        """
        self._problems = {}
        above: list[Write] = []
        for request in kube_qos_requests({name: snapshot.paths.tier(name) for name in KUBE_QOS_CLASSES}):
            for response in self._answers(request.cgroup_parent, self.plugins.kube_qos(request)) if tiers else ():
                above += tier_writes(request.cgroup_parent, response)
        pods: list[Write] = []
        inside: list[Write] = []
        active = [pod for pod in snapshot.pods if pod.is_active]
        for pod in active:
            self._pod(snapshot, pod, pods, inside)
        host: list[Write] = []
        for app in snapshot.host_applications if tiers else ():
            about = host_app_request(app, snapshot.cgroups.layout)
            for response in self._answers(about.name, self.plugins.host_app(about)):
                host += host_app_writes(about, response)
        self.plugins.restoring_quota = False
        self._forget(active)
        if GROUP_IDENTITY in changed:
            above, pods, host = _identity(above), _identity(pods), _identity(host)
        quotas = Batch(levels=(_quotas(pods), _quotas(inside)), leveled=True)
        others = [write for write in [*pods, *inside] if write.file is not files.CPU_QUOTA]
        trace = {"pods": len(active), "problems": self._unread | self._problems}
        return Plan(batches=(Batch.flat(*above), Batch.flat(*others), quotas, Batch.flat(*host)), trace=trace)

    def _pod(self, snapshot: Snapshot, pod: PodState, pods: list[Write], inside: list[Write]) -> None:
        request = pod_request(pod)
        for response in self._answers(pod.key, self.plugins.pod(request), pod.directory, snapshot):
            pods += pod_writes(request, response)
        requests = [container_request(request, one) for one in pod.containers if one.directory]
        directory = sandbox_directory(snapshot.cgroups, pod)
        if directory is not None:
            requests.insert(0, sandbox_request(request, sandbox_id(snapshot.cgroups, pod, directory), directory))
        for one in requests:
            questions = self.plugins.container(one)
            for response in self._answers(pod.key, questions, one.cgroup_parent, snapshot):
                inside += container_writes(one, response)

    def _answers(
        self,
        subject: str,
        questions: Iterable[Question],
        directory: str = "",
        snapshot: Snapshot | None = None,
    ) -> Iterable[Response]:
        """Yield the answers of the plugins; one that fails for this object is noted, and the others are asked."""
        for plugin, ask in questions:
            if plugin == NORMALIZATION and snapshot is not None and self._already_scaled(directory, snapshot):
                continue
            try:
                answer = ask()
            except Exception as error:  # noqa: BLE001 - one object must not keep the others from being repaired
                self._problems[subject] = f"{plugin}: {error}"
                continue
            yield answer

    def _already_scaled(self, directory: str, snapshot: Snapshot) -> bool:
        if not snapshot.gates.get("CPUBurst", False) or self.plugins.restoring_quota:
            self._scaled.pop(directory, None)
            return False
        ratio = self.plugins.rules.normalization.ratio
        if self._scaled.get(directory) == ratio:
            return True
        layout = snapshot.cgroups.layout
        if snapshot.cgroups.host.exists(layout.cgroup_file(files.CPU_QUOTA, directory)):
            self._scaled[directory] = ratio  # a cgroup that is still to come gets its turn when it is there
        return False

    def _forget(self, active: Iterable[PodState]) -> None:
        known = {pod.directory for pod in active}
        known |= {container.directory for pod in active for container in pod.containers}
        self._scaled = {directory: ratio for directory, ratio in self._scaled.items() if directory in known}


def _identity(writes: Iterable[Write]) -> list[Write]:
    return [replace(write, reason=GROUP_IDENTITY) if write.file is files.CPU_BVT else write for write in writes]


def _quotas(writes: Iterable[Write]) -> tuple[Write, ...]:
    return tuple(write for write in writes if write.file is files.CPU_QUOTA)
