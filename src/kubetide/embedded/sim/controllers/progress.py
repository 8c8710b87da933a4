"""The Progressing condition of a Deployment: whether its rollout makes progress.

A rollout progresses when it has more updated, ready or available pods than before, or fewer old ones. One that has not
done so for `progressDeadlineSeconds` has failed, and says so until it gets on again. Once everything was up the
condition stays as it is: a pod that dies later is no rollout.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from kubetide.embedded.apiserver.rest.status import Raw
from kubetide.embedded.apiserver.rest.strategy import timestamp

AVAILABLE = "NewReplicaSetAvailable"
UPDATED = "ReplicaSetUpdated"
EXCEEDED = "ProgressDeadlineExceeded"
PAUSED = "DeploymentPaused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCounts:
    """The pods of a Deployment."""

    total: int
    updated: int
    ready: int
    available: int

    def is_ahead_of(self, before: "ReplicaCounts") -> bool:
        return (
            self.updated > before.updated
            or self.total - self.updated < before.total - before.updated
            or self.ready > before.ready
            or self.available > before.available
        )


def counts_in(status: Raw) -> ReplicaCounts:
    """Return the counts that a status reports."""
    return ReplicaCounts(
        total=int(status.get("replicas") or 0),
        updated=int(status.get("updatedReplicas") or 0),
        ready=int(status.get("readyReplicas") or 0),
        available=int(status.get("availableReplicas") or 0),
    )


def judge(
    before: Raw | None,
    *,
    was: ReplicaCounts,
    now_has: ReplicaCounts,
    wanted: int,
    replica_set: str,
    paused: bool,
    deadline: timedelta | None,
    now: datetime,
) -> tuple[Raw, timedelta | None]:
    """Return the condition, and after how long it has to be judged again if nothing happens until then."""
    known = before or {}
    reason = known.get("reason")
    done = now_has.updated == now_has.total == now_has.available == wanted
    same_rollout = f'"{replica_set}"' in str(known.get("message"))
    if paused:
        if reason == EXCEEDED:  # what has failed has not got better by waiting
            return known, None
        return _condition(before, "Unknown", PAUSED, "Deployment is paused", now), None
    if done or (reason == AVAILABLE and same_rollout and now_has.total == now_has.updated):
        text = f'ReplicaSet "{replica_set}" has successfully progressed.'
        return _condition(before, "True", AVAILABLE, text, now), None
    begins = not same_rollout or reason in (None, AVAILABLE, PAUSED)
    if begins or now_has.is_ahead_of(was):
        fresh = _condition(None, "True", UPDATED, f'ReplicaSet "{replica_set}" is progressing.', now)
        if known.get("status") == "True":
            fresh["lastTransitionTime"] = known["lastTransitionTime"]
        return fresh, deadline
    if reason == EXCEEDED or deadline is None:
        return known, None
    left = datetime.fromisoformat(known["lastUpdateTime"]) + deadline - now
    if left > timedelta(0):
        return known, left
    return _condition(before, "False", EXCEEDED, f'ReplicaSet "{replica_set}" has timed out progressing.', now), None


def _condition(before: Raw | None, status: str, reason: str, message: str, now: datetime) -> Raw:
    """Return the condition; one that says nothing new keeps its times, one of the same status its transition."""
    known = before or {}
    if all(known.get(k) == v for k, v in (("status", status), ("reason", reason), ("message", message))):
        return known
    stamp = timestamp(now)
    return {
        "type": "Progressing",
        "status": status,
        "reason": reason,
        "message": message,
        "lastUpdateTime": stamp,
        "lastTransitionTime": known["lastTransitionTime"] if known.get("status") == status else stamp,
    }
