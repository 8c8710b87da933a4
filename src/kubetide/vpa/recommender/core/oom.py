"""Out of memory: where it shows, and how each one is counted exactly once.

Four places show that a container ran out of memory:

    eviction events    annotations name containers, their usage and the starved resource
    pod updates        between two versions of a pod a container turned out OOM killed (the edge)
    the pod as it is   after a gap in the watch: a termination not seen before (the level)

    updater's note     a container was given more memory before the kernel acted (`vpa.core.grown`): what it needed then
                       is learned as if it had been OOM killed, by a rule of its own name

Edge and level find the same OOM kill, so `Seen` remembers (pod, uid, container, finishedAt) and lets each through once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from kubetide.api.objects.core import ContainerStatus, Pod
from kubetide.api.objects.events import RecordedEvent
from kubetide.api.values.quantity import parse_quantity
from kubetide.errors import QuantityError
from kubetide.stats.powers import power_of_two
from kubetide.vpa.core.grown import read_grown

OOM_KILLED = "OOMKilled"
EVICTED = "Evicted"
FROM_STATUS = "container_status"
FROM_SPEC = "pod_spec_container"


class OomRule(StrEnum):
    """How it is known that a container lacked memory."""

    KILLED = "OOM kill"
    GROWN = "growth before an OOM kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Oom:
    """A container ran out of memory: `memory_bytes` is its request, or its usage when an event reports that."""

    namespace: str
    pod: str
    container: str
    at: datetime
    memory_bytes: int
    uid: str = ""
    rule: OomRule = OomRule.KILLED


def from_event(event: RecordedEvent) -> list[Oom]:
    """Return the OOM kills that an eviction event reports."""
    involved = event.involved_object or event.regarding
    if event.reason != EVICTED or involved is None or involved.kind != "Pod":
        return []
    notes = event.metadata.annotations or {}
    keys = ("offending_containers", "offending_containers_usage", "starved_resource")
    if any(key not in notes for key in keys) or event.metadata.creation_timestamp is None:
        return []
    containers, usages, starved = (notes[key].split(",") for key in keys)
    if not len(containers) == len(usages) == len(starved):
        return []
    found = []
    for container, usage, resource in zip(containers, usages, starved, strict=True):
        if resource != "memory":
            continue
        try:
            used = parse_quantity(usage).value
        except QuantityError:
            continue
        found.append(
            Oom(
                namespace=involved.namespace,
                pod=involved.name,
                container=container,
                at=event.metadata.creation_timestamp,
                memory_bytes=used,
                uid=involved.uid,
            )
        )
    return found


def from_update(old: Pod, new: Pod) -> list[Oom]:
    """Return the OOM kills that happened between two versions of a pod."""
    before = {status.name: status for status in old.status.container_statuses or ()}
    found = []
    for status in new.status.container_statuses or ():
        previous = before.get(status.name)
        if previous is None:
            continue
        restarted = status.restart_count > previous.restart_count
        ended = status.state.terminated if status.state is not None else None
        if ended is not None:
            was_ended = previous.state is not None and previous.state.terminated is not None
            if ended.reason == OOM_KILLED and (not was_ended or restarted):
                found.append(_oom(new, new, status.name, ended.finished_at))
            continue
        last = status.last_state.terminated if status.last_state is not None else None
        if restarted and _running(previous) and _running(status) and last is not None and last.reason == OOM_KILLED:
            found.append(_oom(new, old, status.name, last.finished_at))
    return [oom for oom in found if oom is not None]


def from_pod(pod: Pod) -> list[Oom]:
    """Return the OOM kills still visible on a pod, whenever they happened, and those that the updater forestalled."""
    found: list[Oom | None] = [
        Oom(
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            container=container,
            at=grown.at,
            memory_bytes=grown.need,
            uid=pod.metadata.uid,
            rule=OomRule.GROWN,
        )
        for container, grown in read_grown(pod.metadata.annotations).items()
    ]
    for status in pod.status.container_statuses or ():
        for state in (status.last_state, status.state):
            ended = state.terminated if state is not None else None
            if ended is not None and ended.reason == OOM_KILLED:
                found.append(_oom(pod, pod, status.name, ended.finished_at))
    return [oom for oom in found if oom is not None]


def _running(status: ContainerStatus) -> bool:
    return status.state is not None and status.state.running is not None


def _oom(pod: Pod, requested: Pod, container: str, at: datetime | None) -> Oom | None:
    if at is None:
        return None
    return Oom(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        container=container,
        at=at,
        memory_bytes=memory_request(requested, container),
        uid=pod.metadata.uid,
    )


def request_source(pod: Pod, container: str) -> str:
    """Return where the requests in force of a container are found, as telemetry names it."""
    for status in pod.status.container_statuses or ():
        if status.name == container and status.resources is not None:
            return FROM_STATUS
    return FROM_SPEC


def memory_request(pod: Pod, container: str) -> int:
    """Return the memory request in force: what the status says was applied, else what the spec asks for."""
    for status in pod.status.container_statuses or ():
        if status.name == container and status.resources is not None:
            return _memory(status.resources.requests)
    for spec in pod.spec.containers or ():
        if spec.name == container and spec.resources is not None:
            return _memory(spec.resources.requests)
    return 0


def _memory(requests: Mapping[str, str | int | float] | None) -> int:
    try:
        return parse_quantity((requests or {}).get("memory", 0)).value
    except QuantityError:
        return 0


@dataclass(slots=True)
class Seen:
    """Remembers OOM kills by pod until the pod is gone."""

    _by_pod: dict[tuple[str, str, str], set[tuple[str, datetime]]] = field(default_factory=dict)

    def fresh(self, ooms: Iterable[Oom]) -> Iterator[Oom]:
        """Yield the OOM kills not seen before, and remember them. Times count by the second."""
        for oom in ooms:
            known = self._by_pod.setdefault((oom.namespace, oom.pod, oom.uid), set())
            mark = (oom.container, oom.at.replace(microsecond=0))
            if mark not in known:
                known.add(mark)
                yield oom

    def forget(self, namespace: str, pod: str, uid: str) -> None:
        """Drop what is remembered of a pod that is gone."""
        self._by_pod.pop((namespace, pod, uid), None)

    def keep(self, pods: Iterable[tuple[str, str]]) -> None:
        """Drop what is remembered of all other pods: events report pods that were gone already."""
        there = set(pods)
        self._by_pod = {key: marks for key, marks in self._by_pod.items() if key[:2] in there}

    def __len__(self) -> int:
        return len(self._by_pod)


# The OOM floor: memory that an OOM killed container keeps, fading slowly.


@dataclass(frozen=True, slots=True)
class Floor:
    """Memory that was found necessary at a time."""

    memory_bytes: float
    at: datetime

    def now(self, now: datetime, half_life: timedelta) -> float:
        """Return what is left of it."""
        age: float = max(now - self.at, timedelta(0)) / half_life
        return self.memory_bytes * float(power_of_two(-age))


def raised(old: Floor | None, needed: float, *, at: datetime, half_life: timedelta) -> Floor:
    """Return the floor after an OOM kill that asked for `needed` bytes."""
    left = old.now(at, half_life) if old is not None else 0.0
    return Floor(max(left, needed), at)


def floor_text(floor: Floor) -> str:
    """Return the annotation value."""
    return f"{int(floor.memory_bytes)}@{floor.at.isoformat()}"


def read_floor(text: str) -> Floor | None:
    """Return the floor of an annotation, or None when there is none that can be read."""
    amount, separator, at = text.partition("@")
    try:
        when = datetime.fromisoformat(at)
        return Floor(float(amount), when) if separator and when.tzinfo is not None and float(amount) >= 0 else None
    except ValueError:
        return None
