"""Events: repeats are counted, floods combined, spam dropped, and nobody waits."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from faulty_api import FaultPlan, FaultyApi, FaultyTransport
from kubetide.api.objects.events import Event, normal, warning
from kubetide.api.objects.meta import ObjectReference
from kubetide.embedded.sim.time.loop import run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.errors import ConnectionLost
from kubetide.kube.client.transport import Response
from kubetide.kube.control.recorder import Correlator, EventRecorder, EventSeries

START = datetime(2026, 1, 5, tzinfo=UTC)
EVENTS = "/api/v1/events"


def event(message: str, name: str = "web") -> Event:
    about = ObjectReference(
        api_version="autoscaling/v2", kind="HorizontalPodAutoscaler", namespace="shop", name=name, uid="u1"
    )
    return normal(about, "SuccessfulRescale", message)


def correlate(correlator: Correlator, message: str, at: float, name: str = "web") -> EventSeries | None:
    now = START + timedelta(seconds=at)
    found = correlator.correlate(event(message, name), now=now, monotonic=at)
    return found[1] if found is not None else None


def test_a_repeat_raises_the_count_and_keeps_the_first_time() -> None:
    correlator = Correlator()
    correlate(correlator, "scaled", 0)
    again = correlate(correlator, "scaled", 60)
    assert again is not None
    assert (again.count, again.first, again.last) == (2, START, START + timedelta(seconds=60))


def test_more_than_ten_similar_ones_are_combined() -> None:
    correlator = Correlator()
    shown = [correlate(correlator, f"to {index}", index) for index in range(13)]
    messages = [each.event.message for each in shown if each is not None]
    assert messages[:10] == [f"to {index}" for index in range(10)]
    assert messages[10:] == [f"(combined from similar events): to {index}" for index in range(10, 13)]
    assert [each.count for each in shown[10:] if each is not None] == [1, 2, 3]


def test_after_ten_quiet_minutes_messages_are_shown_by_themselves_again() -> None:
    correlator = Correlator()
    for index in range(12):
        correlate(correlator, f"to {index}", index)
    later = correlate(correlator, "to 99", 1000)
    assert later is not None
    assert later.event.message == "to 99"


def test_an_object_that_floods_is_dropped_and_others_are_not() -> None:
    correlator = Correlator()
    shown = [correlate(correlator, "same", 0.1 * index) for index in range(100)]
    assert sum(each is not None for each in shown) == 25
    assert correlate(correlator, "same", 10, name="other") is not None
    assert correlate(correlator, "same", 400) is not None


def test_a_flood_of_one_type_does_not_hide_the_other() -> None:
    correlator, now = Correlator(), datetime(2026, 1, 1, tzinfo=UTC)
    about = event("fine").regarding
    for _ in range(100):
        correlator.correlate(warning(about, "Failed", "again"), now=now, monotonic=0.0)
    assert correlator.correlate(warning(about, "Failed", "again"), now=now, monotonic=0.0) is None
    assert correlator.correlate(event("fine"), now=now, monotonic=0.0) is not None


def test_the_memory_is_bounded() -> None:
    correlator = Correlator(capacity=10)
    for index in range(100):
        correlate(correlator, "x", 0, name=f"n{index}")
    assert len(correlator._series) == len(correlator._buckets) == len(correlator._similar) == 10


class World:
    """A recorder that runs against a server."""

    def __init__(self, faults: FaultPlan | None = None) -> None:
        self.api = FaultyApi()
        clock = virtual_clock()
        client = Client(FaultyTransport(self.api, faults), clock=clock)
        self.recorder = EventRecorder(client, clock=clock, component="horizontal-pod-autoscaler")

    def events(self) -> list[dict[str, Any]]:
        return list(self.api.objects(EVENTS).values())

    async def during(self, *published: Event) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.recorder.run())
            for each in published:
                self.recorder.publish(each)
                await asyncio.sleep(1)
            await self.recorder.flush()
            task.cancel()


def test_an_event_is_written_as_kubernetes_writes_it() -> None:
    async def main() -> None:
        world = World()
        await world.during(event("New size: 5"))
        (written,) = world.events()
        metadata = written.pop("metadata")
        assert metadata["name"].startswith("web.")
        assert metadata["namespace"] == "shop"
        assert written == {
            "apiVersion": "v1",
            "kind": "Event",
            "involvedObject": {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "namespace": "shop",
                "name": "web",
                "uid": "u1",
            },
            "type": "Normal",
            "reason": "SuccessfulRescale",
            "message": "New size: 5",
            "count": 1,
            "firstTimestamp": "2026-01-05T00:00:00Z",
            "lastTimestamp": "2026-01-05T00:00:00Z",
            "source": {"component": "horizontal-pod-autoscaler"},
            "reportingComponent": "horizontal-pod-autoscaler",
            "reportingInstance": "",
        }

    run_virtual(main())


def test_a_repeat_changes_the_event_that_exists() -> None:
    async def main() -> None:
        world = World()
        await world.during(event("same"), event("same"), event("same"))
        (written,) = world.events()
        assert (written["count"], written["lastTimestamp"]) == (3, "2026-01-05T00:00:02Z")

    run_virtual(main())


def test_an_event_that_expired_is_written_anew() -> None:
    async def main() -> None:
        world = World()
        await world.during(event("same"))
        for key in list(world.api.objects(EVENTS)):
            world.api.remove(EVENTS, key)
        await world.during(event("same"))
        (written,) = world.events()
        assert written["count"] == 2

    run_virtual(main())


def test_publishing_never_waits_even_when_the_server_is_away() -> None:
    class Away(FaultPlan):
        def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
            raise ConnectionLost("away")

    async def main() -> None:
        world = World(Away())
        async with asyncio.TaskGroup() as group:
            task = group.create_task(world.recorder.run())
            for index in range(2500):
                world.recorder.publish(event("x", name=f"n{index}"))
            assert world.recorder.dropped == 1500
            await asyncio.sleep(100)
            assert world.recorder.dropped > 1500
            task.cancel()

    run_virtual(main())


def test_an_event_that_is_refused_does_not_stop_the_next_one() -> None:
    class RefusesFirst(FaultPlan):
        count = 0

        def answer(self, method: str, path: str, query: Mapping[str, str]) -> Response | None:
            self.count += 1
            return Response(403, {}, b'{"kind":"Status","code":403,"reason":"Forbidden"}') if self.count == 1 else None

    async def main() -> None:
        world = World(RefusesFirst())
        await world.during(event("one", name="a"), event("two", name="b"))
        assert [each["message"] for each in world.events()] == ["two"]
        assert world.recorder.dropped == 1

    run_virtual(main())
