"""HPA defaults, the v1 view and the way back, on raw objects."""

import copy
import json
from typing import Any

import pytest

from kubetide.api.objects import hpa_annotations as v1
from kubetide.api.objects import hpa_versions
from kubetide.api.objects.hpa_compat import hpa_compat

Raw = dict[str, Any]


def hpa(version: str = "autoscaling/v2", *, annotations: Raw | None = None, **spec: Any) -> Raw:
    metadata: Raw = {"name": "web", "namespace": "shop"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {
        "apiVersion": version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5, **spec},
    }


MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}


@pytest.mark.parametrize("metrics", [pytest.param(None, id="absent"), pytest.param([], id="empty")])
def test_no_metrics_means_eighty_percent_of_cpu(metrics: list[Raw] | None) -> None:
    obj = hpa(metrics=metrics)
    hpa_versions.default_v2(obj)
    assert obj["spec"]["metrics"] == [hpa_versions.cpu_metric(80)]
    assert obj["spec"]["minReplicas"] == 1


def test_an_absent_behavior_stays_absent_and_an_empty_one_is_filled() -> None:
    absent, empty = hpa(), hpa(behavior={})
    hpa_versions.default_v2(absent)
    hpa_versions.default_v2(empty)
    assert "behavior" not in absent["spec"]
    assert empty["spec"]["behavior"]["scaleUp"] == hpa_versions.DEFAULT_SCALE_UP
    assert "stabilizationWindowSeconds" not in empty["spec"]["behavior"]["scaleDown"]


def test_given_rules_replace_defaults_field_by_field_and_policies_as_a_whole() -> None:
    policies = [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    obj = hpa(behavior={"scaleUp": {"policies": policies}})
    hpa_versions.default_v2(obj)
    up = obj["spec"]["behavior"]["scaleUp"]
    assert up["policies"] == policies
    assert up["selectPolicy"] == "Max"
    assert up["stabilizationWindowSeconds"] == 0


def test_the_first_cpu_percentage_becomes_the_v1_field_and_the_rest_an_annotation() -> None:
    stored = hpa_versions.to_v2(hpa(metrics=[MEMORY, hpa_versions.cpu_metric(60), hpa_versions.cpu_metric(70)]))
    shown = hpa_versions.v1_from_v2(stored)
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 60
    assert json.loads(shown["metadata"]["annotations"][v1.METRICS]) == [
        {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}
    ]


def test_coming_back_from_v1_the_cpu_metric_is_the_last() -> None:
    stored = hpa_versions.to_v2(hpa(metrics=[hpa_versions.cpu_metric(60), MEMORY]))
    back = hpa_versions.to_v2(hpa_versions.v1_from_v2(copy.deepcopy(stored)))
    assert back["spec"]["metrics"] == [MEMORY, hpa_versions.cpu_metric(60)]
    assert "annotations" not in back["metadata"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("not json", id="not-json"),
        pytest.param('{"not": "a list"}', id="not-a-list"),
        pytest.param('[{"type": 7}]', id="wrong-type"),
        pytest.param(
            '[{"type": "Pods", "pods": {"metricName": "q", "targetAverageValue": "lots"}}]', id="not-a-quantity"
        ),
    ],
)
def test_annotations_that_cannot_be_read_are_ignored(text: str) -> None:
    stored = hpa_versions.to_v2(hpa("autoscaling/v1", annotations={v1.METRICS: text, "team": "red"}))
    assert stored["spec"]["metrics"] == [hpa_versions.cpu_metric(80)]
    assert stored["metadata"]["annotations"] == {"team": "red"}


def test_annotation_keys_match_in_any_case() -> None:
    text = '[{"TYPE": "Pods", "PODS": {"MetricName": "rps", "targetaveragevalue": "10"}}]'
    stored = hpa_versions.to_v2(hpa("autoscaling/v1", annotations={v1.METRICS: text}))
    assert stored["spec"]["metrics"] == [
        {
            "type": "Pods",
            "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}},
        }
    ]


def test_a_total_of_zero_next_to_an_average_says_nothing() -> None:
    source = (
        '{"target": {"kind": "Ingress", "name": "main"}, "metricName": "q", "averageValue": "3", "targetValue": "0"}'
    )
    text = f'[{{"type": "Object", "object": {source}}}]'
    stored = hpa_versions.to_v2(hpa("autoscaling/v1", annotations={v1.METRICS: text}))
    assert stored["spec"]["metrics"][0]["object"]["target"] == {"type": "AverageValue", "averageValue": "3"}


@pytest.mark.parametrize(
    ("gate", "stored_uses_it", "kept"),
    [
        pytest.param(False, False, False, id="off-drops"),
        pytest.param(True, False, True, id="on-keeps"),
        pytest.param(False, True, True, id="off-keeps-what-is-stored"),
    ],
)
def test_tolerance_follows_its_gate(gate: bool, stored_uses_it: bool, kept: bool) -> None:
    behavior = {"scaleUp": {"tolerance": "0.2"}}
    obj = hpa_versions.to_v2(hpa(behavior=copy.deepcopy(behavior)))
    old = hpa_versions.to_v2(hpa(behavior=copy.deepcopy(behavior) if stored_uses_it else {}))
    hpa_versions.drop_disabled(obj, hpa_compat("1.36", [("HPAConfigurableTolerance", gate)]), old=old)
    assert ("tolerance" in obj["spec"]["behavior"]["scaleUp"]) is kept


