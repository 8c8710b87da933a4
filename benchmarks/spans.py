"""What a traced decision costs: CPU of a span with the attributes of a reconcile, exported to a collector.

    python -m benchmarks.spans [--spans 20000] [--runs 5]

The collector has a process of its own. Counted is the CPU of this process, with the thread that encodes and sends. The
same without an endpoint, and with a ratio of a tenth. `hpa_round.py --tracing 1` shows the autoscaler as a whole.
"""

import argparse
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection

from benchmarks.hpa_round import collecting

from kubetide import tracing


def collector(pipe: Connection) -> None:
    """Collect until told to stop."""
    with collecting() as url:
        pipe.send(url)
        pipe.recv()


def decide(count: int) -> None:
    """Trace decisions as the autoscaler does."""
    for number in range(count):
        with tracing.span("horizontalpodautoscaler", key=("default", "web")):
            tracing.annotate(
                current=3, desired=4, rule="metrics", reason="cpu resource utilization above target", action="ScaleUp"
            )
            tracing.annotate(wrote=number % 7 == 0, acts=True, problem=None)


def measure(url: str, ratio: float, count: int) -> float:
    """Return the microseconds of CPU per decision, the last export included."""
    before = time.process_time()
    with tracing.exporting(url, ratio):
        for _ in range(count // 500):
            decide(500)
            # No faster than the queue empties, or spans would be dropped instead of sent.
            time.sleep(0.05 if url else 0)
    return (time.process_time() - before) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    running = context.Process(target=collector, args=(far,), daemon=True)
    running.start()
    url = near.recv()
    ways = {"no endpoint": ("", 1.0), "a tenth": (url, 0.1), "every decision": (url, 1.0)}
    found: dict[str, list[float]] = {name: [] for name in ways}
    with tracing.exporting(url, 1.0):  # what is imported once is not measured
        decide(1)
    for _ in range(options.runs):
        for name, (where, ratio) in ways.items():
            found[name].append(measure(where, ratio, options.spans))
    near.send("stop")
    running.join(10)
    for name, runs in found.items():
        print(f"{name} | {statistics.median(runs):.1f} µs of CPU ({min(runs):.1f} to {max(runs):.1f})")


if __name__ == "__main__":
    main()
