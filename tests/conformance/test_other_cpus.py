"""The vectors that rest on floating point, once more on a plainer CPU: without what this one has beyond the baseline.

NumPy picks the instructions for its loops when it is imported and can be told to leave some alone, so this needs a
process of its own. Continuous integration on one machine thereby sees what two CPU families would.
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "tests" / "vectors"
FILES = [
    *(VECTORS / "vpa" / name for name in ("histogram.jsonl.gz", "histogram_buckets.json", "container_state.jsonl.gz")),
    *(
        VECTORS / "node" / f"{name}.json"
        for name in ("aggregate", "histogram", "histogram_bucket", "predict_training", "prod_reclaimable")
    ),
]


def extra_features() -> list[str]:
    """Return what this CPU has, and NumPy uses, beyond the baseline."""
    numpy = importlib.import_module("numpy._core._multiarray_umath")
    return [name for name in numpy.__cpu_dispatch__ if numpy.__cpu_features__[name]]


def without_extra_features(*command: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a NumPy that leaves the extra features alone."""
    features = extra_features()
    if not features:
        pytest.skip("this CPU has nothing that NumPy would use beyond its baseline")
    return subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=ROOT,
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(features)},
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_vectors_pass_without_the_extra_features_of_this_cpu() -> None:
    result = without_extra_features("tests/conformance/run.py", *map(str, FILES), "--require-all")
    assert result.returncode == 0, result.stdout + result.stderr
    passed, failed = result.stdout.splitlines()[-1].split(", ")
    assert (int(passed.split()[0]) > 100, failed) == (True, "0 failed")


def test_the_features_are_really_off() -> None:
    code = "from numpy._core._multiarray_umath import __cpu_features__ as f; print([n for n, on in f.items() if on])"
    found = without_extra_features("-c", code)
    assert found.returncode == 0, found.stderr
    assert [name for name in extra_features() if f"'{name}'" in found.stdout] == []
