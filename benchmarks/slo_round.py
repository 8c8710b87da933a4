"""One round of the SLO controller over 5,000 nodes and 100,000 pods, in process.

    python benchmarks/slo_round.py [NODES] [PODS_PER_NODE]

Prints CPU seconds per full round, writes per round (none when nothing changed, also after the time threshold) and
memory. The baseline in the same run asks the API server about each node when it looks at it, on a sample of nodes.
"""

import asyncio
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

from kubetide import crds
from kubetide.api.objects.meta import ObjectKey
from kubetide.clock import Clock
from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.embedded.sim.time.loop import DEFAULT_START, run_virtual, virtual_clock
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response, Transport
from kubetide.kube.control.recorder import EventRecorder
from kubetide.slo.cluster_view import recompute
from kubetide.slo.controller import SloController
from kubetide.slo.settings import SloSettings
from kubetide.telemetry import Telemetry

Raw = dict[str, Any]


class Counting:
    """A transport that counts requests by method."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.requests: Counter[str] = Counter()

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        self.requests[method] += 1
        return await self._inner.request(method, path, **parts)

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        await self._inner.close()


def fill(api: ApiServer, clock: Clock, nodes: int, pods: int) -> None:
    """Put nodes, reports and pods into the store."""
    rng = random.Random(1)
    for crd in crds.load_all():
        api.insert(crd)
    resources = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    for number in range(nodes):
        name = f"node-{number:05}"
        api.insert(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"pool": f"p{number % 5}"}},
                "status": {"capacity": resources, "allocatable": resources},
            }
        )
        reported = []
        for index in range(pods):
            pod = f"app-{number:05}-{index}"
            requests = {"cpu": f"{rng.randrange(100, 4000)}m", "memory": f"{rng.randrange(1, 8)}Gi"}
            api.insert(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": pod, "namespace": "default"},
                    "spec": {"nodeName": name, "containers": [{"name": "c", "resources": {"requests": requests}}]},
                    "status": {"phase": "Running"},
                }
            )
            usage = {"cpu": f"{rng.randrange(50, 2000)}m", "memory": str(rng.randrange(2**30, 2**32))}
            reported.append({"namespace": "default", "name": pod, "podUsage": {"resources": usage}})
        api.insert(
            {
                "apiVersion": "slo.koordinator.sh/v1alpha1",
                "kind": "NodeMetric",
                "metadata": {"name": name},
                "status": {
                    "updateTime": now,
                    "nodeMetric": {"systemUsage": {"resources": {"cpu": "1", "memory": "4Gi"}}},
                    "podsMetric": reported,
                },
            }
        )


async def measure(nodes: int, pods: int) -> None:
    clock = virtual_clock()
    api = ApiServer(clock=clock)
    fill(api, clock, nodes, pods)
    api.insert({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}})
    api.insert(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
            "data": {"colocation-config": '{"enable": true, "degradeTimeMinutes": 600}'},
        }
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    transport = Counting(InProcessTransport(api))
    client = Client(transport, clock=clock, rng=random.Random(1))
    settings = SloSettings(leader_elect=False)
    recorder = EventRecorder(client, clock=clock, component="bench")
    controller = SloController(client, clock, settings, Telemetry(), recorder, random.Random(1))
    started = time.process_time()
    task = asyncio.get_running_loop().create_task(controller.run())
    await asyncio.sleep(60)
    first = time.process_time() - started
    writes = sum(transport.requests[method] for method in ("POST", "PUT", "PATCH", "DELETE"))
    print(f"{nodes:,} nodes, {nodes * pods:,} pods")
    print(f"  start: lists, {writes:,} first writes      {first:8.2f} CPU s")
    for label, wait in (("right after", 60), ("after the time threshold", 600)):
        await asyncio.sleep(wait)
        transport.requests.clear()
        controller.wake_all()
        started = time.process_time()
        await asyncio.sleep(30)
        spent = time.process_time() - started
        writes = sum(transport.requests[method] for method in ("POST", "PUT", "PATCH", "DELETE"))
        print(f"  full round, nothing changed, {label}: {spent:8.2f} CPU s, {writes} writes")
    sample = min(nodes, 200)
    started = time.process_time()
    for number in range(sample):
        await recompute(client, clock, settings, ObjectKey("", f"node-{number:05}"))
    baseline = (time.process_time() - started) / sample * nodes
    print(f"  baseline, asking for each node:          {baseline:8.2f} CPU s (ours is {spent / baseline:.3f} of it)")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  memory of the controller (above the store of the API server): {peak - before:.0f} MiB")
    task.cancel()
    await asyncio.wait({task})


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    pods = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    run_virtual(measure(nodes, pods), start=DEFAULT_START, limit=timedelta(days=1))


if __name__ == "__main__":
    main()
