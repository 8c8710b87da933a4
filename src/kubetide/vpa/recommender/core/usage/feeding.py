"""From observed pods, usage and OOM kills to the model.

Pods are compared by identity with what was applied last, so a loop costs what changed. Usage of all containers
becomes one batch of arrays. OOM kills are handed in after the samples of the same loop, except those that happened
before the recommender looked (a restart, a watch gap): these come first, so that they open the memory window instead of
being too old for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain

import numpy as np

from kubetide.api.objects.core import Container, Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.objects.metrics import PodMetrics, UsagePages
from kubetide.api.values.quantity import cpu_millis, memory_bytes
from kubetide.errors import QuantityError
from kubetide.stats.buckets import Floats, Ints
from kubetide.stats.instants import microseconds
from kubetide.vpa.core.policy import CPU, MEMORY
from kubetide.vpa.core.sidecars import without_sidecars
from kubetide.vpa.recommender.core.entities import VpaState, Window
from kubetide.vpa.recommender.core.groups import Scopes
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.oom import Oom, request_source
from kubetide.vpa.recommender.core.samples import NO_AGGREGATE, Mask
from kubetide.vpa.recommender.core.usage.columns import ColumnRows, listed
from kubetide.vpa.recommender.core.usage.plausible import UNCOUNTABLE, Bounds, RefusalReason


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """Usage of many containers: rows of the container table, times, millicores, bytes."""

    rows: Ints
    times: Ints
    cpu: Ints
    memory: Ints
    unknown: int = 0
    """Containers that the model does not know."""
    refused: dict[RefusalReason, "Refused"] = field(default_factory=dict)
    """Samples that cannot be true."""

    def without(self, rows: Iterable[int]) -> "UsageBatch":
        """Return the batch without some containers."""
        kept = ~np.isin(self.rows, np.fromiter(rows, dtype=np.int64))
        return self.keeping(kept)

    def keeping(self, kept: Mask) -> "UsageBatch":
        """Return the batch with some of its samples only."""
        return replace(self, rows=self.rows[kept], times=self.times[kept], cpu=self.cpu[kept], memory=self.memory[kept])


@dataclass(slots=True)
class Refused:
    """Samples refused for one reason: how many, and the pod of the first."""

    count: int
    example: str


@dataclass(frozen=True, slots=True)
class Fed:
    """Which samples of a batch were accepted."""

    cpu: Mask
    memory: Mask


@dataclass(slots=True)
class PodFeed:
    """Keeps the model's pods equal to the observed ones."""

    track_all: bool = True
    """False: only pods that some VPA matches (memory saver)."""
    init_containers: dict[ObjectKey, frozenset[str]] = field(default_factory=dict)
    nodes: dict[ObjectKey, str] = field(default_factory=dict)
    """The node that each pod of the model runs on."""
    _sources: dict[str, int] = field(default_factory=dict)
    _applied: dict[ObjectKey, Pod] = field(default_factory=dict)
    _gone: list[ObjectKey] = field(default_factory=list)
    _groups: dict[ObjectKey, Mapping[str, str]] = field(default_factory=dict)
    """The labels that file a pod under its groups, of pods that have some."""
    _version: int | None = None
    _current: tuple[int | None, int] | None = None
    """The version of the pods, and of the containers of the model, that agree."""

    def sync(
        self,
        model: Model,
        pods: Iterable[Pod],
        *,
        now: datetime,
        all_again: bool = False,
        scopes: Scopes | None = None,
        version: int | None = None,
    ) -> list[ObjectKey]:
        """Apply what changed and note the pods that are gone; return those that are new to the model.

        Pods are the same as long as their `version` is, if they have one.
        """
        grouped = scopes is not None or bool(self._groups)
        self._version = version
        if version is not None and not (all_again or grouped or self._current != (version, model.containers.changes)):
            return []
        if all_again:
            self._applied.clear()
        fresh, seen = [], set()
        for pod in pods:
            key = ObjectKey(pod.metadata.namespace, pod.metadata.name)
            seen.add(key)
            if self._applied.get(key) is pod and not (grouped and self._regrouped(key, pod, scopes)):
                continue
            if not self.track_all and not model.matches_any(key.namespace, pod.metadata.labels):
                model.delete_pod(key)
                self._applied[key] = pod
                continue
            if self._apply(model, key, pod, now, scopes):
                fresh.append(key)
        self._gone = list(dict.fromkeys(key for key in chain(model.pods, self._applied) if key not in seen))
        return fresh

    def delete_removed(self, model: Model) -> None:
        """Remove the pods that `sync` found gone; called after the samples, so that the last of theirs count."""
        for key in self._gone:
            model.delete_pod(key)
            self._forget(key)
        self._gone = []
        self._current = self._version, model.containers.changes

    def forget_namespaces(self, leaves: Callable[[str], bool]) -> None:
        """Forget the pods of namespaces that leave, which the model has forgotten."""
        for key in [key for key in self._applied if leaves(key.namespace)]:
            self._forget(key)

    def _forget(self, key: ObjectKey) -> None:
        self._applied.pop(key, None)
        self.init_containers.pop(key, None)
        self.nodes.pop(key, None)
        self._groups.pop(key, None)

    def take_sources(self) -> dict[str, int]:
        """Return and forget how often the requests of a container were looked up since the last call, by source."""
        found, self._sources = self._sources, {}
        return found

    def _regrouped(self, key: ObjectKey, pod: Pod, scopes: Scopes | None) -> bool:
        """Return whether a pod belongs to other groups than it is filed under: labels of nodes and VPAs change too."""
        before = self._groups.get(key, {})
        return (scopes.labels(pod, before) if scopes is not None else {}) != before

    def _apply(self, model: Model, key: ObjectKey, pod: Pod, now: datetime, scopes: Scopes | None) -> bool:
        known = model.pods.get(key)
        # A pod of the same name but another uid (a StatefulSet's) is another pod: its windows start anew.
        if known is not None and known.uid and pod.metadata.uid and known.uid != pod.metadata.uid:
            model.delete_pod(key)
            known = None
        labels = pod.metadata.labels
        before = self._groups.pop(key, {})
        groups = scopes.labels(pod, before) if scopes is not None else {}
        if groups:
            self._groups[key] = groups
            labels = {**(labels or {}), **groups}
        model.set_pod(key, labels, pod.status.phase, now=now, uid=pod.metadata.uid)
        for container in pod.spec.containers or ():
            row = model.set_container(key, container.name, now=now)
            model.containers.cpu_limit[row] = _cpu_limit(pod, container)
            source = request_source(pod, container.name)
            self._sources[source] = self._sources.get(source, 0) + 1
        # Native sidecars are among the containers, if they are to be sized; other init containers never are.
        init = frozenset(container.name for container in without_sidecars(pod).spec.init_containers or ())
        if init:
            self.init_containers[key] = init
        self.nodes[key] = pod.spec.node_name
        self._applied[key] = pod
        return known is None


