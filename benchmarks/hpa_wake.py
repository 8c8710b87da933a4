"""From sample to scale in virtual time: `python benchmarks/hpa_wake.py [--autoscalers 100] [--steps-per-second 1]`.

So many Deployments of one pod each run in a simulated cluster; samples come every second, and an autoscaler hears of
them by a watch. Load steps come to one target after the other, or with `--at-once` to all of them. Measured is the time
from the first sample above the band to the write of `/scale`, beside the same with polling alone.
"""

import argparse
import asyncio
import random
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from cluster.test_hpa_usage_watch import FRESH, WatchedUsage, settings
from kubetide.api.values.quantity import quantity_float
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.kube.client.client import Client
from kubetide.kube.client.transport import Response, Transport
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_deployment, make_hpa
from kubetide.wiring import Dependencies, build
from simulated.cluster import run


class Timed(WatchedUsage):
    """Notes when the first sample above the band of a target was there to be read, and when it was scaled."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.above: dict[str, float] = {}
        self.scaled: dict[str, float] = {}

    async def look(self) -> None:
        """Look at the samples every second, for as long as it is not cancelled."""
        while True:
            answer = await super().request("GET", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods")
            for item in msgspec.json.decode(answer.body)["items"]:
                if quantity_float(item["containers"][0]["usage"]["cpu"]) > 0.11:
                    name = item["metadata"]["labels"]["app"]
                    self.above.setdefault(name, asyncio.get_running_loop().time())
            await asyncio.sleep(1)

    async def request(self, method: str, path: str, **parts: Any) -> Response:
        """Pass a request on."""
        if method == "PUT" and path.endswith("/scale"):
            self.scaled.setdefault(path.split("/")[-2], asyncio.get_running_loop().time())
        return await super().request(method, path, **parts)


async def measure(cluster: SimCluster, count: int, rate: float, *, watched: bool) -> list[float]:
    """Return the seconds from the first sample of a step to the write, target by target."""
    names = [f"web-{number}" for number in range(count)]
    for name in names:
        await cluster.apply(make_deployment(name, replicas=1, cpu="200m", memory="16Mi"))
        await cluster.apply(make_hpa(name, target=name, minimum=1, maximum=3, cpu_percent=50))
        cluster.set_usage("default", name, cpu=0.1)
    transport = Timed(cluster.transport())
    rng = random.Random(1)
    client = Client(transport, clock=cluster.clock, rng=rng)
    world = Dependencies(client=client, clock=cluster.clock, telemetry=Telemetry(), rng=rng)
    given = settings(watch_usage=watched, sync_period=timedelta(seconds=15))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in build("hpa", world, given)]
        tasks.append(group.create_task(transport.look()))
        await cluster.run_for(timedelta(minutes=6))
        assert not transport.scaled, "nothing has stepped yet"
        for number, name in enumerate(names):
            cluster.set_usage("default", name, cpu=0.19)
            if rate and (number + 1) % max(1, round(rate)) == 0:
                await cluster.run_for(timedelta(seconds=max(1.0, 1 / rate)))
        await cluster.run_for(timedelta(seconds=90))
        for task in tasks:
            task.cancel()
    return sorted(transport.scaled[name] - transport.above[name] for name in names)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--autoscalers", type=int, default=100)
    parser.add_argument("--steps-per-second", type=float, default=1.0)
    parser.add_argument("--at-once", action="store_true")
    chosen = parser.parse_args()
    rate = 0.0 if chosen.at_once else chosen.steps_per_second
    for watched in (True, False):

        async def main(cluster: SimCluster, watched: bool = watched) -> list[float]:
            return await measure(cluster, chosen.autoscalers, rate, watched=watched)

        times = run(main, scenario=FRESH, nodes=2 + chosen.autoscalers // 10)
        p50, p99 = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
        how = "watched" if watched else "polled"
        print(f"{chosen.autoscalers} autoscalers, {how}: sample to /scale p50 {p50:.1f} s, p99 {p99:.1f} s")
