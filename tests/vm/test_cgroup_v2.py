"""The kernel tier again on cgroup v2, inside an emulated machine: same tests, same files, another kernel."""

import os
import sys
from pathlib import Path

import pytest

from vm.machine import find_parts, run_in_guest

TIMEOUT_SECONDS = 600.0
SAME_ON_EVERY_KERNEL = "tests/kernel/test_node_command.py"
"""Starts the agent as a process: a third of all the work in a guest, for nothing that depends on the cgroup version."""


def test_the_kernel_tests_pass_on_cgroup_v2(tmp_path: Path) -> None:
    if "KUBETIDE_IN_VM" in os.environ:
        pytest.skip("needs the outer machine: this is the inner one")
    parts = find_parts()
    if isinstance(parts, str):
        pytest.skip(parts)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernel"]
    command.append(f"--ignore={SAME_ON_EVERY_KERNEL}")
    outcome = run_in_guest(parts, tmp_path, command, timeout=TIMEOUT_SECONDS)
    assert outcome.code == 0, outcome.output
    assert "kernel" in outcome.output, outcome.output
    skipped = [line for line in outcome.output.splitlines() if line.startswith("SKIPPED")]
    assert not [line for line in skipped if "root" in line or "controllers" in line], outcome.output