NO_BOUNDS = Bounds()


def gather(
    model: Model,
    usage: Sequence[PodMetrics] | UsagePages,
    *,
    now: datetime,
    init: Mapping[ObjectKey, frozenset[str]],
    bounds: Bounds = NO_BOUNDS,
    columns: ColumnRows | None = None,
) -> UsageBatch:
    """Return the usage of known containers as arrays: a missing resource is 0, what cannot be true is left out.

    `columns` knows from the last time whose columns of usage are whose, and is for the same model and `init`.
    """
    if not isinstance(usage, UsagePages):
        return _checked(model, _listed(model, usage, now=now, init=init, bounds=bounds), usage, now=now, bounds=bounds)
    found = (columns or ColumnRows()).read(model, usage, init)
    if found is None or any(bounds.is_future(page.timestamp, now) for page in usage.values()):
        return gather(model, listed(usage), now=now, init=init, bounds=bounds)
    return _checked(model, UsageBatch(*found), (), now=now, bounds=bounds)


def _listed(
    model: Model,
    usage: Sequence[PodMetrics],
    *,
    now: datetime,
    init: Mapping[ObjectKey, frozenset[str]],
    bounds: Bounds,
) -> UsageBatch:
    """Read samples one by one."""
    rows: list[int] = []
    times: list[int] = []
    cpu: list[int] = []
    memory: list[int] = []
    unknown = 0
    refused: dict[RefusalReason, Refused] = {}
    stamp: datetime | None = None
    at, future = 0, False
    for pod in usage:
        if pod.timestamp is None:
            continue
        if pod.timestamp != stamp:
            # Pods of one node, often of all, share a time.
            stamp = pod.timestamp
            at, future = microseconds(stamp), bounds.is_future(stamp, now)
        key = ObjectKey(pod.metadata.namespace, pod.metadata.name)
        if future:
            _refuse(refused, RefusalReason.FUTURE, len(pod.containers or ()), str(key))
            continue
        state, skipped = model.pods.get(key), init.get(key, ())
        known = state.containers if state is not None else {}
        for container in pod.containers or ():
            name, used = container.name, container.usage or {}
            if name in skipped:
                continue
            row = known.get(name)
            try:
                millis, amount = cpu_millis(used.get(CPU, 0)), memory_bytes(used.get(MEMORY, 0))
            except QuantityError:
                row = None
            if row is None:
                unknown += 1
                continue
            rows.append(row)
            times.append(at)
            cpu.append(millis)
            memory.append(amount)
    return UsageBatch(_ints(rows), _ints(times), _ints(cpu), _ints(memory), unknown, refused)


