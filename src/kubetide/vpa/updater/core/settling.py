"""Whether a workload has got over the last disruption.

A workload is left alone while the replacement of a pod that was evicted earlier is not Ready. The rule looks at
the pods as they are, so it also holds after a restart:

    a pod that terminates                          blocks until it is gone, at most 10 minutes past its deadline
    a young pod (under 10 minutes) that is unready blocks: it is a replacement, or a rollout is under way
    an eviction of our own                         blocks until a new pod is Ready, or all replicas are, however long
                                                   (an hour where the controller does not say how many it wants);
                                                   one that nobody confirmed, 10 minutes if its pod lives on
    a resize of our own                            blocks while the pod is unready or the kubelet is at it

What blocks never blocks itself: a replacement that cannot start may be changed once more. And a young unready pod
blocks only pods that serve: where all crash for want of memory, waiting for one another would help nobody.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kubetide.api.objects.core import Pod
from kubetide.api.values.conditions import is_true
from kubetide.vpa.updater.core.budget import SCALED_KINDS, Creator
from kubetide.vpa.updater.core.inplace import ResizeState, pod_resize_state

GRACE = timedelta(minutes=10)
PATIENCE = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disruption:
    """Something we did to a pod of a workload."""

    pod: str
    uid: str
    at: datetime
    evicted: bool
    """Evicted; else resized in place."""
    known: frozenset[str] = field(default_factory=frozenset)
    """Pods that existed then: what comes later may be the replacement."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """What a workload still has to get over; `uid` is the pod that is in the way, if it exists."""

    uid: str
    reason: str
    hard: bool = True
    """Also stands against changing a pod that is not ready anyway."""

    def stands_against(self, pod: Pod) -> bool:
        """Return whether `pod` has to wait for this."""
        return self.uid != pod.metadata.uid and (self.hard or is_ready(pod))


def replicas_to_wait_for(creator: Creator, configured: int) -> int:
    """Return how many ready pods make a workload whole; 0 where only a replacement shows it.

    The ready pods of a DaemonSet and the live pods of a Job are what is left, not what should be.
    """
    return configured if creator.kind in SCALED_KINDS else 0


def is_ready(pod: Pod) -> bool:
    """Return whether the pod serves."""
    return pod.metadata.deletion_timestamp is None and is_true(pod.status.conditions, "Ready")


def blockers(pods: Sequence[Pod], done: Iterable[Disruption], *, configured: int, now: datetime) -> tuple[Blocker, ...]:
    """Return what stands against disturbing this workload.

    `pods` are all its pods, terminating ones included; `configured` is 0 where nobody says how many there should be.
    """
    found: dict[str, Blocker] = {}
    for pod in pods:
        blocker = _in_transition(pod, now=now)
        if blocker is not None:
            found[blocker.uid] = blocker
    for disruption in outstanding(pods, done, configured=configured, now=now):
        reason = (
            f"the replacement of pod {disruption.pod} is not ready yet"
            if disruption.evicted
            else f"pod {disruption.pod} is still being resized"
        )
        uids = [p.metadata.uid for p in _replacements(pods, disruption)] if disruption.evicted else [disruption.uid]
        for uid in uids or [""]:
            found[uid] = Blocker(uid, reason)
    return tuple(found.values())


def outstanding(
    pods: Sequence[Pod], done: Iterable[Disruption], *, configured: int, now: datetime
) -> tuple[Disruption, ...]:
    """Return the disruptions of our own that the workload has not got over. The rest can be forgotten."""
    present = {pod.metadata.uid: pod for pod in pods}
    ready = sum(map(is_ready, pods))
    waiting: list[Disruption] = []
    claimed: set[str] = set()
    for disruption in sorted(done, key=lambda d: d.at):
        if not disruption.evicted:
            pod = present.get(disruption.uid)
            if pod is not None and (not is_ready(pod) or pod_resize_state(pod) is ResizeState.IN_PROGRESS):
                waiting.append(disruption)
            continue
        lives_on = present.get(disruption.uid)
        if lives_on is not None:
            deadline = lives_on.metadata.deletion_timestamp
            if now - (deadline or disruption.at) < GRACE:
                waiting.append(disruption)
                continue
            if deadline is None:
                # Nobody had said whether it happened, and by now it is clear that it did not.
                continue
        if ready >= configured if configured else now - disruption.at >= PATIENCE:
            continue
        stands_in = next(
            (p for p in _replacements(pods, disruption) if is_ready(p) and p.metadata.uid not in claimed), None
        )
        if stands_in is None:
            waiting.append(disruption)
        else:
            claimed.add(stands_in.metadata.uid)
    return tuple(waiting)


def replacement_of(pods: Sequence[Pod], disruption: Disruption) -> Pod | None:
    """Return the first pod that came after an eviction, ready or not."""
    came = _replacements(pods, disruption)
    return min(came, key=lambda p: p.metadata.creation_timestamp or disruption.at) if came else None


def _replacements(pods: Iterable[Pod], disruption: Disruption) -> list[Pod]:
    return [pod for pod in pods if pod.metadata.uid not in disruption.known and pod.metadata.deletion_timestamp is None]


def _in_transition(pod: Pod, *, now: datetime) -> Blocker | None:
    meta = pod.metadata
    if meta.deletion_timestamp is not None:
        # The deletion timestamp already includes the grace period.
        overdue = now - meta.deletion_timestamp >= GRACE
        return None if overdue else Blocker(meta.uid, f"pod {meta.name} is terminating")
    created = meta.creation_timestamp
    if created is not None and now - created < GRACE and not is_ready(pod):
        return Blocker(meta.uid, f"pod {meta.name} is new and not ready yet", hard=False)
    return None
