"""A drill: something that goes wrong on purpose, a figure, and a bound that the figure must keep.

    @drill("idle-rollout", shows="…", figure="changes of the replica count", bound=0)
    def test_an_idle_rollout_changes_no_count(run: Run) -> float:
        …
        return changes

The decorated function is a test. It passes if the figure keeps the bound and the checker finds no offence in any audit
log of the drill. `run.whole` tells the two forms apart: `make drills` runs drills whole, CI runs a shorter form of
those that take long, which `short` describes.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from drills.audit import Event, FileRecorder, Recorder
from drills.checker import Doubt, Findings, judge
from kubetide.clock import Clock

WHOLE = "KUBETIDE_DRILLS"
"""Set to `whole` in the environment, drills run whole."""
PROPERTY = "drill"
MARGIN = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """What the page says about a drill, whatever came of it."""

    name: str
    shows: str
    figure: str
    bound: float
    unit: str
    at_least: bool
    """Whether the bound is the smallest allowed value instead of the largest."""
    tier: str
    short: str
    """What CI runs instead of the whole drill; empty: the same."""
    module: str
    writes: bool
    """Whether kubetide writes in it. If so, a checker that saw no write of it heard the wrong server or user."""

    def keeps(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    @property
    def limit(self) -> str:
        """The bound in words."""
        return f"{'at least' if self.at_least else 'at most'} {quantity(self.bound, self.unit)}"


DRILLS: dict[str, Drill] = {}
"""All drills of the modules that were imported, in their order."""


@dataclass(slots=True)
class Run:
    """One run of a drill: where it may write, and everything that the checker is to hear of."""

    whole: bool
    folder: Path
    form: str = ""
    """What was run, where that is neither the whole drill nor its shorter form."""
    logs: list[Iterable[Event]] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    restored: list[datetime] = field(default_factory=list)

    def audit(self, clock: Clock) -> Recorder:
        """Return the audit log for an API server of this drill."""
        recorder = Recorder(clock)
        self.logs.append(recorder)
        return recorder

    def audit_on_disk(self, clock: Clock) -> FileRecorder:
        """Return an audit log that takes no memory."""
        recorder = FileRecorder(clock, self.folder / f"audit-{len(self.logs)}.log")
        self.logs.append(recorder)
        return recorder

    def doubt(self, start: datetime, end: datetime, why: str, *, namespace: str = "", name: str = "") -> None:
        """Say that something could not be known for a time; nothing may shrink in it."""
        self.doubts.append(Doubt(start=start, end=end, why=why, namespace=namespace, name=name))

    def judge(self) -> Findings:
        """Check all logs."""
        found = [judge(log, doubts=self.doubts, restored=self.restored) for log in self.logs]
        return Findings(
            lost=tuple(each for one in found for each in one.lost),
            twice=tuple(each for one in found for each in one.twice),
            doubtful=tuple(each for one in found for each in one.doubtful),
            writes=sum(one.writes for one in found),
            acts=sum(one.acts for one in found),
        )


Body = Callable[[Run], float]
Test = Callable[[Path, Callable[[str, object], None]], None]


def drill(
    name: str,
    *,
    shows: str,
    figure: str,
    bound: float,
    unit: str = "",
    at_least: bool = False,
    tier: str = "virtual time",
    short: str = "",
    writes: bool = True,
) -> Callable[[Body], Test]:
    """Register a drill and make it a test."""

    def decorate(body: Body) -> Test:
        module = body.__module__.rpartition(".")[2]
        made = Drill(
            name=name, shows=shows, figure=figure, bound=bound, unit=unit, at_least=at_least, tier=tier, short=short,
            module=module, writes=writes,
        )  # fmt: skip
        if DRILLS.get(name, made).module != module:
            raise ValueError(f"there are two drills called {name}")
        DRILLS[name] = made

        def test(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
            run = Run(whole=os.environ.get(WHOLE) == "whole", folder=tmp_path)
            told = {**asdict(made), "form": "whole" if run.whole else "short"}
            record_property(PROPERTY, told)
            began = time.process_time()
            value = float(body(run))
            told["cpu_seconds"] = time.process_time() - began
            found = run.judge()
            told["form"] = run.form or told["form"]
            told |= {"value": value, "writes": found.writes, "acts": found.acts, "logs": len(run.logs)}
            assert found.offences == [], "\n".join(found.offences)
            assert found.writes or not (made.writes and run.logs), "the checker saw no write of kubetide"
            assert made.keeps(value), f"{made.figure}: {quantity(value, made.unit)}, allowed {made.limit}"

        test.__name__, test.__doc__, test.__module__ = body.__name__, made.shows, body.__module__
        return test

    return decorate


def quantity(value: float, unit: str) -> str:
    """Write a figure with its unit."""
    number = f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"
    return f"{number} {unit}".strip()


def needs(found: bool, install: str) -> None:
    """Skip a drill that needs something which is not here, with what to install."""
    if not found:
        pytest.skip(install)
