"""The indexed store: found by key, by namespace, by every index, and gone from all of them."""

from dataclasses import dataclass

import pytest

from kubetide.api.objects.meta import ObjectKey
from kubetide.kube.cache.store import Store


@dataclass(frozen=True)
class Thing:
    node: str = ""
    labels: tuple[str, ...] = ()


def store() -> Store[Thing]:
    return Store({"node": lambda thing: [thing.node] if thing.node else [], "label": lambda thing: thing.labels})


A, B, C = ObjectKey("x", "a"), ObjectKey("x", "b"), ObjectKey("y", "c")


def test_objects_are_found_by_every_index() -> None:
    things = store()
    things.put(A, Thing("n1", ("red", "blue")))
    things.put(B, Thing("n1"))
    things.put(C, Thing("n2", ("red",)))
    assert things.by_index("node", "n1") == [Thing("n1", ("red", "blue")), Thing("n1")]
    assert things.by_index("label", "red") == [Thing("n1", ("red", "blue")), Thing("n2", ("red",))]
    assert things.in_namespace("x") == [Thing("n1", ("red", "blue")), Thing("n1")]
    assert things.by_index("node", "unknown") == []
    assert sorted(things.index_values("node")) == ["n1", "n2"]


def test_a_change_moves_the_object_between_index_values() -> None:
    things = store()
    things.put(A, Thing("n1", ("red",)))
    assert things.put(A, Thing("n2", ("blue",))) == Thing("n1", ("red",))
    assert things.by_index("node", "n1") == []
    assert things.by_index("label", "red") == []
    assert things.by_index("node", "n2") == [Thing("n2", ("blue",))]
    assert things.index_values("node") == ["n2"]


def test_an_object_that_changes_keeps_its_place_under_what_stays_the_same() -> None:
    things = store()
    things.put(A, Thing("n1", ("red", "blue")))
    things.put(B, Thing("n1", ("red",)))
    things.put(A, Thing("n1", ("red", "green")))
    assert (
        things.by_index("node", "n1")
        == things.in_namespace("x")
        == [Thing("n1", ("red", "green")), Thing("n1", ("red",))]
    )
    assert things.by_index("label", "blue") == []
    assert things.by_index("label", "green") == [Thing("n1", ("red", "green"))]


def test_a_removed_object_is_gone_everywhere() -> None:
    things = store()
    things.put(A, Thing("n1", ("red",)))
    assert things.remove(A) == Thing("n1", ("red",))
    assert things.remove(A) is None
    assert len(things) == 0
    assert things.get(A) is None
    assert things.in_namespace("x") == things.by_index("node", "n1") == things.by_index("label", "red") == []


def test_an_index_function_that_fails_leaves_the_store_as_it_was() -> None:
    things: Store[Thing] = Store({"bad": lambda thing: [thing.labels[0]]})
    things.put(A, Thing("n1", ("red",)))
    with pytest.raises(IndexError):
        things.put(A, Thing("n2"))
    assert things.get(A) == Thing("n1", ("red",))
    assert things.by_index("bad", "red") == [Thing("n1", ("red",))]


def test_what_is_read_does_not_change_under_a_writer() -> None:
    things = store()
    things.put(A, Thing("n1"))
    values = things.values()
    things.remove(A)
    assert values == [Thing("n1")]
