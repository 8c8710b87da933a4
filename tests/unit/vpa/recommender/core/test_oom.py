from datetime import UTC, datetime, timedelta
from typing import Any

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.vpa.recommender.core.oom import Seen, from_pod, from_update

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


def pod(*, state: dict[str, Any], last: dict[str, Any] | None = None, restarts: int = 0, uid: str = "u1") -> Pod:
    raw = {
        "metadata": {"namespace": "shop", "name": "web-0", "uid": uid},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"memory": "64Mi"}}}]},
        "status": {
            "containerStatuses": [
                {"name": "app", "restartCount": restarts, "state": state, "lastState": last or {}},
            ]
        },
    }
    return convert(raw, Pod)


def killed(at: datetime = NOON) -> dict[str, Any]:
    return {"terminated": {"reason": "OOMKilled", "finishedAt": at.isoformat()}}


RUNNING: dict[str, Any] = {"running": {}}


def test_edge_and_level_find_the_same_kill_and_it_counts_once() -> None:
    before, dead, back = pod(state=RUNNING), pod(state=killed()), pod(state=RUNNING, last=killed(), restarts=1)
    seen = Seen()
    found = [*seen.fresh(from_update(before, dead)), *seen.fresh(from_pod(dead))]
    found += [*seen.fresh(from_update(dead, back)), *seen.fresh(from_pod(back))]
    assert [oom.at for oom in found] == [NOON]
    assert found[0].memory_bytes == 64 * 2**20


def test_an_oom_kill_hidden_by_a_gap_is_found_on_the_pod_itself() -> None:
    assert [oom.container for oom in from_pod(pod(state=RUNNING, last=killed(), restarts=3))] == ["app"]
    # Waiting in back-off is no edge, but the level shows it.
    waiting = pod(state={"waiting": {"reason": "CrashLoopBackOff"}}, last=killed(), restarts=1)
    assert from_update(pod(state=RUNNING), waiting) == []
    assert len(from_pod(waiting)) == 1


def test_a_second_kill_counts_again_and_another_pod_of_the_name_too() -> None:
    seen = Seen()
    later = NOON + timedelta(minutes=5)
    assert len(list(seen.fresh(from_pod(pod(state=killed()))))) == 1
    assert len(list(seen.fresh(from_pod(pod(state=killed(later)))))) == 1
    assert len(list(seen.fresh(from_pod(pod(state=killed(), uid="u2"))))) == 1
    assert len(list(seen.fresh(from_pod(pod(state=killed(NOON + timedelta(microseconds=5))))))) == 0


def test_what_is_remembered_goes_with_the_pod() -> None:
    seen = Seen()
    list(seen.fresh(from_pod(pod(state=killed()))))
    assert len(seen) == 1
    seen.forget("shop", "web-0", "u1")
    assert len(seen) == 0


def test_kills_of_pods_that_were_gone_already_are_dropped_in_time() -> None:
    seen = Seen()
    list(seen.fresh(from_pod(pod(state=killed()))))
    seen.keep([("shop", "web-0")])
    assert len(seen) == 1
    seen.keep([("shop", "web-1")])
    assert len(seen) == 0


def test_other_deaths_are_no_kills() -> None:
    crash = {"terminated": {"reason": "Error", "finishedAt": NOON.isoformat()}}
    assert from_pod(pod(state=crash, last=crash)) == []
    assert from_update(pod(state=RUNNING), pod(state=crash)) == []
