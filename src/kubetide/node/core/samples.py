"""From two readings of a node's cgroups to the frames that the metrics server is sent.

A window lies between two readings: CPU is the difference of a counter over it, memory the working set at its end
(usage without inactive file pages, as kubelets count it). A container without an earlier reading, or whose counter went
back, has none; a pod is sent when all its containers have one, for a part of a pod would look like a drop.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kubetide.api.objects.sample_frames import (
    FRAME_VERSION,
    ContainerSignals,
    Frame,
    MemoryAlarm,
    PodName,
    PodSample,
    UsageSample,
    encode_frame,
)
from kubetide.node.core.formats.cpu import Throttling, throttled_ratio
from kubetide.node.core.memory_alarms import Alarm, ContainerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCounters:
    """What the kernel counts for a container."""

    cpu_nanos: int
    working_set: int
    limit: int = -1
    """Bytes; -1 without a limit."""
    need: int | None = None
    """Bytes in use without page cache."""
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCounters:
    """What the kernel counts for a pod. None: this kernel does not say."""

    namespace: str
    name: str
    containers: Mapping[str, ContainerCounters]
    throttling: Throttling | None = None
    cpu_pressure: float | None = None
    memory_pressure: float | None = None
    """Shares of time, from 0 to 1."""
    oom_kills: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCounters:
    """One reading of a node."""

    at: float
    """Seconds since the epoch."""
    monotonic: float
    working_set: int
    pods: Mapping[str, PodCounters]
    """By uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWindow:
    """One window of one pod."""

    uid: str
    namespace: str
    name: str
    containers: Mapping[str, UsageSample]
    signals: tuple[float | None, ...]
    details: tuple[ContainerSignals, ...] = ()
    """In the order of the containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWindow:
    """One window of one node."""

    at: float
    seconds: float
    node: UsageSample | None
    pods: tuple[PodWindow, ...]


NOTHING: Mapping[str, float] = {}


def window_between(
    before: NodeCounters,
    now: NodeCounters,
    *,
    node_cores: float | None,
    gpus: Mapping[str, float],
    peaks: Mapping[str, float] = NOTHING,
    throttled: Mapping[str, float] = NOTHING,
) -> NodeWindow:
    """Return what happened between two readings.

    `gpus` is the share of its GPUs that a pod used, by uid; `peaks` in cores and `throttled` shares are by container.
    """
    seconds = now.monotonic - before.monotonic
    node = None if node_cores is None else UsageSample(round(node_cores * 1e9), now.working_set)
    pods = []
    for uid, pod in now.pods.items():
        earlier = before.pods.get(uid)
        usages = {} if earlier is None else _usages(earlier, pod, seconds)
        if earlier is not None and usages and len(usages) == len(pod.containers):
            signals = _signals(earlier, pod, seconds, gpus.get(uid))
            details = tuple(_details(one, peaks, throttled) for one in pod.containers.values())
            pods.append(
                PodWindow(
                    uid=uid,
                    namespace=pod.namespace,
                    name=pod.name,
                    containers=usages,
                    signals=signals,
                    details=details,
                )
            )
    return NodeWindow(at=now.at, seconds=seconds, node=node, pods=tuple(pods))


def _usages(before: PodCounters, now: PodCounters, seconds: float) -> dict[str, UsageSample]:
    found = {}
    for name, counters in now.containers.items():
        earlier = before.containers.get(name)
        if earlier is not None and counters.cpu_nanos >= earlier.cpu_nanos:
            nanocores = round((counters.cpu_nanos - earlier.cpu_nanos) / seconds)
            found[name] = UsageSample(nanocores, counters.working_set)
    return found


def _signals(before: PodCounters, now: PodCounters, seconds: float, gpu: float | None) -> tuple[float | None, ...]:
    """Return the signals in the order of SIGNALS."""
    throttled = None
    if before.throttling is not None and now.throttling is not None:
        throttled = throttled_ratio(now.throttling, before.throttling)
    memory = [sum(one.working_set for one in pod.containers.values()) for pod in (before, now)]
    # What was counted for a container that has been replaced since is counted no more.
    kills = None
    if before.oom_kills is not None and now.oom_kills is not None:
        kills = float(max(now.oom_kills - before.oom_kills, 0))
    return (
        _share(throttled),
        _share(now.cpu_pressure),
        _share(now.memory_pressure),
        (memory[1] - memory[0]) / seconds,
        _share(max((one.working_set / one.limit for one in now.containers.values() if one.limit > 0), default=None)),
        kills,
        _share(gpu),
    )


def _details(one: ContainerCounters, peaks: Mapping[str, float], throttled: Mapping[str, float]) -> ContainerSignals:
    peak = peaks.get(one.id)
    return ContainerSignals(
        need=one.need,
        peak=None if peak is None else round(max(peak, 0.0) * 1e9),
        throttled=_share(throttled.get(one.id)),
    )


def _share(value: float | None) -> float | None:
    return None if value is None else min(max(value, 0.0), 1.0)


class FrameBuilder:
    """Frames for one connection: every name is sent once."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, tuple[str, ...]], int] = {}
        self._places: dict[ContainerKey, tuple[int, int]] = {}
        self._next_slot = 0
        self._sequence = -1

    def alarm(self, alarms: Mapping[ContainerKey, Alarm], *, at: float, sent: float) -> bytes | None:
        """Return all alarms as a message between two windows; None before the first."""
        if self._sequence < 0:
            return None
        return encode_frame(
            Frame(
                version=FRAME_VERSION,
                sequence=self._sequence,
                at=at,
                sent=sent,
                window=1.0,
                alarms=self._alarms(alarms),
            )
        )

    def _alarms(self, alarms: Mapping[ContainerKey, Alarm]) -> tuple[MemoryAlarm, ...]:
        """Return the alarms of containers that have been named; a pod is, with its first window."""
        return tuple(
            MemoryAlarm(*self._places[key], one.need, one.limit, one.growth, one.pressure, one.hits)
            for key, one in alarms.items()
            if key in self._places
        )

    def frame(self, window: NodeWindow, *, sent: float, alarms: Mapping[ContainerKey, Alarm] | None = None) -> bytes:
        """Return a window, and all alarms there are, as the next message."""
        self._sequence += 1
        here = {(pod.uid, tuple(pod.containers)): pod for pod in window.pods}
        gone = [key for key in self._slots if key not in here]
        named = []
        for key, pod in here.items():
            if key not in self._slots:
                self._slots[key] = self._next_slot
                named.append(PodName(self._next_slot, pod.uid, pod.namespace, pod.name, key[1]))
                self._next_slot += 1
        freed = tuple(self._slots.pop(key) for key in gone)
        self._places = {
            (uid, name): (slot, place) for (uid, names), slot in self._slots.items() for place, name in enumerate(names)
        }
        return encode_frame(
            Frame(
                version=FRAME_VERSION,
                sequence=self._sequence,
                at=window.at,
                sent=sent,
                window=window.seconds,
                node=window.node,
                named=tuple(named),
                gone=freed,
                pods=tuple(
                    PodSample(self._slots[key], tuple(pod.containers.values()), pod.signals, pod.details)
                    for key, pod in here.items()
                ),
                alarms=self._alarms(alarms or {}),
            )
        )
