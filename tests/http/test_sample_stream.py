"""An agent's samples, from its cgroup files to `metrics.k8s.io`, over a real stream."""

import asyncio
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from kubetide.api.values.codec import encode
from kubetide.clock import SystemClock
from kubetide.node.core.series import kinds
from kubetide.node.core.series.ring import Ring
from kubetide.node.core.series.store import RecentMetrics, SeriesStore, key_of
from kubetide.node.host.readers import CgroupReader
from kubetide.node.host.worker import Inline
from kubetide.node.sample_stream import SampleStream
from kubetide.node.settings import NodeSettings
from kubetide.telemetry import Telemetry
from metricsworld import AGENT, MetricsWorld, make_pod, metrics_world, until
from nodeworld import World

USAGE = "/apis/metrics.k8s.io/v1beta1"
CLOCK = SystemClock()
MIB = 2**20


def cgroup(cpu_micros: int, memory: int, inactive: int) -> dict[str, str]:
    """Return the files of a cgroup v2."""
    stat = {"anon": 1, "file": 1, "inactive_file": inactive, "active_file": 0, "inactive_anon": 0, "active_anon": 1}
    return {
        "cpu.stat": f"usage_usec {cpu_micros}\nnr_periods 10\nnr_throttled 5\nthrottled_usec 1\n",
        "memory.current": f"{memory}\n",
        "memory.max": "max\n",
        "memory.stat": "".join(f"{name} {value}\n" for name, value in {**stat, "unevictable": 0}.items()),
        "memory.events": "oom 1\noom_kill 1\n",
    }


def node_with(uid: str) -> World:
    """Return a node that runs the pod `web-1` with one container."""
    node = World(version=2)
    running = {"name": "web", "containerID": "containerd://abc", "state": {"running": {}}}
    pod = node.add_pod(
        {
            "metadata": {"name": "web-1", "namespace": "default", "uid": uid},
            "spec": {"containers": [{"name": "web"}]},
            "status": {"phase": "Running", "containerStatuses": [running]},
        }
    )
    for directory in (pod.directory, pod.containers[0].directory):
        node.cgroup("cpu", directory, cgroup(0, 3 * MIB, MIB))
    node.host.put("/proc", {"meminfo": "MemTotal: 4096 kB\nMemFree: 1024 kB\nInactive(file): 1024 kB\n"})
    return node


def stream_of(world: MetricsWorld, node: World, token: Path, **changes: Any) -> SampleStream:
    store = SeriesStore(Ring(60.0))
    settings: dict[str, Any] = {
        "metrics_window": timedelta(seconds=1),
        "metrics_address": f"127.0.0.1:{world.server.port}",
        "metrics_token_file": str(token),
        "node_name": "n-1",
    }

    def recent() -> RecentMetrics:
        store.append("node", 1.0, CLOCK.now(), [(key_of(kinds.NODE_CPU), 1.5)])
        return store.view(CLOCK.now, 1.0)

    return SampleStream(
        world.client,
        CLOCK,
        NodeSettings(**settings | changes),
        Telemetry(),
        CgroupReader(node.host, node.layout),
        Inline(),
        lambda: tuple(node.pods),
        recent,
    )


async def shown(world: MetricsWorld, what: str) -> list[Any]:
    _, body = await world.as_user(f"{USAGE}/{what}", "root", "system:masters")
    items: list[Any] = body["items"]
    return items


async def test_samples_of_an_agent_reach_the_api(tmp_path: Path) -> None:
    async with metrics_world(metric_resolution=timedelta(hours=1)) as world, asyncio.TaskGroup() as group:
        await world.allow(AGENT, "kubetide.io", ["samples"], ["create"])
        world.reviews.agent("agent-1", "n-1")
        token = tmp_path / "token"
        token.write_text("agent-1")
        node = node_with(await make_pod(world.client, "web-1", "n-1"))
        stream = stream_of(world, node, token)
        task = group.create_task(stream.run())
        async with asyncio.timeout(30):
            while not await shown(world, "pods"):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
        (pod,), (whole,) = await shown(world, "pods"), await shown(world, "nodes")
        assert pod["containers"] == [{"name": "web", "usage": {"cpu": "0n", "memory": "2048Ki"}}]
        assert whole["usage"] == {"cpu": "1500000000n", "memory": "2048Ki"}
        task.cancel()


