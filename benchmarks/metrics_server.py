"""What the metrics server costs: `python benchmarks/metrics_server.py [--nodes 5000] [--pods 20] [--streams 300]`.

First a part of the nodes streams over TLS from another process, a frame a second each, while this one is measured: CPU
per frame and memory per stream, and how old the newest sample of a node is when it is looked at. Then without sockets:
frames of all nodes are taken, and all pods are listed, before and after new frames.
"""

import argparse
import asyncio
import multiprocessing
import random
import ssl
import sys
import time
from datetime import timedelta
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kubetide.api.objects.meta import ObjectKey, ObjectMeta
from kubetide.api.objects.sample_frames import STREAM_PATH, STREAM_PROTOCOL
from kubetide.clock import SystemClock
from kubetide.metrics.cluster_view import ClusterView, PlacedPod, ReachableNode
from kubetide.metrics.core.frames import SampleStream
from kubetide.metrics.core.readings import NodeReading, Readings
from kubetide.metrics.core.requests import parse_path
from kubetide.metrics.usage_api import UsageApi
from kubetide.node.core.samples import ContainerCounters, FrameBuilder, NodeCounters, PodCounters, window_between

LABELS = {"app": "web", "pod-template-hash": "7fcd54d568", "tier": "front"}
CLOCK = SystemClock()


def counters(node: int, pods: int, second: float) -> NodeCounters:
    """Return a reading of a node: every pod has one container that uses a tenth of a core."""
    found = {
        f"uid-{node}-{number}": PodCounters(
            namespace=f"ns-{number % 50}",
            name=f"web-{node}-{number}",
            containers={
                "main": ContainerCounters(
                    cpu_nanos=int(second * 1e8),
                    working_set=50 * 2**20,
                    need=40 * 2**20,
                    limit=2**27,
                    id=f"containerd://{node}-{number}",
                )
            },
            cpu_pressure=0.1,
            memory_pressure=0.0,
            oom_kills=0,
        )
        for number in range(pods)
    }
    return NodeCounters(at=time.time(), monotonic=second, working_set=2**30, pods=found)


def frame(builder: FrameBuilder, node: int, pods: int, second: float) -> bytes:
    """Return the next frame of a node."""
    before, now = (counters(node, pods, at) for at in (second, second + 5))
    ids = [one.id for pod in now.pods.values() for one in pod.containers.values()]
    peaks, throttled = dict.fromkeys(ids, 0.35), dict.fromkeys(ids, 0.125)
    window = window_between(before, now, node_cores=2.0, gpus={}, peaks=peaks, throttled=throttled)
    return builder.frame(window, sent=time.time())


