"""What the metrics server costs: `python benchmarks/metrics_server.py [--nodes 5000] [--pods 20] [--seconds 30]`.

All nodes stream over TLS from another process, a frame every 5 s each, while this one, which is the metrics server and
knows all pods, is measured: CPU and memory per node, and how old the newest sample of a node is when it is looked at.
Then all pods are listed, before and after new frames, and frames are taken without sockets.
"""

import argparse
import asyncio
import multiprocessing
import os
import random
import resource
import ssl
import sys
import time
from datetime import timedelta
from pathlib import Path

import aiohttp
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kubetide.api.objects.meta import ObjectKey, ObjectMeta
from kubetide.api.objects.sample_frames import STREAM_PATH, STREAM_PROTOCOL, decode_frame, encode_frame
from kubetide.clock import SystemClock
from kubetide.kube.client.decoding import tune_gc
from kubetide.metrics.cluster_view import ClusterView, PlacedPod, ReachableNode
from kubetide.metrics.core.frames import SampleStream
from kubetide.metrics.core.readings import NodeReading, Readings
from kubetide.metrics.core.requests import parse_path
from kubetide.metrics.usage_api import UsageApi
from kubetide.node.core.samples import ContainerCounters, FrameBuilder, NodeCounters, PodCounters, window_between

LABELS = {"app": "web", "pod-template-hash": "7fcd54d568", "tier": "front"}
CLOCK = SystemClock()
WINDOW = 5.0


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


def fill(view: ClusterView, nodes: int, pods: int) -> None:
    """Put so many nodes and pods into a view."""
    for node in range(nodes):
        view.nodes.store.put(ObjectKey("", f"n-{node}"), ReachableNode(metadata=ObjectMeta(name=f"n-{node}")))
        for number in range(pods):
            meta = ObjectMeta(
                name=f"web-{node}-{number}", namespace=f"ns-{number % 50}", uid=f"uid-{node}-{number}", labels=LABELS
            )
            pod = PlacedPod(metadata=meta)
            pod = PlacedPod(metadata=meta, spec=type(pod.spec)(node_name=f"n-{node}"))
            view.pods.store.put(ObjectKey(meta.namespace, meta.name), pod)


async def without_sockets(nodes: int, pods: int) -> None:
    """Take a frame of every node and list all pods."""
    from kubetide.kube.client.client import Client

    client = Client(Silent(), clock=CLOCK)  # type: ignore[arg-type]
    view = ClusterView(client, CLOCK, random.Random(1), namespace="kube-system", config_name="x")
    fill(view, nodes, pods)
    readings = Readings()
    api = UsageApi(view, readings, CLOCK)
    streams = [(SampleStream(f"n-{node}"), FrameBuilder()) for node in range(nodes)]
    for second in (0.0, 5.0):
        frames = [frame(builder, node, pods, second) for node, (_, builder) in enumerate(streams)]
        began = time.process_time()
        for (stream, _), message in zip(streams, frames, strict=True):
            reading = stream.take(message, arrived=CLOCK.now())
            assert isinstance(reading, NodeReading)
            readings.take(reading, now=CLOCK.now())
        took = time.process_time() - began
        size = sum(map(len, frames)) / len(frames)
        print(f"without sockets: {nodes} frames of {size:.0f} bytes, {took / nodes * 1e6:.0f} µs of CPU each")
        for what in ("after new frames", "again"):
            cpu_of_a_list(api, what)
        frames.clear()


def send(port: int, ca: str, nodes: int, pods: int, seconds: float) -> None:
    """Be all agents, each with a frame every five seconds."""
    allow_files()

    async def main() -> None:
        context = ssl.create_default_context(cadata=ca)
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        at_once = asyncio.Semaphore(50)
        ready = asyncio.Barrier(nodes)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:

            async def agent(node: int) -> None:
                headers = {"Authorization": f"Bearer agent-{node}"}
                url = f"https://localhost:{port}{STREAM_PATH}"
                builder = FrameBuilder()
                first, second = (frame(builder, node, pods, at) for at in (0.0, 5.0))
                again = decode_frame(second)
                async with at_once:
                    stream = await session.ws_connect(url, headers=headers, protocols=(STREAM_PROTOCOL,))
                    await stream.send_bytes(first)
                # Frames begin when all are there: before that they would only be in the way.
                await ready.wait()
                await asyncio.sleep(random.random() * WINDOW)
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    now = time.time()
                    again = replace(again, sequence=again.sequence + 1, at=now, sent=now)
                    await stream.send_bytes(encode_frame(again))
                    await asyncio.sleep(WINDOW)
                await stream.close()

            for node in range(nodes):
                group.create_task(agent(node))

    asyncio.run(main())


