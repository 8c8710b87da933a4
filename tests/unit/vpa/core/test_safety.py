"""Memory that is in use, and pods that must fit a node."""

import pytest

from kubetide.api.values.quantity import parse_quantity
from kubetide.vpa.core.policy import amounts, texts
from kubetide.vpa.core.safety import fit, fits_somewhere, hold_memory, largest, memory_floor

MIB = 2**20


@pytest.mark.parametrize(
    ("target", "request_", "used", "expected"),
    [
        pytest.param("2Gi", "1Gi", 900 * MIB, "2Gi", id="growing-is-free"),
        pytest.param("500Mi", "1Gi", 100 * MIB, "500Mi", id="far-above-the-usage"),
        pytest.param("300Mi", "1Gi", 500 * MIB, "600Mi", id="raised-to-usage-plus-a-fifth"),
        pytest.param("300Mi", "1Gi", 1000 * MIB, "1Gi", id="not-shrunk-at-all"),
        pytest.param("300Mi", "1Gi", None, "1Gi", id="unknown-usage"),
        pytest.param("300Mi", None, 500 * MIB, "300Mi", id="nothing-to-take-away"),
    ],
)
def test_memory_in_use_is_not_taken_away(target: str, request_: str | None, used: int | None, expected: str) -> None:
    request = parse_quantity(request_) if request_ is not None else None
    kept, why = hold_memory(parse_quantity(target), request, used)
    assert kept == parse_quantity(expected)
    assert bool(why) is (kept != parse_quantity(target))


def test_the_floor_is_rounded_up_to_a_byte() -> None:
    assert memory_floor(1).value == 2
    assert memory_floor(10).value == 12


NODES = (amounts({"cpu": "4", "memory": "8Gi"}), amounts({"cpu": "8", "memory": "4Gi"}))


def test_a_pod_fits_when_one_node_has_room_for_all_of_it() -> None:
    assert fits_somewhere(amounts({"cpu": "8", "memory": "4Gi"}), NODES)
    assert not fits_somewhere(amounts({"cpu": "8", "memory": "8Gi"}), NODES)
    assert fits_somewhere(amounts({"cpu": "800"}), ())


def test_what_fits_is_left_as_it_is() -> None:
    wanted = {"a": amounts({"cpu": "2"}), "b": amounts({"cpu": "2"})}
    assert fit(wanted, {}, {}, NODES) == (wanted, frozenset())


def test_containers_share_the_room_of_the_best_node() -> None:
    wanted = {"a": amounts({"cpu": "12"}), "b": amounts({"cpu": "4"})}
    fitted, scaled = fit(wanted, {}, {}, NODES)
    assert {name: texts(one) for name, one in fitted.items()} == {"a": {"cpu": "6"}, "b": {"cpu": "2"}}
    assert scaled == {"cpu"}


def test_what_the_pod_asks_for_besides_counts_too() -> None:
    fitted, _ = fit({"a": amounts({"cpu": "12"})}, {}, amounts({"cpu": "1"}), NODES)
    assert texts(fitted["a"]) == {"cpu": "7"}


def test_nothing_falls_below_what_it_is_today() -> None:
    fitted, _ = fit({"a": amounts({"cpu": "20"})}, {"a": amounts({"cpu": "10"})}, {}, NODES)
    assert texts(fitted["a"]) == {"cpu": "10"}


def test_only_nodes_that_no_other_beats_are_looked_at() -> None:
    small = amounts({"cpu": "1", "memory": "1Gi"})
    assert largest([small, *NODES, small]) == NODES
    assert largest([]) == ()
