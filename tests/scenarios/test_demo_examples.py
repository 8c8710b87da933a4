"""Every scenario in `examples/` can be read and lived through."""

import io
from datetime import timedelta
from pathlib import Path

import pytest

from kubetide.cli.demo.controllers import ALL
from kubetide.cli.demo.showing import Showing
from kubetide.cli.demo.summary import make_summary
from kubetide.cli.demo.view import PlainView
from kubetide.embedded.sim.load.scenario_file import load_scenario
from kubetide.embedded.sim.time.loop import run_virtual

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_without_controllers(path: Path) -> None:
    out = io.StringIO()
    scenario = load_scenario(path)
    showing = Showing(scenario, PlainView(out), length=timedelta(hours=2), names=())
    outcome = run_virtual(showing.run(), start=scenario.start)
    assert "2:00:00 simulated" in make_summary(outcome, None)


def test_the_lunch_rush_is_met_by_its_autoscaler() -> None:
    out = io.StringIO()
    scenario = load_scenario(EXAMPLES[0].with_name("lunch-rush.yaml"))
    run_virtual(Showing(scenario, PlainView(out), length=timedelta(minutes=80), names=ALL).run(), start=scenario.start)
    text = out.getvalue()
    assert "horizontalpodautoscaler/orders" in text
    assert "http_requests_per_second above target" in text
