"""The evictor: versions, budgets, order, memory of what was evicted, and what people hear."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from kubetide.api.objects.events import Event
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response
from kubetide.node.core.plan import Counted, Eviction, EvictionTask, Notice, Plan
from kubetide.node.executor.evictor import NodeEvictor, Outcome, eviction_version
from kubetide.telemetry import Telemetry
from nodeworld import TestClock


class FakeApi:
    """An API server that knows discovery and eviction, with budgets on some pods."""

    def __init__(self, *, policy: tuple[str, ...] = ("v1", "v1beta1"), core_version: str = "") -> None:
        self.policy = policy
        self.core_version = core_version
        self.protected: set[str] = set()
        self.failing: set[str] = set()
        self.evictions: list[dict[str, Any]] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
    ) -> Response:
        if path == "/api":
            return _json({"versions": ["v1"]})
        if path == "/apis":
            versions = [{"groupVersion": f"policy/{one}", "version": one} for one in self.policy]
            group = {"name": "policy", "versions": versions, "preferredVersion": versions[0]} if versions else None
            return _json({"groups": [group] if group else []})
        if path == "/api/v1":
            eviction = {"name": "pods/eviction", "kind": "Eviction", "group": "policy", "version": self.core_version}
            return _json({"resources": [{"name": "pods", "kind": "Pod"}, *([eviction] if self.core_version else [])]})
        name = path.split("/")[-2]
        if name in self.protected:
            return _json({"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "message": "budget"}, 429)
        if name in self.failing:
            return _json({"kind": "Status", "status": "Failure", "reason": "InternalError", "message": "no"}, 500)
        self.evictions.append(json.loads(body or b"{}"))
        return _json({"kind": "Status", "status": "Success"}, 201)

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError("nothing is watched")

    async def close(self) -> None:
        return None


def _json(body: Any, status: int = 200) -> Response:
    return Response(status, {"content-type": "application/json"}, json.dumps(body).encode())


class World:
    def __init__(self, api: FakeApi | None = None) -> None:
        self.api = api or FakeApi()
        self.clock = TestClock()
        self.events: list[Event] = []
        self.audited: list[str] = []
        self.stopped: list[str] = []
        self.telemetry = Telemetry()
        self.evictor = NodeEvictor(
            Client(self.api, clock=self.clock),
            clock=self.clock,
            node_name="n",
            publish=self.events.append,
            telemetry=self.telemetry,
            audit=self,
            stop_containers=self._stop,
        )

    def record(self, *, reason: str, message: str, name: str = "", **_: Any) -> None:
        self.audited.append(f"{reason} {name}")

    async def _stop(self, eviction: Eviction) -> None:
        assert [one["metadata"]["name"] for one in self.api.evictions][-1] == eviction.name
        self.stopped.append(eviction.name)

    def reasons(self) -> list[tuple[str, str]]:
        return [(event.reason, event.regarding.name) for event in self.events]


def eviction(name: str, release: int = 10, *, stop: bool = False) -> Eviction:
    return Eviction(
        namespace="d",
        name=name,
        uid=f"uid-{name}",
        reason="R",
        message="m",
        releases={Counted.USAGE: {"memory": release}},
        stop_containers=stop,
    )


def plan_of(*candidates: Eviction, need: int) -> Plan:
    task = EvictionTask(feature="F", counted=Counted.USAGE, amounts={"memory": need}, candidates=candidates)
    return Plan(tasks=(task,))


async def test_candidates_are_taken_in_order_until_enough_is_accepted() -> None:
    world = World()
    accepted = await world.evictor.carry_out(plan_of(eviction("a"), eviction("b"), eviction("c"), need=15))
    assert [one.name for one in accepted] == ["a", "b"]
    assert world.api.evictions[0] == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "a", "namespace": "d"},
        "deleteOptions": {"preconditions": {"uid": "uid-a"}},
    }
    assert world.reasons() == [("evictPodSuccess", "a"), ("evictPodSuccess", "b")]
    assert world.audited == ["R a", "R b"]
    assert b'koordlet_pod_eviction{node="n",reason="R"} 2.0' in world.telemetry.render()


async def test_evictions_that_stop_containers_are_counted_with_those_that_do_not() -> None:
    world = World()
    await world.evictor.carry_out(plan_of(eviction("a"), eviction("b", stop=True), need=20))
    assert world.stopped == ["b"]
    assert b'koordlet_pod_eviction{node="n",reason="R"} 2.0' in world.telemetry.render()


async def test_a_budget_protects_its_pod_and_the_next_one_goes() -> None:
    world = World()
    world.api.protected.add("a")
    accepted = await world.evictor.carry_out(plan_of(eviction("a", stop=True), eviction("b", stop=True), need=5))
    assert [one.name for one in accepted] == ["b"]
    assert world.stopped == ["b"]
    assert world.reasons() == [("evictPodFail", "a"), ("evictPodSuccess", "b")]
    assert "budget" in world.events[0].message
    assert b'kubetide_node_eviction_refused_total{node="n",reason="R"} 1.0' in world.telemetry.render()


async def test_a_pod_is_asked_for_once_within_two_minutes_and_counts_meanwhile() -> None:
    world = World()
    plan = plan_of(eviction("a"), eviction("b"), need=10)
    await world.evictor.carry_out(plan)
    again = await world.evictor.carry_out(plan)
    assert again == []
    assert len(world.api.evictions) == 1
    assert list(world.evictor.evicted()) == ["uid-a"]
    world.clock.advance(121)
    assert world.evictor.evicted() == {}
    assert await world.evictor.evict(eviction("a")) is Outcome.ACCEPTED


async def test_a_failure_is_told_and_tried_again() -> None:
    world = World()
    world.api.failing.add("a")
    assert await world.evictor.evict(eviction("a", stop=True)) is Outcome.FAILED
    assert world.stopped == []
    assert world.reasons() == [("evictPodFail", "a")]
    world.api.failing.clear()
    assert await world.evictor.evict(eviction("a")) is Outcome.ACCEPTED


@pytest.mark.parametrize(
    ("api", "spoken"),
    [
        pytest.param(FakeApi(policy=("v1beta1",)), "policy/v1beta1", id="only-v1beta1"),
        pytest.param(FakeApi(policy=("v1",)), "policy/v1", id="only-v1"),
        pytest.param(FakeApi(policy=("v1beta1", "v1"), core_version="v1"), "policy/v1", id="the-core-list-decides"),
        pytest.param(FakeApi(policy=()), None, id="no-policy-group"),
        pytest.param(FakeApi(policy=("v2",)), None, id="an-unknown-version"),
    ],
)
async def test_the_version_is_discovered(api: FakeApi, spoken: str | None) -> None:
    world = World(api)
    outcome = await world.evictor.evict(eviction("a"))
    if spoken is None:
        assert outcome is Outcome.FAILED
        assert "serves no eviction" in world.events[0].message
    else:
        assert outcome is Outcome.ACCEPTED
        assert api.evictions[0]["apiVersion"] == spoken


def test_without_a_core_list_there_is_no_eviction() -> None:
    assert eviction_version({"policy": ("v1",)}, None) is None


async def test_notices_become_events_once_a_minute() -> None:
    world = World()
    notices = (
        Notice(reason="evictPodStuck", message="hangs", namespace="d", name="a", uid="uid-a"),
        Notice(reason="evictPodInsufficient", message="short"),
    )
    for _ in range(3):
        await world.evictor.carry_out(Plan(notices=notices))
        world.clock.advance(1)
    assert [(event.regarding.kind, event.reason) for event in world.events] == [
        ("Pod", "evictPodStuck"),
        ("Node", "evictPodInsufficient"),
    ]
    world.clock.advance(60)
    await world.evictor.carry_out(Plan(notices=notices))
    assert len(world.events) == 4
