"""Nothing uses more than its node has."""

import pytest
from msgspec.structs import replace

from kubetide.api.objects.capacity import UNKNOWN, Capacity, capacity_of
from kubetide.api.objects.core import Pod
from kubetide.hpa.core.samples import without_impossible
from kubetide.hpa.slim import slim_pod
from unit.hpa.worlds import pod, reading

CLUSTER = Capacity({"small": {"cpu": 2_000}, "large": {"cpu": 8_000}, "mute": {}})


def on(node: str) -> Pod:
    found = pod("web-0")
    return replace(found, spec=replace(found.spec, node_name=node))


@pytest.mark.parametrize(
    ("node", "used", "capacity", "kept"),
    [
        pytest.param("small", 2_000, CLUSTER, True, id="all-of-its-node"),
        pytest.param("small", 2_001, CLUSTER, False, id="more-than-its-node"),
        pytest.param("large", 2_001, CLUSTER, True, id="a-larger-node"),
        pytest.param("", 8_000, CLUSTER, True, id="no-node-and-as-much-as-the-largest"),
        pytest.param("", 8_001, CLUSTER, False, id="no-node-and-more-than-the-largest"),
        pytest.param("gone", 8_001, CLUSTER, False, id="a-node-that-is-not-known"),
        pytest.param("mute", 10**15, CLUSTER, True, id="a-node-that-tells-nothing"),
        pytest.param("small", 10**15, UNKNOWN, True, id="nothing-is-known"),
    ],
)
def test_a_sample_is_bound_by_the_node_of_its_pod(node: str, used: int, capacity: Capacity, kept: bool) -> None:
    found = without_impossible(reading(used), "cpu", [slim_pod(on(node))], capacity)
    assert (list(found.samples), list(found.refused)) == ((["web-0"], []) if kept else ([], ["web-0"]))


def test_a_sample_of_a_pod_that_is_not_known_is_bound_by_the_largest_node() -> None:
    assert list(without_impossible(reading(8_001), "cpu", [], CLUSTER).refused) == ["web-0"]
    assert without_impossible(reading(8_001), "memory", [], CLUSTER).refused == {}


def test_what_a_node_says_badly_binds_nothing() -> None:
    assert capacity_of({"cpu": "4", "memory": "lots", "pods": "0"}) == {"cpu": 4_000}
    assert capacity_of(None) == {}
