"""The search for numbers: the front, days held out decide, the same result for any number of workers."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubetide.cli.main import run_cli
from kubetide.errors import InvalidInput
from kubetide.recording import writer as writers
from kubetide.recording.format import Manifest
from kubetide.recording.reader import Recording
from kubetide.recording.writer import Writer
from kubetide.replay.classes import class_names
from kubetide.replay.core.search import annotations, cost, flags, front, policy_of, space_of, values_of
from kubetide.replay.core.shapes import ShapeCount
from kubetide.replay.runs import Options, load_policy, run
from kubetide.replay.tune import tune
from kubetide.replay.tuned import in_force, policy_file, table
from kubetide.vpa.recommender.core.aggregate import Tuning
from kubetide.vpa.recommender.core.estimator import Estimation
from kubetide.vpa.recommender.core.tuning import tuned
from kubetide.vpa.recommender.settings import RecommenderSettings

T0, HOUR, MIB = 1_700_006_400, 3600, 2**20
BOTH = space_of("vpa", "both")
DEFAULTS = BOTH.defaults


@given(st.lists(st.tuples(st.integers(0, 9).map(float), st.integers(0, 9).map(float)), max_size=12))
def test_nobody_beats_the_front_and_everybody_else_is_beaten(candidates: list[tuple[float, float]]) -> None:
    places = front(candidates)
    chosen = [candidates[place] for place in places]
    assert chosen == sorted(chosen)
    for values in candidates:
        assert any(each[0] <= values[0] and each[1] <= values[1] for each in chosen)
    for one in chosen:
        assert not any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in chosen)


def test_the_defaults_are_those_of_the_recommender_and_every_flag_is_one_of_its_own() -> None:
    settings = RecommenderSettings()
    assert settings.target_cpu_percentile == DEFAULTS["target_cpu"]
    assert settings.target_memory_percentile == DEFAULTS["target_memory"]
    assert settings.margin_fraction == DEFAULTS["margin"]
    assert settings.cpu_histogram_decay_half_life.total_seconds() == DEFAULTS["cpu_half_life"] * HOUR
    plain = policy_of("vpa", DEFAULTS, "vpa").sizes
    assert plain is not None
    assert plain.estimator == "vpa"
    assert all(low <= DEFAULTS[name] <= high for name, (low, high, _) in BOTH.ranges.items())


def test_flags_are_accepted_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["run", "recommender", *flags(DEFAULTS), "--help"]) == 0
    helped = capsys.readouterr().out
    for flag in flags(DEFAULTS):
        assert flag.partition("=")[0] in helped


def test_annotations_are_understood_by_the_recommender() -> None:
    numbers = {"target_memory": 0.8, "target_cpu": 0.7, "memory_half_life": 48, "cpu_half_life": 12, "margin": 0.05}
    given = dict(text.split("=") for text in annotations(numbers))
    read = tuned(None, given, tuning=Tuning(), estimation=Estimation(), policies=False, by_annotation=True)
    assert read.problems == ()
    tuning, estimation = read.tunings["*"], read.estimations["*"]
    assert (tuning.memory_half_life, tuning.cpu_half_life) == (timedelta(hours=48), timedelta(hours=12))
    assert (estimation.target_memory, estimation.target_cpu, estimation.margin) == (0.8, 0.7, 0.05)


@pytest.mark.parametrize("estimator", ["krr", "peak"])
def test_the_defaults_of_other_rules_are_what_they_are_without_numbers(tide: Path, estimator: Any) -> None:
    (plain,) = run(tide, [load_policy(estimator)])
    (given,) = run(tide, [policy_of(estimator, space_of(estimator, "both").defaults, "given")])
    assert given.sums.tobytes() == plain.sums.tobytes()


def test_shapes_follow_what_is_used() -> None:
    rng = np.random.default_rng(1)
    count = ShapeCount(np.array([0, 1, 2, 2]), 3)
    for day in range(6):
        cpu = 0.2 + 0.02 * rng.random((24, 4))
        cpu[:3, 1] = 1.0
        cpu[5, 3] = np.nan
        memory = 600.0 * MIB * np.ones((24, 4)) * np.array([1.0, 1.0, 1.0, 1.0 + 0.1 * day])
        count.observe(cpu, memory)
    assert count.shapes() == ["steady", "bursty", "growing"]


def test_classes_are_read_from_the_recording(tide: Path) -> None:
    recording = Recording(tide)

    def named(classes: Any, *, services: bool = False) -> list[str]:
        return list(class_names(recording, classes, days=6, services=services).values())

    assert named("all") == ["all"] * 4
    assert named("namespace") == ["calm", "calm", "wild", "wild"]
    assert named("kind") == ["Deployment", "Deployment", "Deployment", "StatefulSet"]
    assert set(named("shape")) <= {"steady", "bursty", "growing"}
    assert list(class_names(recording, "namespace", days=6, services=True)) == [
        "calm/w0", "calm/w1", "wild/w2", "wild/w3",
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="services have no shape"):
        named("shape", services=True)


@pytest.fixture
def tide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nine days of two namespaces: one calm, one whose memory jumps every third day."""
    pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")
    pytest.importorskip("optuna", reason="tuning needs Optuna: pip install 'kubetide[tune]'")
    monkeypatch.setattr(writers, "BLOCK_CONTAINERS", 2)
    path = tmp_path / "a.tide"
    rng = np.random.default_rng(4)
    hours = np.arange(9 * 24)
    times = (T0 + hours * HOUR) * 1_000_000
    with Writer(path, Manifest(interval_seconds=HOUR, start=T0)) as writer:
        for number in range(4):
            namespace = "calm" if number < 2 else "wild"
            kind = "StatefulSet" if number == 3 else "Deployment"
            container = writer.container(namespace, kind, f"w{number}", f"p{number}", "app")
            memory = 600 * MIB + rng.integers(0, 20 * MIB, hours.size)
            if namespace == "wild":
                memory = memory + 500 * MIB * (hours % 72 == 60)
            cpu = rng.integers(100_000, 400_000, hours.size)
            writer.usage(np.full(hours.size, container), times, cpu, memory.astype(np.int64))
            _autoscalers(writer, namespace, kind, f"w{number}")
    return path


