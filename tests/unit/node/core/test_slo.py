"""A NodeSLO as the agent uses it."""

from typing import Any

import pytest

from kubetide.node.core import slo


def test_a_missing_nodeslo_is_all_defaults_and_off() -> None:
    spec = slo.complete_spec(None)
    assert spec.resource_used_threshold_with_be is not None
    assert spec.resource_used_threshold_with_be.cpu_suppress_threshold_percent == 65
    assert spec.resource_qos_strategy is not None
    be = spec.resource_qos_strategy.be_class
    assert be is not None
    assert be.cpu_qos is not None
    assert be.cpu_qos.group_identity == 0


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        pytest.param(None, None, id="no-block"),
        pytest.param({}, None, id="missing"),
        pytest.param({"enable": None}, None, id="null"),
        pytest.param({"enable": False}, False, id="off"),
        pytest.param({"enable": True}, True, id="on"),
    ],
)
def test_the_switch_of_best_effort_work_is_on_off_or_not_said(block: Any, expected: bool | None) -> None:
    threshold = slo.complete_spec({"resourceUsedThresholdWithBE": block}).resource_used_threshold_with_be
    assert threshold is not None
    assert threshold.enable is expected
    assert threshold.cpu_suppress_threshold_percent == 65


def test_a_disabled_feature_carries_the_off_values() -> None:
    given = {"resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": False, "groupIdentity": 2}}}}
    assert slo.complete(given)["resourceQOSStrategy"]["beClass"]["cpuQOS"]["groupIdentity"] == 0


def test_the_system_class_keeps_its_values_although_it_is_off() -> None:
    memory = {"memoryQOS": {"enable": False, "wmarkRatio": 60}}
    classes = slo.complete({"resourceQOSStrategy": {"systemClass": memory, "lsClass": memory}})["resourceQOSStrategy"]
    assert classes["systemClass"]["memoryQOS"]["wmarkRatio"] == 60
    assert classes["lsClass"]["memoryQOS"]["wmarkRatio"] == 0


def test_an_enabled_feature_is_completed_from_the_defaults() -> None:
    given = {"resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": True}}}}
    assert slo.complete(given)["resourceQOSStrategy"]["beClass"]["cpuQOS"]["groupIdentity"] == -1


def test_parts_that_are_not_known_survive_and_nothing_given_is_changed() -> None:
    given = {"extensions": {"Object": {"x": 1}}, "cpuBurstStrategy": {"policy": "auto"}}
    completed = slo.complete(given)
    assert completed["extensions"] == {"Object": {"x": 1}}
    assert completed["cpuBurstStrategy"]["cpuBurstPercent"] == 1000
    assert given["cpuBurstStrategy"] == {"policy": "auto"}
