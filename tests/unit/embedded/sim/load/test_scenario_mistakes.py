"""A mistake in a scenario is refused when it is read: one line with the file, the place and what is valid there."""

from pathlib import Path

import pytest

from kubetide.cli.main import run_cli
from kubetide.embedded.sim import scenarios
from kubetide.embedded.sim.cluster import SimCluster
from kubetide.embedded.sim.load.scenario import ScenarioError
from kubetide.embedded.sim.load.scenario_file import load_scenario, parse_scenario
from kubetide.embedded.sim.time.loop import run_virtual

SHOP = """
nodes: [{name: node, count: 2}]
workloads:
- {name: web, namespace: shop, load: {curve: constant, level: 5}}
- {name: db, kind: StatefulSet}
"""
HPA = """
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: web, namespace: shop}
  spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, minReplicas: 9, maxReplicas: 3}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "workloads: [{name: a, kind: Deploiment}]",
            "workloads[0].kind: 'Deploiment' is none of Deployment, StatefulSet, DaemonSet, Job, CronJob",
            id="kind",
        ),
        pytest.param(
            "workloads: [{name: a, load: {curve: sawtooth}}]",
            "workloads[0].load.curve: 'sawtooth' is none of constant, step, ramp, diurnal, weekly, spike, trace",
            id="curve",
        ),
        pytest.param(
            "events: [{at: 1m, do: explode}]",
            "events[0].do: 'explode' is none of outage, load, spike, scale, cordon, uncordon, apply, delete, rollout, "
            "kill",
            id="event",
        ),
        pytest.param("nodes: [{name: a, cgroup: v3}]", "nodes[0].cgroup: 'v3' is none of v1, v2", id="cgroup"),
        pytest.param(
            "metrics: {external: {queue: {curve: wave}}}", "'wave' is none of constant", id="curve-of-a-metric"
        ),
        pytest.param(
            "nodes: [{name: a, cpus: 4}]", "nodes[0]: there is no field 'cpus'; there are name, count, cpu", id="field"
        ),
        pytest.param("colour: red", "there is no field 'colour'; there are name, description", id="field-on-top"),
        pytest.param("source: here", "there is no field 'source'", id="not-a-field-of-the-file"),
        pytest.param("tick: 0s", "tick: must be longer than nothing", id="no-tick"),
        pytest.param("metrics: {interval: 0s}", "metrics.interval: must be longer than nothing", id="no-interval"),
        pytest.param("metrics: {gaps: 3}", "metrics.gaps: must be from 0 to 1", id="gaps"),
        pytest.param("nodes: [{name: a}, {name: a}]", "nodes[1].name: a is there twice", id="node-twice"),
        pytest.param("nodes: [{name: a, threads: 0}]", "nodes[0].threads: must be at least 1", id="threads"),
        pytest.param(
            "workloads: [{name: a, replicas: -1}]", "workloads[0].replicas: must be at least 0", id="replicas"
        ),
        pytest.param(
            "workloads: [{name: a, requests: {cpu: lots}}]",
            "workloads[0].requests.cpu: 'lots' is not a quantity",
            id="request",
        ),
        pytest.param("workloads: [{name: a, schedule: hourly}]", "workloads[0].schedule: ", id="schedule"),
        pytest.param("objects: [{kind: Pod}]", "objects[0].apiVersion: is needed", id="object-without-version"),
        pytest.param(
            "objects: [{apiVersion: v1, kind: Pod, metadata: {}}]", "objects[0].metadata: is needed", id="no-metadata"
        ),
        pytest.param(
            "workloads: [{name: a, load: {curve: trace, file: gone.csv}}]",
            "workloads[0].load.file: the trace gone.csv cannot be read: No such file or directory",
            id="trace",
        ),
        pytest.param(
            "metrics: {external: {queue: {curve: trace, file: gone.csv}}}",
            "metrics.external.queue.file: the trace gone.csv cannot be read",
            id="trace-of-a-metric",
        ),
    ],
)
def test_a_mistake_names_its_place_and_what_is_valid(text: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, subject="day.yaml")
    assert str(caught.value).startswith("day.yaml")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(
            "{do: outage, of: metric}",
            "of: 'metric' is not there to happen to; there are metrics, node/node-1",
            id="outage",
        ),
        pytest.param("{do: outage, of: node/node-9}", "there are metrics, node/node-1, node/node-2", id="node-outage"),
        pytest.param(
            "{do: cordon, of: node}", "'node' is not there to happen to; there are node-1, node-2", id="cordon"
        ),
        pytest.param(
            "{do: rollout, of: shop/wep}", "'shop/wep' is not there to happen to; there are shop/web", id="rollout"
        ),
        pytest.param("{do: rollout, of: db}", "'default/db' is not there", id="rollout-of-no-deployment"),
        pytest.param("{do: scale, of: shop/web}", "replicas: is needed for do: scale", id="scale-to-what"),
        pytest.param("{do: spike, of: db}", "'default/db' is not there", id="spike-of-what-has-no-load"),
        pytest.param("{do: spike, of: shop/web, factor: -1}", "factor: must be from 0", id="factor"),
        pytest.param("{do: load, of: shop/web}", "load: is needed for do: load", id="load-of-what"),
        pytest.param("{do: load, of: shop/web, load: {curve: ramp}}", "events[0].load.low: is needed", id="load"),
        pytest.param("{do: kill, of: shop/nobody}", "there are shop/web, default/db", id="kill"),
        pytest.param("{do: apply}", "object.apiVersion: is needed", id="apply-nothing"),
        pytest.param("{do: outage, of: metrics, for: 0s}", "for: must be longer than nothing", id="no-time"),
    ],
)
def test_an_event_needs_something_to_happen_to(event: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(f"{SHOP}\nevents: [{event.replace('{', '{at: 1m, ', 1)}]", subject="day.yaml")
    assert str(caught.value).startswith("day.yaml events[0].")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "event", ["{do: kill, of: db-0}", "{do: delete, of: shop/web}", "{do: outage, of: node/node-2}"]
)
def test_an_event_that_can_happen_is_taken(event: str) -> None:
    assert parse_scenario(f"{SHOP}\nevents: [{event.replace('{', '{at: 1m, ', 1)}]").events


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param(HPA, "day.yaml objects[0]: ", id="what-the-api-server-refuses"),
        pytest.param(
            "\n- {apiVersion: v1, kind: Nothing, metadata: {name: a}}",
            "day.yaml objects[0]: no resource for v1 Nothing",
            id="no-such-kind",
        ),
    ],
)
def test_what_is_wrong_inside_objects_is_named_before_anything_runs(objects: str, expected: str) -> None:
    scenario = parse_scenario(f"{SHOP}\nobjects:{objects}", subject="day.yaml")

    async def main() -> None:
        async with SimCluster(scenario):
            raise AssertionError("it began")

    with pytest.raises(ScenarioError) as caught:
        run_virtual(main())
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("verb", [["demo", "--speed", "max", "--scenario"], ["up", "--port", "0", "--sim"]])
@pytest.mark.parametrize("rest", [f"objects:{HPA}", "events: [{at: 1m, do: cordon, of: x}]"], ids=["object", "event"])
def test_the_command_line_tells_it_in_one_line(
    verb: list[str], rest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "day.yaml"
    path.write_text(f"{SHOP}\n{rest}")
    assert run_cli([*verb, str(path)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "day.yaml " in line


def test_the_scenarios_that_come_with_kubetide_are_fine() -> None:
    for name in scenarios.names():
        assert scenarios.load(name).source == f"{name}.yaml"
    examples = sorted((Path(__file__).parents[5] / "examples" / "scenarios").glob("*.yaml"))
    assert examples
    for path in examples:
        load_scenario(path)
