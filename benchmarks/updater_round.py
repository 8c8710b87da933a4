"""One round of the updater over many VPAs whose pods all need a change, against a serial writer.

    python benchmarks/updater_round.py [--vpas 1000] [--pods 2] [--latency 0.01] [--budget]

The API server runs in a process of its own, each round in another, so that time and memory are the updater's. The
baseline does the same writes one after the other, in the same run. A write to a real API server waits for its store:
`--latency` adds that wait (10 ms) to every write, for both sides alike. `--budget` adds rounds under the default
budget of the cluster (60 a minute), which take two minutes each because that is what the budget says.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from kubetide import crds
from kubetide.api.objects.scheme import PODS
from kubetide.api.values.codec import encode
from kubetide.api.values.patch import JsonPatch
from kubetide.clock import SystemClock
from kubetide.embedded.apiserver.http import serve
from kubetide.embedded.apiserver.rest.requests import Answer, Request
from kubetide.embedded.apiserver.rest.watching import WatchPlan
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.kube.client.client import Client
from kubetide.kube.client.credentials import Static
from kubetide.kube.client.http import HttpTransport
from kubetide.kube.client.kubeconfig import Access
from kubetide.kube.client.tls import ServerTrust
from kubetide.kube.client.transport import Response
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_node, make_pod, make_replica_set, make_vpa
from kubetide.vpa.updater.loop import Updater
from kubetide.vpa.updater.settings import UpdaterSettings

CLOCK = SystemClock()
SCENARIOS = ("serial", "evict", "resize", "evict-budget", "resize-budget")


class Counting:
    """A transport that counts what passes."""

    def __init__(self, inner: HttpTransport) -> None:
        self._inner = inner
        self.requests = 0

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        self.requests += 1
        return await self._inner.request(method, path, **parts)

    def watch(self, path: str, *, query: Mapping[str, str]) -> AbstractAsyncContextManager[Any]:
        self.requests += 1
        return self._inner.watch(path, query=query)

    async def close(self) -> None:
        await self._inner.close()


class Silent:
    """A recorder that keeps nothing: events would count as requests of the round."""

    def publish(self, event: object) -> None:
        return


def populate(api: ApiServer, *, vpas: int, pods: int, mode: str) -> None:
    """Put ReplicaSets, their running pods, VPAs and recommendations into the store."""
    for name in ("verticalpodautoscalers", "verticalpodautoscalercheckpoints"):
        api.insert(crds.load(name))
    api.insert(make_node("node", cpu="64", memory="256Gi"))
    now = CLOCK.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    for number in range(vpas):
        name = f"web-{number}"
        owner = api.insert(make_replica_set(name, replicas=pods))
        vpa = make_vpa(name, target=name, kind="ReplicaSet", mode=mode)
        entry = {
            "containerName": "main",
            "target": {"cpu": "300m", "memory": "256Mi"},
            "lowerBound": {"cpu": "200m", "memory": "200Mi"},
            "upperBound": {"cpu": "400m", "memory": "400Mi"},
        }
        provided = {"type": "RecommendationProvided", "status": "True", "lastTransitionTime": now}
        vpa["status"] = {"recommendation": {"containerRecommendations": [entry]}, "conditions": [provided]}
        api.insert(vpa)
        for index in range(pods):
            pod = make_pod(f"{name}-{index}", labels={"app": name}, cpu="100m", memory="128Mi", node="node")
            reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "controller": True}
            pod["metadata"]["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"]}]
            resources = {"requests": {"cpu": "100m", "memory": "128Mi"}}
            container = {"name": "main", "ready": True, "state": {"running": {}}, "resources": resources}
            pod["status"] = {
                "phase": "Running",
                "startTime": now,
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [container],
            }
            api.insert(pod)


def serve_forever(pipe: Connection, vpas: int, pods: int, mode: str, latency: float) -> None:
    """Run an API server until killed."""

    async def main() -> None:
        api = ApiServer(clock=CLOCK)
        populate(api, vpas=vpas, pods=pods, mode=mode)
        handle = api.handle

        async def slow(request: Request) -> Answer | WatchPlan:
            if request.method != "GET":
                await asyncio.sleep(latency)
            return await handle(request)

        api.handle = slow  # type: ignore[method-assign]
        async with serve(api, anonymous=True) as serving:
            pipe.send(serving.url)
            await asyncio.Event().wait()

    asyncio.run(main())


def settings_of(scenario: str) -> UpdaterSettings:
    free = UpdaterSettings(
        leader_elect=False,
        use_admission_controller_status=False,
        memory_headroom=-1,
        eviction_tolerance=1.0,
        interval=timedelta(minutes=10),
        wait_for_replacements=False,
        disruptions_per_minute=0,
        in_place_skip_disruption_budget=True,
    )
    if not scenario.endswith("budget"):
        return free
    return msgspec.structs.replace(free, disruptions_per_minute=60, interval=timedelta(seconds=60))


async def measure(scenario: str, url: str) -> dict[str, float]:
    """Run one round in this process and return its figures."""
    transport = Counting(HttpTransport(Access(server=url, trust=ServerTrust(), credentials=Static())))
    client = Client(transport, clock=CLOCK, rng=random.Random(1))
    try:
        if scenario == "serial":
            return await _serial(client, transport)
        updater = Updater(client, CLOCK, settings_of(scenario), Telemetry(), Silent(), random.Random(2))
        async with asyncio.TaskGroup() as group:
            informers = group.create_task(updater.follow())
            await updater.wait_synced()
            before, cpu, began = transport.requests, time.process_time(), time.perf_counter()
            if scenario.endswith("budget"):
                # A new updater leaves the first minute to its predecessor.
                await asyncio.sleep(61)
                before, cpu, began = transport.requests, time.process_time(), time.perf_counter()
            await updater.run_once()
            figures = _figures(transport.requests - before, began, cpu)
            informers.cancel()
        return figures
    finally:
        await client.close()


async def _serial(client: Client, transport: Counting) -> dict[str, float]:
    listing = await client.list(PODS)
    before, cpu, began = transport.requests, time.process_time(), time.perf_counter()
    operations = [{"op": "add", "path": "/spec/containers/0/resources/requests/cpu", "value": "300m"}]
    for pod in listing.items:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        await client.patch(PODS, name, JsonPatch(operations), namespace=namespace, subresource="resize")
    return _figures(transport.requests - before, began, cpu)


def _figures(requests: int, began: float, cpu: float) -> dict[str, float]:
    return {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
        "requests": requests,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def run_scenario(scenario: str, *, vpas: int, pods: int, latency: float) -> dict[str, float]:
    """Start an API server and a process for the round; return its figures."""
    ours, theirs = multiprocessing.Pipe()
    mode = "InPlaceOrRecreate" if scenario.startswith("resize") else "Recreate"
    server = multiprocessing.Process(target=serve_forever, args=(theirs, vpas, pods, mode, latency), daemon=True)
    server.start()
    try:
        url = ours.recv()
        command = [sys.executable, __file__, "--measure", scenario, "--url", url]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures
    finally:
        server.terminate()
        server.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vpas", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2, help="pods per VPA")
    parser.add_argument("--latency", type=float, default=0.01, help="seconds that a write takes in the API server")
    parser.add_argument("--budget", action="store_true", help="also rounds under the budget of the cluster")
    parser.add_argument("--measure", choices=SCENARIOS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        sys.stdout.write(encode(asyncio.run(measure(args.measure, args.url))).decode() + "\n")
        return
    print(f"one round, {args.vpas} VPAs, {args.vpas * args.pods} pods that all need a change")
    print(f"{'':24}{'seconds':>9}{'CPU s':>8}{'requests':>10}{'writes/s':>10}{'RSS MB':>8}{'speed-up':>10}")
    baseline = 0.0
    for scenario in SCENARIOS[: 5 if args.budget else 3]:
        figures = run_scenario(scenario, vpas=args.vpas, pods=args.pods, latency=args.latency)
        rate = args.vpas * args.pods / figures["seconds"] if not scenario.endswith("budget") else 0.0
        baseline = baseline or rate
        name = {"serial": "serial writer (baseline)"}.get(scenario, scenario)
        speed = f"{rate / baseline:9.1f}x" if rate else ""
        print(
            f"{name:24}{figures['seconds']:9.2f}{figures['cpu']:8.2f}{figures['requests']:10.0f}"
            f"{rate:10.0f}{figures['rss']:8.0f}{speed:>10}"
        )


if __name__ == "__main__":
    main()
