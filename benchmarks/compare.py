"""Two checkouts, the same benchmarks, run in turn: is this tree slower than that one?

    git worktree add ../before REVISION
    python benchmarks/compare.py ../before [--runs 5] [--only NAME …]

Every benchmark runs in a process of its own, alternately from the other tree and from this one, so that a busy
neighbour hits both. Compared is the CPU time (user and system) of that process with all it started, imports and
servers included; shown are the medians, their ratio, and the range of the ratios of neighbouring runs.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]

BENCHMARKS: dict[str, tuple[str, ...]] = {
    "decode": ("kube_decode.py", "--pods", "3000", "--metrics", "20000", "--repeats", "1"),
    "informer": ("kube_informer.py", "--pods", "5000", "--rate", "2000", "--seconds", "3"),
    "hpa round": ("hpa_round.py", "--hpas", "500", "--pods", "5000", "--rounds", "2", "--sync-period", "4"),
    "recommender loop": ("recommender_loop.py", "--size", "500:5000", "--loops", "2"),
    "node sync": ("node_tick.py", "--pods", "100", "--ticks", "20"),
    "qos sync": ("qos_round.py",),
    "simulation": ("simulation.py", "200", "--hours", "6", "--no-day"),
    "histograms": ("histograms.py", "--histograms", "20000", "--loops", "10"),
}


def cpu_seconds(tree: Path, command: Sequence[str]) -> float:
    """Return the CPU time of one run, or end with what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, str(tree / "benchmarks" / command[0]), *command[1:]],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode != 0:
        sys.exit(f"{tree.name}: {' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Compare two trees and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the revision to compare with")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=sorted(BENCHMARKS), default=list(BENCHMARKS))
    options = parser.parse_args()
    other = options.before.resolve()
    print(f"{'benchmark':18s} {'before':>8s} {'now':>8s} {'ratio':>6s}   pairs")
    for name in options.only:
        pairs = [
            (cpu_seconds(other, BENCHMARKS[name]), cpu_seconds(HERE, BENCHMARKS[name])) for _ in range(options.runs)
        ]
        old, new = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratios = sorted(now / before for before, now in pairs)
        print(f"{name:18s} {old:7.2f}s {new:7.2f}s {new / old:6.3f}   {ratios[0]:.2f} to {ratios[-1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
