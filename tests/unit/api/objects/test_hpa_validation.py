"""Which autoscalers are refused, and where the error is."""

from typing import Any

import pytest

from kubetide.api.objects import hpa_versions
from kubetide.api.objects.hpa_compat import hpa_compat
from kubetide.api.objects.hpa_status_validation import validate_status
from kubetide.api.objects.hpa_validation import validate

Raw = dict[str, Any]
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
WITHOUT_ZERO = hpa_compat("1.37", [("HPAScaleToZero", False)])


def hpa(**spec: Any) -> Raw:
    obj: Raw = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 5, **spec},
    }
    hpa_versions.default_v2(obj)
    return obj


def pods(**target: Any) -> Raw:
    return {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", **target}}}


def found(obj: Raw, **options: Any) -> set[tuple[str, str]]:
    return {(problem.field, problem.type.removeprefix("FieldValue")) for problem in validate(obj, **options)}


def test_a_plain_autoscaler_is_fine() -> None:
    assert found(hpa()) == set()


@pytest.mark.parametrize(
    ("spec", "field", "kind"),
    [
        pytest.param({"minReplicas": -1}, "spec.minReplicas", "Invalid", id="minimum-below-zero"),
        pytest.param({"maxReplicas": 0}, "spec.maxReplicas", "Required", id="maximum-of-zero"),
        pytest.param({"minReplicas": 9}, "spec.maxReplicas", "Invalid", id="minimum-above-maximum"),
        pytest.param(
            {"scaleTargetRef": {"kind": "Deployment"}}, "spec.scaleTargetRef.name", "Required", id="target-without-name"
        ),
        pytest.param(
            {"scaleTargetRef": {"kind": "a/b", "name": "x"}}, "spec.scaleTargetRef.kind", "Invalid", id="slash-in-kind"
        ),
        pytest.param({"metrics": [{"type": "Pods"}]}, "spec.metrics[0].pods", "Required", id="source-missing"),
        pytest.param(
            {"metrics": [pods()]}, "spec.metrics[0].pods.target.averageValue", "Required", id="pods-without-average"
        ),
        pytest.param(
            {"metrics": [pods(averageValue="0")]},
            "spec.metrics[0].pods.target.averageValue",
            "Invalid",
            id="average-of-zero",
        ),
        pytest.param(
            {"behavior": {"scaleUp": {"policies": []}}}, "spec.behavior.scaleUp.policies", "Required", id="no-policies"
        ),
        pytest.param(
            {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 3601}}},
            "spec.behavior.scaleDown.stabilizationWindowSeconds",
            "Invalid",
            id="window-too-long",
        ),
        pytest.param(
            {"behavior": {"scaleDown": {"tolerance": "-1"}}},
            "spec.behavior.scaleDown.tolerance",
            "Invalid",
            id="negative-tolerance",
        ),
    ],
)
def test_a_broken_rule_is_named(spec: Raw, field: str, kind: str) -> None:
    assert (field, kind) in found(hpa(**spec))


def test_a_second_source_is_forbidden_and_not_looked_into() -> None:
    metric = {**pods(averageValue="1"), "external": {"metric": {"name": ""}, "target": {}}}
    assert found(hpa(metrics=[metric])) == {
        ("spec.metrics[0].external", "Forbidden"),
        ("spec.metrics[0].external.metric.name", "Required"),
        ("spec.metrics[0].external.target.type", "Required"),
        ("spec.metrics[0].external.target.type", "Invalid"),
        ("spec.metrics[0].external.target.averageValue", "Required"),
    }


def test_zero_replicas_need_the_gate_and_a_metric_from_outside() -> None:
    external = {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "1"}}}
    zero = hpa(minReplicas=0, metrics=[external])
    assert found(zero) == set()
    assert found(hpa(minReplicas=0)) == {("spec.metrics", "Forbidden")}
    assert found(zero, compat=WITHOUT_ZERO) == {("spec.minReplicas", "Invalid")}
    assert found(zero, compat=WITHOUT_ZERO, old={"spec": {"minReplicas": 0}}) == set()


@pytest.mark.parametrize(
    ("reference", "valid"),
    [
        pytest.param({**TARGET, "apiVersion": "v1"}, False, id="no-group"),
        pytest.param({**TARGET, "apiVersion": "/v1"}, False, id="empty-group"),
        pytest.param({**TARGET, "apiVersion": "a/b/c"}, False, id="malformed"),
        pytest.param({"kind": "Deployment", "name": "web"}, False, id="absent"),
        pytest.param({"kind": "ReplicationController", "name": "web"}, True, id="core-controller"),
        pytest.param({**TARGET, "kind": "ReplicationController", "apiVersion": "a/b/c"}, False, id="core-malformed"),
    ],
)
def test_the_target_must_name_its_group(reference: Raw, valid: bool) -> None:
    broken = hpa(scaleTargetRef=reference)
    wrong = {("spec.scaleTargetRef.apiVersion", "Invalid")}
    assert found(broken) == (set() if valid else wrong)
    assert found(broken, old=broken) == set(), "what is stored stays editable"
    assert found(broken, compat=hpa_compat("1.33")) == set()


