"""A day of churn on a simulated node: 20 pods, one replaced every ten seconds, in virtual time.

    python -m benchmarks.soak_node [--hours 24]

Prints what the agent and the process hold every half hour and fails if something grows. Samples, models and history
live for 35 minutes here, so all is full after an hour and a half; what was largest in the next hour and a half is the
measure of the rest. The bounds are in tests/soak/churn.py.
"""

import argparse
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from soak.churn import Measure, grown, soak

EVERY = timedelta(minutes=30)
KEEP = timedelta(minutes=35)
SETTLED = (1.5, 3.0)
"""Between these hours the agent has filled what it keeps."""


def show(measure: Measure) -> None:
    print(
        f"{measure.hours:5.1f} h  pods {measure.pods_seen:6}  RSS {measure.resident_mib:6.1f} MiB  "
        f"blocks {measure.memory_blocks:7}  "
        f"objects {measure.agent_objects:6}  descriptors {measure.descriptors:4}  "
        f"series {measure.series:5}  ring {measure.ring_mib:5.1f} MiB  "
        f"models {measure.models:4} ({measure.model_files} files)  executor {measure.executor_entries:5}  "
        f"history {measure.history_mib:4.1f} MiB  audit {measure.audit_mib:4.1f} MiB  "
        f"telemetry {measure.telemetry_lines:5}  restarts {measure.restarts}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    options = parser.parse_args()
    if options.hours <= SETTLED[1]:
        parser.error(f"shorter than the time it takes to settle, {SETTLED[1]} hours")
    with tempfile.TemporaryDirectory() as folder:
        measures = soak(timedelta(hours=options.hours), Path(folder), every=EVERY, keep=KEEP, show=show)
    settled = [one for one in measures if SETTLED[0] <= one.hours <= SETTLED[1]]
    problems = grown(settled, measures[-1])
    for problem in problems:
        print(f"grew: {problem}")
    print("bounded" if not problems else "not bounded")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
