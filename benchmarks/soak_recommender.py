"""A day of churn under the whole recommender: 100 pods replaced every 30 seconds, in virtual time.

    python -m benchmarks.soak_recommender [--hours 24]

Prints what the recommender and the process hold every hour and fails if the process has grown by more than 50 MB
since the end of the first hour. The workload is in tests/soak/recommender_churn.py.
"""

import argparse
import sys
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from soak.recommender_churn import Measure, soak

MOST_MIB = 50.0


def show(measure: Measure) -> None:
    print(
        f"{measure.hours:5.1f} h  pods {measure.pods_seen:7}  RSS {measure.resident_mib:6.1f} MiB  "
        f"blocks {measure.memory_blocks:7}  objects {measure.objects:6}  aggregates {measure.aggregates:5}  "
        f"live pods {measure.pods:4}  containers {measure.containers:4}  samples {measure.samples:8}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24)
    given = parser.parse_args()
    measures = soak(timedelta(hours=given.hours), every=timedelta(hours=1), show=show)
    growth = measures[-1].resident_mib - measures[0].resident_mib
    print(f"memory from the first hour to the last: {growth:+.1f} MiB")
    return int(growth > MOST_MIB)


if __name__ == "__main__":
    sys.exit(main())
