"""Tests of other tiers whose parts a drill uses: the same code, with the checker beside it."""

import os
import subprocess
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from agentserver import AUDIT_LOG

TESTS = Path(__file__).parent.parent


@cache
def module(path: str) -> ModuleType:
    """Return a test module by its path below `tests`; their folders are no packages and may be called as others are."""
    name = f"existing_{path.removesuffix('.py').replace('/', '_')}"
    spec = spec_from_file_location(name, TESTS / path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def run_tests(path: str, folder: Path, *, audit: Path | None = None) -> int:
    """Run tests of another tier in a process of their own; return how many failed. Its servers log to `audit`."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'tests'}"]
    named = {} if audit is None else {AUDIT_LOG: str(audit)}
    done = subprocess.run(
        [*command, *path.split()],
        cwd=TESTS,
        env={**os.environ, **named},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert " passed" in done.stdout or " failed" in done.stdout, done.stdout
    return sum(line.startswith("FAILED") for line in done.stdout.splitlines())
