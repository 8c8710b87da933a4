"""Run all drills and write the page: `python -m drills [--page FILE] [--short] [pytest arguments]` from `tests`."""

import argparse
import os
import sys
from pathlib import Path

import pytest

from drills.drill import PROPERTY, WHOLE
from drills.page import Result, page

HERE = Path(__file__).parent


class Results:
    """Hears what became of every drill, from every worker."""

    def __init__(self) -> None:
        self.found: dict[str, Result] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = dict(report.user_properties).get(PROPERTY)
        if not isinstance(told, dict) or (report.when != "call" and not report.failed):
            return
        skipped = str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        self.found[told["name"]] = Result(
            name=told["name"],
            outcome=report.outcome,
            why=skipped,
            value=told.get("value"),
            writes=told.get("writes", 0),
            acts=told.get("acts", 0),
            logs=told.get("logs", 0),
            form=told["form"],
            cpu_seconds=told.get("cpu_seconds", 0.0),
        )


def main() -> int:
    """Run, then write the page."""
    parser = argparse.ArgumentParser(prog="python -m drills", description=__doc__)
    parser.add_argument("--page", type=Path, help="write the page here")
    parser.add_argument("--short", action="store_true", help="the shorter forms, as in CI")
    options, rest = parser.parse_known_args()
    if not options.short:
        os.environ[WHOLE] = "whole"
    results = Results()
    status = pytest.main([str(HERE), *rest], plugins=[results])
    if options.page is not None:
        before = options.page.read_text() if options.page.exists() else ""
        options.page.write_text(page(results.found, before))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