def resident() -> float:
    """Return the memory of this process in megabytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) / 1024


class Silent:
    """A transport that nobody answers on: the view is filled by hand."""

    def __getattr__(self, name: str) -> object:
        raise AttributeError(name)


def filled(nodes: int, pods: int) -> ClusterView:
    """Return a view of a cluster of so many nodes and pods."""
    from kubetide.kube.client.client import Client

    client = Client(Silent(), clock=CLOCK)  # type: ignore[arg-type]
    view = ClusterView(client, CLOCK, random.Random(1), namespace="kube-system", config_name="x")
    for node in range(nodes):
        view.nodes.store.put(ObjectKey("", f"n-{node}"), ReachableNode(metadata=ObjectMeta(name=f"n-{node}")))
        for number in range(pods):
            meta = ObjectMeta(
                name=f"web-{node}-{number}", namespace=f"ns-{number % 50}", uid=f"uid-{node}-{number}", labels=LABELS
            )
            pod = PlacedPod(metadata=meta)
            pod = PlacedPod(metadata=meta, spec=type(pod.spec)(node_name=f"n-{node}"))
            view.pods.store.put(ObjectKey(meta.namespace, meta.name), pod)
    return view


async def without_sockets(nodes: int, pods: int) -> None:
    """Take a frame of every node and list all pods."""
    before = resident()
    view, readings = filled(nodes, pods), Readings()
    of_cluster = resident()
    api = UsageApi(view, readings, CLOCK)
    streams = [(SampleStream(f"n-{node}"), FrameBuilder()) for node in range(nodes)]
    question = parse_path("/apis/metrics.k8s.io/v1beta1/pods")
    assert question is not None
    for second in (0.0, 5.0):
        frames = [frame(builder, node, pods, second) for node, (_, builder) in enumerate(streams)]
        began = time.process_time()
        for (stream, _), message in zip(streams, frames, strict=True):
            reading = stream.take(message, arrived=CLOCK.now())
            assert isinstance(reading, NodeReading)
            readings.take(reading, now=CLOCK.now())
        took = time.process_time() - began
        size = sum(map(len, frames)) / len(frames)
        print(f"{nodes} frames of {size:.0f} bytes: {took / nodes * 1e6:.0f} µs of CPU each")
        for when in ("first", "again"):
            began = time.process_time()
            body = api.answer(question, {}, "")
            took = time.process_time() - began
            print(f"  list of {nodes * pods} pods, {when}: {took:.2f} s of CPU, {len(body) / 2**20:.0f} MB")
            del body
        frames.clear()
    held = resident()
    print(
        f"memory: {of_cluster - before:.0f} MB for pods and nodes, {held - of_cluster:.0f} MB for readings and lists,"
    )
    print(f"  together {(held - before) / nodes:.3f} MB per node")


def send(port: int, ca: str, streams: int, pods: int, seconds: float) -> None:
    """Be so many agents, each with a frame a second."""

    async def main() -> None:
        context = ssl.create_default_context(cadata=ca)
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:

            async def agent(node: int) -> None:
                await asyncio.sleep(random.random() * 3)
                headers = {"Authorization": f"Bearer agent-{node}"}
                url = f"https://localhost:{port}{STREAM_PATH}"
                builder = FrameBuilder()
                async with session.ws_connect(url, headers=headers, protocols=(STREAM_PROTOCOL,)) as stream:
                    end = time.monotonic() + seconds
                    second = 0.0
                    while time.monotonic() < end:
                        await stream.send_bytes(frame(builder, node, pods, second))
                        second += 5
                        await asyncio.sleep(1)

            for node in range(streams):
                group.create_task(agent(node))

    asyncio.run(main())


async def with_streams(streams: int, pods: int, seconds: float) -> None:
    """Measure this process while another one streams to it."""
    from metricsworld import AGENT, metrics_world

    async with metrics_world(metric_resolution=timedelta(hours=1), refresh_period=timedelta(seconds=5)) as world:
        await world.allow(AGENT, "kubetide.io", ["samples"], ["create"])
        for node in range(streams):
            world.reviews.agent(f"agent-{node}", f"n-{node}")
            key = ObjectKey("", f"n-{node}")
            world.server.view.nodes.store.put(key, ReachableNode(metadata=ObjectMeta(name=f"n-{node}")))
        heard: list[float] = []
        world.server.readings.heard.append(lambda _: heard.append(time.monotonic()))
        bundle = world.server._certificates and world.server._certificates.bundle
        assert bundle
        before = resident()
        sender = multiprocessing.get_context("spawn").Process(
            target=send, args=(world.server.port, bundle.trusted, streams, pods, seconds)
        )
        sender.start()
        while len(heard) < streams * 3:  # noqa: ASYNC110 - another process has no event of ours
            await asyncio.sleep(0.1)
        frames, began = len(heard), time.process_time()
        ages: list[float] = []
        for _ in range(int(seconds / 2)):
            await asyncio.sleep(1)
            now = CLOCK.now()
            ages += [(now - one.at).total_seconds() for one in world.server.readings.live(now=now)]
        taken, used = len(heard) - frames, time.process_time() - began
        each = used / taken
        ages.sort()
        print(f"{streams} streams over TLS: {taken} frames, {each * 1e6:.0f} µs of CPU each,")
        held = (resident() - before) / streams
        print(f"  {each / 5 * 1e3:.3f} mCPU per node at a frame every 5 s, {held:.3f} MB per stream")
        p50, p99 = ages[len(ages) // 2], ages[len(ages) * 99 // 100]
        print(f"  age of samples sent every second: p50 {p50:.2f} s, p99 {p99:.2f} s")
        await asyncio.to_thread(sender.join)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    asyncio.run(with_streams(given.streams, given.pods, given.seconds))
    asyncio.run(without_sockets(given.nodes, given.pods))
