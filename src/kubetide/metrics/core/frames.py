"""What a stream of an agent may say: frames are checked whole before any number of them is believed.

An agent speaks for its own node and for pods that are there; it may be wrong, old, or taken over. A frame that breaks
a rule is refused with the rule's name, and the stream ends, for nothing after it can be trusted to be in order:

    size         longer than FRAME_LIMIT, or more pods or containers than a node can have
    format       not MessagePack of the shape of a frame, or of another version
    number       negative, not finite, beyond any machine; a ratio above 1
    name         not a name that Kubernetes would have given
    slot         refers to a pod that was not named, names one twice, or counts its containers differently
    window       shorter or longer than a sample may cover

Repeated and late frames are no fault: a sequence number that was seen is dropped, and a window that waited longer than
`LONGEST_WAIT` is too old to act on. The time of a sample is the moment of its arrival less what it waited at the agent,
so that the agent's clock may be wrong by any amount. A frame that repeats the last number and holds no window brings
alarms between two windows.
"""

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from kubetide.api.objects.sample_frames import (
    FRAME_LIMIT,
    FRAME_VERSION,
    SIGNALS,
    ContainerSignals,
    Frame,
    MemoryAlarm,
    PodName,
    PodSample,
    UsageSample,
    decode_frame,
)
from kubetide.errors import InvalidInput
from kubetide.metrics.core.readings import ContainerAlarm, NodeAlarms, NodeReading, PodReading, Usage

MOST_PODS = 2048
MOST_CONTAINERS = 64
MOST_NANOCORES = 65_536 * 10**9
MOST_BYTES = 2**56
SHORTEST_WINDOW, LONGEST_WINDOW = 0.5, 120.0
LONGEST_WAIT = timedelta(seconds=30)

_POD_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_UID = re.compile(r"[-A-Za-z0-9_]{1,128}")
_MAY_FALL = "memory_growth_bytes_per_second"


class FrameRefused(InvalidInput):
    """A frame breaks a rule; `rule` is its name, for metrics."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message, subject=f"frame ({rule})")
        self.rule = rule


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    uid: str
    key: tuple[str, str]
    containers: tuple[str, ...]


class SampleStream:
    """One connection of one agent: the slots it has named, and the last frame it sent."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._slots: dict[int, _Named] = {}
        self._sequence = -1

    def take(self, message: bytes, *, arrived: datetime) -> NodeReading | NodeAlarms | None:
        """Return the content of a message, None for one that was seen or waited too long; raise FrameRefused."""
        if len(message) > FRAME_LIMIT:
            raise FrameRefused("size", f"{len(message)} bytes are more than {FRAME_LIMIT}")
        try:
            frame = decode_frame(message)
        except msgspec.DecodeError as error:
            raise FrameRefused("format", str(error)) from error
        if frame.version != FRAME_VERSION:
            raise FrameRefused("format", f"version {frame.version} is not {FRAME_VERSION}")
        between = frame.sequence == self._sequence >= 0 and not (frame.pods or frame.named or frame.gone or frame.node)
        if frame.sequence <= self._sequence and not between:
            return None
        waited = self._checked_wait(frame)
        if between:
            alarms = tuple(map(self._alarm, frame.alarms))
            return None if waited > LONGEST_WAIT else NodeAlarms(node=self.node, at=arrived - waited, alarms=alarms)
        self._name(frame)
        at, window = arrived - waited, timedelta(seconds=frame.window)
        pods = {self._named(sample).key: self._read(sample, at, window) for sample in frame.pods}
        alarms = tuple(map(self._alarm, frame.alarms))
        self._sequence = frame.sequence
        if waited > LONGEST_WAIT:
            return None
        return NodeReading(
            node=self.node,
            source="agent",
            at=at,
            window=window,
            usage=None if frame.node is None else _usage(frame.node),
            pods=pods,
            alarms=alarms,
        )

    def _checked_wait(self, frame: Frame) -> timedelta:
        if not SHORTEST_WINDOW <= frame.window <= LONGEST_WINDOW:
            raise FrameRefused("window", f"{frame.window} s is not within {SHORTEST_WINDOW} s and {LONGEST_WINDOW} s")
        if not (math.isfinite(frame.at) and math.isfinite(frame.sent)):
            raise FrameRefused("number", "a time is not finite")
        if len(frame.alarms) > MOST_PODS:
            raise FrameRefused("size", f"more than {MOST_PODS} alarms")
        # Not negative, and no longer than matters: a clock that was set back makes no sample come from the future.
        return timedelta(seconds=min(max(frame.sent - frame.at, 0.0), 86_400.0))

    def _name(self, frame: Frame) -> None:
        if len(frame.pods) > MOST_PODS or len(frame.named) > MOST_PODS or len(frame.gone) > MOST_PODS:
            raise FrameRefused("size", f"more than {MOST_PODS} pods")
        for slot in frame.gone:
            self._slots.pop(slot, None)
        for pod in frame.named:
            if pod.slot in self._slots:
                raise FrameRefused("slot", f"slot {pod.slot} is named twice")
            self._slots[pod.slot] = _checked_name(pod)
        if len(self._slots) > MOST_PODS:
            raise FrameRefused("size", f"more than {MOST_PODS} pods")

    def _named(self, sample: PodSample) -> _Named:
        named = self._slots.get(sample.slot)
        if named is None:
            raise FrameRefused("slot", f"slot {sample.slot} was not named")
        return named

    def _read(self, sample: PodSample, at: datetime, window: timedelta) -> PodReading:
        named = self._slots[sample.slot]
        if len(sample.containers) != len(named.containers):
            count = len(sample.containers)
            raise FrameRefused("slot", f"slot {sample.slot} has {len(named.containers)} containers, not {count}")
        usages = {name: _usage(one) for name, one in zip(named.containers, sample.containers, strict=True)}
        _check_signals(sample.signals)
        if sample.details and len(sample.details) != len(named.containers):
            raise FrameRefused("slot", f"slot {sample.slot} has details of {len(sample.details)} containers")
        for one in sample.details:
            _check_details(one)
        return PodReading(
            at=at,
            window=window,
            containers=usages,
            uid=named.uid,
            signals=sample.signals,
            details=sample.details,
        )

    def _alarm(self, alarm: MemoryAlarm) -> ContainerAlarm:
        named = self._slots.get(alarm.slot)
        if named is None or not 0 <= alarm.container < len(named.containers):
            raise FrameRefused("slot", f"an alarm is about slot {alarm.slot}, which was not named")
        numbers_fit = (
            0 <= alarm.need <= MOST_BYTES
            and 0 < alarm.limit <= MOST_BYTES
            and abs(alarm.growth) <= MOST_BYTES
            and (alarm.pressure is None or 0 <= alarm.pressure <= 1)
            and (alarm.hits is None or 0 <= alarm.hits < 2**63)
        )
        if not numbers_fit:
            raise FrameRefused("number", f"an alarm of slot {alarm.slot} has a number that cannot be")
        return ContainerAlarm(
            pod=named.key,
            uid=named.uid,
            container=named.containers[alarm.container],
            need=alarm.need,
            limit=alarm.limit,
            growth=alarm.growth,
            pressure=alarm.pressure,
            hits=alarm.hits,
        )


