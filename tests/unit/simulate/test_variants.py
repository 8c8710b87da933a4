"""Policies of a simulation: what they change, and what is refused."""

from typing import Any

import pytest

from kubetide.embedded.sim.load.scenario import Scenario, ScenarioWorkload
from kubetide.errors import InvalidInput
from kubetide.simulate.variants import Variant, applied, read_variants


def hpa(name: str, target: str, most: int = 5) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": target}, "maxReplicas": most},
    }


SCENARIO = Scenario(
    workloads=[
        ScenarioWorkload(name="cart", namespace="shop", requests={"cpu": "100m", "memory": "1Gi"}),
        ScenarioWorkload(name="web", namespace="shop"),
    ],
    objects=[hpa("cart", "cart"), hpa("web", "web")],
)


def test_an_autoscaler_replaces_the_one_of_its_name_or_target() -> None:
    found = applied(SCENARIO, Variant(name="v", objects=[hpa("better", "cart", 50)]))
    assert [each["metadata"]["name"] for each in found.objects] == ["web", "better"]
    found = applied(SCENARIO, Variant(name="v", objects=[hpa("cart", "cart", 50)]))
    assert [each["spec"]["maxReplicas"] for each in found.objects] == [5, 50]


def test_objects_go_and_requests_are_merged() -> None:
    variant = Variant(name="v", remove=["HorizontalPodAutoscaler/shop/web"], requests={"shop/cart": {"cpu": "200m"}})
    found = applied(SCENARIO, variant)
    assert [each["metadata"]["name"] for each in found.objects] == ["cart"]
    assert found.workloads[0].requests == {"cpu": "200m", "memory": "1Gi"}
    assert found.workloads[1] == SCENARIO.workloads[1]


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        (Variant(name="v", remove=["HorizontalPodAutoscaler/shop/x"]), "has no HorizontalPodAutoscaler/shop/x"),
        (Variant(name="v", requests={"shop/x": {}}), "has no workload shop/x"),
        (
            Variant(
                name="v",
                objects=[
                    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}
                ],
            ),
            "is a workload of the scenario",
        ),
    ],
)
def test_what_the_scenario_does_not_have_is_refused(variant: Variant, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        applied(SCENARIO, variant)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Expected `object`"),
        ({"policies": []}, "is empty"),
        ({"policies": [{"name": "a"}, {"name": "a"}]}, "'a' must be there once"),
        ({"policies": [{"name": "a", "controllers": ["hpq"]}]}, "'hpq' is none of hpa"),
        ({"policies": [{"name": "a", "objects": [{"kind": "X"}]}]}, "needs apiVersion"),
        ({"policies": [{"name": "a", "replicas": 3}]}, "unknown field `replicas`"),
    ],
)
def test_mistakes_in_a_file_are_named(content: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_variants(content, "p.yaml", ("hpa",))