def _checked(
    model: Model, batch: UsageBatch, usage: Iterable[PodMetrics], *, now: datetime, bounds: Bounds
) -> UsageBatch:
    """Return a batch without what cannot be true; its containers are ready for samples."""
    orphans = set(batch.rows[model.containers.aggregate[batch.rows] == NO_AGGREGATE].tolist())
    if orphans:
        _adopt(model, orphans, now)
    refused = batch.refused
    if batch.rows.size and np.bincount(batch.rows).max() > 1:
        batch = _without_repeated(model, usage, batch, refused)
    possible = bounds.possible(model.pods.values(), batch.rows, batch.cpu, batch.memory)
    if possible.all():
        return batch
    gone = set(batch.rows[~possible].tolist())
    example = next(str(pod.key) for pod in model.pods.values() if not gone.isdisjoint(pod.containers.values()))
    _refuse(refused, RefusalReason.ABOVE_NODE, len(gone), example)
    return batch.keeping(possible)


def _without_repeated(
    model: Model, usage: Iterable[PodMetrics], batch: UsageBatch, refused: dict[RefusalReason, Refused]
) -> UsageBatch:
    """Leave out the pods that list a container more than once; one that occurs in several items is another matter."""
    rows: set[int] = set()
    for pod in usage:
        names = [container.name for container in pod.containers or ()]
        state = model.pods.get(ObjectKey(pod.metadata.namespace, pod.metadata.name))
        if state is not None and len(set(names)) < len(names):
            rows.update(state.containers.values())
            _refuse(refused, RefusalReason.DUPLICATE_CONTAINER, len(names), str(state.key))
    return batch.without(rows)


def _refuse(refused: dict[RefusalReason, Refused], reason: RefusalReason, count: int, example: str) -> None:
    refused.setdefault(reason, Refused(0, example)).count += count


def _adopt(model: Model, rows: set[int], now: datetime) -> None:
    """Give containers whose aggregate was collected a new one: they report again."""
    for pod in model.pods.values():
        for name, row in pod.containers.items():
            if row in rows:
                model.row(pod.key, name, now=now)


def feed(model: Model, batch: UsageBatch) -> Fed:
    """Add a batch to the model."""
    return Fed(
        cpu=model.containers.add_cpu(batch.rows, batch.times, batch.cpu),
        memory=model.containers.add_memory(batch.rows, batch.times, batch.memory),
    )


def _cpu_limit(pod: Pod, container: Container) -> int:
    """Return the CPU limit of a container in millicores, as the kubelet reports it where it does; 0 without one."""
    reported = (one.resources for one in pod.status.container_statuses or () if one.name == container.name)
    resources = next((each for each in reported if each is not None), container.resources)
    try:
        return cpu_millis(((resources.limits if resources is not None else None) or {}).get(CPU, 0))
    except QuantityError:
        return 0


def _ints(values: list[int]) -> Ints:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        # Amounts beyond 64 bits cannot be usage.
        return np.array([max(min(value, UNCOUNTABLE), -1) for value in values], dtype=np.int64)


def feed_oom(model: Model, oom: Oom, *, now: datetime) -> bool | None:
    """Add one OOM kill; return whether it counted, or None when the container is unknown."""
    try:
        row = model.row(ObjectKey(oom.namespace, oom.pod), oom.container, now=now)
    except KeyError:
        return None
    return model.containers.add_oom(row, microseconds(oom.at), oom.memory_bytes)


def missed(ooms: Iterable[Oom], model: Model) -> Iterator[Oom]:
    """Yield the OOM kills that no checkpoint knows from which a VPA of the container started."""
    for oom in ooms:
        pod = model.pods.get(ObjectKey(oom.namespace, oom.pod))
        if pod is None or not any(_in_checkpoint(oom, vpa, model) for vpa in pod.labels.vpas.values()):
            yield oom


def _in_checkpoint(oom: Oom, vpa: VpaState, model: Model) -> bool:
    stored = vpa.checkpoints.get(oom.container)
    interval = vpa.tuning(oom.container, model.aggregates.default).interval
    return stored is not None and stored.restored is not None and stored.restored.knows(oom.at, interval)


def claim_windows(model: Model) -> None:
    """Continue the open windows of checkpoints whose containers are there; close those whose container is gone."""
    for vpa in model.vpas.values():
        for container, windows in vpa.windows.items():
            gone = [window for window in windows if not _continued(model, vpa.key, container, window)]
            slot = vpa.history.get(container)
            if slot is not None and gone:
                peaks: Floats = np.array([max(window.peak, window.oom_peak) for window in gone])
                ends = np.array([window.end for window in gone], dtype=np.int64)
                model.aggregates.memory.add(np.full(len(gone), slot), peaks, 1.0, ends)
        if vpa.windows:
            vpa.windows = {}


def _continued(model: Model, vpa: ObjectKey, container: str, window: Window) -> bool:
    pod = model.pods.get(ObjectKey(vpa.namespace, window.pod))
    row = pod.containers.get(container) if pod is not None and pod.uid == window.uid else None
    if row is None:
        return False
    # Two VPAs may have saved the same window; it is continued once.
    if model.containers.window_end[row] < window.end:
        model.containers.restore_window(
            row,
            end=window.end,
            peak=window.peak,
            oom_peak=window.oom_peak,
            last=window.last,
            last_cpu=window.last_cpu,
        )
    return True
