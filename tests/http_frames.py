"""Frames of agents, and streams to send them on, for tests of the metrics server over real TLS."""

import asyncio
from datetime import timedelta
from typing import Any

import aiohttp

from kubetide.api.objects.sample_frames import (
    STREAM_PATH,
    STREAM_PROTOCOL,
    Frame,
    PodName,
    PodSample,
    UsageSample,
    encode_frame,
)
from metricsworld import AGENT, MetricsWorld

QUIET = {"metric_resolution": timedelta(hours=1)}


def frame(sequence: int, *pods: tuple[str, str], cpu: int = 10**9, named: bool = True, **changes: Any) -> bytes:
    """Return a frame about pods, given as name and uid, that use a core each."""
    names = [PodName(slot, uid, "default", name, ("web",)) for slot, (name, uid) in enumerate(pods)]
    samples = [PodSample(slot, (UsageSample(cpu, 2**20),), (0.5,)) for slot in range(len(pods))]
    fields: dict[str, Any] = {
        "version": 1,
        "sequence": sequence,
        "at": 50.0,
        "sent": 50.0,
        "window": 5.0,
        "node": UsageSample(2 * 10**9, 2**30),
        "named": tuple(names) if named else (),
        "pods": tuple(samples),
    }
    return encode_frame(Frame(**fields | changes))


async def connect(session: aiohttp.ClientSession, token: str) -> aiohttp.ClientWebSocketResponse:
    headers = {"Authorization": f"Bearer {token}"}
    return await session.ws_connect(STREAM_PATH, protocols=(STREAM_PROTOCOL,), headers=headers)


async def kept(world: MetricsWorld, result: str = "kept", times: int = 1) -> None:
    """Wait until so many frames had that result."""
    line = f'kubetide_metrics_frames_total{{result="{result}"}} {float(times)}'
    async with asyncio.timeout(20):
        while line not in world.telemetry.render().decode():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


async def allowed(world: MetricsWorld) -> None:
    await world.allow(AGENT, "kubetide.io", ["samples"], ["create"])
    world.reviews.agent("agent-1", "n-1")
