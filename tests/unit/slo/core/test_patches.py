"""Batch resources in zones, and how zone lists compare."""

from typing import Any

import pytest

from kubetide.api.values.quantity import parse_quantity
from kubetide.slo.core.patches import update_zones

CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


def resource(name: str, capacity: str, allocatable: str | None = None, available: str | None = None) -> dict[str, str]:
    return {
        "name": name,
        "capacity": capacity,
        "allocatable": allocatable or capacity,
        "available": available or capacity,
    }


def zone(*resources: dict[str, str], name: str = "node-0", kind: str = "Node") -> dict[str, Any]:
    return {"name": name, "type": kind, "resources": list(resources)}


def update(
    found: dict[str, Any], threshold: float = 0.1, ratio: str = "", **values: str
) -> tuple[dict[str, str], bool]:
    """Return `capacity/allocatable/available` by resource, in order, and whether anything changed."""
    names = {"cpu": CPU, "memory": MEMORY}
    wanted = {"node-0": {names[key]: parse_quantity(text) for key, text in values.items()}} if values else {}
    annotations = {"node.koordinator.sh/cpu-normalization-ratio": ratio} if ratio else {}
    (result,), changed = update_zones([found], wanted, annotations, threshold)
    parts = ("capacity", "allocatable", "available")
    return {one["name"]: "/".join(one[part] for part in parts) for one in result["resources"]}, changed


def test_missing_resources_are_added_in_the_order_of_names() -> None:
    shown, changed = update(zone(resource("zzz", "1"), resource("cpu", "8")), cpu="100", memory="5")
    assert list(shown) == ["cpu", CPU, MEMORY, "zzz"]
    assert (shown[CPU], changed) == ("100/100/100", True)


def test_each_value_changes_only_if_it_moved_enough() -> None:
    found = zone(resource(CPU, "100", "110", "0"), resource(MEMORY, "5"))
    assert update(found, cpu="110", memory="5") == ({CPU: "100/110/110", MEMORY: "5/5/5"}, True)
    same = zone(resource(CPU, "100"), resource(MEMORY, "5"))
    assert update(same, cpu="110", memory="5") == ({CPU: "100/100/100", MEMORY: "5/5/5"}, False)


@pytest.mark.parametrize(("ratio", "cpu"), [("1.20", "120"), ("0.50", "100"), ("bad", "100"), ("", "100")])
def test_a_ratio_above_one_enlarges_cpu_alone(ratio: str, cpu: str) -> None:
    shown, _ = update(zone(), ratio=ratio, cpu="100", memory="100")
    assert shown == {CPU: f"{cpu}/{cpu}/{cpu}", MEMORY: "100/100/100"}


def test_a_zone_without_new_values_overcommits_nothing() -> None:
    shown, changed = update(zone(resource(CPU, "100"), resource(MEMORY, "5")))
    assert (shown, changed) == ({CPU: "0/0/0", MEMORY: "0/0/0"}, True)
