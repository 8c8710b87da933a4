"""The recommender in steady state: what a loop writes, and what it costs, when history is a week long.

    python benchmarks/recommender_steady.py [--size VPAS:CONTAINERS] [--loops 20] [--every-loop]

The cluster is the embedded API server in the same process; every minute of simulated time all usage is new. After the
first loops the aggregates are dated back by a week, as if the recommender had run that long: bounds still move in every
loop, by a few thousandths of a percent. `--every-loop` writes every difference, as with both intervals at 0. Shown
are requests a loop, how long they take at 50 requests a second, and CPU seconds with and without the requests.
"""

import argparse
import asyncio
import gc
import statistics
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.recommender_loop import CpuClock, MeasuredTransport, Usage, fill, running

from kubetide.embedded.apiserver.inprocess import InProcessTransport
from kubetide.embedded.apiserver.rest.requests import ADMIN
from kubetide.embedded.apiserver.server import ApiServer
from kubetide.kube.client.client import Client
from kubetide.kube.client.decoding import tune_gc
from kubetide.kube.control.recorder import EventRecorder
from kubetide.telemetry import Telemetry
from kubetide.vpa.recommender.loop import Recommender
from kubetide.vpa.recommender.settings import RecommenderSettings

MINUTE = timedelta(minutes=1)
WEEK = timedelta(days=7)


class UsageClock(CpuClock):
    """Tells the time of the usage, which moves a minute a loop; durations are CPU seconds."""

    def __init__(self, usage: Usage) -> None:
        super().__init__()
        self._usage = usage

    def now(self) -> datetime:
        return self._usage.now


async def measure(vpas: int, containers: int, loops: int, *, every_loop: bool) -> None:
    """Run loops and print what they wrote and cost."""
    usage = Usage([])
    clock = UsageClock(usage)
    api = ApiServer(clock=clock)
    usage.pods = fill(api, vpas, containers)
    api.metrics_provider = usage
    tune_gc()
    transport = MeasuredTransport(InProcessTransport(api, user=ADMIN), swallow=False)
    client = Client(transport, clock=clock)
    long, zero = timedelta(minutes=30), timedelta(0)
    settings = RecommenderSettings(step_timeout=long, checkpoints_timeout=long, leader_elect=False)
    if every_loop:
        settings = RecommenderSettings(
            step_timeout=long,
            checkpoints_timeout=long,
            leader_elect=False,
            status_interval=zero,
            checkpoint_interval=zero,
        )
    made = Recommender(
        client, clock, settings, Telemetry(), EventRecorder(client, clock=clock, component="bench"), Random(0)
    )
    requests, whole, between = [], [], []
    async with running(made):
        for number in range(loops + 2):
            usage.now += MINUTE
            before, io, started = transport.requests, transport.seconds, time.process_time()
            await made.run_once()
            spent, asked = time.process_time() - started, transport.seconds - io
            if number == 0:
                # From here on, as if it had run for a week.
                aggregates = made.model.aggregates
                known = np.flatnonzero(aggregates.count)
                aggregates.first[known] -= WEEK // timedelta(microseconds=1)
                aggregates.count[known] += WEEK // MINUTE
            elif number > 1:
                requests.append(transport.requests - before)
                whole.append(spent)
                between.append(spent - asked)
            for _ in range(3):
                await asyncio.sleep(0)
            gc.collect()
    count = statistics.mean(requests)
    print(
        f"{vpas:,} VPAs, {len(usage.pods) * 2:,} containers: {count:,.0f} requests a loop ({max(requests):,} at most), "
        f"{count / 50:.0f} s at 50/s; {statistics.median(whole):.2f} s CPU, "
        f"{statistics.median(between):.2f} s of it outside of requests"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1000:10000", help="VPAS:CONTAINERS")
    parser.add_argument("--loops", type=int, default=20)
    parser.add_argument("--every-loop", action="store_true")
    options = parser.parse_args()
    vpas, containers = map(int, options.size.split(":"))
    asyncio.run(measure(vpas, containers, options.loops, every_loop=options.every_loop))


if __name__ == "__main__":
    main()
