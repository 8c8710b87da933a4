"""The recommender's own numbers: names, labels, and which samples are judged."""

from datetime import UTC, datetime, timedelta

import numpy as np

from kubetide.api.objects.core import Pod
from kubetide.api.objects.meta import ObjectKey
from kubetide.api.values.codec import convert
from kubetide.api.values.quantity import Quantity
from kubetide.api.values.selectors import parse_selector
from kubetide.telemetry import Telemetry
from kubetide.vpa.core.policy import CPU, MEMORY, Recommended
from kubetide.vpa.recommender.core.entities import VpaState
from kubetide.vpa.recommender.core.model import Model
from kubetide.vpa.recommender.core.usage.feeding import PodFeed
from kubetide.vpa.recommender.telemetry import RecommenderTelemetry, Review

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def recommended(cpu: str, memory: str) -> tuple[Recommended, ...]:
    amounts = {CPU: Quantity.parse(cpu), MEMORY: Quantity.parse(memory)}
    return (Recommended(container="main", target=amounts, uncapped=amounts),)


def model_with(*vpas: VpaState) -> tuple[Model, int]:
    model = Model()
    for vpa in vpas:
        model.set_vpa(vpa, keep_history=False)
    model.set_pod(ObjectKey("shop", "a"), {"app": "web"}, "Running", now=NOW)
    row = model.set_container(ObjectKey("shop", "a"), "main", now=NOW)
    return model, int(model.containers.aggregate[row])


def vpa(name: str, *, mode: str = "Recreate", age: int = 0) -> VpaState:
    created = NOW - timedelta(days=age)
    return VpaState(ObjectKey("shop", name), parse_selector("app=web"), created=created, mode=mode)


def judged(telemetry: Telemetry, made: RecommenderTelemetry, slot: int, cores: float) -> str:
    made.quality.judge(CPU, np.array([slot]), np.array([cores]))
    return telemetry.render().decode()


def test_every_state_of_a_vpa_is_shown_even_if_none_is_in_it() -> None:
    telemetry = Telemetry()
    made, review = RecommenderTelemetry(telemetry), Review()
    state = vpa("web")
    state.recommendation = recommended("1", "1Gi")
    review.count(state, unsupported=False)
    review.show(made)
    lines = [line for line in telemetry.render().decode().splitlines() if line.startswith("vpa_recommender_vpa_obj")]
    assert len(lines) == 6 * 2 * 2 * 2
    (line,) = [line for line in lines if not line.endswith(" 0.0")]
    assert 'has_recommendation="true",matches_pods="false",unsupported_config="false",update_mode="Recreate"' in line


def test_samples_without_a_recommendation_are_counted_under_the_upstream_name() -> None:
    telemetry = Telemetry()
    made, review = RecommenderTelemetry(telemetry), Review()
    state = vpa("web")
    _, slot = model_with(state)
    review.hold(state)
    review.show(made)
    labels = 'is_oom="false",resource="cpu",update_mode="Recreate"'
    text = judged(telemetry, made, slot, 0.5)
    assert f"vpa_quality_usage_sample_missing_recommendation_count{{{labels}}} 1.0" in text
    assert 'vpa_quality_cpu_recommendation_lower_equal_usage_diffs_cores_count{recommendation_missing="true"' in text


def test_the_oldest_vpa_is_held_against_samples_and_a_deleted_one_is_not() -> None:
    telemetry = Telemetry()
    made = RecommenderTelemetry(telemetry)
    old, young = vpa("old", age=3), vpa("young", age=1, mode="Initial")
    old.recommendation, young.recommendation = recommended("2", "1Gi"), recommended("8", "1Gi")
    model, slot = model_with(young, old)
    review = Review()
    for state in (old, young):
        review.hold(state)
    review.show(made)
    text = judged(telemetry, made, slot, 1.0)
    assert 'vpa_quality_cpu_recommendations_cores_sum{update_mode="Recreate"} 2.0' in text
    assert 'update_mode="Initial"} 8.0' not in text
    for state in (old, young):
        model.delete_vpa(state.key)
    Review().show(made)
    assert judged(telemetry, made, slot, 1.0) == telemetry.render().decode()
    assert 'vpa_quality_cpu_recommendations_cores_sum{update_mode="Recreate"} 2.0' in telemetry.render().decode()


def test_an_aggregate_that_was_collected_is_judged_no_longer() -> None:
    telemetry = Telemetry()
    made, review = RecommenderTelemetry(telemetry), Review()
    state = vpa("web")
    state.recommendation = recommended("2", "1Gi")
    _, slot = model_with(state)
    review.hold(state)
    review.show(made)
    made.quality.release([slot, slot + 100_000])
    assert "recommendations_cores_sum" not in judged(telemetry, made, slot, 1.0)


def test_moves_of_uncapped_targets_are_counted_by_mode_and_size() -> None:
    telemetry = Telemetry()
    made, review = RecommenderTelemetry(telemetry), Review()
    state = vpa("web")
    state.pod_count = 9
    review.moved(state, recommended("2", "1Gi"), recommended("3", "1Gi"))
    review.moved(state, None, recommended("3", "1Gi"))
    review.show(made)
    text = telemetry.render().decode()
    labels = 'resource="cpu",update_mode="Recreate",vpa_size_log2="3"'
    assert f"vpa_quality_relative_recommendation_changes_sum{{{labels}}} 0.5" in text
    assert f"vpa_quality_relative_recommendation_changes_count{{{labels}}} 1.0" in text


def test_where_requests_are_found_is_counted_for_pods_that_changed() -> None:
    def pod(name: str, resources: object) -> Pod:
        raw = {
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"containers": [{"name": "main"}, {"name": "proxy"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "main", "resources": resources}]},
        }
        return convert(raw, Pod)

    pods_feed, model = PodFeed(), Model()
    pods = [pod("a", {"requests": {"cpu": "1"}}), pod("b", None)]
    pods_feed.sync(model, pods, now=NOW)
    assert pods_feed.take_sources() == {"container_status": 1, "pod_spec_container": 3}
    pods_feed.sync(model, pods, now=NOW)
    assert pods_feed.take_sources() == {}
    telemetry = Telemetry()
    RecommenderTelemetry(telemetry).reads.labels("container_status").inc()
    assert 'vpa_resources_get_resources_count{source="container_status"} 1.0' in telemetry.render().decode()