def _autoscalers(writer: Writer, namespace: str, kind: str, workload: str) -> None:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": workload}
    utilization = {"type": "Utilization", "averageUtilization": 80}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": utilization}}
    for of, spec in (
        ("VerticalPodAutoscaler", {"targetRef": reference}),
        ("HorizontalPodAutoscaler", {"scaleTargetRef": reference, "maxReplicas": 9, "metrics": [metric]}),
    ):
        row = {"namespace": namespace, "name": f"of-{workload}", "object": {"spec": spec}}
        writer.row("objects", time=T0 * 1_000_000, event="ADDED", kind=of, **row)


def test_the_days_held_out_decide_and_workers_change_nothing(tide: Path) -> None:
    arguments: dict[str, Any] = {"objective": "memory", "budget": 18, "classes": "namespace"}
    found = tune(tide, **arguments)
    assert [each.workload_class for each in found] == ["calm", "wild"]
    for each in found:
        everyone = [each.defaults, *each.finalists]
        assert cost(each.chosen.held_out) == min(cost(one.held_out) for one in everyone)
        assert dict(each.defaults.numbers) == dict(space_of("vpa", "memory").defaults)
    calm = found[0]
    assert cost(calm.chosen.held_out) < cost(calm.defaults.held_out), "a calm memory needs less margin"
    again = tune(tide, **arguments, options=Options(workers=2))
    assert [table(each) for each in again] == [table(each) for each in found]


def test_train_and_held_out_are_counted_apart_and_together_make_the_whole(tide: Path) -> None:
    policy = [load_policy("vpa")]
    (train,) = run(tide, policy, Options(days=6, warmup_periods=1))
    (held_out,) = run(tide, policy, Options(warmup_periods=1, skipped_days=6))
    (whole,) = run(tide, policy, Options(warmup_periods=1))
    np.testing.assert_allclose(train.sums + held_out.sums, whole.sums, rtol=1e-12)
    assert values_of(train.sums, "memory") != values_of(held_out.sums, "memory")


