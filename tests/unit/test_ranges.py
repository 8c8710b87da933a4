"""Values that cannot be meant are refused, for every setting, from its declaration."""

import math
from datetime import timedelta

import pytest

from kubetide.cli.main import EXIT_USAGE, run_cli
from kubetide.config import Option, load, options
from kubetide.errors import SettingsError
from kubetide.settings import SECTIONS

ALL = [
    pytest.param(name, option, id=f"{name}.{option.name}") for name in SECTIONS for option in options(SECTIONS[name])
]
NUMBERS = [case for case in ALL if case.values[1].type in (int, float, timedelta)]  # type: ignore[union-attr]


@pytest.mark.parametrize(("section", "option"), ALL)
def test_every_default_lies_in_its_range(section: str, option: Option) -> None:
    assert option.check(option.default) == option.default


@pytest.mark.parametrize(("section", "option"), NUMBERS)
def test_a_number_outside_its_range_is_refused_with_the_flag(section: str, option: Option) -> None:
    outside = []
    if option.minimum is not None:
        outside.append(option.minimum - 1)
    if option.maximum is not None:
        outside.append(option.maximum + 1)
    if option.type is float:
        outside += [math.nan, math.inf]
    for value in outside:
        text = f"{value:g}s" if option.type is timedelta else f"{value:g}"
        with pytest.raises(SettingsError, match=f"--{option.flag}.*must be"):
            load(SECTIONS[section], flags={option.flag: text})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "recommender", "--target-cpu-percentile=90"], "must be between 0 and 1"),
        (["run", "recommender", "--storage=influx"], "prometheus"),
        (["run", "recommender", "--oom-bump-up-ratio=0.5"], "must be 1 or more"),
        (["run", "updater", "--eviction-tolerance=5"], "must be between 0 and 1"),
        (["run", "updater", "--updater-interval=-1m"], "must be 1 second or more"),
        (["run", "recommender", "--cpu-histogram-decay-half-life=0s"], "must be 1 second or more"),
        (["run", "recommender", "--update-worker-count=0"], "must be 1 or more"),
        (["run", "hpa", "--concurrent-horizontal-pod-autoscaler-syncs=0"], "must be 1 or more"),
        (["run", "admission", "--webhook-timeout-seconds=99"], "must be between 1 and 30"),
        (["run", "colocation", "--colocation.port=70000"], "must be between 0 and 65535"),
        (["run", "slo", "--growth-limit-percent=200"], "must be between 0 and 100"),
        (["node", "--cgroup-driver=docker"], "must be one of nothing, systemd, cgroupfs"),
        (["node", "--runtime-hooks-failure-policy=Maybe"], "must be one of Ignore, Fail"),
        (["run", "slo", "--noderesource-plugins=Nonsense"], "unknown 'Nonsense'; must be one of *, MidResource"),
        (["run", "slo", "--controllers=-Nonsense"], "unknown '-Nonsense'"),
        (["run", "slo", "--webhook-port=70000"], "must be between 0 and 65535"),
        (["run", "admission", "--min-tls-version=tls1_0"], "tls1_2"),
        (["run", "hpa", "--horizontal-pod-autoscaler-tolerance=nan"], "must be"),
        (["manifests", "hpa", "--replicas", "-3"], "--replicas"),
        (["node", "audit", "--limit", "-1"], "--limit"),
        (["node", "status", "--interval", "0"], "--interval"),
        (["node", "--qos-extension-plugins=nonsense=true"], "nonsense"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(words) == EXIT_USAGE
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
