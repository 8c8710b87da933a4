"""`kubetide simulate`: whole controllers, one policy beside the other, the same bytes for any number of workers."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from kubetide.cli.main import run_cli
from kubetide.embedded.sim.load.scenario_file import parse_scenario
from kubetide.errors import InvalidInput
from kubetide.simulate import Options, Variant, run
from kubetide.simulate.controllers import ALL, NODE, needed
from kubetide.simulate.kept import kept
from kubetide.simulate.report import as_json, sections, series_csv

SCENARIO = """
name: tiny
seed: 3
duration: 12m
nodes: [{name: node, count: 2, cpu: "8", memory: 16Gi}]
workloads:
- name: web
  replicas: 2
  requests: {cpu: 200m, memory: 128Mi}
  limits: {cpu: 400m}
  load: {curve: spike, base: 20, peak: 120, begin: 3m, duration: 8m, noise: 0.1}
- name: leaky
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 80Mi}
  load: {curve: constant, level: 1}
  memory: {base: 40Mi, leak-per-hour: 600Mi}
objects:
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: web, namespace: default}
  spec:
    scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
    minReplicas: 2
    maxReplicas: 12
    metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}
"""
HPA_ONLY = Variant(name="current", controllers=["hpa"])
NOBODY = Variant(name="none", controllers=[])


def test_the_number_of_workers_changes_no_byte_and_the_autoscaler_covers_the_step() -> None:
    scenario = parse_scenario(SCENARIO)
    slo = timedelta(milliseconds=200)
    alone = run(scenario, [HPA_ONLY, NOBODY], Options(workers=1, slo=slo))
    both = run(scenario, [HPA_ONLY, NOBODY], Options(workers=2, slo=slo))
    assert as_json(alone) == as_json(both)
    assert series_csv(alone) == series_csv(both)
    current, none = (each.figures for each in alone)
    assert 0 < current["time_to_cover"] < none["time_to_cover"]
    assert current["slo_missed"] < none["slo_missed"]
    assert current["pod_hours"] > none["pod_hours"]
    assert current["oom_kills"] == none["oom_kills"] > 0
    web = alone[1].run.series["default/web"]
    assert set(web["wanted"].tolist()) == {2.0}
    assert np.all(np.diff(web["time"]) == 15.0)
    titles = [chart.title for section in sections(alone, 0.2) for chart in section.charts]
    assert {"current: replicas", "none: latency", "current: memory"} <= set(titles)


def test_the_command_compares_manifests_and_writes_what_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    (tmp_path / "policies.yaml").write_text("policies: [{name: plain, controllers: [hpa]}]")
    manifest = SCENARIO.partition("objects:\n- ")[2].replace("\n  ", "\n").replace("maxReplicas: 12", "maxReplicas: 2")
    (tmp_path / "small.yaml").write_text(manifest)
    arguments = ["simulate", str(tmp_path / "tiny.yaml"), "--policies", str(tmp_path / "policies.yaml")]
    arguments += ["--vs", str(tmp_path / "small.yaml"), "--duration", "5m", "--slo", "200ms", "-o", "json"]
    written = ["--series", str(tmp_path / "s.csv"), "--report", str(tmp_path / "r.html")]
    assert run_cli([*arguments, *written]) == 0
    found = {each["policy"]: each["figures"] for each in json.loads(capsys.readouterr().out)["outcomes"]}
    assert list(found) == ["plain", "small"]
    assert found["plain"]["pod_hours"] > found["small"]["pod_hours"]
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert lines[0].startswith("policy,workload,time,wanted")
    assert len(lines) == 1 + 2 * 2 * 20
    assert "small: replicas" in (tmp_path / "r.html").read_text()


def test_jobs_that_come_and_go_are_no_flaps() -> None:
    scenario = parse_scenario(
        """
name: jobs
duration: 12m
nodes: [{name: node, cpu: "8", memory: 16Gi}]
workloads:
- name: report
  kind: CronJob
  schedule: "*/5 * * * *"
  requests: {cpu: 100m, memory: 64Mi}
  work: 2m
"""
    )
    (found,) = run(scenario, [NOBODY], Options(workers=1))
    series = found.run.series["default/report"]
    assert set(series["pods"].tolist()) == {0.0, 1.0}
    assert np.isnan(series["wanted"]).all()
    assert found.figures["flaps"] == 0.0
    assert ",,1,1," in series_csv([found])
    (_, section) = sections([found], 1.0)
    assert [layer.label for layer in section.charts[0].layers] == ["ready"]


def test_agents_work_where_something_is_for_them_and_change_nothing_elsewhere() -> None:
    scenario = parse_scenario(SCENARIO)
    assert NODE not in needed(scenario)
    asked = Variant(name="with agents", controllers=list(ALL))
    short = Options(workers=1, duration=timedelta(minutes=8))
    without, with_agents = run(scenario, [Variant(name="without"), asked], short)
    # Pods have other UIDs where agents write objects too, and with them slightly other shares of the load.
    assert without.figures == pytest.approx(with_agents.figures, rel=1e-3)
    for name, columns in without.run.series.items():
        for column, values in columns.items():
            np.testing.assert_allclose(values, with_agents.run.series[name][column], rtol=1e-2, err_msg=name)
            if column in ("wanted", "pods", "ready"):
                assert np.array_equal(values, with_agents.run.series[name][column]), (name, column)
    for word in ("koordinator.sh/qosClass: LS", "kubernetes.io/batch-cpu: 1000"):
        assert NODE in needed(parse_scenario(SCENARIO + f"  note: {{{word}}}\n"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["webshop", "--load", "constant:level=1"], "go with hpa"),
        (["hpa", "shop/web"], "needs --load or --load-from"),
        (["webshop", "--policies", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["simulate", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_ctrl_c_keeps_finished_runs_and_resume_simulates_the_rest(tmp_path: Path) -> None:
    scenario, file = parse_scenario(SCENARIO), tmp_path / "tiny.runs"
    short = Options(duration=timedelta(minutes=2), workers=1, keep=file)
    alone = run(scenario, [HPA_ONLY, NOBODY], short)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(scenario, [HPA_ONLY, NOBODY], short, progress=interrupt)
    (first,) = kept(file).values()
    assert first.policy == "current"
    counts: list[tuple[int, int]] = []
    again = replace(short, resume=True)
    resumed = run(scenario, [HPA_ONLY, NOBODY], again, progress=lambda done, total: counts.append((done, total)))
    assert counts == [(2, 2)], "one run was left"
    assert as_json(resumed) == as_json(alone)
    assert series_csv(resumed) == series_csv(alone)
    assert not file.exists()
    with pytest.raises(InvalidInput, match="nothing to resume"):
        run(scenario, [HPA_ONLY, NOBODY], again)
    file.write_bytes(b"no")
    with pytest.raises(InvalidInput, match="is damaged"):
        run(scenario, [HPA_ONLY, NOBODY], again)
