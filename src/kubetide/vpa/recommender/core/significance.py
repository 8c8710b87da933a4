"""Which changes of a status or a checkpoint are written at once, and which can wait.

The upper bound of a young VPA shrinks a little with every sample, so a recommender that writes every difference writes
every VPA in every loop. Most of that changes nothing for anybody:

- The webhook reads targets, the updater asks whether a request lies between the bounds. A *status* therefore waits only
  while its targets stay as they are, no bound has moved by more than `LITTLE`, and no request of a pod lies between a
  bound as it is written and as it would be. Conditions and generations never wait.
- A restart continues from *checkpoints*. One waits only while every amount is within `LITTLE` of what it was when the
  checkpoint was written: what a restart forgets then changes no recommendation by more.

What waits is written once per interval, each object at a moment of its own, so that writes come evenly. Pod
LimitRanges scale bounds before the updater compares them; there a bound may be `LITTLE` off for one interval.
"""

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from kubetide.api.objects.core import Container, Pod
from kubetide.errors import QuantityError
from kubetide.stats.instants import microseconds
from kubetide.vpa.core.policy import Amounts, Recommended, amounts
from kubetide.vpa.recommender.core.entities import LabelSet, Requests

LITTLE = 0.01
"""The share by which an amount may be off while it waits to be written."""


@dataclass(frozen=True, slots=True)
class Cadence:
    """When what can wait is written: once per interval, at a moment that the name decides."""

    interval: timedelta

    def is_due(self, name: str, since: datetime, now: datetime) -> bool:
        """Return whether the moment of this object came after `since`; an interval of 0 is always due."""
        length = self.interval // timedelta(microseconds=1)
        if length <= 0:
            return True
        phase = zlib.crc32(name.encode()) * length >> 32
        return (microseconds(now) - phase) // length != (microseconds(since) - phase) // length


def requests_of(pods: Iterable[Pod]) -> Requests:
    """Return the distinct requests in force of the containers of pods, sorted, in billionths."""
    found: dict[tuple[str, str], set[int]] = {}
    for pod in pods:
        applied = {status.name: status.resources for status in pod.status.container_statuses or ()}
        for container in pod.spec.containers or ():
            for resource, amount in _requests(container, applied).items():
                found.setdefault((container.name, resource), set()).add(amount.nanos)
    return {key: sorted(listed) for key, listed in found.items()}


def _requests(container: Container, applied: Mapping[str, object]) -> Amounts:
    resources = applied.get(container.name) or container.resources
    try:
        return amounts(getattr(resources, "requests", None))
    except QuantityError:
        return {}


def can_wait(written: Sequence[Recommended], found: Sequence[Recommended], label_sets: Iterable[LabelSet]) -> bool:
    """Return whether nobody would decide otherwise if `written` stayed where `found` is recommended now."""
    if len(written) != len(found):
        return False
    sets = list(label_sets)
    for old, new in zip(written, found, strict=True):
        if old.container != new.container or not _same(old.target, new.target) or not _same(old.uncapped, new.uncapped):
            return False
        for before, after in ((old.lower, new.lower), (old.upper, new.upper)):
            if before is after:
                continue
            if before is None or after is None or before.keys() != after.keys():
                return False
            # Bounds equal to the target mean that no sample was seen, and the updater waits for one.
            if _same(before, old.target) != _same(after, new.target):
                return False
            if not all(_stays(new.container, name, before[name].nanos, after[name].nanos, sets) for name in after):
                return False
    return True


def _same(one: Amounts | None, other: Amounts | None) -> bool:
    return one is other or one == other


def _stays(container: str, resource: str, before: int, after: int, sets: Sequence[LabelSet]) -> bool:
    """Return whether a bound has moved a little only, and past no request."""
    if before == after:
        return True
    if abs(after - before) > LITTLE * before:
        return False
    low, high = (before, after) if before < after else (after, before)
    for labels in sets:
        listed = (labels.requests or {}).get((container, resource))
        if listed and bisect_left(listed, low) != bisect_right(listed, high):
            return False
    return True


def moved(saved: Sequence[bytes], current: Sequence[bytes]) -> list[bool]:
    """Return for each pair of amounts whether any of them is off by more than `LITTLE`.

    Each is the bytes of int64 amounts. All are compared in one step: there are as many as VPAs, in every loop.
    """
    result = [len(old) != len(new) for old, new in zip(saved, current, strict=True)]
    which = [i for i, differs in enumerate(result) if not differs and saved[i] != current[i]]
    if not which:
        return result
    old = np.frombuffer(b"".join(saved[i] for i in which), dtype=np.int64)
    new = np.frombuffer(b"".join(current[i] for i in which), dtype=np.int64)
    off = np.abs(new - old) > LITTLE * np.abs(old)
    starts = np.cumsum([0, *(len(saved[i]) // 8 for i in which[:-1])])
    for i, is_off in zip(which, np.logical_or.reduceat(off, starts).tolist(), strict=True):
        result[i] = is_off
    return result
