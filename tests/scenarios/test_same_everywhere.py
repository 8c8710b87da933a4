"""The same seed gives the same bytes: in another process, with other hash seeds, on another CPU."""

import os
import subprocess
import sys
from pathlib import Path

RECORDING = Path(__file__).resolve().parents[1] / "soak" / "recording.py"


def test_an_hour_with_every_controller_is_the_same_to_the_byte_whatever_the_hash_seed_and_the_cpu() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, str(RECORDING), "--hours", "1", f"--last-bit={last_bit}"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
        )
        for hash_seed, last_bit in (("1", 0), ("2", 1), ("3", -1))
    ]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert outputs[0] == outputs[1] == outputs[2]
    assert int(outputs[0].split()[2]) > 1000
