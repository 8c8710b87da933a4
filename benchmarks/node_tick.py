"""One collection tick of the node agent on real cgroups: CPU per tick, reads per container, memory after an hour.

    sudo python benchmarks/node_tick.py [--pods 50 250 500] [--ticks 30] [--history]

Makes a fake kubepods tree under `kubetide-bench-*` (two containers a pod, no processes) and removes it again. CPU is
the process's own (user + system), so a busy machine changes little. "mCPU" is what one tick a second costs.
"""

import argparse
import gc
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kernel.tree import Tree, why_not
from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.node.collectors.base import Collector, Context
from kubetide.node.collectors.best_effort import BestEffortCollector
from kubetide.node.collectors.host_apps import HostApplicationCollector
from kubetide.node.collectors.node import NodeCollector, SystemCollector
from kubetide.node.collectors.pods import PodCollector
from kubetide.node.collectors.throttling import ThrottlingCollector
from kubetide.node.core.series import kinds
from kubetide.node.core.series.query import AVG, COUNT, LAST, PERCENTILES
from kubetide.node.core.series.ring import Ring
from kubetide.node.core.series.store import SeriesStore
from kubetide.node.core.snapshot import PodState, pod_state
from kubetide.node.series_history import History
from kubetide.telemetry import Telemetry

CONTAINERS = 2
HOUR_TICKS = 3600


class SteppedClock:
    """A clock that moves one second per tick, so that an hour of ticks takes as long as its work."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.start = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


def make_pods(tree: Tree, count: int) -> tuple[PodState, ...]:
    states = []
    for number in range(count):
        uid = f"bench-{number:04d}"
        names = [f"{uid}-{index}" for index in range(CONTAINERS)]
        tree.pod(uid, "Burstable", *names)
        raw = {
            "metadata": {"name": uid, "namespace": "bench", "uid": uid},
            "spec": {"containers": [{"name": name} for name in names]},
            "status": {
                "phase": "Running",
                "qosClass": "Burstable",
                "containerStatuses": [{"name": name, "containerID": f"containerd://{name}"} for name in names],
            },
        }
        states.append(pod_state(convert(raw, Pod), tree.paths))
    return tuple(states)


def resident_mib() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def cpu_ms(work: Callable[[], object], repeat: int) -> float:
    samples = []
    for _ in range(repeat):
        begin = time.process_time()
        work()
        samples.append((time.process_time() - begin) * 1000)
    return statistics.median(samples)


def bench(count: int, ticks: int, *, history: bool) -> None:
    tree = Tree(f"kubetide-bench-{os.getpid()}-{count}")
    folder = tempfile.TemporaryDirectory()
    try:
        tree.tiers()
        pods = make_pods(tree, count)
        clock = SteppedClock()
        store = SeriesStore(Ring(2100.0))
        journal = History(Path(folder.name) / "samples.sqlite") if history else None
        store.journal = journal
        context = Context(
            host=tree.host,
            layout=tree.layout,
            clock=clock,
            store=store,
            telemetry=Telemetry(),
            node_name="bench",
            pods=lambda: pods,
            host_applications=lambda: (),
        )
        collectors: list[Collector] = [
            NodeCollector(context, 1.0, 10_000_000),
            BestEffortCollector(context, 1.0),
            PodCollector(context, 1.0),
            ThrottlingCollector(context, 1.0),
            HostApplicationCollector(context, 1.0),
            SystemCollector(context, 1.0, 10.0),
        ]

        def tick() -> None:
            clock.seconds += 1.0
            for collector in collectors:
                collector.collect()

        for _ in range(3):
            tick()
        before = tree.host.reads
        per_tick = cpu_ms(tick, ticks)
        reads = (tree.host.reads - before) / ticks / (count * (CONTAINERS + 1))
        samples = [(key, 0.5) for group in store.ring.groups.values() for key in group.rows]
        by_group = {name: [(key, 0.5) for key in group.rows] for name, group in store.ring.groups.items()}

        for _ in range(HOUR_TICKS):
            clock.seconds += 1.0
            for name, batch in by_group.items():
                store.append(name, 1.0, clock.now(), batch)
        gc.collect()
        resident = resident_mib()
        end = int(clock.now().timestamp() * 1000)

        def query() -> None:
            for kind in (kinds.POD_CPU, kinds.POD_MEMORY, kinds.POD_THROTTLED):
                for points in store.ring.query_each(kind, kinds.POD_UID, end - 900_000, end).values():
                    for aggregate in (AVG, LAST, COUNT, *PERCENTILES):
                        points.aggregate(aggregate)

        query_ms = cpu_ms(query, 3)
        print(
            f"{count:5} pods {count * CONTAINERS:5} containers  tick {per_tick:7.2f} ms = {per_tick:6.1f} mCPU  "
            f"reads per cgroup {reads:4.1f}  open files {len(tree.host._open):6}  series {len(samples):6}  "
            f"RSS after 1 h {resident:6.1f} MiB (ring {store.ring.nbytes / 2**20:5.1f})  "
            f"all aggregates of all pods over 15 min {query_ms:7.1f} ms"
        )
        if journal is not None:
            print(f"      history {journal.size / 2**20:6.1f} MiB after an hour of constant samples")
            journal.close()
    finally:
        folder.cleanup()
        tree.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, nargs="+", default=[50, 250, 500])
    parser.add_argument("--ticks", type=int, default=30)
    parser.add_argument("--history", action="store_true", help="write the history too")
    options = parser.parse_args()
    if reason := why_not():
        print(f"cannot run here: {reason}")
        return
    print(f"resident after imports {resident_mib():.1f} MiB")
    for count in options.pods:
        # A process of its own for each size: memory that one size used must not count for the next.
        child = os.fork()
        if child == 0:
            bench(count, options.ticks, history=options.history)
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"peak of the largest {peak:.1f} MiB")


if __name__ == "__main__":
    main()
