"""A day of churn on a simulated node: 20 pods, one replaced every ten seconds, in virtual time.

    python -m benchmarks.soak_node [--hours 24]

Prints what the agent holds every hour and fails if something grows: objects, descriptors, series, models, files. What
lives as long as the sample window (35 minutes) or the model expiry (30 minutes) is bounded by the pods of that time.
"""

import argparse
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from soak.churn import Measure, soak

GROWTH = 1.15
"""From the first third on nothing may become larger than this times what it was then.

Resident memory is shown but not judged: most of it is the simulated cluster in the same process, which remembers
every pod that ever was. The agent is judged by what it holds: objects, descriptors, series, models, files.
"""


def show(measure: Measure) -> None:
    print(
        f"{measure.hours:5.1f} h  pods {measure.pods_seen:6}  RSS {measure.resident_mib:6.1f} MiB  "
        f"objects {measure.agent_objects:6}  descriptors {measure.descriptors:4}  "
        f"series {measure.series:5}  ring {measure.ring_mib:5.1f} MiB  "
        f"models {measure.models:4} ({measure.model_files} files)  executor {measure.executor_entries:5}  "
        f"history {measure.history_mib:5.1f} MiB  telemetry {measure.telemetry_lines:5}  "
        f"restarts {measure.restarts}",
        flush=True,
    )


def grown(first: Measure, last: Measure) -> list[str]:
    """Return what grew from one measure to another."""
    names = ("agent_objects", "descriptors", "series", "ring_mib", "models", "model_files", "executor_entries")
    return [
        f"{name}: {getattr(first, name)} -> {getattr(last, name)}"
        for name in names
        if getattr(last, name) > getattr(first, name) * GROWTH + 2
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measures = soak(timedelta(hours=options.hours), Path(folder), every=timedelta(hours=1), show=show)
    settled = measures[len(measures) // 3]
    problems = grown(settled, measures[-1])
    if measures[-1].restarts:
        problems.append(f"{measures[-1].restarts} restarts of modules")
    for problem in problems:
        print(f"grew: {problem}")
    print("bounded" if not problems else "not bounded")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
