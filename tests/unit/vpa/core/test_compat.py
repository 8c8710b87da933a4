"""Which rules hold under which release, and which features are on."""

import pytest

from kubetide.api.values.compat import Compat, Rule, rule_rows
from kubetide.errors import SettingsError
from kubetide.vpa.admission.settings import AdmissionSettings
from kubetide.vpa.core.compat import (
    CONTROLLED_RESOURCES,
    RESIZE_ERROR_DEFERRED,
    RULES,
    V1_7,
    V1_8,
    ZERO_COUNTERS,
    check_gates,
    compat_of,
    gate_enabled,
)
from kubetide.vpa.recommender.settings import RecommenderSettings
from kubetide.vpa.updater.settings import UpdaterSettings


@pytest.mark.parametrize(
    ("rule", "compat", "expected"),
    [
        pytest.param(CONTROLLED_RESOURCES, Compat(V1_7), False, id="stricter-checks-wait-for-their-release"),
        pytest.param(CONTROLLED_RESOURCES, Compat(V1_8), True, id="and-hold-from-there"),
        pytest.param(RESIZE_ERROR_DEFERRED, Compat(V1_7), True, id="a-fix-holds-everywhere"),
        pytest.param(RESIZE_ERROR_DEFERRED, Compat(V1_7, exactly=True), False, id="except-where-the-release-is-asked"),
        pytest.param(RESIZE_ERROR_DEFERRED, Compat(V1_8, exactly=True), True, id="that-has-it"),
        pytest.param(ZERO_COUNTERS, Compat(V1_7, exactly=True), True, id="an-addition-always-holds"),
    ],
)
def test_a_rule_holds_by_version(rule: Rule, compat: Compat, expected: bool) -> None:
    assert compat.has(rule) is expected


def test_the_newest_version_has_every_rule_and_every_rule_a_row() -> None:
    assert all(Compat(V1_8).has(rule) for rule in RULES)
    assert [row[0] for row in rule_rows(RULES)] == [rule.id for rule in RULES]


@pytest.mark.parametrize("text", ["1.7", "v1.7", "1.7.1"])
def test_a_release_may_be_spelt_as_people_do(text: str) -> None:
    assert compat_of(text).version == V1_7


@pytest.mark.parametrize("text", ["", "1.6", "2.0", "1.x", "1.7.1.2", "١.٧"])
def test_an_unknown_release_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"compatible with \(1\.7, 1\.8\)"):
        compat_of(text)


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        pytest.param((), False, id="off-by-default"),
        pytest.param(("InPlace=true",), True, id="by-name"),
        pytest.param(("InPlace=true", "InPlace=false"), False, id="the-last-mention-counts"),
        pytest.param(("AllAlpha=true",), True, id="by-group"),
        pytest.param(("InPlace=false", "AllAlpha=true"), False, id="a-name-beats-its-group"),
        pytest.param(("AllBeta=true",), False, id="another-group"),
    ],
)
def test_a_gate_is_switched_by_name_or_group(gates: tuple[str, ...], expected: bool) -> None:
    assert gate_enabled(gates, "InPlace") is expected


def test_a_gate_that_upstream_removed_is_on_and_accepted() -> None:
    check_gates(("InPlaceOrRecreate=false",), section="updater")
    assert gate_enabled(("InPlaceOrRecreate=false",), "InPlaceOrRecreate")


@pytest.mark.parametrize("gate", ["InPlase=true", "InPlace", "InPlace=maybe"])
@pytest.mark.parametrize("kind", [RecommenderSettings, UpdaterSettings, AdmissionSettings])
def test_a_gate_that_cannot_be_used_ends_the_start(
    gate: str, kind: type[RecommenderSettings | UpdaterSettings | AdmissionSettings]
) -> None:
    with pytest.raises(SettingsError, match="feature_gates"):
        kind(feature_gates=(gate,)).checked()
