"""How many pods of a workload may go at once."""

from datetime import timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.testing.builders import make_pod
from kubetide.vpa.updater.core.budget import BudgetRules, Creator, build_budget, creator_of
from kubetide.vpa.updater.core.inplace import may_evict

RS = Creator("default", "ReplicaSet", "web")


def owned(raw: dict[str, Any], owner: dict[str, Any]) -> Pod:
    raw["metadata"]["ownerReferences"] = [owner]
    return convert(raw, Pod)


def pods_of(creator: Creator, phases: list[str]) -> list[Pod]:
    owner = {"apiVersion": "apps/v1", "kind": creator.kind, "name": creator.name, "uid": "u", "controller": True}
    return [owned(make_pod(f"{creator.name}-{i}", creator.namespace, phase=p), owner) for i, p in enumerate(phases)]


def evictable(creator: Creator, phases: list[str], stated: int | None, **rules: Any) -> int:
    """Return how many pods can be evicted in one run."""
    pods = pods_of(creator, phases)
    budget = build_budget(pods, {creator: stated}, BudgetRules(**rules))
    gone = 0
    for pod in pods:
        if may_evict(pod, budget.group_of(pod), waited=timedelta()):
            budget.record_eviction(pod)
            gone += 1
    return gone


@pytest.mark.parametrize(
    ("running", "expected"),
    [
        pytest.param(1, 0, id="one-pod-is-below-the-minimum"),
        pytest.param(2, 1, id="two"),
        pytest.param(3, 1, id="three"),
        pytest.param(4, 2, id="four"),
        pytest.param(5, 2, id="five"),
        pytest.param(10, 5, id="ten"),
    ],
)
def test_half_of_a_workload_may_go_when_all_of_it_runs(running: int, expected: int) -> None:
    assert evictable(RS, ["Running"] * running, running) == expected


@pytest.mark.parametrize(
    ("creator", "phases", "stated", "rules", "expected"),
    [
        pytest.param(RS, ["Running"] * 4, None, {}, 0, id="controller-missing"),
        pytest.param(RS, ["Running"] * 4, 0, {}, 0, id="scaled-to-zero"),
        pytest.param(RS, ["Running"] * 4, 8, {}, 0, id="already-short-of-pods"),
        pytest.param(RS, ["Running"] * 3 + ["Pending"], 4, {}, 2, id="pending-pods-are-free"),
        pytest.param(RS, ["Running", "Pending"], 2, {}, 1, id="pending-pods-count-for-the-minimum"),
        pytest.param(RS, ["Running"] * 4, 4, {"tolerance": 0.1}, 1, id="small-tolerance-lets-one-go"),
        pytest.param(RS, ["Running"] * 3, 4, {"tolerance": 0.1}, 0, id="but-only-when-all-run"),
        pytest.param(RS, ["Running"] * 4, 4, {"min_replicas": 5}, 0, id="higher-minimum"),
        pytest.param(RS, ["Running"] * 1, 1, {"min_replicas": 1}, 1, id="minimum-of-one"),
        pytest.param(Creator("default", "Job", "j"), ["Running"] * 4, None, {}, 2, id="job-counts-live-pods"),
        pytest.param(Creator("default", "DaemonSet", "d"), ["Running"] * 4, 4, {}, 2, id="daemon-set"),
        pytest.param(Creator("default", "Custom", "c"), ["Running"] * 4, None, {}, 4, id="custom-as-the-original"),
        pytest.param(
            Creator("default", "Custom", "c"), ["Running"] * 4, None, {"count_live_pods": True}, 2, id="custom-safely"
        ),
    ],
)
def test_what_a_controller_says_decides(
    creator: Creator, phases: list[str], stated: int | None, rules: dict[str, Any], expected: int
) -> None:
    assert evictable(creator, phases, stated, **rules) == expected


def test_groups_do_not_share_a_budget() -> None:
    other = Creator("default", "ReplicaSet", "api")
    pods = [*pods_of(RS, ["Running"] * 2), *pods_of(other, ["Running"] * 2)]
    budget = build_budget(pods, {RS: 2, other: 2}, BudgetRules())
    budget.record_eviction(pods[0])
    assert not may_evict(pods[1], budget.group_of(pods[1]), waited=timedelta())
    assert may_evict(pods[2], budget.group_of(pods[2]), waited=timedelta())


def test_a_group_that_is_kept_below_the_minimum_is_not_evicted() -> None:
    pods = pods_of(RS, ["Running"])
    budget = build_budget(pods, {RS: 1}, BudgetRules(keep_below_minimum=True))
    group = budget.group_of(pods[0])
    assert group is not None
    assert group.below_minimum
    assert not may_evict(pods[0], group, waited=timedelta())


def test_a_pod_that_is_left_out_reports_why() -> None:
    pods = pods_of(RS, ["Running"])
    budget = build_budget(pods, {RS: 1}, BudgetRules())
    assert "fewer than the minimum of 2" in budget.why_left_out(pods[0])


def test_an_owner_that_is_not_a_controller_makes_no_group() -> None:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "u"}
    assert creator_of(owned(make_pod("lonely"), owner)) == Creator("default", "", "")