def _checked_name(pod: PodName) -> _Named:
    if not 0 <= pod.slot < 2**31:
        raise FrameRefused("slot", "a slot is not a number below 2147483648")
    if len(pod.containers) > MOST_CONTAINERS:
        raise FrameRefused("size", f"more than {MOST_CONTAINERS} containers in a pod")
    names_fit = (
        _LABEL_NAME.fullmatch(pod.namespace)
        and _POD_NAME.fullmatch(pod.name)
        and _UID.fullmatch(pod.uid)
        and all(_LABEL_NAME.fullmatch(name) for name in pod.containers)
        and len(set(pod.containers)) == len(pod.containers)
    )
    if not names_fit:
        raise FrameRefused("name", f"slot {pod.slot} has a name that no pod can have")
    return _Named(uid=pod.uid, key=(pod.namespace, pod.name), containers=pod.containers)


def _usage(sample: UsageSample) -> Usage:
    if not (0 <= sample.cpu <= MOST_NANOCORES and 0 <= sample.memory <= MOST_BYTES):
        raise FrameRefused("number", "usage is negative or larger than any machine")
    return Usage(cpu_nanos=sample.cpu, memory_bytes=sample.memory)


def _check_details(one: ContainerSignals) -> None:
    numbers_fit = (
        (one.need is None or 0 <= one.need <= MOST_BYTES)
        and (one.peak is None or 0 <= one.peak <= MOST_NANOCORES)
        and (one.throttled is None or 0 <= one.throttled <= 1)
    )
    if not numbers_fit:
        raise FrameRefused("number", "a signal of a container is negative or larger than any machine")


_BOUNDS = tuple(
    (float(-MOST_BYTES) if name == _MAY_FALL else 0.0, 1.0 if name.endswith("_ratio") else float(MOST_BYTES))
    for name in SIGNALS
)


def _check_signals(values: tuple[float | None, ...]) -> None:
    """Raise for a signal that cannot be; an agent that is newer than the server may send more than are known here."""
    for value, (least, most), name in zip(values, _BOUNDS, SIGNALS, strict=False):
        if value is not None and not least <= value <= most:
            raise FrameRefused("number", f"{name} is not within {least:g} and {most:g}")
