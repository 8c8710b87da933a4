"""Whether a rollout gets on."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubetide.embedded.sim.controllers.progress import ReplicaCounts, judge

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
Raw = dict[str, Any]


def counts(total: int, updated: int, ready: int | None = None) -> ReplicaCounts:
    up = updated if ready is None else ready
    return ReplicaCounts(total=total, updated=updated, ready=up, available=up)


def condition(status: str, reason: str, *, age: int = 0, replica_set: str = "web-2", text: str = "") -> Raw:
    at = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = text or f'ReplicaSet "{replica_set}" is progressing.'
    return {
        "type": "Progressing",
        "status": status,
        "reason": reason,
        "message": message,
        "lastUpdateTime": at,
        "lastTransitionTime": at,
    }


PROGRESSING = condition("True", "ReplicaSetUpdated", age=599)
LATE = condition("True", "ReplicaSetUpdated", age=601)
FAILED = condition("False", "ProgressDeadlineExceeded", age=900, text='ReplicaSet "web-2" has timed out progressing.')
DONE = condition("True", "NewReplicaSetAvailable", text='ReplicaSet "web-2" has successfully progressed.')


@pytest.mark.parametrize(
    ("before", "was", "has", "paused", "expected"),
    [
        pytest.param(None, counts(0, 0), counts(0, 0), False, ("True", "ReplicaSetUpdated"), id="it-begins"),
        pytest.param(None, counts(2, 2), counts(2, 2), False, ("True", "NewReplicaSetAvailable"), id="it-is-done"),
        pytest.param(PROGRESSING, counts(2, 1), counts(2, 1), False, ("True", "ReplicaSetUpdated"), id="in-time"),
        pytest.param(LATE, counts(2, 1), counts(2, 1), False, ("False", "ProgressDeadlineExceeded"), id="too-late"),
        pytest.param(LATE, counts(3, 1), counts(2, 1), False, ("True", "ReplicaSetUpdated"), id="an-old-pod-went"),
        pytest.param(LATE, counts(3, 1), counts(3, 2), False, ("True", "ReplicaSetUpdated"), id="a-new-pod-came"),
        pytest.param(FAILED, counts(2, 1), counts(2, 1), False, ("False", "ProgressDeadlineExceeded"), id="still-late"),
        pytest.param(FAILED, counts(2, 1), counts(2, 2), False, ("True", "NewReplicaSetAvailable"), id="late-but-done"),
        pytest.param(
            DONE, counts(2, 2), counts(2, 2, ready=1), False, ("True", "NewReplicaSetAvailable"), id="a-pod-died-later"
        ),
        pytest.param(LATE, counts(2, 1), counts(2, 1), True, ("Unknown", "DeploymentPaused"), id="paused"),
        pytest.param(DONE, counts(2, 2), counts(2, 2), True, ("Unknown", "DeploymentPaused"), id="paused-when-done"),
        pytest.param(FAILED, counts(2, 1), counts(2, 1), True, ("False", "ProgressDeadlineExceeded"), id="paused-late"),
        pytest.param(
            condition("True", "NewReplicaSetAvailable", age=9000, replica_set="web-1"),
            counts(2, 2),
            counts(2, 0, ready=2),
            False,
            ("True", "ReplicaSetUpdated"),
            id="another-template",
        ),
    ],
)
def test_a_rollout_is_judged_by_what_it_gained(
    before: Raw | None, was: ReplicaCounts, has: ReplicaCounts, paused: bool, expected: tuple[str, str]
) -> None:
    found, _ = judge(
        before,
        was=was,
        now_has=has,
        wanted=2,
        replica_set="web-2",
        paused=paused,
        deadline=timedelta(seconds=600),
        now=NOW,
    )
    assert (found["status"], found["reason"]) == expected


def test_it_is_judged_again_when_the_deadline_is_over_and_never_without_one() -> None:
    def judged(before: Raw, deadline: timedelta | None) -> tuple[Raw, timedelta | None]:
        stuck = counts(2, 1)
        return judge(
            before, was=stuck, now_has=stuck, wanted=2, replica_set="web-2", paused=False, deadline=deadline, now=NOW
        )

    ten_minutes = timedelta(seconds=600)
    assert judged(PROGRESSING, ten_minutes) == (PROGRESSING, timedelta(seconds=1))
    assert judged(LATE, None) == (LATE, None)
    assert judged(FAILED, ten_minutes) == (FAILED, None)
