"""A day with every controller, twice, in two processes with different hash seeds: the same to the byte.

    python -m benchmarks.soak_determinism [--hours 24] [--other-cpu]

Prints the digest of both runs hour by hour (tests/soak/recording.py) and fails at the first hour that differs. With
`--other-cpu` the second run also computes as a CPU would whose `exp` and `log` have other last bits.
"""

import argparse
import os
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

RECORDING = Path(__file__).resolve().parents[1] / "tests" / "soak" / "recording.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--other-cpu", action="store_true")
    given = parser.parse_args()
    runs = [
        subprocess.Popen(
            [sys.executable, str(RECORDING), "--hours", str(given.hours), f"--last-bit={last_bit}"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed, last_bit in (("1", 0), ("2", int(given.other_cpu)))
    ]
    try:
        for one, other in zip_longest(*(run.stdout or () for run in runs), fillvalue="nothing\n"):
            if one != other:
                print(f"differs:\n{one}{other}", end="")
                return 1
            print(one, end="", flush=True)
        return max(run.wait() for run in runs)
    finally:
        for run in runs:
            run.kill()
            run.wait()


if __name__ == "__main__":
    sys.exit(main())
