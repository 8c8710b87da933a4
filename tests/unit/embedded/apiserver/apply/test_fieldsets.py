"""Sets of fields: what an object sets, what changed, and who keeps what."""

from hypothesis import given
from hypothesis import strategies as st

from kubetide.embedded.apiserver.apply import fieldsets

CONTAINER = 'k:{"name":"a"}'


def pod(image: str, **more: object) -> dict[str, object]:
    return {"spec": {"containers": [{"name": "a", "image": image}], **more}}


def test_lists_with_a_key_are_taken_apart_and_others_are_one_field() -> None:
    assert fieldsets.of_object({"spec": {"containers": [{"name": "a", "image": "x"}], "args": [1, 2]}}) == {
        "f:spec": {"f:containers": {CONTAINER: {".": {}, "f:name": {}, "f:image": {}}}, "f:args": {}}
    }


def test_what_the_server_owns_is_nobodys() -> None:
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}}}
    assert fieldsets.of_object(obj) == {"f:metadata": {"f:labels": {"f:x": {}}}}


def test_only_what_differs_is_changed() -> None:
    assert fieldsets.changed(pod("x", replicas=1), pod("y", replicas=1)) == {
        "f:spec": {"f:containers": {CONTAINER: {"f:image": {}}}}
    }
    assert fieldsets.changed(pod("x", replicas=1), pod("x")) == {}


def test_removing_fields_takes_elements_that_are_owned_whole() -> None:
    owned = fieldsets.of_object(pod("x"))
    assert fieldsets.remove(pod("x", replicas=1), owned) == {"spec": {"replicas": 1}}


def test_paths_read_like_the_fields_they_name() -> None:
    assert fieldsets.paths({"f:spec": {"f:containers": {CONTAINER: {".": {}, "f:image": {}}}}}) == [
        '.spec.containers["name":"a"].image'
    ]


fields: st.SearchStrategy[dict[str, object]] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(st.sampled_from(["f:a", "f:b", "f:c"]), inner, max_size=3), max_leaves=8
)


@given(fields, fields)
def test_a_difference_has_nothing_in_common_with_what_was_taken_away(
    one: dict[str, object], other: dict[str, object]
) -> None:
    rest = fieldsets.difference(one, other)
    assert all(path not in fieldsets.paths(other) for path in fieldsets.paths(rest))


@given(fields, fields)
def test_a_union_contains_both(one: dict[str, object], other: dict[str, object]) -> None:
    both = fieldsets.union(one, other)
    assert fieldsets.difference(one, both) == {}
    assert fieldsets.difference(other, both) == {}
