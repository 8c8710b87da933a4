"""What is wrong with a VPA object, and where."""

from typing import Any

import pytest

from kubetide.api.objects.admission import AdmissionRequest
from kubetide.api.values.compat import Compat
from kubetide.testing.builders import make_vpa
from kubetide.vpa.admission.core.review import answer_vpa
from kubetide.vpa.admission.core.validate import AUTO_WARNING, Gates, default_patch, validate, warnings
from kubetide.vpa.core.compat import V1_8

ALL = Gates(
    in_place=True,
    per_vpa_config=True,
    cpu_startup_boost=True,
    request_to_limit_ratio=True,
    pod_level=True,
    scope=True,
)


def vpa(**spec: Any) -> dict[str, Any]:
    made = make_vpa("web", target="web", mode="Recreate")
    made["spec"].update(spec)
    return {**made, "spec": {key: value for key, value in made["spec"].items() if value is not None}}


def policy(**entry: Any) -> dict[str, Any]:
    return vpa(resourcePolicy={"containerPolicies": [{"containerName": "main", **entry}]})


FIRST = "spec.resourcePolicy.containerPolicies[0]"


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        pytest.param(vpa(updatePolicy={}), "spec.updatePolicy.updateMode", "is required", id="mode-missing"),
        pytest.param(
            vpa(updatePolicy={"updateMode": "auto"}), "spec.updatePolicy.updateMode", "unexpected UpdateMode", id="mode"
        ),
        pytest.param(
            vpa(updatePolicy={"updateMode": "Off", "minReplicas": 0}),
            "spec.updatePolicy.minReplicas",
            "has to be positive, got 0",
            id="min-replicas",
        ),
        pytest.param(vpa(targetRef=None), "spec.targetRef", "TargetRef is required", id="no-target"),
        pytest.param(
            vpa(recommenders=[{"name": "a"}, {"name": "b"}]), "spec.recommenders", "more than one", id="recommenders"
        ),
        pytest.param(policy(containerName=""), f"{FIRST}.containerName", "is required", id="no-name"),
        pytest.param(policy(mode="On"), f"{FIRST}.mode", "unexpected Mode value On", id="scaling-mode"),
        pytest.param(
            policy(minAllowed={"cpu": "250u"}),
            f"{FIRST}.minAllowed[cpu]",
            "MinAllowed: CPU [250u]",
            id="half-a-millicore",
        ),
        pytest.param(
            policy(maxAllowed={"memory": "1500m"}), f"{FIRST}.maxAllowed[memory]", "whole number of bytes", id="bytes"
        ),
        pytest.param(
            policy(minAllowed={"cpu": "2"}, maxAllowed={"cpu": "1"}),
            f"{FIRST}.maxAllowed[cpu]",
            "lower than min",
            id="max-below-min",
        ),
        pytest.param(
            policy(minAllowed={"cpu": "lots"}), f"{FIRST}.minAllowed[cpu]", "not a quantity", id="no-quantity"
        ),
        pytest.param(
            policy(mode="Off", controlledValues="RequestsAndLimits"),
            f"{FIRST}.controlledValues",
            "scaling mode is off",
            id="values-of-nothing",
        ),
        pytest.param(
            vpa(updatePolicy={"updateMode": "InPlace"}),
            "spec.updatePolicy.updateMode",
            "feature gate InPlace",
            id="gate",
        ),
        pytest.param(policy(oomBumpUpRatio="1.5"), f"{FIRST}.oomBumpUpRatio", "PerVPAConfig", id="gate-of-tuning"),
        pytest.param(
            vpa(startupBoost={"cpu": {"type": "Factor", "factor": 2}}),
            "spec.startupBoost",
            "CPUStartupBoost",
            id="boost",
        ),
    ],
)
def test_a_mistake_names_its_field(given: dict[str, Any], field: str, words: str) -> None:
    found = {error.field: error.message for error in validate(given, creating=True)}
    assert words in found[field]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param(policy(oomBumpUpRatio="0.5"), f"{FIRST}.oomBumpUpRatio", id="ratio-below-one"),
        pytest.param(policy(oomMinBumpUp="-1"), f"{FIRST}.oomMinBumpUp", id="negative-bump"),
        pytest.param(
            policy(memoryAggregationIntervalCount=0), f"{FIRST}.memoryAggregationIntervalCount", id="no-interval"
        ),
        pytest.param(
            vpa(startupBoost={"cpu": {"type": "Factor", "factor": 0}}), "spec.startupBoost.cpu.factor", id="factor"
        ),
        pytest.param(
            vpa(startupBoost={"cpu": {"type": "Quantity", "quantity": "250u"}}),
            "spec.startupBoost.cpu.quantity",
            id="boost",
        ),
        pytest.param(vpa(startupBoost={"cpu": {"type": "Other"}}), "spec.startupBoost.cpu.type", id="boost-type"),
        pytest.param(
            vpa(updatePolicy={"updateMode": "Off", "evictAfterOOMSeconds": 0}),
            "spec.updatePolicy.evictAfterOOMSeconds",
            id="oom-seconds",
        ),
    ],
)
def test_gated_fields_are_checked_when_their_gate_is_open(given: dict[str, Any], field: str) -> None:
    assert field in {error.field for error in validate(given, creating=True, gates=ALL)}


