"""The demo: every controller at work on one simulated cluster, told line by line, the same bytes for the same seed."""

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from kubetide.cli.demo.day import Outcome, day_without
from kubetide.cli.demo.showing import Showing
from kubetide.cli.demo.summary import make_summary
from kubetide.cli.demo.view import LiveView, PlainView
from kubetide.cli.main import run_cli
from kubetide.embedded.apiserver.storage.objects import ResourceKey
from kubetide.embedded.sim import scenarios
from kubetide.embedded.sim.load.scenario import EventSpec, Scenario, ScenarioError
from kubetide.embedded.sim.load.scenario_file import parse_scenario
from kubetide.embedded.sim.narration import Line, Narrator
from kubetide.embedded.sim.time.loop import run_virtual

MORNING = datetime(2026, 1, 5, 6, tzinfo=UTC)


def show(length: timedelta, *, seed: int | None = None, scenario: Scenario | None = None) -> tuple[str, Outcome]:
    """Show a day without controllers; return the lines and what came of it."""
    out = io.StringIO()
    chosen = scenario or scenarios.load("webshop")
    showing = Showing(chosen, PlainView(out), length=length, names=(), seed=seed)
    outcome = run_virtual(showing.run(), start=chosen.start)
    return out.getvalue(), outcome


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
        "for batch work",
        "0:10:00 simulated",
        "Against the same day without kubetide",
    ):
        assert told in text, told


def test_without_controllers_the_cluster_still_lives() -> None:
    text, outcome = show(timedelta(hours=2))
    assert "Memory of the container ran out" in text
    assert "job/reports" in text
    assert "horizontalpodautoscaler" not in text
    assert show(timedelta(hours=2)) == (text, outcome)
    assert show(timedelta(hours=2), seed=99) != (text, outcome)


def test_a_service_in_an_oom_loop_is_not_served_well_and_batch_work_counts() -> None:
    _, outcome = show(timedelta(hours=2))
    thumbnails = outcome.accounts["shop", "thumbnails"]
    assert thumbnails.oom_kills > 20
    assert thumbnails.served_well is not None
    assert thumbnails.served_well < 0.5
    assert thumbnails.requests == pytest.approx(8 * 7200, rel=0.1)
    reports = outcome.accounts["batch", "reports"]
    assert reports.asked_core_hours == pytest.approx(3 * 0.5 * 4 / 60, rel=0.2)
    assert reports.served_well is None
    [told] = [line for line in make_summary(outcome, None).splitlines() if line.startswith("  shop/thumbnails  ")]
    assert "OOM" in told


def test_the_day_without_kubetide_is_the_day_without_controllers() -> None:
    webshop = scenarios.load("webshop")
    _, outcome = show(timedelta(minutes=30))
    assert day_without(webshop, seed=webshop.seed, length=timedelta(minutes=30)) == outcome.accounts


def test_scenario_events_are_told_as_they_begin_and_end() -> None:
    scenario = parse_scenario(
        """
        nodes: [{name: node, count: 2}]
        workloads:
        - {name: web, replicas: 2, load: {curve: constant, level: 10}}
        events:
        - {at: 1m, do: rollout, of: web}
        - {at: 2m, do: outage, of: metrics, for: 3m}
        - {at: 3m, do: outage, of: node/node-2, for: 90s}
        - {at: 6m, do: spike, of: default/web, factor: 4, for: 1m}
        - {at: 8m, do: scale, of: web, replicas: 3}
        - {at: 8m30s, do: cordon, of: node-1}
        - {at: 9m, do: kill, of: web}
        - {at: 9m30s, do: delete, of: web-nobody}
        """
    )
    text, _ = show(timedelta(minutes=10), scenario=scenario)
    told = [line for line in text.splitlines() if "  event/" in line]
    assert [line.partition("event/")[2].partition("  ")[2].strip() for line in told[:8]] == [
        "rollout: all pods are replaced",
        "outage: the metrics API is down for 3 min",
        "outage: node node-2 is down for 1.5 min",
        "node node-2 is back",
        "the metrics API is back",
        "spike: 4 times the load for 1 min",
        "the spike is over",
        "somebody scales it from 2 to 3 replicas",
    ]
    assert "cordoned: no new pods" in told[8]
    assert "crashes" in told[9]
    assert "delete: there is no web-nobody" in told[10]


def test_on_a_terminal_a_screen_follows_the_cluster() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=140, height=40)
    chosen = scenarios.load("webshop")
    showing = Showing(chosen, LiveView(console), length=timedelta(minutes=10), names=(), speed=2000)
    run_virtual(showing.run(), start=chosen.start, speed=2000)
    text = out.getvalue()
    assert "shop/storefront" in text
    assert "batch overcommit" in text
    assert "2000x" in text


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
        "overcommit 4.0 cores and 0Mi for batch work",
        "overcommit 2.0 cores and 0Mi for batch work (was 4.0 cores)",
    ]
    assert told[0].render().startswith("Mon 06:00:00  nodes ")


class Hands:
    """A keyboard on which keys are pressed at a moment of the simulation."""

    def __init__(self, at: float, keys: str) -> None:
        self._at, self._pressed_keys = at, keys

    @contextmanager
    def listen(self, pressed: Callable[[str], None]) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for key in self._pressed_keys:
            loop.call_later(self._at, pressed, key)
        yield


@pytest.mark.parametrize(
    ("keys", "event"),
    [
        pytest.param("s1", EventSpec(at="91s", do="spike", of="default/web"), id="spike"),
        pytest.param("s2", EventSpec(at="91s", do="outage", of="metrics"), id="metrics"),
        pytest.param("s3", EventSpec(at="91s", do="outage", of="node/node-2"), id="node"),
    ],
)
def test_what_is_injected_is_part_of_the_scenario_from_then_on(keys: str, event: EventSpec) -> None:
    scenario = parse_scenario(
        "nodes: [{name: node, count: 2}]\nworkloads: [{name: web, replicas: 2, load: {curve: constant, level: 10}}]"
    )
    length = timedelta(minutes=9)

    hands: Any = Hands(90.5, keys)
    showing = Showing(scenario, PlainView(io.StringIO()), length=length, names=(), speed=1e6, keys=hands)
    outcome = run_virtual(showing.run(), start=scenario.start, speed=1e6)
    assert showing.scenario.events == [event]
    assert day_without(showing.scenario, seed=scenario.seed, length=length) == outcome.accounts
