"""Small decisions around the numbers: tuning, conflicts, floors, selection, conditions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubetide.api.objects.hpa import HorizontalPodAutoscaler
from kubetide.api.objects.vpa import PodResourcePolicy, VerticalPodAutoscaler
from kubetide.api.values.codec import convert
from kubetide.api.values.conditions import Condition
from kubetide.api.values.quantity import Quantity
from kubetide.errors import SettingsError
from kubetide.vpa.core.policy import Recommended
from kubetide.vpa.recommender.core.aggregate import Tuning
from kubetide.vpa.recommender.core.conflicts import conflicts, index_by_target, message
from kubetide.vpa.recommender.core.decisions import policy_problem, serves, shard
from kubetide.vpa.recommender.core.estimator import Estimation
from kubetide.vpa.recommender.core.oom import Floor, floor_text, raised, read_floor
from kubetide.vpa.recommender.core.recommend import humanized
from kubetide.vpa.recommender.core.status import change, conditions_after, recommendation_body
from kubetide.vpa.recommender.core.tuning import Tuned, tuned
from kubetide.vpa.recommender.settings import RecommenderSettings, prometheus_duration

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
WEEK = timedelta(days=7)


def vpa(**spec: Any) -> VerticalPodAutoscaler:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    raw = {"metadata": {"namespace": "shop", "name": "web"}, "spec": {"targetRef": target, **spec}}
    return convert(raw, VerticalPodAutoscaler)


def asked(annotations: dict[str, str] | None = None, policy: Any = None, **switches: bool) -> Tuned:
    return tuned(
        None if policy is None else convert(policy, PodResourcePolicy),
        annotations or {},
        tuning=Tuning(),
        estimation=Estimation(),
        policies=switches.get("policies", True),
        by_annotation=switches.get("by_annotation", True),
    )


def test_a_vpa_may_tune_itself_by_annotation() -> None:
    found = asked(
        {
            "kubetide.io/target-cpu-percentile": "0.99",
            "kubetide.io/margin-fraction": "0.3",
            "kubetide.io/cpu-half-life": "12h",
            "kubetide.io/oom-bump-up-ratio": "1.5",
            "kubetide.io/oom-min-bump-up": "200Mi",
            "other.io/target-cpu-percentile": "7",
        }
    )
    assert found.estimations == {"*": Estimation(target_cpu=0.99, margin=0.3)}
    assert found.tunings["*"] == Tuning(cpu_half_life=timedelta(hours=12), oom_ratio=1.5, oom_min_bytes=200.0 * 2**20)
    assert found.problems == ()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("target-cpu-percentile", "1.5"),
        ("target-memory-percentile", "many"),
        ("margin-fraction", "-1"),
        ("cpu-half-life", "1s"),
        ("memory-half-life", "soon"),
        ("oom-bump-up-ratio", "0.5"),
        ("oom-min-bump-up", "lots"),
    ],
)
def test_an_annotation_that_cannot_be_used_is_named_and_left_out(key: str, text: str) -> None:
    found = asked({f"kubetide.io/{key}": text})
    assert found.estimations == {}
    assert found.tunings == {}
    assert key in found.problems[0]


def test_nothing_is_tuned_unless_it_is_switched_on() -> None:
    policy = {"containerPolicies": [{"containerName": "app", "oomBumpUpRatio": "2"}]}
    off = asked({"kubetide.io/margin-fraction": "0.3"}, policy, policies=False, by_annotation=False)
    assert off == Tuned({}, {}, ())
    on = asked({}, policy)
    assert on.tunings["app"].oom_ratio == 2.0


def test_a_container_policy_may_set_percentiles_of_its_own() -> None:
    percentiles = {"targetCPU": 99, "lowerBoundMemory": 60, "upperBoundCPU": 100}
    policy = {
        "containerPolicies": [
            {"containerName": "app", "recommendationPercentiles": percentiles},
            {"containerName": "proxy", "recommendationPercentiles": {"targetMemory": 0}},
        ]
    }
    found = asked({"kubetide.io/margin-fraction": "0.3"}, policy)
    base = Estimation(margin=0.3)
    assert found.estimations == {
        "*": base,
        "app": Estimation(margin=0.3, target_cpu=0.99, lower_memory=0.6, upper_cpu=1.0),
        "proxy": base,
    }
    assert found.problems == ("container policy proxy: recommendationPercentiles: 0 must lie between 1 and 100",)
    assert asked({}, policy, policies=False).estimations == {}


@pytest.mark.parametrize(
    ("percentiles", "problems"),
    [
        pytest.param({"targetCPU": 95, "lowerBoundMemory": 90}, (), id="at-the-bounds"),
        pytest.param({"targetCPU": 99}, ("targetCPU 99 lies outside the bounds (50 to 95)",), id="above-the-flags"),
        pytest.param({"targetCPU": 99, "upperBoundCPU": 100}, (), id="bounds-of-its-own"),
        pytest.param(
            {"lowerBoundMemory": 92, "targetCPU": 10},
            ("targetCPU 10 lies outside the bounds (50 to 95)", "targetMemory 90 lies outside the bounds (92 to 95)"),
            id="both-below",
        ),
    ],
)
def test_a_target_outside_its_bounds_is_reported_and_used(
    percentiles: dict[str, int], problems: tuple[str, ...]
) -> None:
    policy = {"containerPolicies": [{"containerName": "app", "recommendationPercentiles": percentiles}]}
    found = asked({}, policy)
    told = tuple(f"container policy app: recommendationPercentiles: {text}; used" for text in problems)
    assert found.problems == told
    assert found.estimations["app"].target_cpu == percentiles.get("targetCPU", 90) / 100


def test_an_hpa_on_the_same_resource_is_found_by_its_target() -> None:
    def hpa(name: str, kind: str, *resources: str) -> HorizontalPodAutoscaler:
        metrics = [{"type": "Resource", "resource": {"name": resource}} for resource in resources]
        target = {"apiVersion": "apps/v1", "kind": kind, "name": "web"}
        spec = {"scaleTargetRef": target, "maxReplicas": 3, "metrics": metrics}
        return convert({"metadata": {"namespace": "shop", "name": name}, "spec": spec}, HorizontalPodAutoscaler)

    index = index_by_target([hpa("a", "Deployment", "cpu"), hpa("b", "StatefulSet", "memory")])
    found = conflicts("shop", vpa().spec.target_ref, index)
    assert found == {"cpu": "a"}
    assert conflicts("other", vpa().spec.target_ref, index) == {}
    assert conflicts("shop", None, index) == {}
    assert "left alone" in message(found, avoided=True)
    assert "left alone" not in message(found, avoided=False)
    assert conflicts("shop", vpa().spec.target_ref, index_by_target([hpa("plain", "Deployment")])) == {"cpu": "plain"}


def test_a_floor_halves_every_week_and_a_new_kill_raises_it() -> None:
    floor = raised(None, 800.0, at=NOW, half_life=WEEK)
    assert floor.now(NOW + WEEK, WEEK) == 400.0
    assert raised(floor, 300.0, at=NOW + WEEK, half_life=WEEK).memory_bytes == 400.0
    assert raised(floor, 900.0, at=NOW + WEEK, half_life=WEEK).memory_bytes == 900.0
    assert read_floor(floor_text(floor)) == floor


@pytest.mark.parametrize("text", ["", "x@y", "5", "5@2026-01-01T00:00:00", "-5@2026-01-01T00:00:00+00:00"])
def test_a_floor_that_cannot_be_read_is_none(text: str) -> None:
    assert read_floor(text) is None


def test_a_floor_in_the_future_does_not_grow() -> None:
    assert Floor(100.0, NOW + WEEK).now(NOW, WEEK) == 100.0


@pytest.mark.parametrize(
    ("name", "recommenders", "mine"),
    [
        pytest.param("default", None, True, id="none-named-is-the-default"),
        pytest.param("default", [], True, id="empty-is-the-default"),
        pytest.param("default", [{"name": "default"}], True, id="named"),
        pytest.param("default", [{"name": "other"}], False, id="another"),
        pytest.param("other", None, False, id="others-need-to-be-named"),
        pytest.param("other", [{"name": "other"}], True, id="other-named"),
    ],
)
def test_each_recommender_serves_those_that_name_it(name: str, recommenders: Any, mine: bool) -> None:
    assert serves(RecommenderSettings(recommender_name=name), vpa(recommenders=recommenders)) == mine


def test_namespaces_and_shards_narrow_what_is_served() -> None:
    assert not serves(RecommenderSettings(ignored_vpa_object_namespaces=("shop",)), vpa())
    assert not serves(RecommenderSettings(vpa_object_namespace="other"), vpa())
    served = [serves(RecommenderSettings(shard=f"{i}/3"), vpa()) for i in range(3)]
    assert sum(served) == 1
    assert {shard("ns", f"vpa-{i}", 4) for i in range(50)} == {0, 1, 2, 3}
    assert RecommenderSettings(shard="1/3").lease_name == "vpa-recommender-lease-1-of-3"


@pytest.mark.parametrize(
    "settings",
    [
        RecommenderSettings(vpa_object_namespace="a", ignored_vpa_object_namespaces=("b",)),
        RecommenderSettings(shard="3/3"),
        RecommenderSettings(interval=timedelta(0)),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: RecommenderSettings) -> None:
    with pytest.raises(SettingsError):
        settings.checked()


def test_prometheus_durations() -> None:
    assert prometheus_duration("8d") == timedelta(days=8)
    assert prometheus_duration("1h30m") == timedelta(minutes=90)


def test_the_entry_of_a_container_is_never_mixed_with_the_one_for_all() -> None:
    entries = [
        {"containerName": "app"},
        {"containerName": "app", "oomBumpUpRatio": "9"},
        {"containerName": "*", "oomBumpUpRatio": "3"},
        {"containerName": "*", "oomBumpUpRatio": "2"},
        {"containerName": "bad", "oomBumpUpRatio": "much"},
    ]
    found = asked(policy={"containerPolicies": entries})
    assert {name: one.oom_ratio for name, one in found.tunings.items()} == {"*": 2.0, "app": 1.2, "bad": 1.2}
    assert len(found.problems) == 1
    assert asked(policy={"containerPolicies": entries[:1]}).tunings == {}


def test_transition_times_survive_what_does_not_flip_the_status() -> None:
    early = NOW - timedelta(days=1)
    old = conditions_after((), provided=False, pods=0, problem="first", now=early)
    new = conditions_after(old, provided=False, pods=0, problem="second", now=NOW)
    assert [c.type for c in new] == ["ConfigUnsupported", "NoPodsMatched", "RecommendationProvided"]
    assert {c.last_transition_time for c in new} == {early}
    assert new[0].message == "second"
    assert new[2].reason == "NoPodsMatched"
    fine = conditions_after(new, provided=True, pods=1, problem=None, now=NOW)
    assert [(c.type, c.status, c.reason, c.last_transition_time) for c in fine] == [
        ("RecommendationProvided", "True", "", NOW)
    ]


def test_foreign_conditions_stay_and_deprecated_ones_go() -> None:
    found = conditions_after(
        (Condition(type="UpdatesPaused", status="True"), Condition(type="ConfigDeprecated", status="True")),
        provided=True,
        pods=1,
        problem=None,
        now=NOW,
    )
    assert [c.type for c in found] == ["RecommendationProvided", "UpdatesPaused"]


def test_a_status_is_the_same_when_its_amounts_are() -> None:
    one = Recommended(container="app", target={"memory": Quantity.of(250 * 2**20, binary=True)}, lower={}, upper={})
    body = recommendation_body([one])
    assert body["containerRecommendations"][0]["target"] == {"memory": "250Mi"}
    stored = vpa().status
    assert change(stored, [one], (), 0) == {"recommendation": body, "conditions": []}
    raw: Any = {
        "recommendation": {"containerRecommendations": [{"containerName": "app", "target": {"memory": "262144k"}}]}
    }
    with_status = convert({"metadata": {}, "spec": {}, "status": raw}, VerticalPodAutoscaler).status
    assert change(with_status, [one], (), 0) is None
    assert change(with_status, [one], (), 4) == {"recommendation": body, "conditions": [], "observedGeneration": 4}
    raw["recommendation"]["containerRecommendations"][0]["target"] = {"memory": "lots"}
    unreadable = convert({"metadata": {}, "spec": {}, "status": raw}, VerticalPodAutoscaler).status
    assert change(unreadable, [one], (), 0) is not None
    assert recommendation_body([]) == {}


def test_a_policy_with_a_bad_amount_is_named() -> None:
    bad = vpa(resourcePolicy={"containerPolicies": [{"containerName": "*", "maxAllowed": {"cpu": "lots"}}]})
    assert "containerPolicies[0].maxAllowed" in (policy_problem(bad) or "")
    assert policy_problem(vpa()) is None


@pytest.mark.parametrize(
    ("amount", "text"),
    [(5, "5"), (1536, "1.50Ki"), (250 * 2**20, "250.00Mi"), (3 * 2**30 // 2, "1.50Gi"), (2**41, "2.00Ti")],
)
def test_memory_for_people(amount: int, text: str) -> None:
    assert humanized(amount) == text
