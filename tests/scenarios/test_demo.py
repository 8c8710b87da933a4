"""The demo: every controller at work on one simulated cluster, told line by line, the same bytes for the same seed."""

import io
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from kubetide.cli.demo.command import Demo
from kubetide.cli.demo.view import LiveView, PlainView
from kubetide.cli.main import run_cli
from kubetide.embedded.apiserver.storage.objects import ResourceKey
from kubetide.embedded.sim import scenarios
from kubetide.embedded.sim.load.scenario import Scenario, ScenarioError
from kubetide.embedded.sim.narration import Line, Narrator
from kubetide.embedded.sim.time.loop import run_virtual

MORNING = datetime(2026, 1, 5, 6, tzinfo=UTC)


def show(length: timedelta, *, bare: bool = False, seed: int | None = None, scenario: Scenario | None = None) -> str:
    out = io.StringIO()
    chosen = scenario or scenarios.load("webshop")
    run_virtual(Demo(chosen, PlainView(out), length=length, bare=bare, seed=seed).run(), start=chosen.start)
    return out.getvalue()


def test_two_processes_with_one_seed_print_the_same_bytes_and_show_every_controller() -> None:
    command = [sys.executable, "-m", "kubetide", "demo", "--speed", "max", "--duration", "10m"]
    outputs = [
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    text = outputs[0].decode()
    for told in (
        "Insufficient kubernetes.io/batch-cpu",
        "Memory of the container ran out",
        "horizontalpodautoscaler/storefront",
        "above target",
        "vpa/thumbnails",
        "recommends cpu",
        "resized in place",
        "to batch work",
        "0:10:00 simulated",
    ):
        assert told in text, told


def test_without_controllers_the_cluster_still_lives() -> None:
    text = show(timedelta(hours=2), bare=True)
    assert "Memory of the container ran out" in text
    assert "job/reports" in text
    assert "horizontalpodautoscaler" not in text
    assert text == show(timedelta(hours=2), bare=True)
    assert text != show(timedelta(hours=2), bare=True, seed=99)


def test_on_a_terminal_a_table_follows_the_cluster() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=140)
    chosen = scenarios.load("webshop")
    demo = Demo(chosen, LiveView(console), length=timedelta(minutes=10), bare=True, speed=10_000)
    run_virtual(demo.run(), start=chosen.start, speed=10_000)
    text = out.getvalue()
    assert "shop/storefront" in text
    assert "cpu asked" in text
    assert "In all" in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["--speed", "0"], "neither a positive number nor max", id="no-speed"),
        pytest.param(["--speed", "fast"], "'fast'", id="not-a-speed"),
        pytest.param(["--duration", "soon"], "'soon'", id="not-a-duration"),
        pytest.param(["--duration", "0"], "longer than nothing", id="no-duration"),
        pytest.param(["--http", "--speed", "max"], "--http needs a pace", id="http-without-a-pace"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["demo", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_an_unknown_scenario_is_named_with_those_there_are() -> None:
    with pytest.raises(ScenarioError, match="webshop"):
        scenarios.load("casino")


def test_lines_are_told_once_and_with_their_reason() -> None:
    told: list[Line] = []
    narrator = Narrator(lambda: MORNING, told.append)
    nodes = ResourceKey("", "nodes")

    def node(batch: str) -> dict[str, object]:
        return {"metadata": {"name": "node-1"}, "status": {"allocatable": {"kubernetes.io/batch-cpu": batch}}}

    narrator.changed(nodes, None, node("4000"))
    narrator.changed(nodes, node("4000"), node("4100"))
    narrator.changed(nodes, node("4100"), node("2000"))
    narrator.changed(nodes, node("2000"), None)
    assert [line.text for line in told] == [
        "overcommits 4.0 cores and 0Mi for batch work",
        "overcommits 2.0 cores and 0Mi for batch work (was 4.0 cores)",
    ]
    assert told[0].render().startswith("Mon 06:00:00  node/node-1 ")
