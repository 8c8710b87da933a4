"""More CPU while a pod starts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import parse_quantity
from kubetide.testing.builders import make_container, make_pod, make_vpa
from kubetide.vpa.admission.core.mutate import amounts_of, fit_pod
from kubetide.vpa.core.boost import boost, boosted_containers, expired, has_boost, unboost
from kubetide.vpa.core.limits import LimitItem, NamespaceLimits
from kubetide.vpa.core.policy import amounts, texts

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
DOUBLE = {"cpu": {"type": "Factor", "factor": 2, "durationSeconds": 60}}


def vpa(startup: dict[str, Any] | None, *, mode: str = "Recreate", **given: Any) -> VerticalPodAutoscaler:
    raw = make_vpa("web", mode=mode, **given)
    raw["spec"]["startupBoost"] = startup
    return convert(raw, VerticalPodAutoscaler)


def boosted(given: VerticalPodAutoscaler, maximum: str | None = None, **resources: str) -> dict[str, dict[str, str]]:
    pod = convert(make_pod("p", containers=[make_container(**resources)]), Pod)
    fitted = fit_pod(pod, given, NamespaceLimits())
    largest = parse_quantity(maximum) if maximum else None
    found = boost(given, amounts_of(pod), fitted.containers, NamespaceLimits(), maximum=largest)
    (container,) = found.containers
    return {"requests": texts(container.requests), "limits": texts(container.limits)}


RECOMMENDED: dict[str, Any] = {"recommendation": {"main": {"cpu": "300m"}}}


@pytest.mark.parametrize(
    ("given", "maximum", "resources", "requests", "limits"),
    [
        pytest.param(vpa(DOUBLE, **RECOMMENDED), None, {"cpu": "100m"}, "600m", None, id="twice-the-recommendation"),
        pytest.param(vpa(DOUBLE), None, {"cpu": "100m"}, "200m", None, id="or-twice-the-request"),
        pytest.param(vpa(DOUBLE, mode="Off", **RECOMMENDED), None, {"cpu": "100m"}, "200m", None, id="off-boosts-only"),
        pytest.param(
            vpa({"cpu": {"type": "Quantity", "quantity": "50m"}}), None, {"cpu": "100m"}, "150m", None, id="quantity"
        ),
        pytest.param(vpa(DOUBLE), "150m", {"cpu": "100m"}, "150m", None, id="capped"),
        pytest.param(vpa(DOUBLE), None, {"cpu": "100m", "cpu_limit": "300m"}, "200m", "600m", id="limit-follows"),
        pytest.param(
            vpa(DOUBLE, policies=[{"containerName": "*", "controlledValues": "RequestsOnly"}]),
            None,
            {"cpu": "100m", "cpu_limit": "150m"},
            "149m",
            None,
            id="requests-only-stays-below-the-limit",
        ),
        pytest.param(
            vpa(DOUBLE, policies=[{"containerName": "*", "mode": "Off"}]), None, {"cpu": "100m"}, None, None, id="off"
        ),
        pytest.param(vpa({}), None, {"cpu": "100m"}, None, None, id="nothing-said-about-cpu"),
        pytest.param(vpa(DOUBLE), None, {}, None, None, id="nothing-to-start-from"),
    ],
)
def test_a_new_pod_gets_more_cpu(
    given: VerticalPodAutoscaler,
    maximum: str | None,
    resources: dict[str, str],
    requests: str | None,
    limits: str | None,
) -> None:
    found = boosted(given, maximum, **resources)
    assert found["requests"].get("cpu") == requests
    assert found["limits"].get("cpu") == limits


def test_a_container_policy_wins_over_the_pod() -> None:
    own = {"containerName": "main", "startupBoost": {"cpu": {"type": "Factor", "factor": 5}}}
    assert boosted(vpa(DOUBLE, policies=[own]), cpu="100m")["requests"]["cpu"] == "500m"


def running(ready_for: float | None, note: str = '{"requests":{"cpu":"100m"},"limits":{}}') -> Pod:
    raw = make_pod("p", containers=[make_container(cpu="200m")], annotations={"vpaCpuStartupBoost/main": note})
    condition: dict[str, Any] = {"type": "Ready", "status": "False" if ready_for is None else "True"}
    if ready_for is not None:
        condition["lastTransitionTime"] = NOW - timedelta(seconds=ready_for)
    raw.setdefault("status", {})["conditions"] = [condition]
    return convert(raw, Pod)


@pytest.mark.parametrize(
    ("ready_for", "startup", "over"),
    [
        pytest.param(None, DOUBLE, False, id="not-ready"),
        pytest.param(30, DOUBLE, False, id="not-long-enough"),
        pytest.param(61, DOUBLE, True, id="long-enough"),
        pytest.param(0, {"cpu": {"type": "Factor", "factor": 2}}, True, id="no-duration"),
    ],
)
def test_a_boost_ends_when_the_pod_has_been_ready(ready_for: float | None, startup: dict[str, Any], over: bool) -> None:
    assert expired(running(ready_for), vpa(startup), now=NOW) is over


def test_a_boost_is_taken_back() -> None:
    pod = running(99)
    assert boosted_containers(pod) == ("main",)
    plain = vpa(DOUBLE)
    (back,) = unboost(pod, plain, fit_pod(pod, plain, NamespaceLimits()).containers)
    assert texts(back.requests) == {"cpu": "100m"}
    recommending = vpa(DOUBLE, **RECOMMENDED)
    (back,) = unboost(pod, recommending, fit_pod(pod, recommending, NamespaceLimits()).containers)
    assert texts(back.requests) == {"cpu": "300m"}


def test_a_note_that_somebody_spoiled_changes_nothing() -> None:
    pod = running(99, note="{")
    (back,) = unboost(pod, vpa(DOUBLE), fit_pod(pod, vpa(DOUBLE), NamespaceLimits()).containers)
    assert not back.requests


def test_only_a_boost_of_cpu_counts() -> None:
    assert has_boost(vpa(DOUBLE))
    assert not has_boost(vpa({}))
    assert not has_boost(vpa(None))


def test_a_boost_above_the_limit_that_it_would_get_is_left_out() -> None:
    # The namespace gives a limit that is below what the container asks for: the limit in proportion stays below too.
    ranges = NamespaceLimits(container=LimitItem(default=amounts({"cpu": "50m"})))
    pod = convert(make_pod("p", containers=[make_container(cpu="100m")]), Pod)
    given = vpa(DOUBLE)
    found = boost(given, amounts_of(pod), fit_pod(pod, given, ranges).containers, ranges)
    assert found.notes == {}
    assert not found.containers[0].requests
