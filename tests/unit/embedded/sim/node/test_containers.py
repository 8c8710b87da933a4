"""Containers: restarts back off, status tells the state, resources become cgroup values, resizes are judged."""

from typing import Any

import pytest

from kubetide.embedded.sim.node.containers import (
    SimContainer,
    cpu_quota_us,
    cpu_shares,
    memory_limit,
    oom_adjust,
    resources_of,
)
from kubetide.embedded.sim.node.resizes import decide_resize, needs_restart

Raw = dict[str, Any]
GIB = 2**30


def make() -> SimContainer:
    return SimContainer(
        name="main", image="app:1", allocated={"requests": {"cpu": "1"}}, actual={"requests": {"cpu": "1"}}
    )


def test_restarts_back_off_and_long_runs_are_forgiven() -> None:
    container = make()
    delays = [container.next_backoff(0) for _ in range(8)]
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]
    container.started_second = 1000
    assert container.next_backoff(1700) == 0


def test_status_goes_through_the_states() -> None:
    container = make()
    assert container.status()["state"] == {"waiting": {"reason": "ContainerCreating"}}
    container.row, container.waiting, container.started_at = 3, "", "then"
    assert container.status()["state"] == {"running": {"startedAt": "then"}}
    assert container.status()["allocatedResources"] == {"cpu": "1"}
    container.end(reason="OOMKilled", exit_code=137, now="later")
    assert container.status()["state"]["terminated"]["exitCode"] == 137
    container.last, container.waiting = container.finished, "CrashLoopBackOff"
    assert container.status()["lastState"]["terminated"]["reason"] == "OOMKilled"


def test_resources_become_cgroup_values() -> None:
    assert [cpu_shares({"cpu": text}) for text in ("1", "500m", "1m")] == [1024, 512, 2]
    assert cpu_shares(None) == 2
    assert [cpu_quota_us({"cpu": text}) for text in ("1", "250m", "5m")] == [100_000, 25_000, 1000]
    assert cpu_quota_us({}) is None
    assert memory_limit({"memory": "1Gi"}) == GIB
    assert memory_limit(None) is None
    assert resources_of({"resources": {"requests": {"cpu": 1}, "limits": {}}}) == {"requests": {"cpu": 1}}


@pytest.mark.parametrize(
    ("qos", "requests", "expected"),
    [
        pytest.param("Guaranteed", {"memory": "1Gi"}, -997, id="guaranteed"),
        pytest.param("BestEffort", None, 1000, id="best-effort"),
        pytest.param("Burstable", {"memory": "4Gi"}, 500, id="burstable-by-request"),
        pytest.param("Burstable", {"memory": "8Gi"}, 2, id="burstable-at-least-two"),
        pytest.param("Burstable", {}, 999, id="burstable-without-memory"),
    ],
)
def test_who_asked_for_little_is_killed_first(qos: str, requests: Raw | None, expected: float) -> None:
    assert oom_adjust(qos, requests, 8.0 * GIB) == expected


@pytest.mark.parametrize(
    ("cpu", "others", "verdict"),
    [
        pytest.param("2", 0, "Granted", id="fits"),
        pytest.param("2", 7000, "Deferred", id="not-beside-the-others"),
        pytest.param("9", 0, "Infeasible", id="never"),
    ],
)
def test_a_resize_is_granted_deferred_or_infeasible(cpu: str, others: int, verdict: str) -> None:
    decision = decide_resize({"main": {"requests": {"cpu": cpu}}}, allocatable={"cpu": 8000}, others={"cpu": others})
    assert decision.verdict == verdict
    assert bool(decision.message) == (verdict != "Granted")


@pytest.mark.parametrize(
    ("policy", "after", "expected"),
    [
        pytest.param([], {"requests": {"memory": "2Gi"}}, False, id="no-policy"),
        pytest.param(
            [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
            {"requests": {"memory": "2Gi"}},
            True,
            id="memory-needs-it",
        ),
        pytest.param(
            [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
            {"requests": {"memory": "1Gi", "cpu": "2"}},
            False,
            id="only-cpu-changed",
        ),
    ],
)
def test_a_restart_is_needed_only_for_resources_that_say_so(policy: list[Raw], after: Raw, expected: bool) -> None:
    assert needs_restart({"resizePolicy": policy}, {"requests": {"memory": "1Gi"}}, after) is expected
