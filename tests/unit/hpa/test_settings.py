"""Flags of the original, and values that cannot be used."""

from datetime import timedelta

import pytest

from kubetide.config import load, options
from kubetide.errors import SettingsError
from kubetide.hpa.settings import HpaSettings


def test_the_flags_of_the_original_are_kept() -> None:
    found = load(
        HpaSettings,
        flags={
            "horizontal-pod-autoscaler-sync-period": "30s",
            "horizontal-pod-autoscaler-tolerance": "0.2",
            "horizontal-pod-autoscaler-downscale-stabilization": "10m",
            "horizontal-pod-autoscaler-cpu-initialization-period": "1m",
            "horizontal-pod-autoscaler-initial-readiness-delay": "10s",
            "concurrent-horizontal-pod-autoscaler-syncs": "9",
            "hpa-feature-gates": "HPAConfigurableTolerance=true",
        },
    )
    assert found.sync_period == timedelta(seconds=30)
    assert (found.tolerance, found.workers) == (0.2, 9)
    assert found.configurable_tolerance


def test_defaults_are_those_of_the_original() -> None:
    found = HpaSettings()
    assert found.downscale_stabilization == timedelta(minutes=5)
    assert not found.configurable_tolerance
    assert found.leader_elect_resource_name == "kubetide-hpa"


@pytest.mark.parametrize(
    "flags",
    [
        {"concurrent-horizontal-pod-autoscaler-syncs": "0"},
        {"horizontal-pod-autoscaler-sync-period": "0s"},
        {"horizontal-pod-autoscaler-tolerance": "-0.1"},
        {"horizontal-pod-autoscaler-tolerance": "nan"},
        {"horizontal-pod-autoscaler-downscale-stabilization": "-1s"},
        {"horizontal-pod-autoscaler-initial-readiness-delay": "-1s"},
        {"hpa-feature-gates": "HPAConfigurableTolerence=true"},
        {"hpa-feature-gates": "HPAConfigurableTolerance=maybe"},
        {"hpa-feature-gates": "HPAConfigurableTolerance"},
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused(flags: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        load(HpaSettings, flags=flags)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("HPAConfigurableTolerance=True", True),
        ("HPAConfigurableTolerance=1,HPAScaleToZero=false", True),
        ("HPAScaleToZero=true", False),
        ("HPAConfigurableTolerance=true,HPAConfigurableTolerance=false", False),
    ],
)
def test_gates_are_switched_by_name(text: str, expected: bool) -> None:
    assert load(HpaSettings, flags={"hpa-feature-gates": text}).configurable_tolerance is expected


def test_every_setting_says_what_it_means() -> None:
    assert all(option.doc for option in options(HpaSettings))