def test_the_command_writes_a_policy_that_replays_and_what_puts_it_in_force(
    tide: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["tune", str(tide), "--objective", "memory", "--budget", "10", "--per", "namespace", "--workers", "1"]
    assert run_cli([*arguments, "--out", str(out), "--report", str(tmp_path / "r.html")]) == 0
    printed = capsys.readouterr().out
    assert "kubectl annotate vpa --all -n calm --overwrite kubetide.io/target-memory-percentile=" in printed
    content = (out / "calm.yaml").read_text()
    assert content.startswith("# kubectl annotate vpa")
    assert yaml.safe_load(content)["sizes"]["estimator"] == "vpa"
    assert load_policy(str(out / "calm.yaml")).name == "tuned-calm"
    html = (tmp_path / "r.html").read_text()
    assert "searched on" in html
    assert "held out" in html


def test_where_nothing_is_better_the_defaults_stay(tide: Path) -> None:
    (found,) = tune(tide, objective="memory", budget=2)
    stays = replace(found, chosen=found.defaults)
    assert "no candidate is better" in in_force(stays)[0]
    assert table(stays)[1][0][0] == "defaults ← chosen"


@pytest.mark.parametrize("days", [0, 8, 9])
def test_too_few_days_are_refused(tide: Path, days: int) -> None:
    with pytest.raises(InvalidInput, match="too few"):
        tune(tide, budget=2, held_out_days=days)


def test_a_class_by_kind_or_shape_is_put_in_force_by_its_own_vpas(tide: Path) -> None:
    for each in tune(tide, objective="memory", budget=10, classes="kind"):
        lines = in_force(replace(each, chosen=each.finalists[0]))
        names = {"Deployment": ["of-w0 of-w1 -n calm", "of-w2 -n wild"], "StatefulSet": ["of-w3 -n wild"]}
        for line, expected in zip(lines, names[each.workload_class], strict=False):
            assert line.startswith(f"kubectl annotate vpa {expected} --overwrite kubetide.io/target-memory-percentile=")
        assert lines[-1] == "# needs --per-vpa-tuning"


@pytest.fixture
def demand(tmp_path: Path) -> Path:
    """Two days of one service; on the second it needs more."""
    pytest.importorskip("pyarrow", reason="recordings need pyarrow: pip install 'kubetide[replay]'")
    pytest.importorskip("optuna", reason="tuning needs Optuna: pip install 'kubetide[tune]'")
    path = tmp_path / "a.tide"
    hours = np.arange(48)
    with Writer(path, Manifest(interval_seconds=HOUR, start=T0)) as writer:
        container = writer.container("shop", "Deployment", "web", "p", "app")
        cpu = 2_000_000 + 3_000_000 * (hours % 5 == 0) + 1_000_000 * (hours >= 24)
        writer.usage(np.full(48, container), (T0 + hours * HOUR) * 1_000_000, cpu, np.full(48, MIB))
        _autoscalers(writer, "shop", "Deployment", "web")
    return path


def test_replica_counts_are_tuned_with_patches_of_hpas(demand: Path) -> None:
    (found,) = tune(demand, objective="replicas", budget=2, classes="namespace", options=Options(warmup_periods=0))
    assert found.workload_class == "shop"
    assert dict(found.defaults.numbers) == {"target": 60.0, "window": 300.0}
    assert not np.isnan([found.chosen.train, found.chosen.held_out]).any()
    assert found.chosen.train != found.chosen.held_out
    lines = in_force(replace(found, chosen=replace(found.defaults)))
    assert [line.split(" -p ")[0] for line in lines] == ["kubectl patch hpa of-web -n shop --type merge"]
    assert '"averageUtilization":60' in lines[0]
    assert '"stabilizationWindowSeconds":300' in lines[0]
    assert yaml.safe_load(policy_file(found))["replicas"]["target"] == round(found.chosen.numbers["target"])


def test_a_search_that_was_interrupted_goes_on_with_what_it_knows(tide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {"objective": "memory", "budget": 17, "classes": "namespace"}
    expected = [table(each) for each in tune(tide, **arguments)]

    def interrupt(done: int, total: int) -> None:
        if done == 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(tide, **arguments, progress=interrupt)
    replayed: list[int] = []

    def counting(path: Path, policies: Any, *rest: Any, **more: Any) -> Any:
        replayed.append(len(policies))
        return run(path, policies, *rest, **more)

    monkeypatch.setattr("kubetide.replay.tune.run", counting)
    resumed = tune(tide, **arguments, options=Options(resume=True))
    assert [table(each) for each in resumed] == expected
    assert replayed[0] == 1, "sixteen of seventeen candidates were known"
    assert list(tide.parent.iterdir()) == [tide], "nothing is left behind"
    with pytest.raises(InvalidInput, match="nothing to resume"):
        tune(tide, **arguments, options=Options(resume=True))


def test_a_search_that_tried_nothing_keeps_nothing(tide: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("kubetide.replay.tune.run", interrupted)
    assert run_cli(["tune", str(tide), "--budget", "2"]) == 130
    assert list(tide.parent.iterdir()) == [tide]
    assert "--resume" not in capsys.readouterr().err


def test_a_recording_of_load_alone_that_does_not_say_its_end_is_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tide"
    with Writer(path, Manifest(interval_seconds=HOUR, start=T0)) as writer:
        for hour in range(72):
            at, value = (T0 + hour * HOUR) * 1_000_000, 2.0 + hour % 5
            writer.row("load", namespace="shop", workload="web", metric="demand_cores", time=at, value=value)
    expected = tune(path, objective="replicas", budget=2)
    silent = msgspec.structs.replace(Recording(path).manifest, end=0)
    monkeypatch.setattr("kubetide.recording.reader.read_manifest", lambda *_: silent)
    assert [table(each) for each in tune(path, objective="replicas", budget=2)] == [table(each) for each in expected]


def test_a_damaged_journal_is_one_line(tide: Path) -> None:
    tide.with_name(tide.name + ".tuning").write_bytes(b"no")
    with pytest.raises(InvalidInput, match="is damaged"):
        tune(tide, budget=2, options=Options(resume=True))
