from typing import Any

import pytest

from kubetide.api.objects.core import Pod
from kubetide.api.objects.vpa import PodLevelPolicy, VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.errors import InvalidInput
from kubetide.testing.builders import make_container, make_pod, make_vpa
from kubetide.vpa.admission.core.mutate import SizeLimits, fit_pod, pod_level_patch
from kubetide.vpa.core.limits import NamespaceLimits
from kubetide.vpa.core.pod_level import changes_pod_level, declared_policy, pod_policy, whole_pod
from kubetide.vpa.core.policy import amounts, recommendations, texts
from kubetide.vpa.recommender.core.decisions import policy_problem

ON = SizeLimits(pod_level=True)
TWO = {"main": {"cpu": "400m", "memory": "300Mi"}, "helper": {"cpu": "200m", "memory": "100Mi"}}


def vpa(
    policy: dict[str, Any], *, modes: dict[str, str] | None = None, given: dict[str, Any] | None = None
) -> VerticalPodAutoscaler:
    raw = make_vpa("web", mode="Recreate", recommendation=TWO if given is None else given)
    raw["spec"]["resourcePolicy"] = {
        "containerPolicies": [{"containerName": n, "mode": m} for n, m in (modes or {}).items()],
        "podPolicy": policy,
    }
    return convert(raw, VerticalPodAutoscaler)


def pod(level: dict[str, Any] | None = None, **resources: str) -> Pod:
    names = ("main", "helper")
    raw = make_pod("web-1", containers=[make_container(name, cpu="100m", memory="64Mi", **resources) for name in names])
    if level is not None:
        raw["spec"]["resources"] = level
    return convert(raw, Pod)


def new_level(own: Pod, of: VerticalPodAutoscaler) -> tuple[dict[str, str], dict[str, str], str]:
    level = fit_pod(own, of, NamespaceLimits(), ON).pod
    assert level is not None
    return texts(level.new.requests), texts(level.new.limits), level.new.refused


def test_the_pod_requests_what_its_containers_are_recommended_together() -> None:
    assert new_level(pod(), vpa({"mode": "Auto"}))[0] == {"cpu": "600m", "memory": "400Mi"}


def test_a_container_without_a_recommendation_counts_with_its_own_request() -> None:
    one = {"main": TWO["main"]}
    assert new_level(pod(), vpa({"mode": "Auto"}, given=one))[0] == {"cpu": "500m", "memory": "364Mi"}


@pytest.mark.parametrize(
    ("policy", "modes", "requests"),
    [
        pytest.param({"minAllowed": {"cpu": "1"}}, {}, {"cpu": "1", "memory": "400Mi"}, id="raised-to-minAllowed"),
        pytest.param(
            {"maxAllowed": {"cpu": "300m"}}, {}, {"cpu": "600m", "memory": "400Mi"}, id="holds-its-containers"
        ),
        pytest.param(
            {"maxAllowed": {"cpu": "300m"}},
            dict.fromkeys(TWO, "RecommendationOnly"),
            {"cpu": "300m", "memory": "400Mi"},
            id="cut-to-maxAllowed",
        ),
        pytest.param({"controlledResources": ["memory"]}, {}, {"memory": "400Mi"}, id="controlled-alone"),
        pytest.param({"controlledResources": []}, {}, {}, id="nothing-controlled"),
    ],
)
def test_the_policy_bounds_the_pod(policy: dict[str, Any], modes: dict[str, str], requests: dict[str, str]) -> None:
    assert new_level(pod(), vpa({"mode": "Auto", **policy}, modes=modes))[0] == requests


def test_a_container_that_is_only_recommended_for_stays_as_it_is() -> None:
    fitted = fit_pod(pod(), vpa({"mode": "Auto"}, modes={"main": "RecommendationOnly"}), NamespaceLimits(), ON)
    assert [bool(new.requests) for new in fitted.containers] == [False, True]
    assert fitted.adjusted is not None
    assert [one.container for one in fitted.adjusted.recommendations] == ["helper"]


def test_a_pod_level_limit_keeps_its_proportion() -> None:
    level = {"requests": {"cpu": "200m"}, "limits": {"cpu": "400m"}}
    requests, limits, _ = new_level(pod(level), vpa({"mode": "Auto", "controlledResources": ["cpu"]}))
    assert (requests, limits) == ({"cpu": "600m"}, {"cpu": "1200m"})


def test_a_guaranteed_pod_stays_guaranteed() -> None:
    requests, limits, _ = new_level(pod(cpu_limit="100m", memory_limit="64Mi"), vpa({"mode": "Auto"}))
    assert requests == limits == {"cpu": "600m", "memory": "400Mi"}


def test_a_request_above_a_limit_that_stays_changes_nothing() -> None:
    level = {"requests": {"cpu": "200m"}, "limits": {"cpu": "400m"}}
    policy = {"mode": "Auto", "controlledResources": ["cpu"], "controlledValues": "RequestsOnly"}
    assert new_level(pod(level), vpa(policy)) == ({}, {}, "cpu")


def test_without_gate_or_mode_the_pod_level_is_not_looked_at() -> None:
    assert fit_pod(pod(), vpa({"mode": "Auto"}), NamespaceLimits(), SizeLimits()).pod is None
    for policy in ({}, {"mode": "Off"}):
        assert fit_pod(pod(), vpa(policy), NamespaceLimits(), ON).pod is None


def test_the_patch_makes_what_is_missing() -> None:
    own = pod()
    level = fit_pod(own, vpa({"mode": "Auto", "controlledResources": ["cpu"]}), NamespaceLimits(), ON).pod
    assert changes_pod_level(own, level)
    assert pod_level_patch(own, level) == [
        {"op": "add", "path": "/spec/resources", "value": {}},
        {"op": "add", "path": "/spec/resources/requests", "value": {}},
        {"op": "add", "path": "/spec/resources/requests/cpu", "value": "600m"},
    ]
    assert not changes_pod_level(pod({"requests": {"cpu": "600m"}}), level)


def test_a_policy_in_an_annotation_counts_and_an_unreadable_one_is_reported() -> None:
    def noted(text: str) -> VerticalPodAutoscaler:
        raw = make_vpa("web")
        raw["metadata"]["annotations"] = {"kubetide.io/vpa-pod-policy": text}
        return convert(raw, VerticalPodAutoscaler)

    assert pod_policy(noted('{"mode": "Auto"}')) == PodLevelPolicy(mode="Auto")
    for text in ("{", '{"mode": "Auto", "minAllowed": {"cpu": "lots"}}'):
        assert pod_policy(noted(text)) is None
        with pytest.raises(InvalidInput):
            declared_policy(noted(text))
        assert "podPolicy" in (policy_problem(noted(text)) or "")


def test_the_status_shows_the_sum_within_the_policy() -> None:
    given = recommendations(vpa({}).status.recommendation if vpa({}).status else None)  # type: ignore[union-attr]
    assert given is not None
    whole = whole_pod(given, PodLevelPolicy(mode="Auto", max_allowed={"cpu": "500m"}))
    assert whole is not None
    assert whole.target == amounts({"cpu": "500m", "memory": "400Mi"})
    assert whole_pod((), PodLevelPolicy()) is None
