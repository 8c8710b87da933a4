"""Policies from names and files; what is wrong in a file is one line."""

from pathlib import Path

import pytest

from kubetide.cli.main import EXIT_USAGE, run_cli
from kubetide.errors import InvalidInput
from kubetide.replay.runs import load_policy, with_cadence


@pytest.mark.parametrize(
    ("name", "has"),
    [
        *(
            (each, "sizes")
            for each in ("current", "vpa", "krr", "peak", "static", "adaptive", "adaptive-one", "oracle")
        ),
        *((each, "replicas") for each in ("hpa:60", "hpa:1000", "headroom", "headroom-safe")),
    ],
)
def test_policies_that_need_no_file(name: str, has: str) -> None:
    found = load_policy(name)
    assert found.name == name
    assert getattr(found, has) is not None


def test_a_file_with_both_parts(tmp_path: Path) -> None:
    path = tmp_path / "careful.yaml"
    path.write_text(
        "sizes:\n  estimator: vpa\n  numbers: {target_cpu: 0.95, cpu_half_life: 12h, margin: 0.2}\n"
        "  update: {every: 1h, when: bounds, change: 0.2, cooldown: 12h, by: in-place}\n"
        "replicas:\n  target: 70\n  max: 50\n  behavior: {scaleDown: {stabilizationWindowSeconds: 60}}\n"
    )
    found = load_policy(str(path))
    assert found.name == "careful"
    assert found.every_seconds == 3600
    assert found.replicas is not None
    assert found.replicas.behavior is not None
    assert found.replicas.behavior.scale_down is not None
    assert found.replicas.behavior.scale_down.stabilization_window_seconds == 60
    assert with_cadence(found, "5m").every_seconds == 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[]", "Expected `object`, got `array`", id="no-object"),
        pytest.param("{}", "has neither sizes nor replicas", id="nothing"),
        pytest.param(
            "sizes: {estimator: magic}",
            "sizes.estimator: Invalid enum value 'magic': it is one of current, vpa, krr",
            id="estimator",
        ),
        *(
            pytest.param(
                f"sizes: {{estimator: krr, numbers: {{{name}: {value}}}}}",
                f"sizes.numbers.{name}: {why}",
                id=f"{name}-{value}",
            )
            for name, value, why in (
                ("days", "week", "'week' is not a number"),
                ("days", -3, "must be above 0 and at most 366"),
                ("days", ".nan", "must be above 0 and at most 366"),
                ("percentile", 5, "must be above 0 and at most 1"),
                ("factor", 0, "must be above 0 and at most 100"),
            )
        ),
        pytest.param(
            "sizes: {estimator: vpa, numbers: {margin: .inf}}",
            "sizes.numbers.margin: must be a finite number, not below 0",
            id="infinite-margin",
        ),
        pytest.param(
            "sizes: {estimator: vpa, numbers: {interval_count: 0}}",
            "sizes.numbers.interval_count: must be a whole number above 0",
            id="no-window",
        ),
        pytest.param("sizes: {estimator: vpa, nmbers: {}}", "unknown field `nmbers`", id="unknown-field"),
        pytest.param(
            "sizes: {estimator: vpa, numbers: {p: 1}}",
            "sizes.numbers.p: vpa has no such number",
            id="number",
        ),
        pytest.param(
            "sizes: {estimator: vpa, numbers: {target_cpu: 2}}",
            "sizes.numbers.target_cpu: must be above 0 and at most 1",
            id="percentile",
        ),
        pytest.param(
            "sizes: {estimator: vpa, numbers: {margin: a}}",
            "sizes.numbers.margin: 'a' is not a number",
            id="text",
        ),
        pytest.param(
            "sizes: {estimator: vpa, numbers: {interval: soon}}",
            "sizes.numbers.interval: 'soon' is not a duration",
            id="duration",
        ),
        pytest.param(
            "sizes: {estimator: krr, update: {every: daily}}",
            "sizes.update.every: 'daily' is not a duration",
            id="every",
        ),
        pytest.param(
            "sizes: {estimator: krr, update: {when: bounds}}",
            "sizes.update.when: krr has no bounds",
            id="bounds",
        ),
        pytest.param("replicas: {min: 1}", "replicas: needs one of target, headroom and recorded", id="no-target"),
        pytest.param("replicas: {target: 0}", "replicas.target: must be between 1 and 1000", id="target"),
        pytest.param("replicas: {target: 60, min: 5, max: 4}", "replicas.max: is below min 5", id="range"),
        pytest.param("a: [", "is not YAML", id="no-yaml"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    assert run_cli(["replay", "none.tide", "--policy", str(path)]) == EXIT_USAGE
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="neither a file nor one of current, vpa, krr"):
        load_policy("magic")


HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 12
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}
  behavior: {scaleDown: {stabilizationWindowSeconds: 60, tolerance: "0.2"}}
"""


def test_the_manifest_of_an_hpa_is_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(HPA)
    policy = load_policy(str(path))
    assert policy.name == "web"
    found = policy.replicas
    assert found is not None
    assert (found.target, found.min, found.max) == (70, 2, 12)
    assert found.behavior is not None
    assert found.behavior.scale_down is not None
    assert found.behavior.scale_down.stabilization_window_seconds == 60


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: cpu", "name: memory", "web spec.metrics: a replay needs one metric, CPU with averageUtilization"),
        ("maxReplicas: 12", "maxReplicas: 1", "web replicas.max: is below min 2"),
        ("maxReplicas: 12", "maxReplicas: many", r"web spec\.maxReplicas: Expected `int`"),
    ],
)
def test_an_hpa_that_cannot_be_replayed_says_why(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(HPA.replace(old, new))
    with pytest.raises(InvalidInput, match=message):
        load_policy(str(path))
