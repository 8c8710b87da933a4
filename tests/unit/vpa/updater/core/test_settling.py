"""Whether a workload has got over the last disruption."""

from datetime import UTC, datetime, timedelta
from typing import Any

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.testing.builders import make_pod
from kubetide.vpa.updater.core.settling import Disruption, blockers, outstanding, replacement_of

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def pod(
    name: str, *, ready: bool = True, age: float = 60, deleting: float | None = None, resizing: bool = False
) -> Pod:
    raw: dict[str, Any] = make_pod(name, uid=name)
    raw["metadata"]["creationTimestamp"] = NOW - timedelta(minutes=age)
    if deleting is not None:
        raw["metadata"]["deletionTimestamp"] = NOW - timedelta(minutes=deleting)
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    if resizing:
        conditions.append({"type": "PodResizeInProgress", "status": "True"})
    raw.setdefault("status", {})["conditions"] = conditions
    return convert(raw, Pod)


def eviction(gone: str = "old", *known: str) -> Disruption:
    return Disruption(pod=gone, uid=gone, at=NOW - timedelta(minutes=1), evicted=True, known=frozenset({gone, *known}))


def stand_against(subject: Pod, pods: list[Pod], *done: Disruption, configured: int = 3) -> list[str]:
    found = blockers(pods, done, configured=configured, now=NOW)
    return [blocker.reason for blocker in found if blocker.stands_against(subject)]


def test_a_workload_at_rest_may_be_disturbed() -> None:
    pods = [pod("a"), pod("b"), pod("c")]
    assert stand_against(pods[0], pods) == []


def test_a_terminating_pod_blocks_until_long_past_its_deadline() -> None:
    pods = [pod("a"), pod("b"), pod("old", deleting=1)]
    assert stand_against(pods[0], pods) == ["pod old is terminating"]
    stuck = [pod("a"), pod("b"), pod("old", deleting=11)]
    assert stand_against(stuck[0], stuck) == []


def test_a_young_unready_pod_blocks_those_that_serve_but_not_those_that_do_not() -> None:
    pods = [pod("a"), pod("b", ready=False), pod("new", ready=False, age=1)]
    assert stand_against(pods[0], pods) == ["pod new is new and not ready yet"]
    assert stand_against(pods[1], pods) == []
    assert stand_against(pods[2], pods) == []


def test_an_eviction_of_our_own_blocks_until_its_replacement_is_ready() -> None:
    waiting = [pod("a"), pod("b")]
    assert stand_against(waiting[0], waiting, eviction("old", "a", "b"))
    unready = [*waiting, pod("new", ready=False, age=30)]
    assert stand_against(unready[0], unready, eviction("old", "a", "b"))
    # The replacement itself may be changed once more.
    assert stand_against(unready[2], unready, eviction("old", "a", "b")) == []
    whole = [*waiting, pod("new")]
    assert stand_against(whole[0], whole, eviction("old", "a", "b")) == []


def test_an_eviction_that_nobody_confirmed_is_forgotten_when_its_pod_lives_on() -> None:
    pods = [pod("a"), pod("b"), pod("old")]
    tried = eviction("old", "a", "b")
    assert outstanding(pods, [tried], configured=3, now=NOW) == (tried,)
    assert outstanding(pods, [tried], configured=3, now=NOW + timedelta(minutes=10)) == ()


def test_an_evicted_pod_that_never_ends_does_not_block_for_ever() -> None:
    whole = [pod("a"), pod("b"), pod("new"), pod("old", deleting=11)]
    assert outstanding(whole, [eviction("old", "a", "b")], configured=3, now=NOW) == ()
    short = [pod("a"), pod("b"), pod("old", deleting=11)]
    assert len(outstanding(short, [eviction("old", "a", "b")], configured=3, now=NOW)) == 1


def test_a_workload_that_is_whole_again_owes_no_replacement() -> None:
    pods = [pod("a"), pod("b")]
    assert outstanding(pods, [eviction("old", "a", "b")], configured=2, now=NOW) == ()


def test_where_nobody_says_how_many_there_should_be_only_a_replacement_or_an_hour_helps() -> None:
    pods = [pod("a"), pod("b")]
    assert len(outstanding(pods, [eviction("old", "a", "b")], configured=0, now=NOW)) == 1
    assert outstanding([*pods, pod("new")], [eviction("old", "a", "b")], configured=0, now=NOW) == ()
    assert outstanding(pods, [eviction("old", "a", "b")], configured=0, now=NOW + timedelta(hours=1)) == ()


def test_each_eviction_needs_a_replacement_of_its_own() -> None:
    pods = [pod("a"), pod("new")]
    done = [eviction("old", "a"), eviction("older", "a")]
    assert len(outstanding(pods, done, configured=3, now=NOW)) == 1


def test_a_resize_blocks_while_the_kubelet_is_at_it() -> None:
    done = Disruption(pod="a", uid="a", at=NOW, evicted=False)
    busy = [pod("a", resizing=True), pod("b")]
    assert stand_against(busy[1], busy, done) == ["pod a is still being resized"]
    ended = [pod("a"), pod("b")]
    assert stand_against(ended[1], ended, done) == []


def test_the_replacement_is_the_first_pod_that_came_later() -> None:
    pods = [pod("a"), pod("second", age=1), pod("first", age=2)]
    found = replacement_of(pods, eviction("old", "a"))
    assert found is not None
    assert found.metadata.name == "first"
