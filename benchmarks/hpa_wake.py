"""From load step to scale in virtual time: `python benchmarks/hpa_wake.py [--autoscalers 100 1000 5000] [--at-once]`.

So many Deployments of one pod each run in a simulated cluster, each with an autoscaler. One percent of them steps each
second, or with `--at-once` all at the same moment. Three ways to hear of it:

    watched   samples every 5 s, as agents send them, and `--hpa-watch-usage`
    polled    the same samples, read with a sync period of 15 s
    30 s      samples every 30 s, as a metrics-server hands them on, read with a sync period of 15 s

Measured is the time to the write of `/scale`: from the step, and from the first sample above the band that could be
read. Virtual time has no CPU: what is slow here waits. Every request is made to take `--latency` seconds, so that what
waits for requests shows. With a real API server and real CPU: `python -m benchmarks.hpa_wake_real`.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kubetide.api.values.quantity import quantity_float
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.hpa.settings import HpaSettings
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response, Transport
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_hpa
from kubetide.wiring import Dependencies, build
from simulated.cluster import run

USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
CALM, BUSY, ABOVE = 0.1, 0.19, 0.111
"""Cores before and after a step, and the edge of the band: targets are half of 200m, with a tolerance of a tenth.

Usage counts in whole percents of the requests (and in millicores, rounded up), so that 55 % are the last within."""
WAYS = {"watched": (5, True), "polled": (5, False), "30 s": (30, False)}
NAMES = "web-{}"


class Timed:
    """A transport that takes its time, offers usage as a watch, and notes samples above the band and scale writes."""

    def __init__(self, inner: Transport, latency: float, *, watch: bool) -> None:
        self._inner = inner
        self._latency = latency
        self._watch = watch
        self._heard = asyncio.Condition()
        self._seen: dict[str, str] = {}
        self._news: list[dict[str, Any]] = []
        self.close = inner.close
        self.above: dict[str, float] = {}
        self.scaled: dict[str, float] = {}
        self.lists = 0

    async def look(self) -> None:
        """Look at the samples every second, for as long as it is not cancelled."""
        while True:
            answer = await self._inner.request("GET", USAGE)
            now, news = asyncio.get_running_loop().time(), []
            for item in msgspec.json.decode(answer.body)["items"]:
                name, cpu = item["metadata"]["labels"]["app"], item["containers"][0]["usage"]["cpu"]
                if self._seen.get(name) != cpu:
                    self._seen[name] = cpu
                    news.append(item)
                    if quantity_float(cpu) > ABOVE:
                        self.above.setdefault(name, now)
            if news:
                async with self._heard:
                    self._news = news
                    self._heard.notify_all()
            await asyncio.sleep(1)

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        """Pass a request on, after a while."""
        await asyncio.sleep(self._latency)
        self.lists += path == USAGE
        answer = await self._inner.request(method, path, **parts)
        if method == "PUT" and path.endswith("/scale"):
            self.scaled.setdefault(path.split("/")[-2], asyncio.get_running_loop().time())
        return answer

    @asynccontextmanager
    async def watch(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch; of usage, this one."""
        if not path.startswith("/apis/metrics.k8s.io/") or not self._watch:
            async with self._inner.watch(path, query=query) as lines:
                yield lines
            return

        async def lines_of_usage() -> AsyncIterator[bytes]:
            while True:
                async with self._heard:
                    await self._heard.wait()
                    news = self._news
                await asyncio.sleep(self._latency)
                for item in news:
                    yield msgspec.json.encode({"type": "MODIFIED", "object": item})

        yield lines_of_usage()


async def measure(
    cluster: SimCluster, count: int, latency: float, *, watched: bool, at_once: bool, workers: int
) -> tuple[list[float], list[float], int]:
    """Return the seconds from step to write and from sample to write, and how often usage was listed."""
    names = [NAMES.format(number) for number in range(count)]
    for name in names:
        await cluster.apply(make_deployment(name, replicas=1, cpu="200m", memory="16Mi"))
        await cluster.apply(make_hpa(name, target=name, minimum=1, maximum=3, cpu_percent=50))
        cluster.set_usage("default", name, cpu=CALM)
    transport = Timed(cluster.transport(), latency, watch=watched)
    rng = random.Random(1)
    client = Client(transport, clock=cluster.clock, rng=rng)
    world = Dependencies(client=client, clock=cluster.clock, telemetry=Telemetry(), rng=rng)
    given = HpaSettings(
        take_over=True,
        leader_elect=False,
        watch_usage=watched,
        cpu_initialization_period=timedelta(0),
        workers=workers,
    )
    stepped: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in build("hpa", world, given)]
        tasks.append(group.create_task(transport.look()))
        await cluster.run_for(timedelta(seconds=100))
        assert not transport.scaled, "nothing has stepped yet"
        asked = transport.lists
        each_second = count if at_once else max(1, count // 100)
        for number, name in enumerate(rng.sample(names, count)):
            cluster.set_usage("default", name, cpu=BUSY)
            stepped[name] = loop.time()
            if (number + 1) % each_second == 0:
                await cluster.run_for(timedelta(seconds=1))
        await cluster.run_for(timedelta(seconds=120))
        for task in tasks:
            task.cancel()
    from_step = [transport.scaled[name] - stepped[name] for name in names]
    from_sample = [transport.scaled[name] - transport.above[name] for name in names]
    return from_step, from_sample, transport.lists - asked


def shown(times: list[float]) -> str:
    """Return the median and the 99th percentile in words."""
    ordered = sorted(times)
    p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"p50 {p50:.1f} s, p99 {p99:.1f} s"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autoscalers", type=int, nargs="+", default=[100])
    parser.add_argument("--latency", type=float, default=0.01, help="seconds that every request takes")
    parser.add_argument("--at-once", action="store_true", help="all step at the same moment")
    parser.add_argument("--workers", type=int, default=HpaSettings().workers, help="autoscalers evaluated at once")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    chosen = parser.parse_args()
    for count in chosen.autoscalers:
        for way in chosen.ways:
            interval, watched = WAYS[way]

            async def main(
                cluster: SimCluster, count: int = count, watched: bool = watched
            ) -> tuple[list[float], list[float], int]:
                options = {"at_once": chosen.at_once, "workers": chosen.workers}
                return await measure(cluster, count, chosen.latency, watched=watched, **options)

            began = time.process_time()
            scenario = f"metrics: {{interval: {interval}s, delay: 0s}}"
            step, sample, lists = run(main, scenario=scenario, nodes=2 + count // 20)
            took = time.process_time() - began
            print(
                f"{count} autoscalers, {way}: step to /scale {shown(step)}; first sample to /scale {shown(sample)};"
                f" {lists} lists of usage ({took:.0f} s of CPU to simulate)",
                flush=True,
            )
