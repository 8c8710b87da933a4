"""Every scenario in `examples/` can be read and lived through."""

import io
from datetime import timedelta
from pathlib import Path

import pytest

from kubetide.cli.demo.command import Demo
from kubetide.cli.demo.view import PlainView
from kubetide.embedded.sim.load.scenario import load_scenario
from kubetide.embedded.sim.time.loop import run_virtual

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_without_controllers(path: Path) -> None:
    out = io.StringIO()
    scenario = load_scenario(path)
    demo = Demo(scenario, PlainView(out), length=timedelta(hours=2), bare=True)
    run_virtual(demo.run(), start=scenario.start)
    assert "2:00:00 simulated" in out.getvalue()


def test_the_lunch_rush_is_met_by_its_autoscaler() -> None:
    out = io.StringIO()
    scenario = load_scenario(EXAMPLES[0].with_name("lunch-rush.yaml"))
    run_virtual(Demo(scenario, PlainView(out), length=timedelta(minutes=80)).run(), start=scenario.start)
    text = out.getvalue()
    assert "horizontalpodautoscaler/orders" in text
    assert "http_requests_per_second above target" in text
