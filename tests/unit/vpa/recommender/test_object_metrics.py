"""Statuses of VPAs as metrics."""

from typing import Any

import pytest

from kubetide.api.objects.vpa import VerticalPodAutoscaler
from kubetide.api.values.codec import decode, encode
from kubetide.telemetry import Telemetry
from kubetide.testing.builders import make_vpa
from kubetide.vpa.recommender.object_metrics import VpaObjectMetrics


def read(raw: dict[str, Any]) -> VerticalPodAutoscaler:
    return decode(encode(raw), VerticalPodAutoscaler)


def shown(*vpas: dict[str, Any], by_name: bool = False) -> Telemetry:
    telemetry = Telemetry()
    telemetry.register(VpaObjectMetrics(lambda: map(read, vpas), by_name=by_name))
    return telemetry


def value(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(name, labels)


def uncapped(**amounts: str) -> dict[str, Any]:
    vpa = make_vpa(recommendation={"web": {"cpu": "100m", "memory": "128Mi"}})
    vpa["status"]["recommendation"]["containerRecommendations"][0]["uncappedTarget"] = amounts
    return vpa


@pytest.mark.parametrize(
    ("vpa", "expected"),
    [
        pytest.param(make_vpa(), 0, id="no-status"),
        pytest.param(uncapped(cpu="0.1", memory="128Mi"), 0, id="the-same-amount-in-other-words"),
        pytest.param(uncapped(cpu="300m", memory="128Mi"), 1, id="held-below-its-need"),
        pytest.param(uncapped(cpu="10m", memory="128Mi"), 1, id="held-above-its-need"),
        pytest.param(uncapped(cpu="100m"), 0, id="an-absent-amount-is-unknown"),
    ],
)
def test_a_vpa_counts_as_capped_when_a_target_is_not_what_usage_asks_for(vpa: dict[str, Any], expected: int) -> None:
    assert value(shown(vpa), "kubetide_recommender_capped_vpas") == expected


def test_a_vpa_counts_as_conflicting_while_its_condition_says_so() -> None:
    fought, won = make_vpa("fought"), make_vpa("won")
    fought["status"] = {"conditions": [{"type": "HPAConflict", "status": "True"}]}
    won["status"] = {"conditions": [{"type": "HPAConflict", "status": "False"}]}
    assert value(shown(fought, won, make_vpa()), "kubetide_recommender_conflicting_vpas") == 1


def test_recommendations_have_the_names_of_kube_state_metrics_on_request() -> None:
    vpa = make_vpa("size", "shop", recommendation={"web": {"cpu": "100m", "memory": "1Ki"}})
    target = {"target_api_version": "apps/v1", "target_kind": "Deployment", "target_name": "web"}
    whose = {"namespace": "shop", "verticalpodautoscaler": "size", **target}
    name = "kube_verticalpodautoscaler_status_recommendation_containerrecommendations"
    telemetry = shown(vpa, by_name=True)
    for field in ("target", "lowerbound", "upperbound", "uncappedtarget"):
        cpu = value(telemetry, f"{name}_{field}", **whose, container="web", resource="cpu", unit="core")
        memory = value(telemetry, f"{name}_{field}", **whose, container="web", resource="memory", unit="byte")
        assert (cpu, memory) == (0.1, 1024)
    assert value(telemetry, "kube_verticalpodautoscaler_spec_updatepolicy_updatemode", **whose, update_mode="Auto") == 1
    assert b"kube_verticalpodautoscaler" not in shown(vpa).render()
