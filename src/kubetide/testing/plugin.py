"""A pytest plugin: one table at the end says which tiers ran, what was skipped, and why.

A tier is the folder below `tests/`. A test that cannot run here is skipped with a reason that says what to install;
the table makes sure that nobody mistakes a skipped tier for a passed one.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePath

import pytest


@dataclass(slots=True)
class _Tier:
    ran: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


class TierTable:
    """Counts outcomes by tier."""

    def __init__(self) -> None:
        self._tiers: dict[str, _Tier] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        tier = self._tiers.setdefault(_tier_of(report.nodeid), _Tier())
        if report.skipped:
            tier.skipped[_reason_of(report)] += 1
        elif report.when == "call" or report.failed:
            tier.ran += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            tier = self._tiers.setdefault(_tier_of(report.nodeid), _Tier())
            tier.skipped[_reason_of(report)] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._tiers:
            return
        terminalreporter.section("tiers")
        terminalreporter.line(f"{'tier':14} {'run':>6} {'skipped':>8}  why")
        for name, tier in sorted(self._tiers.items()):
            reasons = "; ".join(f"{reason} ({count})" for reason, count in tier.skipped.most_common())
            terminalreporter.line(f"{name:14} {tier.ran:6} {sum(tier.skipped.values()):8}  {reasons}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TierTable(), "kubetide-tiers")


def _tier_of(nodeid: str) -> str:
    parts = PurePath(nodeid.split("::")[0]).parts
    return parts[1] if len(parts) > 2 and parts[0] == "tests" else parts[0]


def _reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)
