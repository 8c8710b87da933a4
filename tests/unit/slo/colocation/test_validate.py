"""Which pods are refused, and what the answer says; required labels; GPU shorthands."""

from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.values.codec import convert
from kubetide.slo.colocation.core import gpu
from kubetide.slo.colocation.core.required_labels import SKIP_LABEL, RequiredLabels
from kubetide.slo.colocation.core.validate import violations
from kubetide.slo.core.compat import parse_compat

Raw = dict[str, Any]


def pod(value: int | None = None, cpu: str | None = "2", *, batch: str = "", **labels: str) -> Pod:
    requests = {**({"cpu": cpu} if cpu else {}), **({"kubernetes.io/batch-cpu": batch} if batch else {})}
    named = {f"koordinator.sh/{name.replace('_', '-')}": text for name, text in labels.items()}
    spec: Raw = {"containers": [{"name": "c", "resources": {"requests": requests}}], "priority": value}
    return convert({"metadata": {"name": "p", "labels": named}, "spec": spec}, Pod)


def rules(new: Pod, old: Pod | None = None, **options: bool) -> set[str]:
    return {each.rule for each in violations(new, old, **options)}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(pod(), set(), id="plain"),
        pytest.param(pod(5500, qosClass="BE", batch="10"), set(), id="batch"),
        pytest.param(pod(5500, qosClass="LS", batch="10"), {"batch-resources-need-be"}, id="batch-resources-on-ls"),
        pytest.param(pod(5500, qosClass="LS", batch="0"), set(), id="zero-is-no-request"),
        pytest.param(pod(9500, qosClass="BE"), {"qos-and-priority-class"}, id="be-of-prod"),
        pytest.param(pod(qosClass="LSR"), {"qos-and-priority-class"}, id="lsr-without-priority"),
        pytest.param(pod(9500, qosClass="LSR", cpu=None), {"cpu-required"}, id="lsr-without-cpu"),
        pytest.param(pod(9500, qosClass="LSE", cpu="1500m"), {"whole-cpus-required"}, id="lse-with-half-a-cpu"),
        pytest.param(
            pod(5500, qosClass="LSR", cpu="100m"), {"qos-and-priority-class", "whole-cpus-required"}, id="all-at-once"
        ),
    ],
)
def test_qos_priority_and_resources_must_fit(new: Pod, expected: set[str]) -> None:
    assert rules(new) == expected


def test_the_answer_reports_what_a_chart_that_sets_only_the_class_lacks() -> None:
    (found,) = violations(pod(qosClass="LSR"), None)
    assert "set priorityClassName" in found.message


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(pod(9100, qosClass="LS", priority="1"), set(), id="same-band"),
        pytest.param(pod(9500, qosClass="SYSTEM", priority="1"), {"qos-class-immutable"}, id="qos"),
        pytest.param(pod(7500, qosClass="LS", priority="1"), {"priority-class-immutable"}, id="priority"),
        pytest.param(pod(9500, qosClass="LS"), {"sub-priority-immutable"}, id="sub-priority"),
    ],
)
def test_classes_cannot_change(new: Pod, expected: set[str]) -> None:
    old = pod(9500, qosClass="LS", priority="1")
    assert rules(new, old) == expected
    assert rules(new, old, check_sub_priority=False) == expected - {"sub-priority-immutable"}


CONFIG = {"enable": " True ", "rules": '[{"name": "r", "requiredLabels": ["team"], "namespaceWhitelist": ["sys"]}]'}


@pytest.mark.parametrize(
    ("data", "namespace", "labels", "version", "allowed"),
    [
        pytest.param(CONFIG, "shop", {}, "1.8", False, id="missing"),
        pytest.param(CONFIG, "shop", {"team": ""}, "1.8", True, id="any-value-will-do"),
        pytest.param(CONFIG, "sys", {}, "1.8", True, id="whitelisted"),
        pytest.param(CONFIG, "shop", {SKIP_LABEL: "true"}, "1.8", True, id="skipped"),
        pytest.param(CONFIG, "shop", {SKIP_LABEL: "true"}, "1.7", False, id="not-before-1.8"),
        pytest.param({**CONFIG, "enable": "yes"}, "shop", {}, "1.8", True, id="off"),
        pytest.param(None, "shop", {}, "1.8", True, id="no-configmap"),
    ],
)
def test_required_labels(
    data: dict[str, str] | None, namespace: str, labels: dict[str, str], version: str, allowed: bool
) -> None:
    found, error = RequiredLabels().updated(data)
    assert error is None
    assert (found.problems(namespace, labels, parse_compat(version)) == ()) is allowed


def test_rules_that_cannot_be_read_leave_the_old_ones_in_force() -> None:
    good, _ = RequiredLabels().updated(CONFIG)
    found, error = good.updated({"enable": "true", "rules": "[{"})
    assert found is good
    assert error is not None


def expanded(requests: Raw, limits: Raw | None = None) -> Raw:
    named = {f"koordinator.sh/{name}": value for name, value in requests.items()}
    resources = {"requests": named, **({"limits": limits} if limits is not None else {})}
    found = gpu.expand({"spec": {"containers": [{"name": "c", "resources": resources}]}})
    resources = found["spec"]["containers"][0]["resources"]
    assert resources.get("limits", resources["requests"]) == resources["requests"]
    return {name.removeprefix("koordinator.sh/"): value for name, value in resources["requests"].items()}


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"gpu": "50"}, {"gpu-core": "50", "gpu-memory-ratio": "50", "gpu.shared": "1"}),
        ({"gpu": "200"}, {"gpu-core": "200", "gpu-memory-ratio": "200", "gpu.shared": "2"}),
        ({"gpu-core": "300", "gpu-memory": "8Gi"}, {"gpu-core": "300", "gpu-memory": "8Gi", "gpu.shared": "3"}),
        ({"gpu-memory-ratio": "150"}, {"gpu-memory-ratio": "150", "gpu.shared": "1"}),
        ({"gpu-core": "100", "gpu.shared": "2"}, {"gpu-core": "100", "gpu.shared": "2"}),
        ({"rdma": "1"}, {"rdma": "1"}),
    ],
)
def test_gpu_shorthands(requests: Raw, expected: Raw) -> None:
    assert expanded(requests) == expected


@pytest.mark.parametrize(
    ("requests", "count"),
    [
        ({"gpu": "150"}, 1),
        ({"gpu": "0"}, 1),
        ({"gpu": "100", "gpu.shared": "1"}, 2),
        ({"gpu.shared": "2", "gpu-core": "100", "gpu-memory-ratio": "100"}, 0),
        ({"gpu.shared": "3", "gpu-core": "100", "gpu-memory": "1Gi"}, 1),
        ({"gpu.shared": "2", "gpu-core": "100", "gpu-memory": "1Gi", "gpu-memory-ratio": "100"}, 1),
    ],
)
def test_gpu_requests_that_cannot_be_met_are_named(requests: Raw, count: int) -> None:
    named = {f"koordinator.sh/{name}": value for name, value in requests.items()}
    pod = {"spec": {"containers": [{"name": "c", "resources": {"requests": named}}]}}
    assert len(list(gpu.problems(pod))) == count