def allow_files() -> None:
    """Let this process open as many sockets as it may."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def cpu_of_a_list(api: UsageApi, what: str) -> None:
    """List all pods, and print what it took."""
    question = parse_path("/apis/metrics.k8s.io/v1beta1/pods")
    assert question is not None
    began = time.thread_time()
    body = api.answer(question, {}, "")
    took = time.thread_time() - began
    listed = body.count(b'"window"')
    print(f"  list of {listed} pods, {what}: {took:.2f} s of CPU, {len(body) / 2**20:.0f} MB", flush=True)


async def with_streams(nodes: int, pods: int, seconds: float) -> None:
    """Measure this process while another one streams to it."""
    from metricsworld import AGENT, metrics_world

    allow_files()
    async with metrics_world(metric_resolution=timedelta(hours=1), refresh_period=timedelta(seconds=5)) as world:
        await world.allow(AGENT, "kubetide.io", ["samples"], ["create"])
        before = resident()
        fill(world.server.view, nodes, pods)
        for node in range(nodes):
            world.reviews.agent(f"agent-{node}", f"n-{node}")
        of_cluster = resident()
        heard: list[float] = []
        world.server.readings.heard.append(lambda _: heard.append(time.monotonic()))
        bundle = world.server._certificates and world.server._certificates.bundle
        assert bundle
        began = time.process_time()
        sender = multiprocessing.get_context("spawn").Process(
            target=send, args=(world.server.port, bundle.trusted, nodes, pods, seconds + 4 * WINDOW)
        )
        sender.start()
        while len(heard) < nodes:  # noqa: ASYNC110 - another process has no event of ours
            await asyncio.sleep(0.1)
        opened = time.process_time() - began
        print(f"{nodes} streams over TLS opened: {opened / nodes * 1e3:.1f} ms of CPU each", flush=True)
        while len(heard) < 3 * nodes:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        frames, began, started = len(heard), time.process_time(), time.monotonic()
        ages: list[float] = []
        for _ in range(round(seconds)):
            await asyncio.sleep(1)
            now = CLOCK.now()
            ages += [(now - one.at).total_seconds() for one in world.server.readings.live(now=now)]
        taken, used, passed = len(heard) - frames, time.process_time() - began, time.monotonic() - started
        each = used / taken
        print(f"{taken} frames of {nodes} nodes in {passed:.0f} s: {each * 1e6:.0f} µs of CPU a frame,")
        print(f"  {each / WINDOW * 1e3:.3f} mCPU per node at a frame every {WINDOW:g} s")
        ages.sort()
        p50, p99 = ages[len(ages) // 2], ages[len(ages) * 99 // 100]
        busy = f"load of the machine {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
        print(f"  age of the newest sample of a node: p50 {p50:.2f} s, p99 {p99:.2f} s; {busy}")
        held = resident()
        for what in ("after new frames", "again"):
            cpu_of_a_list(world.server.api._usage, what)
        of_pods, of_streams, of_lists = of_cluster - before, held - of_cluster, resident() - held
        print(f"memory: {of_pods:.0f} MB for pods and nodes, {of_streams:.0f} MB for streams and readings,")
        print(f"  {of_lists:.0f} MB for lists: together {(resident() - before) / nodes:.3f} MB per node", flush=True)
        await asyncio.to_thread(sender.join)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    tune_gc()  # as `kubetide run` does
    asyncio.run(with_streams(given.nodes, given.pods, given.seconds))
    asyncio.run(without_sockets(given.nodes, given.pods))
