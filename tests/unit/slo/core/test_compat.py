"""Versions: what an older one does not know is neither read nor written."""

import json
from typing import Any

import pytest

from kubetide.api.objects.core import Node
from kubetide.api.values.codec import convert
from kubetide.errors import SettingsError
from kubetide.slo.core import compat
from kubetide.slo.core.compat import FIELDS, NEWEST, RULES, parse_compat
from kubetide.slo.core.config import (
    COLOCATION_KEY,
    QOS_KEY,
    SYSTEM_KEY,
    THRESHOLD_KEY,
    AmplificationState,
    ColocationState,
    NodeSLOConfig,
    acceptance_problem,
)
from kubetide.slo.core.nodeslo import render
from kubetide.slo.core.validate import validate_configmap

NEW_TEXTS: dict[str, Any] = {
    THRESHOLD_KEY: {"clusterStrategy": {"cpuSuppressMinPercent": 5, "memoryAllocatableEvictLowerPercent": 90}},
    QOS_KEY: {"clusterStrategy": {"policies": {"netQOSPolicy": "tc"}}},
    SYSTEM_KEY: {"clusterStrategy": {"schedFeatures": {"cpuEvictLowerPercent": True}, "schedIdleSaverWmark": 1}},
}


def spec(version: str, **annotations: str) -> dict[str, Any]:
    data = {key: json.dumps(value) for key, value in NEW_TEXTS.items()}
    state, problems = NodeSLOConfig.initial(parse_compat(version)).updated(data)
    assert problems == ()
    named = {f"node.koordinator.sh/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return render(state, convert({"metadata": {"name": "n", "annotations": named}}, Node), None)


def test_a_nodeslo_has_the_fields_of_its_version_only() -> None:
    newest, oldest = spec("1.8"), spec("1.4")
    assert newest["resourceUsedThresholdWithBE"]["memoryAllocatableEvictLowerPercent"] == 90
    assert newest["systemStrategy"] == {
        "totalNetworkBandwidth": "0",
        "schedFeatures": {"cpuEvictLowerPercent": True},
        "schedIdleSaverWmark": 1,
    }
    text = json.dumps(oldest)
    assert [name for names in FIELDS.values() for name in names if name in text] == []
    assert oldest["systemStrategy"]["watermarkScaleFactor"] == 150
    assert "memoryAllocatableEvictLowerPercent" not in json.dumps(spec("1.7"))
    assert spec("1.7")["resourceUsedThresholdWithBE"]["cpuSuppressMinPercent"] == 5


def test_a_wrong_type_in_a_field_of_a_later_version_does_no_harm() -> None:
    data = {THRESHOLD_KEY: '{"clusterStrategy": {"enable": true, "cpuSuppressMinPercent": "much"}}'}
    assert NodeSLOConfig.initial(parse_compat("1.4")).updated(data)[1] == ()
    assert [problem.key for problem in NodeSLOConfig.initial().updated(data)[1]] == [THRESHOLD_KEY]


@pytest.mark.parametrize(
    ("version", "text", "expected"),
    [
        pytest.param("1.8", "20G", "20G", id="a-quantity"),
        pytest.param("1.8", "fast", "0", id="unreadable-text-says-nothing"),
        pytest.param("1.4", "20G", "0", id="not-before-1.5"),
    ],
)
def test_the_bandwidth_annotation_of_a_node_wins(version: str, text: str, expected: str) -> None:
    assert spec(version, network_bandwidth=text)["systemStrategy"]["totalNetworkBandwidth"] == expected


@pytest.mark.parametrize(
    ("field", "value", "refused"),
    [
        pytest.param("cpuReclaimThresholdPercent", 0, {"1.4", "1.7"}, id="reclaim-of-zero"),
        pytest.param("cpuReclaimThresholdPercent", -1, {"1.4", "1.7", "1.8"}, id="negative-reclaim"),
        pytest.param("midCPUThresholdPercent", 101, {"1.7", "1.8"}, id="mid-above-the-node"),
        pytest.param("batchCPUThresholdPercent", -1, {"1.4", "1.7", "1.8"}, id="negative-ceiling"),
        pytest.param("midStaticCPUReservedPercent", 300, set(), id="static-above-the-node"),
    ],
)
def test_what_the_controller_accepts(field: str, value: int, refused: set[str]) -> None:
    found = {each for each in ("1.4", "1.7", "1.8") if acceptance_problem({field: value}, parse_compat(each))}
    assert found == refused


def test_the_webhook_accepts_reclaim_above_100_from_1_7() -> None:
    data = {COLOCATION_KEY: '{"cpuReclaimThresholdPercent": 120}'}

    def allowed(version: str) -> bool:
        return validate_configmap(None, data, nodes=[], names_needed=False, compat=parse_compat(version)) is None

    assert (allowed("1.6"), allowed("1.7")) == (False, True)


def test_defaults_and_ratios_of_later_versions_are_absent_before() -> None:
    assert "midCPUThresholdPercent" not in ColocationState.initial(parse_compat("1.5")).config
    assert "midStaticCPUReservedPercent" not in ColocationState.initial(parse_compat("1.7")).config
    data = {"resource-amplification-config": '{"enable": true, "resourceAmplificationRatio": {"cpu": 2}}'}
    assert AmplificationState(compat=parse_compat("1.5")).updated(data)[0].config == {"enable": False}
    assert AmplificationState(compat=parse_compat("1.6")).updated(data)[0].config["enable"] is True


def test_rules_hold_from_their_version_on() -> None:
    assert [rule.id for rule in RULES if parse_compat("1.4").has(rule)] == []
    assert all(NEWEST.has(rule) for rule in RULES)
    assert (parse_compat("1.6").has(compat.MID_UNALLOCATED), parse_compat("1.6").has(compat.MID_CEILING)) == (
        True,
        False,
    )


@pytest.mark.parametrize("text", ["1.3", "1.9", "latest", ""])
def test_an_unknown_version_is_refused_by_name(text: str) -> None:
    with pytest.raises(SettingsError, match=r"compat.*1\.4, 1\.5, 1\.6, 1\.7, 1\.8"):
        parse_compat(text)