async def test_a_server_that_cannot_be_reached_or_does_not_let_the_agent_in_is_reported(tmp_path: Path) -> None:
    async with metrics_world(metric_resolution=timedelta(hours=1)) as world, asyncio.TaskGroup() as group:
        token = tmp_path / "token"
        token.write_text("stranger")
        stream = stream_of(world, node_with("u"), token)
        task = group.create_task(stream.run())
        async with asyncio.timeout(30):
            while not stream.notes():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
        assert stream.ready()
        task.cancel()


async def test_samples_come_again_when_the_server_was_restarted(tmp_path: Path) -> None:
    async with metrics_world(metric_resolution=timedelta(hours=1)) as world, asyncio.TaskGroup() as group:
        await world.allow(AGENT, "kubetide.io", ["samples"], ["create"])
        world.reviews.agent("agent-1", "n-1")
        token = tmp_path / "token"
        token.write_text("agent-1")
        node = node_with(await make_pod(world.client, "web-1", "n-1"))
        stream = stream_of(world, node, token)
        task = group.create_task(stream.run())
        await until(lambda: shown(world, "pods"))
        await world.restart()
        # A server that has just started knows nothing, and says so instead of calling all pods idle.
        await until(lambda: shown(world, "pods"))
        (pod,) = await shown(world, "pods")
        assert pod["containers"][0]["usage"]["memory"] == "2048Ki"
        assert "kept" in world.telemetry.render().decode()
        task.cancel()


async def announce(world: MetricsWorld, name: str, port: int) -> None:
    """Name a replica of the metrics server as the endpoint controller does."""
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "kubetide-metrics"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": False}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }
    path = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
    await world.client.request("POST", path, body=encode(body))


async def test_every_replica_hears_of_a_node_and_one_that_dies_takes_nothing_with_it(tmp_path: Path) -> None:
    async with metrics_world(metric_resolution=timedelta(hours=1)) as first, asyncio.TaskGroup() as group:
        await first.allow(AGENT, "kubetide.io", ["samples"], ["create"])
        first.reviews.agent("agent-1", "n-1")
        token = tmp_path / "token"
        token.write_text("agent-1")
        stream = stream_of(first, node_with(await make_pod(first.client, "web-1", "n-1")), token, metrics_address="")
        async with first.replica() as second:
            for number, one in enumerate((first, second)):
                await announce(first, f"metrics-{number}", one.server.port)
            task = group.create_task(stream.run())
            for one in (first, second):
                await until(partial(shown, one, "pods"))
            assert not stream.notes()
            (before,) = await shown(first, "pods")

        async def newer() -> bool:
            (pod,) = await shown(first, "pods")
            return bool(pod["timestamp"] > before["timestamp"] and stream.notes())

        await until(newer)
        assert stream.notes() == ("1 problems with sending samples",)
        task.cancel()


async def test_memory_that_runs_out_reaches_a_watch_before_the_window_ends(tmp_path: Path) -> None:
    async with metrics_world(metric_resolution=timedelta(hours=1)) as world, asyncio.TaskGroup() as group:
        await world.allow(AGENT, "kubetide.io", ["samples"], ["create"])
        world.reviews.agent("agent-1", "n-1")
        token = tmp_path / "token"
        token.write_text("agent-1")
        node = node_with(await make_pod(world.client, "web-1", "n-1"))
        (container,) = node.pods[0].containers
        stream = stream_of(world, node, token, memory_alarm_interval=timedelta(seconds=0.05))
        task = group.create_task(stream.run())
        await until(lambda: shown(world, "pods"))
        used = 70.0

        async def told() -> list[Any]:
            nonlocal used
            used = min(used + 0.1, 99.0)
            files = {"memory.max": f"{100 * MIB}\n", "memory.current": f"{int(used * MIB)}\n"}
            node.cgroup("cpu", container.directory, files)
            return await shown(world, "podsignals?fieldSelector=memoryAlarm%3Dtrue")

        (found,) = await until(told)
        alarm = found["containers"][0]["memoryAlarm"]
        assert (found["metadata"]["name"], alarm["limitBytes"]) == ("web-1", 100 * MIB)
        task.cancel()
