"""Scenarios are read from YAML, and what is wrong in one is named by its place."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubetide.embedded.sim.load.curves import Noisy
from kubetide.embedded.sim.load.profile import WORST_LATENCY, Profile, from_annotations, latency
from kubetide.embedded.sim.load.scenario import ScenarioError, make_profile
from kubetide.embedded.sim.load.scenario_file import load_scenario, parse_scenario
from kubetide.errors import InvalidInput

SHOP = """
name: web shop
start: 2026-01-05T06:00:00Z
nodes:
- {name: node, count: 3, cpu: "8", memory: 32Gi}
workloads:
- name: shop
  namespace: shop
  replicas: 2
  requests: {cpu: 500m, memory: 256Mi}
  load: {curve: diurnal, low: 20, high: 200, peak-hour: 14, noise: 0.1}
  cpu-per-request: 20m
  memory: {base: 150Mi, leak-per-hour: 1Gi}
events:
- {at: 2h, do: outage, of: metrics, for: 10m}
"""


def test_a_scenario_is_read_whole() -> None:
    scenario = parse_scenario(SHOP)
    assert scenario.start == datetime(2026, 1, 5, 6, tzinfo=UTC)
    assert scenario.nodes[0].count == 3
    assert scenario.events[0].duration == "10m"
    profile = make_profile(scenario.workloads[0])
    assert profile.cpu_per_request == pytest.approx(0.02)
    assert profile.leak_per_hour == 2**30
    assert isinstance(profile.curve, Noisy)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param("[]", "must be a mapping", id="not-a-mapping"),
        pytest.param("a: [", "is not YAML", id="not-yaml"),
        pytest.param("nodes: [{name: a, color: red}]", r"nodes\[0\].*color", id="unknown-field"),
        pytest.param("nodes: [{cpu: 8}]", "name", id="missing-field"),
        pytest.param("nodes: [{name: a, count: 0}]", r"nodes\[0\].count", id="no-nodes"),
        pytest.param("nodes: [{name: a, memory: big}]", r"nodes\[0\].memory.*quantity", id="bad-quantity"),
        pytest.param("duration: soon", "duration.*'soon'", id="bad-duration"),
        pytest.param(
            "workloads: [{name: a, load: {curve: ramp, low: 1, high: 2}}]",
            r"workloads\[0\].load.duration",
            id="curve-lacks-a-field",
        ),
        pytest.param("workloads: [{name: a, load: {curve: wave}}]", r"workloads\[0\].load.curve|wave", id="no-curve"),
        pytest.param("workloads: [{name: a}, {name: a}]", r"workloads\[1\].name: default/a", id="twice"),
        pytest.param("events: [{at: x, do: kill}]", r"events\[0\].at", id="bad-time"),
        pytest.param("workloads: [{name: a, load: {curve: trace, file: gone.csv}}]", "gone.csv", id="no-trace"),
    ],
)
def test_a_mistake_is_named_by_its_place(text: str, place: str) -> None:
    with pytest.raises(ScenarioError, match=place):
        parse_scenario(text)


def test_a_trace_lies_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "lunch.csv").write_text("0,10\n60,20\n")
    path = tmp_path / "lunch.yaml"
    path.write_text("workloads: [{name: a, load: {curve: trace, file: lunch.csv}}]")
    curve = make_profile(load_scenario(path).workloads[0]).curve
    assert curve is not None
    assert curve.level(30, 0) == 15
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_scenario(tmp_path / "nothing.yaml")


def test_annotations_of_a_pod_win_over_its_profile() -> None:
    annotations = {
        "sim.kubetide.io/cpu": "250m",
        "sim.kubetide.io/memory": "1Gi",
        "sim.kubetide.io/start-delay": "30s",
        "other/annotation": "x",
    }
    profile = from_annotations(Profile(), annotations)
    assert (profile.cpu_steady, profile.memory_base, profile.start_seconds) == (0.25, 2**30, 30)
    with pytest.raises(InvalidInput, match=r"sim\.kubetide\.io/cpu"):
        from_annotations(Profile(), {"sim.kubetide.io/cpu": "lots"})


@pytest.mark.parametrize(
    ("demand", "granted", "expected"),
    [
        pytest.param(0.0, 1.0, 0.01, id="idle-is-service-time"),
        pytest.param(0.5, 1.0, 0.02, id="half-busy-doubles"),
        pytest.param(1.0, 1.0, WORST_LATENCY, id="saturated"),
        pytest.param(1.0, 0.0, WORST_LATENCY, id="starved"),
    ],
)
def test_latency_follows_the_queue(demand: float, granted: float, expected: float) -> None:
    assert latency(service_seconds=0.01, demand=demand, granted=granted) == pytest.approx(expected)
