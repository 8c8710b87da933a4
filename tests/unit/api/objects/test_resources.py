"""What a pod asks for in all."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.resources import add, format_list, maximum, parse_list, pod_requests, subtract
from kubetide.api.values.codec import convert
from kubetide.api.values.conditions import Condition, is_true, set_condition, without_condition


def container(cpu: str, limit: str | None = None, **more: Any) -> dict[str, Any]:
    limits = {} if limit is None else {"limits": {"cpu": limit}}
    return {"name": "c", "resources": {"requests": {"cpu": cpu}, **limits}, **more}


def pod(containers: list[dict[str, Any]], init: list[dict[str, Any]] | None = None, **spec: Any) -> Pod:
    return convert({"spec": {"containers": containers, "initContainers": init or [], **spec}}, Pod)


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("given", "cpu"),
    [
        pytest.param(pod([container("1"), container("500m")]), "1500m", id="sum"),
        pytest.param(pod([container("1")], [container("3")]), "3", id="init-needs-more"),
        pytest.param(pod([container("1")], [container("1", **SIDECAR)]), "2", id="sidecar-runs-beside"),
        pytest.param(
            pod([container("1")], [container("1", **SIDECAR), container("2")]), "3", id="init-beside-earlier-sidecar"
        ),
        pytest.param(
            pod([container("1")], [container("3"), container("1", **SIDECAR)]), "3", id="init-before-the-sidecar"
        ),
        pytest.param(pod([container("1")], overhead={"cpu": "250m"}), "1250m", id="overhead"),
        pytest.param(pod([container("1")], resources={"requests": {"cpu": "5"}}), "5", id="pod-level-wins"),
    ],
)
def test_what_must_be_reserved(given: Pod, cpu: str) -> None:
    assert format_list(pod_requests(given)) == {"cpu": cpu}


def test_lists_add_subtract_and_compare_by_resource() -> None:
    one, other = parse_list({"cpu": "1", "memory": "1Gi"}), parse_list({"cpu": "2"})
    assert format_list(add(one, other)) == {"cpu": "3", "memory": "1Gi"}
    assert format_list(subtract(other, one)) == {"cpu": "1", "memory": "-1Gi"}
    assert format_list(maximum(one, other)) == {"cpu": "2", "memory": "1Gi"}


def test_a_condition_keeps_its_age_while_its_status_stays() -> None:
    first, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    other = Condition(type="Other", status="True")
    one = set_condition((other,), "Able", "True", reason="A", message="", now=first)
    same = set_condition(one, "Able", "True", reason="B", message="m", now=later)
    flipped = set_condition(same, "Able", "False", reason="C", message="", now=later)
    assert [condition.type for condition in flipped] == ["Other", "Able"]
    assert same[1].last_transition_time == first
    assert flipped[1].last_transition_time == later
    assert is_true(same, "Able")
    assert not is_true(flipped, "Able")
    assert without_condition(one, "Other") == one[1:]
