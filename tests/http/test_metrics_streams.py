"""Streams of agents over real TLS: bound to their node, bounded, and forgotten when they fall silent."""

import asyncio
import json

import aiohttp
import pytest

from http_frames import QUIET, allowed, connect, frame, kept
from kubetide.api.objects.sample_frames import (
    FRAME_LIMIT,
    UsageSample,
)
from metricsworld import MetricsWorld, make_node, make_pod, metrics_world

USAGE = "/apis/metrics.k8s.io/v1beta1"


async def shown(world: MetricsWorld) -> dict[str, str]:
    """Return the pods that are listed, with the CPU of their first container."""
    _, body = await world.as_user(f"{USAGE}/pods", "root", "system:masters")
    return {one["metadata"]["name"]: one["containers"][0]["usage"]["cpu"] for one in body["items"]}


async def test_an_agent_s_samples_are_served_at_once_and_each_once() -> None:
    async with metrics_world(**QUIET) as world, world.session() as session:
        await allowed(world)
        uid = await make_pod(world.client, "web-1", "n-1")
        stream = await connect(session, "agent-1")
        await stream.send_bytes(frame(0, ("web-1", uid)))
        await kept(world)
        async with asyncio.timeout(20):
            while await shown(world) != {"web-1": "1000000000n"}:  # noqa: ASYNC110 - the pod comes by a watch
                await asyncio.sleep(0.02)
        await stream.send_bytes(frame(1, ("web-1", uid), cpu=5, named=False))
        await stream.send_bytes(frame(1, ("web-1", uid), cpu=7, named=False))
        await kept(world, "repeated or late")
        assert await shown(world) == {"web-1": "5n"}
        await stream.close()


async def test_an_agent_speaks_for_no_other_node_and_for_no_pod_of_another_node() -> None:
    async with metrics_world(**QUIET) as world, world.session() as session:
        await allowed(world)
        await make_node(world.client, "n-2", 1)
        mine, other = await make_pod(world.client, "mine", "n-1"), await make_pod(world.client, "other", "n-2")
        stream = await connect(session, "agent-1")
        await stream.send_bytes(frame(0, ("mine", mine), ("other", other), ("made-up", "u"), ("mine2", mine)))
        await kept(world)
        async with asyncio.timeout(20):
            while "mine" not in await shown(world):  # noqa: ASYNC110 - the pod comes by a watch
                await asyncio.sleep(0.02)
        assert set(await shown(world)) == {"mine"}
        _, nodes = await world.as_user(f"{USAGE}/nodes", "root", "system:masters")
        assert [one["metadata"]["name"] for one in nodes["items"]] == ["n-1"]
        await stream.close()


@pytest.mark.parametrize(
    ("token", "status"),
    [
        pytest.param("unknown", 401, id="no-such-token"),
        pytest.param("for-others", 401, id="token-for-another-audience"),
        pytest.param("unbound", 403, id="token-bound-to-no-node"),
        pytest.param("elsewhere", 403, id="node-is-not-of-this-cluster"),
    ],
)
async def test_who_may_not_send(token: str, status: int) -> None:
    async with metrics_world(**QUIET) as world, world.session() as session:
        await allowed(world)
        world.reviews.agent("unbound", "")
        world.reviews.agent("elsewhere", "n-9")
        world.reviews.agent("for-others", "n-1", audiences=("https://kubernetes.default.svc",))
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await connect(session, token)
        assert refused.value.status == status


async def test_sending_takes_a_permission() -> None:
    async with metrics_world(**QUIET) as world, world.session() as session:
        world.reviews.agent("agent-1", "n-1")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await connect(session, "agent-1")
        assert refused.value.status == 403


