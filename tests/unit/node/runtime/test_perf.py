"""Performance counters: scaling, and what happens where they cannot be opened."""

from pathlib import Path

import pytest

from kubetide.node.runtime.perf import CPI_EVENTS, CgroupCounters, scaled


@pytest.mark.parametrize(
    ("value", "enabled", "running", "expected"),
    [
        pytest.param(100, 10, 10, 100.0, id="ran-all-the-time"),
        pytest.param(100, 10, 5, 200.0, id="ran-half-of-the-time"),
        pytest.param(100, 10, 0, 100.0, id="never-ran"),
        pytest.param(0, 0, 0, 0.0, id="never-enabled"),
    ],
)
def test_counts_are_scaled_to_the_whole_time(value: int, enabled: int, running: int, expected: float) -> None:
    assert scaled(value, enabled, running) == expected


def test_a_directory_that_is_no_cgroup_cannot_be_counted(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"."):
        CgroupCounters(str(tmp_path), [0], CPI_EVENTS)