def test_a_described_object_stored_with_a_bad_version_stays_editable() -> None:
    source = {"metric": {"name": "q"}, "target": {"type": "Value", "value": "1"}}
    metric = {"type": "Object", "object": {**source, "describedObject": {**TARGET, "apiVersion": "a/b/c"}}}
    broken = hpa(metrics=[metric])
    assert found(broken) == {("spec.metrics[0].object.describedObject.apiVersion", "Invalid")}
    assert found(broken, old=broken) == set()


def test_an_unknown_type_is_reported_twice_until_1_36() -> None:
    odd = hpa(metrics=[{"type": "Magic"}])
    for version, times in (("1.36", 2), ("1.37", 1)):
        problems = validate(odd, compat=hpa_compat(version))
        assert [one.type for one in problems] == ["FieldValueNotSupported"] * times


def test_a_condition_cannot_be_about_a_negative_generation() -> None:
    raw = {"status": {"conditions": [{"type": "AbleToScale", "status": "True", "observedGeneration": -1}]}}
    assert [one.field for one in validate_status(raw)] == ["status.conditions[0].observedGeneration"]
    assert validate_status(raw, hpa_compat("1.36")) == []


def test_negative_counts_in_status_are_refused() -> None:
    assert [p.field for p in validate_status({"status": {"currentReplicas": -1, "desiredReplicas": 1}})] == [
        "status.currentReplicas"
    ]


def shown(**current: Any) -> Raw:
    return {"currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]}


@pytest.mark.parametrize(
    ("status", "field"),
    [
        pytest.param({"desiredReplicas": "three"}, "status", id="a-count-that-is-a-text"),
        pytest.param({"currentMetrics": {}}, "status", id="metrics-that-are-an-object"),
        pytest.param(
            {"currentMetrics": [{"type": "Resource", "resource": 5}]}, "status", id="a-source-that-is-a-number"
        ),
        pytest.param(shown(averageValue=[]), "status", id="an-amount-that-is-a-list"),
        pytest.param(shown(averageValue="much"), "status.currentMetrics[0]", id="an-amount-that-is-no-quantity"),
        pytest.param({"conditions": ["fine"]}, "status", id="a-condition-that-is-a-text"),
        pytest.param({"lastScaleTime": "lately"}, "status", id="a-time-that-is-none"),
    ],
)
def test_a_status_that_nobody_could_read_is_refused(status: Raw, field: str) -> None:
    assert [problem.field for problem in validate_status({"status": status})] == [field]


def test_a_status_as_it_is_written_is_fine() -> None:
    status = {**shown(averageValue="5m", averageUtilization=3), "conditions": [{"type": "ScalingActive"}]}
    assert validate_status({"status": {**status, "currentReplicas": 1, "lastScaleTime": None}}) == []
    assert validate_status({"status": None}) == validate_status({}) == []


def test_a_policy_that_is_null_is_an_empty_one() -> None:
    behavior = {"scaleUp": {"policies": [None]}}
    fields = {problem.field.rpartition(".")[2] for problem in validate(hpa(behavior=behavior))}
    assert fields == {"type", "value", "periodSeconds"}


def measured(name: str, container: str = "app") -> list[Raw]:
    target = {"type": "Utilization", "averageUtilization": 50}
    source = {"name": name, "container": container, "target": target}
    return [{"type": "ContainerResource", "containerResource": source}]


@pytest.mark.parametrize(
    ("name", "problems"),
    [
        pytest.param("cpu", 0, id="of-containers"),
        pytest.param("hugepages-2Mi", 0, id="huge-pages"),
        pytest.param("nvidia.com/gpu", 0, id="extended"),
        pytest.param("kubernetes.io/batch-cpu", 0, id="with-the-native-prefix"),
        pytest.param("pods", 1, id="of-quotas"),
        pytest.param("requests.hugepages-2Mi", 1, id="huge-pages-of-quotas"),
        pytest.param("requests.nvidia.com/gpu", 1, id="extended-of-quotas"),
        pytest.param("hugepages-", 1, id="huge-pages-of-no-size"),
        pytest.param("CPU", 2, id="neither-standard-nor-qualified"),
        pytest.param("bad name", 2, id="no-name-at-all"),
        pytest.param("x" * 64, 2, id="too-long"),
        pytest.param("a/b/c", 2, id="two-prefixes"),
        pytest.param("/x", 2, id="an-empty-prefix"),
        pytest.param("A.com/x", 2, id="a-prefix-that-is-no-domain"),
        pytest.param("x/", 3, id="a-prefix-alone"),
        pytest.param("/", 4, id="a-slash-alone"),
    ],
)
def test_names_of_container_resources_are_counted_as_a_real_server_counts(name: str, problems: int) -> None:
    found = validate(hpa(metrics=measured(name)))
    assert {(problem.field, problem.type) for problem in found} <= {
        ("spec.metrics[0].containerResource.name", "FieldValueInvalid")
    }
    assert len(found) == problems


def test_a_container_may_break_both_rules_of_labels() -> None:
    found = validate(hpa(metrics=measured("cpu", "A" * 70)))
    assert [problem.field for problem in found] == ["spec.metrics[0].containerResource.container"] * 2
