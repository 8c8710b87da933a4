"""One pass over all objects of a node: what the hooks want written, without any runtime's help.

Rules are brought up to the snapshot first, so a changed NodeSLO, topology or node takes effect in the same pass.
Quotas are applied level by level (a parent's quota must not be below its children's), everything else in order: QoS
directories, then per pod the pod, its sandbox and its containers, then host applications.

CPU burst moves the quota of the same containers that normalization scales. Where burst is on, normalization
therefore writes a quota once per directory and ratio; burst keeps it from there, starting at the scaled base. A ratio
that is gone is undone once per directory. Once means: once the kernel took it. What was only planned is planned again.

Most pods are as they were in the pass before. What the plugins want for a pod follows from the pod, the cgroups below
it and the rules; while none of these changed, the writes of the last pass are handed over again, not made anew.

    needs(snapshot) -> switch(snapshot with kernel values) -> switched(outcomes) -> decide(...) -> applied(outcomes)

Core scheduling looks at the cookies of processes too, which are known by number only after the cgroups were read:
`processes` names them, and their cookies come in with the kernel values.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kubetide.api.qos.cgroups import KUBE_QOS_CLASSES
from kubetide.errors import InvalidInput
from kubetide.node.core import files
from kubetide.node.core.compat import INIT_CONTAINERS
from kubetide.node.core.files import Root, SystemFile
from kubetide.node.core.formats.numbers import is_index
from kubetide.node.core.hooks.context import HookResponse
from kubetide.node.core.hooks.cookies import CookieMemory
from kubetide.node.core.hooks.core_sched import group_of
from kubetide.node.core.hooks.identity_switch import IdentitySwitch
from kubetide.node.core.hooks.oom_score import HIGHEST, LOWEST, wanted_score
from kubetide.node.core.hooks.requests import (
    container_request,
    container_writes,
    host_app_request,
    host_app_writes,
    pod_request,
    pod_writes,
    sandbox_request,
    tier_writes,
)
from kubetide.node.core.hooks.rules import (
    CORE_SCHED,
    CPUSET,
    GROUP_IDENTITY,
    NORMALIZATION,
    OOM_SCORE,
    Plugins,
    Question,
    kube_qos_requests,
)
from kubetide.node.core.kernel_values import Needs
from kubetide.node.core.outcomes import CookieOutcome, Outcomes
from kubetide.node.core.plan import Batch, Grouped, Plan, Subject, Target, Write
from kubetide.node.core.snapshot import ContainerState, PodState, Snapshot, sandbox_among, sandbox_id


@dataclass(frozen=True, slots=True)
class Scaled:
    """The effect of writing a quota that normalization wants: scaled by this ratio, or put back where there is none."""

    ratio: float | None


class _Asked(NamedTuple):
    """What the plugins wanted for a pod and inside it, and what that followed from."""

    pod: PodState
    children: tuple[str, ...] | None
    above: tuple[Write, ...]
    inside: tuple[Write, ...]


@dataclass(slots=True)
class HookDecider:
    """Turns snapshots into the writes of the hook plugins."""

    plugins: Plugins
    cookies: CookieMemory = field(default_factory=CookieMemory)
    identity: IdentitySwitch = field(default_factory=IdentitySwitch)
    _scaled: dict[str, float] = field(default_factory=dict)
    """Directories whose quota is scaled, by ratio."""
    _restoring: set[str] = field(default_factory=set)
    """Directories whose quota may still be scaled by a ratio that is gone."""
    _new_identity: bool = False
    """Whether the values of a new group identity are not all in force yet."""
    _asked: dict[str, _Asked] = field(default_factory=dict)
    """By directory of a pod: what the plugins wanted in the last pass."""
    _asked_by: tuple[object, ...] = ()
    """The rules by which they wanted it."""
    _batches: dict[str, Batch] = field(default_factory=dict)
    _unread: dict[str, str] = field(default_factory=dict)
    _problems: dict[str, str] = field(default_factory=dict)

    def needs(self, snapshot: Snapshot) -> Needs:
        """Return the kernel values that the hooks look at: sandboxes, group identity, processes to be grouped."""
        active = [pod for pod in snapshot.pods if pod.is_active]
        identity, cookies = self.plugins.on(GROUP_IDENTITY), self.plugins.on(CORE_SCHED)
        processes = cookies or self.plugins.on(OOM_SCORE)
        sandboxes = self.plugins.on(CPUSET) and not processes  # what is read below a pod shows its children too
        return Needs(
            children=[pod.directory for pod in active if pod.containers] if sandboxes else (),
            texts_below=[(files.PROCS, pod.directory) for pod in active] if processes else (),
            trees=[snapshot.paths.tier(name) for name in KUBE_QOS_CLASSES] if self.identity.sweeping else (),
            settings=(files.SCHED_GROUP_IDENTITY, files.SCHED_CORE) if identity else (),
            present=((files.CPU_BVT, snapshot.paths.kube_root),) if identity else (),
        )

    def processes(self, snapshot: Snapshot) -> frozenset[int]:
        """Return the processes whose core scheduling cookies are looked at: those of containers, and their groups."""
        if not self.plugins.on(CORE_SCHED):
            return frozenset()
        pods = [pod for pod in snapshot.pods if pod.is_active]
        places = (directory for pod in pods for _, _, directory in _places(snapshot, pod))
        return frozenset(self.cookies.processes).union(*(map(int, _processes(snapshot, place)) for place in places))

    def switch(self, snapshot: Snapshot) -> Plan:
        """Return what must be switched in the kernel before any value is written."""
        if not self.plugins.on(GROUP_IDENTITY):
            self.plugins.bvt_ready = False
            return Plan()
        plan = self.identity.plan(snapshot, cores=self.plugins.on(CORE_SCHED))
        self.plugins.bvt_ready = self.identity.ready
        return plan

    def switched(self, outcomes: Outcomes) -> None:
        """Learn whether the switches were turned; while group identity is not on, none of its values is written."""
        if outcomes:
            self.identity.turned(outcomes)
            self.plugins.bvt_ready = self.identity.ready

    def refresh(self, snapshot: Snapshot) -> frozenset[str]:
        """Take over the rules of a snapshot; return the plugins whose rule changed. What cannot be read stays."""
        changed: frozenset[str] = frozenset()
        scaling = self.plugins.rules.normalization.enable
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
        if self.plugins.rules.normalization.enable:
            self._restoring.clear()
        elif scaling:
            self._restoring = _directories(pod for pod in snapshot.pods if pod.is_active)
        self._new_identity = self._new_identity or GROUP_IDENTITY in changed
        return changed

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the writes for all objects; the audit names a new group identity as the reason of its values."""
        changed = self.refresh(snapshot)
        self._problems = {}
        above: list[Write] = []
        for request in kube_qos_requests({name: snapshot.paths.tier(name) for name in KUBE_QOS_CLASSES}):
            for _, response in self._answers(request.cgroup_parent, self.plugins.kube_qos(request)):
                above += tier_writes(request.cgroup_parent, response)
        pods: list[Write] = []
        inside: list[Write] = []
        active = [pod for pod in snapshot.pods if pod.is_active]
        self._forget(active)
        asked = self._last_pass(snapshot)
        self._asked = {}
        for pod in active:
            wanted = self._wanted(snapshot, pod, asked.get(pod.directory))
            pods += wanted.above
            inside += wanted.inside
        host: list[Write] = []
        for app in snapshot.host_applications:
            about = host_app_request(app, snapshot.paths)
            for _, response in self._answers(about.name, self.plugins.host_app(about)):
                host += host_app_writes(about, response)
        if self._new_identity:
            above, pods, host = _identity(above), _identity(pods), _identity(host)
        quotas = self._same(Batch(levels=(_quotas(pods), _quotas(inside)), leveled=True), "quotas")
        others = [write for write in [*pods, *inside] if write.file is not files.CPU_QUOTA]
        trace = {"pods": len(active), "problems": self._unread | self._problems, "changed": sorted(changed)}
        batches = [
            Batch.flat(*self.identity.sweep(snapshot)),
            Batch.flat(*above),
            self._same(Batch.flat(*others), "others"),
            quotas,
            Batch.flat(*host),
        ]
        scores = self._oom_scores(snapshot, active) if self.plugins.on(OOM_SCORE) else []
        if scores:
            batches.append(Batch.flat(*scores, cached=False))  # process ids are used again
        found = snapshot.kernel.cookies
        cookies = self.cookies.plan(tuple(self._grouped(snapshot)), found, now=snapshot.now) if found else None
        return Plan(batches=tuple(batches), cookies=cookies, trace=trace | {"problems": self._unread | self._problems})

    def _oom_scores(self, snapshot: Snapshot, active: Iterable[PodState]) -> list[Write]:
        """Return the oom_score_adj of every process of the containers that ask for one."""
        writes: list[Write] = []
        for pod in active:
            for container in _reconciled(snapshot, pod):
                try:
                    score = wanted_score(pod.pod.metadata.annotations, container.name)
                except InvalidInput as error:
                    self._problems[pod.key] = f"{OOM_SCORE}: {error}"
                    break
                if score is not None and container.directory:
                    processes = _processes(snapshot, container.directory)
                    writes += [oom_score_write(pod, container, pid, score) for pid in processes]
        return writes

    def _grouped(self, snapshot: Snapshot) -> Iterable[Grouped]:
        """Yield sandboxes and containers with their core scheduling groups, those of the oldest pods first."""
        rule = self.plugins.rules.core_sched
        if rule is None or not self.plugins.on(CORE_SCHED):
            return
        pods = (pod for pod in snapshot.pods if pod.is_active and pod.raw_qos != "SYSTEM")
        for pod in sorted(pods, key=lambda pod: pod.pod.metadata.creation_timestamp or snapshot.now):
            labels = pod.pod.metadata.labels
            enabled, group = group_of(
                rule, labels=labels, qos=pod.raw_qos, kube_qos=pod.kube_qos, uid=pod.uid, compat=snapshot.compat
            )
            for name, identity, directory in _places(snapshot, pod):
                yield Grouped(
                    namespace=pod.namespace,
                    pod=pod.name,
                    uid=pod.uid,
                    name=name,
                    identity=identity,
                    group=group,
                    enabled=enabled,
                    pids=tuple(map(int, _processes(snapshot, directory))),
                )

    def applied(self, plan: Plan, outcomes: Outcomes, cookies: Iterable[CookieOutcome] = ()) -> None:
        """Learn what became of the writes and of the cookies of a plan."""
        if plan.cookies is not None:
            self.cookies.applied(plan.cookies, cookies)
        self.identity.swept(outcomes)
        self._new_identity = self._new_identity and any(
            outcome.failed for outcome in outcomes if outcome.write.file is files.CPU_BVT
        )
        for outcome in outcomes:
            effect, directory = outcome.write.effect, outcome.write.directory
            if not isinstance(effect, Scaled) or outcome.failed:
                continue
            # A directory that is not there has nothing to put back; it is scaled once it is there.
            if effect.ratio is None:
                self._restoring.discard(directory)
                self._scaled.pop(directory, None)
            elif outcome.in_force:
                self._scaled[directory] = effect.ratio

    def _last_pass(self, snapshot: Snapshot) -> Mapping[str, _Asked]:
        """Return what the plugins wanted in the last pass, nothing if it does not hold any more for anybody.

        Normalization depends on what the kernel took: while a quota is or was scaled, all pods are asked about.
        """
        plugins = self.plugins
        by = (replace(plugins.rules), plugins.bvt_ready, plugins.resctrl_groups, snapshot.layout, snapshot.compat)
        holds = by == self._asked_by and not (plugins.rules.normalization.enable or self._scaled or self._restoring)
        self._asked_by = by
        return self._asked if holds else {}

    def _wanted(self, snapshot: Snapshot, pod: PodState, last: _Asked | None) -> _Asked:
        children = snapshot.kernel.children.get(pod.directory)
        if last is None or last.pod is not pod or last.children != children:
            last = self._ask(snapshot, pod, children)
        if pod.key not in self._problems:
            self._asked[pod.directory] = last
        return last

    def _same(self, batch: Batch, name: str) -> Batch:
        """Return the batch of this name of the last pass if it has the same writes: whoever applies it knows it."""
        if (before := self._batches.get(name)) is None or before.levels != batch.levels:
            self._batches[name] = batch
        return self._batches[name]

    def _ask(self, snapshot: Snapshot, pod: PodState, children: tuple[str, ...] | None) -> _Asked:
        above: list[Write] = []
        inside: list[Write] = []
        request = pod_request(pod)
        questions = self.plugins.pod(request, restoring=pod.directory in self._restoring)
        questions = self._due(snapshot, questions, pod.directory)
        for plugin, response in self._answers(pod.key, questions):
            above += self._with_effect(plugin, pod.directory, pod_writes(request, response))
        requests = [container_request(request, one) for one in _reconciled(snapshot, pod) if one.directory]
        sandbox = sandbox_among(pod, children or ())
        if sandbox is not None and not _left_out(snapshot, pod):
            requests.insert(0, sandbox_request(request, sandbox_id(snapshot.paths, pod, sandbox), sandbox))
        for one in requests:
            place = one.cgroup_parent
            questions = self._due(snapshot, self.plugins.container(one, restoring=place in self._restoring), place)
            for plugin, response in self._answers(pod.key, questions):
                inside += self._with_effect(plugin, place, container_writes(one, response))
        return _Asked(pod, children, tuple(above), tuple(inside))

    def _answers(self, subject: str, questions: Iterable[Question]) -> Iterable[tuple[str, HookResponse]]:
        """Yield the answers of the plugins; one that fails for this object is noted, and the others are asked."""
        for plugin, ask in questions:
            try:
                answer = ask()
            except Exception as error:  # noqa: BLE001 - one object must not keep the others from being repaired
                self._problems[subject] = f"{plugin}: {error}"
                continue
            yield plugin, answer

    def _due(self, snapshot: Snapshot, questions: Iterable[Question], directory: str) -> Iterable[Question]:
        """Leave normalization out where burst has taken over a quota that is scaled by the ratio in force."""
        done = self._scaled.get(directory) == self.plugins.rules.normalization.ratio
        if not (done and snapshot.gates.get("CPUBurst", False)) or directory in self._restoring:
            return questions
        return (question for question in questions if question[0] != NORMALIZATION)

    def _with_effect(self, plugin: str, directory: str, writes: list[Write]) -> list[Write]:
        if plugin != NORMALIZATION:
            return writes
        restoring = directory in self._restoring
        if restoring and not writes:
            self._restoring.discard(directory)  # it has no quota of its own: nothing was ever scaled
        effect = Scaled(None if restoring else self.plugins.rules.normalization.ratio)
        return [replace(write, effect=effect) for write in writes]

    def _forget(self, active: Iterable[PodState]) -> None:
        known = _directories(active)
        self._scaled = {directory: ratio for directory, ratio in self._scaled.items() if directory in known}
        self._restoring &= known


