"""A pod and its recommendation to a patch."""

from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.api.values.patch import JsonPatch
from kubetide.errors import InvalidInput
from kubetide.testing.builders import make_container, make_pod, make_vpa
from kubetide.vpa.admission.core.mutate import UNLIMITED, SizeLimits, fit_pod, pod_patch
from kubetide.vpa.core.limits import LimitItem, NamespaceLimits
from kubetide.vpa.core.policy import amounts

MIB = 2**20


def vpa(target: dict[str, str], **given: Any) -> VerticalPodAutoscaler:
    return convert(make_vpa("web", recommendation={"main": target}, mode="Recreate", **given), VerticalPodAutoscaler)


def patched(raw: dict[str, Any], given: VerticalPodAutoscaler, limits: SizeLimits = UNLIMITED) -> dict[str, Any]:
    pod = convert(raw, Pod)
    fitted = fit_pod(pod, given, NamespaceLimits(), limits)
    patch = pod_patch(pod, fitted.containers, mode="Recreate", vpa_name=given.metadata.name)
    return JsonPatch(patch.operations).apply(raw)


def resources(raw: dict[str, Any]) -> dict[str, Any]:
    return dict(raw["spec"]["containers"][0]["resources"])


def test_requests_are_replaced_and_limits_keep_their_proportion() -> None:
    raw = make_pod("p", containers=[make_container(cpu="100m", memory="100Mi", cpu_limit="200m")])
    after = patched(raw, vpa({"cpu": "300m", "memory": "200Mi"}))
    assert resources(after) == {"requests": {"cpu": "300m", "memory": "200Mi"}, "limits": {"cpu": "600m"}}
    assert after["metadata"]["annotations"]["vpaObservedContainers"] == "main"
    assert after["metadata"]["annotations"]["vpaUpdates"].startswith("Pod resources updated by web: container 0: ")


def test_a_container_without_resources_gets_some() -> None:
    after = patched(make_pod("p", containers=[make_container()]), vpa({"cpu": "300m"}))
    assert resources(after) == {"requests": {"cpu": "300m"}}


def test_other_resources_and_other_containers_stay() -> None:
    gpu = make_container(cpu="100m", requests={"example.com/gpu": "1"}, limits={"example.com/gpu": "1"})
    raw = make_pod("p", containers=[gpu, make_container("side", cpu="10m")], annotations={"mine": "1"})
    after = patched(raw, vpa({"cpu": "300m"}))
    assert resources(after)["requests"] == {"cpu": "300m", "example.com/gpu": "1"}
    assert after["spec"]["containers"][1] == raw["spec"]["containers"][1]
    assert after["metadata"]["annotations"]["mine"] == "1"


def test_init_containers_and_sidecars_are_never_touched() -> None:
    raw = make_pod("p", containers=[make_container(cpu="100m")])
    raw["spec"]["initContainers"] = [make_container(cpu="5m"), {**make_container("s"), "restartPolicy": "Always"}]
    after = patched(raw, vpa({"cpu": "300m"}))
    assert after["spec"]["initContainers"] == raw["spec"]["initContainers"]


def test_requests_only_leaves_limits_and_stays_below_them() -> None:
    raw = make_pod("p", containers=[make_container(cpu="100m", cpu_limit="200m")])
    policies = [{"containerName": "*", "controlledValues": "RequestsOnly"}]
    assert resources(patched(raw, vpa({"cpu": "300m"}, policies=policies))) == {
        "requests": {"cpu": "200m"},
        "limits": {"cpu": "200m"},
    }


def test_a_container_that_the_server_would_refuse_is_left_alone_and_reports_it() -> None:
    # The limit is below the LimitRange's default for requests: rounding down makes limit < request.
    raw = make_pod("p", containers=[make_container(cpu="3m", cpu_limit="3m", memory="2", memory_limit="1Gi")])
    raw["spec"]["containers"][0]["resources"]["requests"].pop("cpu")
    raw["spec"]["containers"][0]["resources"]["requests"]["example.com/x"] = "5"
    raw["spec"]["containers"][0]["resources"]["limits"]["example.com/x"] = "1"
    after = patched(raw, vpa({"memory": "100Mi"}))
    assert resources(after) == resources(raw)
    assert "not changed, example.com/x request would exceed its limit" in after["metadata"]["annotations"]["vpaUpdates"]