def test_the_current_cpu_percentage_is_the_last_one_reported() -> None:
    obj = hpa_versions.to_v2(hpa())
    obj["status"] = {
        "currentReplicas": 2,
        "desiredReplicas": 2,
        "currentMetrics": [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}}
            for percent in (10, 20)
        ],
    }
    assert hpa_versions.v1_from_v2(obj)["status"]["currentCPUUtilizationPercentage"] == 20


@pytest.mark.parametrize("number", [3_000_000_000, -3_000_000_000, 50.0, "50"])
def test_a_number_that_is_no_int32_makes_the_annotation_unreadable(number: Any) -> None:
    source = {"name": "memory", "targetAverageUtilization": number}
    assert v1.read_specs(json.dumps([{"type": "Resource", "resource": source}])) is None
    policy = {"type": "Pods", "value": number, "periodSeconds": 60}
    assert v1.read_behavior(json.dumps({"scaleUp": {"policies": [policy]}})) is None


def test_times_in_annotations_are_whole_seconds_of_utc() -> None:
    text = json.dumps([{"type": "AbleToScale", "lastTransitionTime": "2026-01-02T04:04:05.678+01:00"}])
    found = v1.read_conditions(text)
    assert found is not None
    assert [one["lastTransitionTime"] for one in found] == ["2026-01-02T03:04:05Z"]


@pytest.mark.parametrize("spec", [None, {}])
def test_an_object_without_a_spec_is_read_in_either_version(spec: Raw | None) -> None:
    for version in (hpa_versions.V1, hpa_versions.V2):
        whole = hpa_versions.to_v2({"apiVersion": version, "metadata": {"name": "web"}, "spec": spec})
        assert whole["spec"]["minReplicas"] == 1
        assert hpa_versions.v1_from_v2(whole)["spec"]["targetCPUUtilizationPercentage"] == 80


def test_members_of_lists_that_are_null_are_empty_ones() -> None:
    obj = {"apiVersion": hpa_versions.V2, "spec": {"metrics": [None], "behavior": {"scaleUp": {"policies": [None]}}}}
    obj["status"] = {"currentMetrics": [None]}
    whole = hpa_versions.to_v2(obj)
    assert whole["spec"]["metrics"] == whole["status"]["currentMetrics"] == [{"type": ""}]
    texts = hpa_versions.v1_from_v2(whole)["metadata"]["annotations"]
    assert json.loads(texts[v1.METRICS]) == json.loads(texts[v1.CURRENT_METRICS]) == [{"type": ""}]
    assert json.loads(texts[v1.BEHAVIOR])["ScaleUp"]["Policies"] == [{"Type": "", "Value": 0, "PeriodSeconds": 0}]


def test_a_settled_object_is_served_in_canonical_form() -> None:
    target = {"type": "AverageValue", "averageValue": "1.5"}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    obj = hpa(metrics=metrics, annotations={v1.METRICS: "[]", "team": "red"})
    hpa_versions.settle_v2(obj)
    assert obj["spec"]["metrics"][0]["resource"]["target"]["averageValue"] == "1500m"
    assert obj["metadata"]["annotations"] == {"team": "red"}
    obj["spec"]["metrics"][0]["resource"]["target"]["averageValue"] = "much"
    hpa_versions.settle_v2(obj)
    assert obj["spec"]["metrics"][0]["resource"]["target"]["averageValue"] == "much"


@pytest.mark.parametrize(
    ("version", "change", "generation"),
    [
        pytest.param("1.37", {}, 4, id="same-spec"),
        pytest.param("1.37", {"maxReplicas": 99}, 5, id="changed-spec"),
        pytest.param("1.36", {"maxReplicas": 99}, 4, id="older-releases-do-not-count"),
    ],
)
def test_generation_counts_changes_of_the_spec(version: str, change: dict[str, Any], generation: int) -> None:
    old, new = hpa_versions.to_v2(hpa()), hpa_versions.to_v2(hpa(**change))
    old["metadata"]["generation"], new["metadata"]["generation"] = 4, 77
    hpa_versions.count_generation(new, hpa_compat(version), old=old)
    assert new["metadata"]["generation"] == generation


def test_an_amount_spelt_otherwise_is_no_change() -> None:
    def with_amount(text: str) -> dict[str, Any]:
        target = {"type": "AverageValue", "averageValue": text}
        return hpa_versions.to_v2(hpa(metrics=[{"type": "Resource", "resource": {"name": "memory", "target": target}}]))

    old, new = with_amount("1Gi"), with_amount("1073741824")
    hpa_versions.count_generation(old, hpa_compat())
    hpa_versions.count_generation(new, hpa_compat(), old=old)
    assert (old["metadata"]["generation"], new["metadata"]["generation"]) == (1, 1)