def test_what_an_object_uses_already_may_stay_when_its_gate_is_closed() -> None:
    old = policy(oomBumpUpRatio="1.5")
    old["spec"]["updatePolicy"] = {"updateMode": "InPlace"}
    assert validate(old, creating=False, old=old) == ()
    assert len(validate(old, creating=False)) == 2


def test_all_mistakes_are_told_at_once() -> None:
    wrong = policy(mode="On", minAllowed={"cpu": "250u"})
    wrong["spec"]["updatePolicy"] = {"updateMode": "Never", "minReplicas": -1}
    assert len(validate(wrong, creating=True)) == 4


def test_an_update_need_not_name_a_target() -> None:
    assert validate(vpa(targetRef=None), creating=False) == ()


def test_a_missing_update_policy_is_filled_in() -> None:
    given = vpa(updatePolicy=None)
    assert validate(given, creating=True) == ()
    assert default_patch(given) == [
        {"op": "add", "path": "/spec/updatePolicy", "value": {"updateMode": "Recreate"}},
    ]
    assert default_patch(vpa()) == []


def test_mode_auto_is_accepted_with_a_warning() -> None:
    given = vpa(updatePolicy={"updateMode": "Auto"})
    assert validate(given, creating=True) == ()
    assert "deprecated" in warnings(given)[0].message
    assert warnings(vpa()) == ()


def test_warnings_come_with_the_answer_that_refuses_too() -> None:
    asked = AdmissionRequest(uid="1", name="web", operation="CREATE")
    for given, allowed in (({}, True), ({"minReplicas": 0}, False)):
        answer = answer_vpa(asked, vpa(updatePolicy={"updateMode": "Auto", **given}), None, Gates())["response"]
        assert (answer["allowed"], answer["warnings"]) == (allowed, [AUTO_WARNING])


def controlling(*names: str) -> dict[str, Any]:
    return vpa(resourcePolicy={"containerPolicies": [{"containerName": "app", "controlledResources": list(names)}]})


@pytest.mark.parametrize(
    ("old", "gates", "errors", "warned"),
    [
        pytest.param(None, Gates(), 0, 0, id="before-1.8-anything-goes"),
        pytest.param(None, Gates(compat=Compat(V1_8)), 1, 0, id="new-objects-are-refused"),
        pytest.param(("nvidia.com/gpu",), Gates(compat=Compat(V1_8)), 0, 1, id="stored-names-are-kept"),
        pytest.param(("cpu",), Gates(compat=Compat(V1_8)), 1, 0, id="other-stored-names-do-not-help"),
    ],
)
def test_only_cpu_and_memory_can_be_controlled(
    old: tuple[str, ...] | None, gates: Gates, errors: int, warned: int
) -> None:
    given, stored = controlling("cpu", "nvidia.com/gpu"), None if old is None else controlling(*old)
    found = validate(given, creating=old is None, old=stored, gates=gates)
    assert [error.field.rsplit(".", 1)[-1] for error in found] == ["controlledResources[1]"] * errors
    assert len(warnings(given, old=stored, gates=gates)) == warned


@pytest.mark.parametrize("spec", [None, [], "x", {"updatePolicy": "Auto"}, {"resourcePolicy": [1]}])
def test_nonsense_is_no_crash(spec: Any) -> None:
    validate({"spec": spec}, creating=True)


