"""Throttled pods on the dashboard, from kubetide's metrics server behind an API server, with the visitor's rights."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dashboard_world import EVERYTHING, OWN, account, cluster, dashboard, visitor
from http_frames import QUIET, allowed, connect, frame, kept
from kubetide.api.objects.sample_frames import ContainerSignals, PodSample, UsageSample
from kubetide.api.values.codec import encode
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from metricsworld import MetricsWorld, make_pod, metrics_world

SHARES = {"web-1": 0.5, "web-2": 0.3, "web-3": 0.1}
PODS_ONLY = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]


@asynccontextmanager
async def throttling() -> AsyncIterator[MetricsWorld]:
    """Serve a cluster whose API server hands metrics.k8s.io to a metrics server that knows how pods are throttled."""
    async with metrics_world(**QUIET) as world, world.session() as session:

        async def forward(_: dict[str, Any], request: Request) -> Answer:
            user = request.user
            status, body = await world.as_user(request.path, user.name, *user.groups)
            return Answer(status, encode(body))

        world.cluster.api.forward = forward
        await allowed(world)
        uids = {name: await make_pod(world.client, name, "n-1") for name in SHARES}
        async with asyncio.timeout(20):
            while len(list(world.server.view.pods.store)) < len(SHARES):  # noqa: ASYNC110 - pods come by a watch
                await asyncio.sleep(0.02)
        stream = await connect(session, "agent-1")
        samples = tuple(
            PodSample(slot, (UsageSample(1, 2),), (), (ContainerSignals(need=5, peak=7, throttled=share),))
            for slot, share in enumerate(SHARES.values())
        )
        await stream.send_bytes(frame(0, *uids.items(), pods=samples))
        await kept(world)
        yield world
        await stream.close()


async def tile(session: Any, url: str) -> tuple[Any, str]:
    async with session.get(f"{url}?format=json") as answer:
        counts = (await answer.json())["overview"]["counts"]
    found = next(each for each in counts if each["label"] == "Throttled pods")
    return found["count"], found["why"]


async def test_the_metrics_server_knows_how_many_pods_are_throttled(tmp_path: Path) -> None:
    async with throttling() as world, dashboard(world.cluster, tmp_path) as url, visitor() as session:
        assert await tile(session, f"{url}/c/kubetide/") == (2, "from metrics server")
        async with session.get(f"{url}/c/kubetide/") as answer:
            assert '<strong title="from metrics server">2</strong>' in await answer.text()


async def test_who_may_not_read_signals_is_told_so(tmp_path: Path) -> None:
    async with throttling() as world, dashboard(world.cluster, tmp_path, by_token=True) as url:
        for name, rules, expected in (
            ("reader", EVERYTHING, (2, "from metrics server")),
            ("other", PODS_ONLY, (None, "podsignals.metrics.k8s.io may not be listed; no --prometheus was given")),
        ):
            token = await account(world.cluster, name, rules=rules)
            async with visitor() as session:
                await session.post(f"{url}/login", data={"token": token}, headers=OWN)
                count, why = await tile(session, f"{url}/c/in-cluster/")
                assert (count, why.removeprefix("no agent on this machine; ")) == expected


async def test_without_any_source_the_reason_is_told(tmp_path: Path) -> None:
    async with cluster() as server, dashboard(server, tmp_path) as url, visitor() as session:
        count, why = await tile(session, f"{url}/c/kubetide/")
        assert count is None
        assert why == ("no agent on this machine; the metrics server is not kubetide's; no --prometheus was given")
        async with session.get(f"{url}/c/kubetide/") as answer:
            assert f'<strong title="{why.replace(chr(39), "&#39;")}">?</strong>' in await answer.text()
