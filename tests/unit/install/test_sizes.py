"""What components request by the size of the cluster."""

from itertools import pairwise

import pytest

from kubetide.api.values.quantity import parse_quantity
from kubetide.install.dashboard import COMPONENT as DASHBOARD
from kubetide.install.dashboard import dashboard_manifests
from kubetide.install.objects import COMPONENTS, component_objects
from kubetide.install.sizes import DEFAULT, MEASURED, PODS, resources


def test_every_component_has_been_measured() -> None:
    assert MEASURED.keys() == {*COMPONENTS, DASHBOARD}


@pytest.mark.parametrize("component", [*COMPONENTS, DASHBOARD])
def test_a_larger_cluster_never_gets_less(component: str) -> None:
    for smaller, larger in pairwise(PODS):
        for name in ("cpu", "memory"):
            less, more = (parse_quantity(resources(component, size)["requests"][name]) for size in (smaller, larger))
            assert less <= more


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("size", PODS)
def test_memory_has_room_above_what_was_measured_and_cpu_is_never_limited(component: str, size: str) -> None:
    found, measured = resources(component, size), MEASURED[component]
    used = measured.memory_mib + measured.memory_mib_per_1000 * PODS[size] / 1000
    request, limit = (float(parse_quantity(found[kind]["memory"])) for kind in ("requests", "limits"))
    assert used * 2**20 < request < limit
    assert "cpu" not in found["limits"]


def test_the_size_reaches_the_pods() -> None:
    for size in PODS:
        (hpa,) = (
            each
            for each in component_objects("hpa", namespace="n", image="i", size=size)
            if each["kind"] == "Deployment"
        )
        (page,) = (
            each for each in dashboard_manifests(namespace="n", image="i", size=size) if each["kind"] == "Deployment"
        )
        for component, made in (("hpa", hpa), (DASHBOARD, page)):
            assert made["spec"]["template"]["spec"]["containers"][0]["resources"] == resources(component, size)
    assert DEFAULT in PODS
