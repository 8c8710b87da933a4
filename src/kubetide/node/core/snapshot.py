"""The node at one instant: the one input of every strategy.

A snapshot is taken once per sync and strategy from the state sources, the series store, and those kernel files that
the strategy says it needs (`kernel_values.Needs`). All of it is there before the strategy runs: nothing in a snapshot
reads a file when it is asked. Missing data is None or absent, never zero.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from kubetide.api.objects.core import Container, ContainerStatus, Node, Pod
from kubetide.api.qos import qos
from kubetide.api.qos.cgroups import CgroupPaths, ContainerIdError, join, split_container_id
from kubetide.api.qos.slo_strategies import HostApplication, NodeSLOSpec
from kubetide.api.values.compat import Compat
from kubetide.node.core.compat import NEWEST
from kubetide.node.core.formats.processors import Processor
from kubetide.node.core.formats.storage import StorageFacts
from kubetide.node.core.kernel_values import KernelValues
from kubetide.node.core.layout import Layout
from kubetide.node.core.series.query import Points

KATA = "kata"
"""The runtime class of pods that run in virtual machines."""


class SampleReader(Protocol):
    """Recent samples, read by kind, properties and window."""

    def query(self, kind: str, properties: Mapping[str, str] | None = None, *, seconds: float) -> Points:
        """Return the samples of the last `seconds` before the snapshot."""
        ...

    def last(self, kind: str, properties: Mapping[str, str] | None = None) -> float | None:
        """Return the newest value within twice the collect interval, or None."""
        ...

    def averages(self, kind: str, by: str, *, seconds: float) -> Mapping[str, float]:
        """Return the average of every series of a kind over the last `seconds`, keyed by a property."""
        ...

    def latest(self, kind: str, by: str) -> Mapping[str, float]:
        """Return the newest value of every series of a kind within twice the collect interval, keyed by a property."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """A container of a pod: its spec, its status and its cgroup (empty while it has no usable id)."""

    name: str
    id: str
    directory: str
    spec: Container
    status: ContainerStatus | None = None

    @property
    def running(self) -> bool:
        state = self.status.state if self.status else None
        return state is not None and state.running is not None

    @property
    def ended(self) -> bool:
        """Known not to run: it ended, or has not begun."""
        state = self.status.state if self.status else None
        return state is not None and state.running is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """A pod with its classes and its cgroup."""

    pod: Pod
    directory: str
    kube_qos: str
    raw_qos: str
    qos: str
    priority: str
    containers: tuple[ContainerState, ...] = ()
    init_containers: tuple[ContainerState, ...] = ()
    """Sidecars among them; those that ended have no cgroup any more."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_active(self) -> bool:
        """Running or about to: its cgroup should be there."""
        return self.pod.status.phase in ("Running", "Pending")

    @property
    def in_a_machine_of_its_own(self) -> bool:
        """Whether its containers run below a kernel that the agent does not see."""
        return self.pod.spec.runtime_class_name == KATA


def pod_state(pod: Pod, paths: CgroupPaths) -> PodState:
    """Derive the classes and directories of a pod."""
    kube = qos.kube_qos(pod)
    directory = paths.pod(kube, pod.metadata.uid)
    return PodState(
        pod=pod,
        directory=directory,
        kube_qos=kube,
        raw_qos=qos.raw_qos(pod.metadata.labels),
        qos=qos.defaulted_qos(pod),
        priority=qos.defaulted_priority(pod),
        containers=_containers(pod.spec.containers, pod.status.container_statuses, paths, directory),
        init_containers=_containers(pod.spec.init_containers, pod.status.init_container_statuses, paths, directory),
    )


def _containers(
    specs: tuple[Container, ...] | None,
    statuses: tuple[ContainerStatus, ...] | None,
    paths: CgroupPaths,
    pod_directory: str,
) -> tuple[ContainerState, ...]:
    by_name = {status.name: status for status in statuses or ()}
    found: list[ContainerState] = []
    for spec in specs or ():
        status = by_name.get(spec.name)
        identity = status.container_id if status else ""
        place = _container_directory(paths, pod_directory, identity) if identity else ""
        found.append(ContainerState(name=spec.name, id=identity, directory=place, spec=spec, status=status))
    return tuple(found)


def _container_directory(paths: CgroupPaths, pod_directory: str, identity: str) -> str:
    """Return the directory of a container; empty for an id that names none directly below its pod."""
    try:
        place = paths.container(pod_directory, identity)
    except ContainerIdError:
        return ""
    return place if place.rpartition("/")[0] == pod_directory else ""


def host_application_directory(app: HostApplication, paths: CgroupPaths) -> str:
    """Return the cgroup of a host application."""
    path = app.cgroup_path
    where = (path.base, path.parent_dir, path.relative_path) if path is not None else None
    return paths.host_application(app.name, app.qos, cgroup_path=where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a strategy may look at."""

    now: datetime
    node: Node | None
    pods: tuple[PodState, ...]
    slo: NodeSLOSpec | None
    """The NodeSLO completed with defaults and off values; None while there is no NodeSLO."""
    metrics: SampleReader
    """Recent samples, all in memory."""
    layout: Layout
    kernel: KernelValues = field(default_factory=KernelValues)
    """The kernel values that were asked for, as they were just before the decision."""
    collect_interval: float = 1.0
    topology_annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the NodeResourceTopology as last calculated."""
    processors: tuple[Processor, ...] = ()
    storage: StorageFacts | None = None
    claims: Mapping[str, str] = field(default_factory=dict)
    """`namespace/name` of a volume claim to the name of its volume."""
    gates: Mapping[str, bool] = field(default_factory=dict)
    compat: Compat = NEWEST
    evicted: Mapping[str, datetime] = field(default_factory=dict)
    """Pods that this agent had evicted within the last minutes: uid to the time the API accepted it."""

    @property
    def paths(self) -> CgroupPaths:
        return self.layout.paths

    @property
    def host_applications(self) -> tuple[HostApplication, ...]:
        return (self.slo.host_applications or ()) if self.slo else ()

    def pod(self, uid: str) -> PodState | None:
        """Return the pod with this uid."""
        return next((pod for pod in self.pods if pod.uid == uid), None)


def sandbox_among(pod: PodState, names: Iterable[str]) -> str | None:
    """Return the directory of the pod's sandbox, given the names of all cgroups below the pod.

    Nobody reports the sandbox's id to the agent: it is the one directory that belongs to no known container. While no
    container of the pod has a status, or more than one unknown directory is there (an old container not yet removed),
    it is not known yet. CRI-O keeps processes of its own beside the containers, in scopes that are no sandbox.
    """
    known = {one.directory for one in (*pod.containers, *pod.init_containers) if one.directory}
    if not known:
        return None
    names = (name for name in names if not (name.startswith("crio-") and name.endswith(".scope")))
    others = [path for name in names if (path := join(pod.directory, name)) not in known]
    return others[0] if len(others) == 1 else None


def sandbox_id(paths: CgroupPaths, pod: PodState, directory: str) -> str:
    """Return the id of a sandbox in the spelling of the pod's containers, empty when its name says nothing."""
    hash_ = paths.container_hash(directory.rpartition("/")[2])
    ids = [container.id for container in pod.containers if container.id]
    if hash_ is None or not ids:
        return ""
    try:
        runtime, _ = split_container_id(ids[-1])
    except ContainerIdError:
        return ""
    return f"{runtime}://{hash_}"