def oom_score_write(pod: PodState, container: ContainerState, pid: str, score: int) -> Write:
    """Return the write of one process; one that ended meanwhile is passed over."""
    file = SystemFile(name="oom_score_adj", root=Root.PROC, path=f"{pid}/oom_score_adj", bounds=(LOWEST, HIGHEST))
    subject = Subject(
        type="container", namespace=pod.namespace, name=pod.name, container=container.name, container_id=container.id
    )
    return Write(file=file, value=str(score), target=Target.SYSTEM, reason=OOM_SCORE, subject=subject)


def _reconciled(snapshot: Snapshot, pod: PodState) -> tuple[ContainerState, ...]:
    """Return the containers whose values the agent keeps."""
    if not snapshot.compat.has(INIT_CONTAINERS):
        return pod.containers
    return () if _left_out(snapshot, pod) else (*pod.init_containers, *pod.containers)


def _left_out(snapshot: Snapshot, pod: PodState) -> bool:
    return pod.in_a_machine_of_its_own and snapshot.compat.has(INIT_CONTAINERS)


def _places(snapshot: Snapshot, pod: PodState) -> Iterable[tuple[str, str, str]]:
    """Yield (name, id, directory) of the sandbox, which has no name, where it is known, and of the containers."""
    directory = sandbox_among(pod, snapshot.kernel.children.get(pod.directory, ()))
    if directory is not None:
        yield "", sandbox_id(snapshot.paths, pod, directory), directory
    for container in pod.containers:
        if container.directory:
            yield container.name, container.id, container.directory


def _processes(snapshot: Snapshot, directory: str) -> list[str]:
    return [word for word in (snapshot.kernel.text(files.PROCS, directory) or "").split() if is_index(word)]


def _directories(pods: Iterable[PodState]) -> set[str]:
    """Return the directories of pods and of their containers."""
    return {
        place
        for pod in pods
        for place in (pod.directory, *(one.directory for one in (*pod.init_containers, *pod.containers)))
        if place
    }


def _identity(writes: Iterable[Write]) -> list[Write]:
    return [replace(write, reason=GROUP_IDENTITY) if write.file is files.CPU_BVT else write for write in writes]


def _quotas(writes: Iterable[Write]) -> tuple[Write, ...]:
    return tuple(write for write in writes if write.file is files.CPU_QUOTA)
