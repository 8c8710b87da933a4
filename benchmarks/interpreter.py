"""What the interpreter does to a controller: its version, the cyclic collector, the seed of string hashes.

    python -m benchmarks.interpreter [--hpas 1000] [--pods 10000] [--rounds 4] [--runs 5] [--python PATH ...]

The horizontal autoscaler with usage that is new in every sync period, over TLS, against a server in its own process;
one run of each way in turn, so that what else the machine does meets all of them. Printed are medians with the best
and the worst run: CPU of the controller per round, CPU of its whole process, and peak memory. `--python` names the
interpreter of the controllers (it needs the packages of `requirements/runtime.lock`); several are compared with each
other, each with the collector as `kubetide run` sets it.
"""

import argparse
import gc
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import hpa_round

from kubetide.kube.client.decoding import GC_THRESHOLDS

Raw = dict[str, Any]


def rare() -> None:
    """Collect rarely."""
    gc.set_threshold(*GC_THRESHOLDS)


def frozen() -> None:
    """Leave what the imports made out of every collection."""
    gc.collect()
    gc.freeze()


def both() -> None:
    """Do both."""
    rare()
    frozen()


def off() -> None:
    """Never collect cycles: a bound for what the others can gain."""
    gc.disable()


COLLECTORS: dict[str, Callable[[], None]] = {
    "default": lambda: None,
    "frozen": frozen,
    "rare": rare,
    "rare and frozen": both,
    "off": off,
}
AS_RUN = ("rare and frozen", "random")
WAYS = [*((name, "random") for name in COLLECTORS), ("rare and frozen", "0")]


def be_a_controller(url: str, collector: str, options: argparse.Namespace) -> None:
    """Run the controller in this process and print what was measured."""
    vars(hpa_round)["tune_gc"] = COLLECTORS[collector]
    near, far = multiprocessing.Pipe()
    hpa_round.controller(far, url, options.hpas, options.rounds, options.sync_period, hpa_round.KUBETIDE, False)
    print(json.dumps({**near.recv(), "process": time.process_time(), "collections": _collections()}))


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def run(url: str, python: str, collector: str, seed: str, options: argparse.Namespace) -> Raw:
    """Run one controller as a process of its own."""
    command = [python, "-m", __spec__.name, "--controller", collector, "--url", url]
    command += [f"--{name}={getattr(options, name)}" for name in ("hpas", "pods", "rounds")]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=900)
    found: Raw = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hpas", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--sync-period", type=float, default=5.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--controller", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.controller:
        be_a_controller(options.url, options.controller, options)
        return
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    serving = context.Process(target=hpa_round.server, args=(far, options.hpas, options.pods, True, True), daemon=True)
    serving.start()
    url = near.recv()
    ways = [AS_RUN] if len(options.python) > 1 else WAYS
    found: dict[tuple[str, str, str], list[Raw]] = {(one, *way): [] for one in options.python for way in ways}
    for number in range(options.runs):
        for way in found if number % 2 == 0 else reversed(found):
            found[way].append(run(url, *way, options))
    near.send("stop")
    serving.join()
    print("interpreter | collector | PYTHONHASHSEED | CPU s/round | CPU s, process | peak MiB | collections")
    for way, runs in found.items():
        cells = [_spread([one[name] for one in runs]) for name in ("cpu", "process", "memory", "collections")]
        print(" | ".join((*way, *cells)), flush=True)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    main()