def test_memory_in_use_is_kept() -> None:
    raw = make_pod("p", containers=[make_container(cpu="100m", memory="1Gi")])
    after = patched(raw, vpa({"cpu": "100m", "memory": "300Mi"}), SizeLimits(usage={"main": 500 * MIB}))
    assert resources(after)["requests"]["memory"] == "600Mi"
    assert "memory kept at usage plus 20%" in after["metadata"]["annotations"]["vpaUpdates"]


def test_a_pod_is_not_made_larger_than_the_largest_node() -> None:
    raw = make_pod("p", containers=[make_container(cpu="1"), make_container("side", cpu="1")])
    limits = SizeLimits(nodes=[amounts({"cpu": "8", "memory": "8Gi"})])
    after = patched(raw, vpa({"cpu": "20"}), limits)
    assert resources(after)["requests"]["cpu"] == "7"
    assert "capped to what the largest node offers" in after["metadata"]["annotations"]["vpaUpdates"]


def test_without_a_recommendation_only_the_note_is_left() -> None:
    raw = make_pod("p", containers=[make_container(cpu="100m")])
    given = convert(make_vpa("web", mode="Recreate"), VerticalPodAutoscaler)
    after = patched(raw, given)
    assert resources(after) == resources(raw)
    assert after["metadata"]["annotations"] == {"vpaObservedContainers": "main"}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(vpa({"cpu": "-100m"}), id="recommendation"),
        pytest.param(
            vpa({"cpu": "100m"}, policies=[{"containerName": "*", "maxAllowed": {"cpu": "-1"}}]), id="maximum"
        ),
    ],
)
def test_amounts_below_nothing_are_not_written(given: VerticalPodAutoscaler) -> None:
    pod = convert(make_pod("p", containers=[make_container(cpu="100m")]), Pod)
    with pytest.raises(InvalidInput, match="container main would get cpu -"):
        fit_pod(pod, given, NamespaceLimits())


def test_sums_that_cancel_out_are_left_alone_by_a_pod_limit_range() -> None:
    containers = [make_container(name, cpu="100m", cpu_limit="200m") for name in ("a", "b")]
    pod = convert(make_pod("p", containers=containers), Pod)
    raw = make_vpa("web", recommendation={"a": {"cpu": "-100m"}, "b": {"cpu": "100m"}}, mode="Recreate")
    ranges = NamespaceLimits(pod=LimitItem(minimum=amounts({"cpu": "1"})))
    with pytest.raises(InvalidInput, match="container a would get cpu -"):
        fit_pod(pod, convert(raw, VerticalPodAutoscaler), ranges)


@pytest.mark.parametrize(
    ("rule", "gate", "limit"),
    [
        pytest.param({"type": "Percentage", "percentage": 150}, True, "450m", id="a-share-of-the-request"),
        pytest.param({"type": "Quantity", "quantity": "1"}, True, "1300m", id="an-amount-more"),
        pytest.param({"type": "Percentage", "percentage": 150}, False, "600m", id="gate-off-keeps-the-proportion"),
        pytest.param({"type": "Factor"}, True, "600m", id="unknown-type-keeps-the-proportion"),
    ],
)
def test_a_policy_may_derive_the_limit_from_the_request(rule: dict[str, Any], gate: bool, limit: str) -> None:
    raw = make_pod("p", containers=[make_container(cpu="100m", cpu_limit="200m")])
    entry = {"containerName": "main", "requestToLimitRatio": {"cpu": rule}}
    made = make_vpa("web", recommendation={"main": {"cpu": "300m"}}, mode="Recreate")
    made["spec"]["resourcePolicy"] = {"containerPolicies": [entry]}
    after = patched(raw, convert(made, VerticalPodAutoscaler), SizeLimits(limit_ratio=gate))
    assert resources(after) == {"requests": {"cpu": "300m"}, "limits": {"cpu": limit}}


def test_a_derived_limit_stays_within_the_limit_range_and_needs_no_limit_before() -> None:
    raw = make_pod("p", containers=[make_container(cpu="100m")])
    entry = {"containerName": "main", "requestToLimitRatio": {"cpu": {"type": "Percentage", "percentage": 500}}}
    made = make_vpa("web", recommendation={"main": {"cpu": "300m"}}, mode="Recreate")
    made["spec"]["resourcePolicy"] = {"containerPolicies": [entry]}
    ranges = NamespaceLimits(container=LimitItem(maximum=amounts({"cpu": "1"})))
    fitted = fit_pod(convert(raw, Pod), convert(made, VerticalPodAutoscaler), ranges, SizeLimits(limit_ratio=True))
    assert str(fitted.containers[0].limits["cpu"]) == "1"