def ratio(**cpu: Any) -> dict[str, Any]:
    return policy(requestToLimitRatio={"cpu": cpu})


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param(ratio(type="Percentage", percentage=150), None, id="half-as-much-again"),
        pytest.param(ratio(type="Quantity", quantity="200m"), None, id="a-quantity-more"),
        pytest.param(ratio(type="Percentage", percentage=99), "cpu.percentage", id="below-the-request"),
        pytest.param(ratio(type="Percentage"), "cpu.percentage", id="no-percentage"),
        pytest.param(ratio(type="Quantity"), "cpu.quantity", id="no-quantity"),
        pytest.param(ratio(type="Quantity", quantity="-1"), "cpu.quantity", id="less"),
        pytest.param(ratio(type="Percentage", percentage=150, quantity="1"), "cpu.quantity", id="both"),
        pytest.param(ratio(type="Factor"), "cpu.type", id="unknown-type"),
        pytest.param(policy(requestToLimitRatio={"gpu": {}}), "gpu", id="unknown-resource"),
    ],
)
def test_a_limit_policy_has_the_value_of_its_type(given: dict[str, Any], field: str | None) -> None:
    found = [error.field for error in validate(given, creating=True, gates=ALL)]
    assert found == ([] if field is None else [f"{FIRST}.requestToLimitRatio.{field}"])


@pytest.mark.parametrize(
    ("given", "gates", "reasons"),
    [
        pytest.param(ratio(type="Percentage", percentage=150), Gates(), ["FieldValueForbidden"], id="limits-off"),
        pytest.param(
            policy(recommendationPercentiles={"targetCPU": 99}), Gates(), ["FieldValueForbidden"], id="percentiles-off"
        ),
        pytest.param(policy(recommendationPercentiles={"targetCPU": 99}), ALL, [], id="percentiles-on"),
        pytest.param(
            policy(recommendationPercentiles={"targetCPU": 0}), ALL, ["FieldValueInvalid"], id="percentile-out-of-range"
        ),
    ],
)
def test_proposed_fields_need_their_gate(given: dict[str, Any], gates: Gates, reasons: list[str]) -> None:
    assert [error.reason for error in validate(given, creating=True, gates=gates)] == reasons
    assert validate(given, creating=False, old=given, gates=Gates()) == () or "FieldValueInvalid" in reasons


AGENT = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent"}
POD_POLICY = "spec.resourcePolicy.podPolicy"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param(vpa(scope="pool"), "spec.scope", id="scope-without-a-daemon-set"),
        pytest.param(vpa(scope="no key!", targetRef=AGENT), "spec.scope", id="scope-is-no-label"),
        pytest.param(vpa(resourcePolicy={"podPolicy": {"mode": "On"}}), f"{POD_POLICY}.mode", id="pod-mode"),
        pytest.param(
            vpa(resourcePolicy={"podPolicy": {"minAllowed": {"cpu": "2"}, "maxAllowed": {"cpu": "1"}}}),
            f"{POD_POLICY}.maxAllowed[cpu]",
            id="pod-max-below-min",
        ),
        pytest.param(
            vpa(resourcePolicy={"podPolicy": {"controlledResources": ["gpu"]}}),
            f"{POD_POLICY}.controlledResources[0]",
            id="pod-resource",
        ),
    ],
)
def test_proposed_fields_are_checked(given: dict[str, Any], field: str) -> None:
    assert [mistake.field for mistake in validate(given, creating=True, gates=ALL)] == [field]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param(vpa(scope="pool", targetRef=AGENT), "spec.scope", id="scope"),
        pytest.param(vpa(resourcePolicy={"podPolicy": {"mode": "Auto"}}), POD_POLICY, id="pod-policy"),
        pytest.param(policy(mode="RecommendationOnly"), f"{FIRST}.mode", id="recommendation-only"),
    ],
)
def test_proposed_fields_need_their_gate_unless_they_are_in_use(given: dict[str, Any], field: str) -> None:
    assert [mistake.field for mistake in validate(given, creating=True)] == [field]
    assert validate(given, creating=False, old=given) == ()
    assert validate(given, creating=True, gates=ALL) == ()
