"""Flags of the original, and values that cannot be used."""

from datetime import timedelta

import pytest

from kubetide.api.objects.hpa_compat import TOLERANCE
from kubetide.config import load, options
from kubetide.errors import SettingsError
from kubetide.hpa.settings import HpaSettings


def test_the_flags_of_upstream_are_kept() -> None:
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
    assert found.compat_rules.has(TOLERANCE)


def test_defaults_are_those_of_upstream() -> None:
    found = HpaSettings()
    assert found.downscale_stabilization == timedelta(minutes=5)
    assert str(found.compat_rules.version) == "1.37"
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
        {"hpa-prometheus": "prometheus:9090"},
        {"hpa-headroom-history": "0s"},
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused(flags: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        load(HpaSettings, flags=flags)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("HPAConfigurableTolerance=True", True),
        ("HPAConfigurableTolerance=0,HPAScaleToZero=true", False),
        ("HPAScaleToZero=true", True),
        ("HPAConfigurableTolerance=true,HPAConfigurableTolerance=false", False),
    ],
)
def test_gates_are_switched_by_name(text: str, expected: bool) -> None:
    found = load(HpaSettings, flags={"hpa-feature-gates": text, "compat": "1.35"})
    assert found.compat_rules.has(TOLERANCE) is expected


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param({"compat": "1.32"}, r"compat: '1.32' .*1\.33, 1\.34, 1\.35, 1\.36, 1\.37, 1\.38", id="too-old"),
        pytest.param({"compat": "newest"}, "compat: 'newest'", id="no-version"),
        pytest.param(
            {"hpa-feature-gates": "HPAConfigurableTolerance=false"},
            "hpa-feature-gates: HPAConfigurableTolerance is final since 1.37",
            id="locked",
        ),
        pytest.param(
            {"compat": "1.36", "hpa-feature-gates": "HPAGeneration=true"}, "unknown feature gate .* in 1.36", id="later"
        ),
        pytest.param(
            {"hpa-feature-gates": "PodLevelResources=false"}, "InPlacePodLevelResourcesVerticalScaling", id="dependent"
        ),
    ],
)
def test_what_a_release_would_refuse_is_refused(flags: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(HpaSettings, flags=flags)


def test_1_38_is_1_37() -> None:
    found = load(HpaSettings, flags={"compat": "v1.38.0"}).compat_rules
    assert found.gates == HpaSettings().compat_rules.gates


def test_every_setting_says_what_it_means() -> None:
    assert all(option.doc for option in options(HpaSettings))
