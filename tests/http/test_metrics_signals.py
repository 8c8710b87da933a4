"""Signals of nodes over real TLS: who may read them, the list, and the watch of memory that runs out."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from http_frames import QUIET, allowed, connect, frame, kept
from kubetide.api.objects.sample_frames import ContainerSignals, MemoryAlarm, PodSample, UsageSample
from metricsworld import MetricsWorld, make_pod, metrics_world

SIGNALS = "/apis/metrics.k8s.io/v1beta1/podsignals"
ALARMED = "fieldSelector=memoryAlarm%3Dtrue"
ALARM = MemoryAlarm(slot=0, container=0, need=450, limit=512, growth=2.0, pressure=0.5, hits=None)
BETWEEN: dict[str, Any] = {"node": None, "pods": (), "named": False}
"""A frame between two windows."""


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a watch that are no heartbeats."""
    async for line in response.content:
        event = json.loads(line)
        if event["type"] != "BOOKMARK":
            yield event


async def listed(world: MetricsWorld, query: str = "") -> list[dict[str, Any]]:
    status, body = await world.as_user(f"{SIGNALS}?{query}", "root", "system:masters")
    assert status == 200
    items: list[dict[str, Any]] = body["items"]
    return items


async def seen(world: MetricsWorld) -> None:
    """Wait until the server knows the pod."""
    async with asyncio.timeout(20):
        while not list(world.server.view.pods.store):  # noqa: ASYNC110 - the pod comes by a watch
            await asyncio.sleep(0.02)


async def test_signals_are_listed_for_pods_that_are_there() -> None:
    async with metrics_world(**QUIET) as world, world.session() as session:
        await allowed(world)
        uid = await make_pod(world.client, "web-1", "n-1")
        await seen(world)
        stream = await connect(session, "agent-1")
        details = (ContainerSignals(need=5, peak=7, throttled=0.5),)
        samples = (PodSample(0, (UsageSample(1, 2),), (), details), PodSample(1, (UsageSample(1, 2),), (), details))
        await stream.send_bytes(frame(0, ("web-1", uid), ("made-up", "u"), pods=samples))
        await kept(world)
        (pod,) = await listed(world)
        assert pod["metadata"] == {"name": "web-1", "namespace": "default", "uid": uid}
        expected = {"name": "web", "memoryNeedBytes": 5, "cpuPeakNanocores": 7, "cpuThrottledRatio": 0.5}
        assert pod["containers"] == [expected]
        assert await listed(world, ALARMED) == []
        await stream.close()


async def test_memory_that_runs_out_is_watched_from_the_first_answer_to_the_end() -> None:
    async with metrics_world(**QUIET) as world, world.session() as session:
        await allowed(world)
        uid = await make_pod(world.client, "web-1", "n-1")
        await seen(world)
        stream = await connect(session, "agent-1")
        await stream.send_bytes(frame(0, ("web-1", uid)))
        await stream.send_bytes(frame(0, alarms=(ALARM,), **BETWEEN))
        await kept(world, times=2)
        (pod,) = await listed(world, ALARMED)
        alarm = {"needBytes": 450, "limitBytes": 512, "growthBytesPerSecond": 2.0, "pressureRatio": 0.5}
        assert pod["containers"] == [{"name": "web", "memoryAlarm": alarm}]
        headers = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
        async with (
            world.session(world.front_proxy()) as asking,
            asking.get(f"{SIGNALS}?watch=true&{ALARMED}", headers=headers) as watch,
            asyncio.timeout(20),
        ):
            told = events(watch)
            opening = await anext(told)
            assert (opening["type"], opening["object"]["metadata"]["name"]) == ("ADDED", "web-1")
            await stream.send_bytes(frame(1, ("web-1", uid), named=False, alarms=(ALARM,)))
            assert (await anext(told))["type"] == "MODIFIED"
            await stream.send_bytes(frame(1, alarms=(), **BETWEEN))
            assert (await anext(told))["type"] == "DELETED"
        await stream.close()


@pytest.mark.parametrize(
    ("query", "status"),
    [
        pytest.param("", 403, id="without-permission"),
        pytest.param("watch=true", 400, id="watch-of-everything"),
        pytest.param("labelSelector=app%3Dweb", 400, id="selector-of-labels"),
        pytest.param("fieldSelector=metadata.name%3Dx", 400, id="selector-of-another-field"),
    ],
)
async def test_signals_have_a_permission_and_selectors_of_their_own(query: str, status: int) -> None:
    async with metrics_world(**QUIET) as world:
        await world.allow("eve", "metrics.k8s.io", ["pods", "nodes"], ["get", "list", "watch"])
        user = ("eve",) if status == 403 else ("root", "system:masters")
        found, _ = await world.as_user(f"{SIGNALS}?{query}", *user)
        assert found == status


async def test_a_watch_that_has_nothing_to_tell_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubetide.metrics.http_api.HEARTBEAT", 0.05)
    async with metrics_world(**QUIET) as world, world.session(world.front_proxy()) as asking:
        headers = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
        async with asking.get(f"{SIGNALS}?watch=true&{ALARMED}", headers=headers) as watch, asyncio.timeout(20):
            lines = [json.loads(await watch.content.readline()) for _ in range(3)]
        assert [line["type"] for line in lines] == ["BOOKMARK"] * 3