@pytest.mark.parametrize(
    ("hostile", "code", "result"),
    [
        pytest.param(b"\xff\x00", 1008, "refused: format", id="garbage"),
        pytest.param(frame(0, node=UsageSample(-1, 0)), 1008, "refused: number", id="negative"),
        pytest.param(frame(0, ("../etc", "u")), 1008, "refused: name", id="absurd-name"),
        pytest.param(b"x" * (FRAME_LIMIT + 1), None, "refused: size", id="too-long"),
    ],
)
async def test_a_hostile_frame_ends_its_stream_and_nothing_else(hostile: bytes, code: int | None, result: str) -> None:
    async with metrics_world(**QUIET) as world, world.session() as session:
        await allowed(world)
        stream, other = await connect(session, "agent-1"), await connect(session, "agent-1")
        await stream.send_bytes(hostile)
        async with asyncio.timeout(20):
            while not stream.closed:
                await stream.receive()
        # A frame beyond the limit is not read to its end, so that its sender may hear of a reset instead of a reason.
        assert code is None or stream.close_code == code
        await kept(world, result)
        await other.send_bytes(frame(0))
        await kept(world)
        await other.close()


async def test_an_agent_that_restarts_goes_on_where_its_predecessor_ended() -> None:
    async with metrics_world(**QUIET) as world, world.session() as session:
        await allowed(world)
        for times in (1, 2):
            stream = await connect(session, "agent-1")
            await stream.send_bytes(frame(0))
            await kept(world, times=times)
            await stream.close()


async def test_usage_can_be_watched_by_who_may_and_is_sent_as_it_moves() -> None:
    async with metrics_world(**QUIET) as world, world.session() as session:
        await allowed(world)
        uid = await make_pod(world.client, "web-1", "n-1")
        assert (await world.as_user(f"{USAGE}/pods?watch=true", "ann"))[0] == 403
        await world.allow("bob", "metrics.k8s.io", ["pods"], ["watch"])
        stream = await connect(session, "agent-1")
        await stream.send_bytes(frame(0, ("web-1", uid)))
        async with asyncio.timeout(20):
            while not await shown(world):  # noqa: ASYNC110 - the pod comes by a watch
                await asyncio.sleep(0.02)
        told = {"X-Remote-User": "bob"}
        async with (
            world.session(world.front_proxy()) as front,
            front.get(f"{USAGE}/pods?watch=true&timeoutSeconds=20", headers=told) as watch,
        ):
            assert watch.status == 200
            # The second is the first again but for a hundredth, and no news.
            for number, cpu in enumerate((2 * 10**9, 2 * 10**9 + 10**7, 10**9), start=1):
                await stream.send_bytes(frame(number, ("web-1", uid), cpu=cpu, named=False))
            lines = [json.loads(await watch.content.readline()) for _ in range(2)]
        cpus = [line["object"]["containers"][0]["usage"]["cpu"] for line in lines]
        assert ({line["type"] for line in lines}, cpus) == ({"MODIFIED"}, ["2000000000n", "1000000000n"])
        await stream.close()


async def test_a_slow_reader_of_a_watch_loses_the_oldest_readings_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kubetide.metrics.http_api.MOST_WAITING", 3)
    async with metrics_world(**QUIET) as world, world.session() as session:
        await allowed(world)
        pods = [(f"web-{number}", await make_pod(world.client, f"web-{number}", "n-1")) for number in range(40)]
        async with asyncio.timeout(20):
            while len(world.server.view.pods.store) < 40:  # noqa: ASYNC110 - the pods come by a watch
                await asyncio.sleep(0.02)
        headers = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
        async with (
            world.session(world.front_proxy()) as asking,
            asking.get(f"{USAGE}/pods?watch=true", headers=headers) as watch,
        ):
            stream = await connect(session, "agent-1")
            rounds = 300
            for number in range(rounds):
                cpu = 5 * 10**9 if number == rounds - 1 else 10**6 * (1 + number % 2)
                await stream.send_bytes(frame(number, *pods, cpu=cpu, named=number == 0))
            await kept(world, times=rounds)
            assert len(await shown(world)) == 40, "others are answered meanwhile"
            last = f"{5 * 10**9}n"
            lines = 0
            async with asyncio.timeout(60):
                async for line in watch.content:
                    lines += 1
                    event = json.loads(line)["object"]
                    if event["containers"][0]["usage"]["cpu"] == last:
                        break
            assert lines < 40 * rounds, "readings were dropped, not kept for ever"
            await stream.close()
